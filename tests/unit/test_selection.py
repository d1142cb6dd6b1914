"""The family of kernels is chosen by rows left out: the score is what scikit-learn says, and the choice is right."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

import gigagp
from gigagp import HGPRegressor
from gigagp.data.store import ExpertStore
from gigagp.engines import SerialEngine
from gigagp.kernels import Matern32, Matern52, SquaredExponential
from gigagp.partition.base import Groups, Runs
from gigagp.selection import score_left_out

FAMILIES = [SquaredExponential, Matern52, Matern32]


def draw(kernel, rows=1500, noise=0.02, seed=0):
    """A function drawn from a process, at random places."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (rows, 2))
    K = kernel(X) + 1e-10 * np.eye(rows)
    return X, np.linalg.cholesky(K) @ rng.standard_normal(rows) + noise * rng.standard_normal(rows)


@pytest.mark.parametrize(("family", "theirs"), [(SquaredExponential, RBF), (Matern32, lambda s: Matern(s, nu=1.5))])
def test_the_score_is_that_of_refitting_without_each_row(family, theirs):
    rng = np.random.default_rng(1)
    X, y = rng.uniform(-2, 2, (30, 2)), rng.standard_normal(30)
    cells, experts = Runs(np.array([0, 12, 30])), Groups.of([np.arange(20), np.arange(8, 30)])
    theta = np.log([1.3, 0.7, 1.1, 0.2])
    got = score_left_out(
        family(1.0, [1.0, 1.0]), theta, ExpertStore(X, y), cells, experts, np.array([1, 0]), SerialEngine()
    )
    kernel = ConstantKernel(1.3) * theirs([0.7, 1.1]) + WhiteKernel(0.2)
    z, log_variance = [], []
    for leaf in (0, 1):
        for row in cells[leaf]:
            others = experts[leaf][experts[leaf] != row]
            gp = GaussianProcessRegressor(kernel, optimizer=None, alpha=0.0).fit(X[others], y[others])
            mean, std = gp.predict(X[[row]], return_std=True)
            z.append((y[row] - mean[0]) / std[0])
            log_variance.append(2 * np.log(std[0]))
    scale = np.mean(np.square(z))
    wanted = np.mean(0.5 * np.square(z) / scale + 0.5 * (np.array(log_variance) + np.log(scale)))
    assert got == pytest.approx(wanted - 0.5, abs=1e-9)


@pytest.mark.parametrize(
    ("kernel", "allowed"),
    [(RBF(1.0), {"SquaredExponential"}), (Matern(1.5, nu=1.5), {"Matern32"}), (Matern(1.5, nu=0.5), {"Matern32"})],
)
def test_smooth_and_rough_functions_are_told_apart(kernel, allowed):
    model = HGPRegressor(random_state=0).fit(*draw(kernel))
    assert {c.name for c in model.report_.choices} == {family.__name__ for family in FAMILIES}
    (chosen,) = [c for c in model.report_.choices if c.chosen]
    assert chosen.name in allowed
    assert chosen.score == min(c.score for c in model.report_.choices)
    assert type(model.kernel_).__name__ == chosen.name
    assert f"{chosen.name} {chosen.score:.4f} (chosen)" in repr(model.report_)


def test_what_the_user_gives_is_taken(wave):
    for kernel in (SquaredExponential(), Matern52()):
        model = HGPRegressor(kernel, random_state=0).fit(*wave)
        assert type(model.kernel_) is type(kernel)
        assert model.report_.choices == ()
    for partition in ("random", "stratified"):
        model = HGPRegressor(partition=partition, leaf_size=100, random_state=0).fit(*wave)
        assert type(model.kernel_) is SquaredExponential
        assert model.report_.choices == ()


def test_few_rows_are_not_enough_to_choose(wave):
    X, y = wave
    model = HGPRegressor(random_state=0).fit(X[:60], y[:60])
    assert type(model.kernel_) is SquaredExponential
    assert model.report_.choices == ()


def test_the_choice_is_the_same_on_every_engine_and_kept_with_the_model(tmp_path):
    X, y = draw(Matern(1.5, nu=1.5), 700)
    models = [HGPRegressor(leaf_size=60, engine=e, random_state=0).fit(X, y) for e in ("serial", "threads")]
    assert models[0].report_.choices == models[1].report_.choices
    models[0].save(tmp_path / "model")
    loaded = gigagp.load(tmp_path / "model")
    assert loaded.report_.choices == models[0].report_.choices
    assert loaded.kernel_ == models[0].kernel_
    assert np.array_equal(loaded.predict(X[:50]), models[1].predict(X[:50]))
