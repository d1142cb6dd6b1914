"""What is left open is chosen by held-out predictions; the choice is right, reported and kept."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern

import gigagp
from gigagp import HGPRegressor
from gigagp.answers import Answers
from gigagp.calibration import Calibration, Setting
from gigagp.datasets import robot_arm
from gigagp.errors import InvalidParameter
from gigagp.kernels import Linear, Matern32, Matern52, SquaredExponential
from gigagp.partition.base import Runs
from gigagp.selection import Gain, Scored, choose_sharing

FAMILIES = {"SquaredExponential", "Matern52", "Matern32", "Matern12", "RationalQuadratic"}
pytestmark = [
    pytest.mark.full_choices,
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


def draw(kernel, rows, noise=0.02, seed=0):
    """A function drawn from a process, at random places."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (rows, 2))
    K = kernel(X) + 1e-10 * np.eye(rows)
    return X, np.linalg.cholesky(K) @ rng.standard_normal(rows) + noise * rng.standard_normal(rows)


def chosen(model, what):
    (name,) = [c.name for c in model.report_.choices if c.what == what and c.chosen]
    return name


@pytest.mark.parametrize(
    ("kernel", "rows", "allowed"),  # few rows are cross-fitted, of more the best families alone see all
    [(RBF(1.0), 400, {"SquaredExponential", "RationalQuadratic"}), (Matern(1.5, nu=0.5), 800, {"Matern12"})],
)
def test_smooth_and_rough_functions_are_told_apart(kernel, rows, allowed):
    model = HGPRegressor(random_state=0).fit(*draw(kernel, rows))
    tried = [c for c in model.report_.choices if c.what == "kernel"]
    assert {c.name for c in tried} == FAMILIES
    name = chosen(model, "kernel")
    assert name in allowed
    (score,) = [c.score for c in tried if c.chosen]
    assert score <= min(c.score for c in tried) + 0.003
    assert type(model.kernel_).__name__ == name
    assert f"{name} {score:.4f} (chosen)" in " ".join(repr(model.report_).split())


@pytest.mark.slow
def test_smooth_functions_are_answered_by_the_committee():
    X, y = robot_arm(3000, noise=0.005)
    smooth = HGPRegressor(SquaredExponential(), random_state=0).fit(X, y)
    assert chosen(smooth, "prediction") == "committee"
    assert chosen(smooth, "neighbours") == "256"


def test_rough_functions_are_answered_by_neighbours():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 300, (3000, 1))
    y = np.cumsum(rng.standard_normal(30_001))[(100 * X[:, 0]).astype(int)] / 30
    rough = HGPRegressor(random_state=0).fit(X, y)
    assert chosen(rough, "prediction").endswith("neighbours")
    assert int(chosen(rough, "neighbours")) <= 64


def test_what_the_user_gives_is_taken(wave):
    for kernel in (SquaredExponential(), Matern52()):
        model = HGPRegressor(kernel, sharing=2, combine="blend", experts_per_query=3, random_state=0).fit(*wave)
        assert type(model.kernel_) is type(kernel)
        assert {choice.what for choice in model.report_.choices} == {"start"}
    for partition in ("random", "stratified"):
        model = HGPRegressor(partition=partition, leaf_size=100, random_state=0).fit(*wave)
        assert type(model.kernel_) is SquaredExponential
        assert model.report_.choices == ()
    near = HGPRegressor(Matern32(), method="neighbourhood", neighbours=17, random_state=0).fit(*wave)
    assert {choice.what for choice in near.report_.choices} == {"start", "prediction"}
    assert near.report_.calibration.rows > 0
    with pytest.raises(InvalidParameter, match="needs partition"):
        HGPRegressor(method="neighbourhood", partition="random").fit(*wave)
    for bad in ({"method": "nearest"}, {"neighbours": 0}, {"neighbours": 2.5}, {"exact_neighbours": 1}):
        with pytest.raises(InvalidParameter):
            HGPRegressor(**bad).fit(*wave)


@pytest.mark.filterwarnings("ignore:.*has no metric")
def test_kernels_without_a_metric_are_answered_by_the_committee(wave):
    model = HGPRegressor(Linear(), leaf_size=100, random_state=0).fit(*wave)
    assert not [c for c in model.report_.choices if c.what == "neighbours"]
    assert np.isfinite(model.predict(wave[0][:5], return_std=True)).all()


def test_few_rows_are_not_enough_to_choose(wave):
    X, y = wave
    model = HGPRegressor(random_state=0, leaf_size=256).fit(X[:60], y[:60])
    assert type(model.kernel_) is SquaredExponential
    assert model.report_.choices == ()


def test_the_choice_is_the_same_on_every_engine_and_kept_with_the_model(tmp_path):
    X, y = draw(Matern(1.5, nu=1.5), 700)
    models = [HGPRegressor(leaf_size=60, engine=e, random_state=0).fit(X, y) for e in ("serial", "threads")]
    assert models[0].report_.choices == models[1].report_.choices
    assert models[0].report_.calibration == models[1].report_.calibration
    models[0].save(tmp_path / "model")
    loaded = gigagp.load(tmp_path / "model")
    assert loaded.report_.choices == models[0].report_.choices
    assert loaded.report_.calibration == models[0].report_.calibration
    assert loaded.kernel_ == models[0].kernel_
    for ours, theirs in zip(loaded.predict(X[:50], True), models[1].predict(X[:50], True), strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize(("rows", "most"), [(1_000_000, 2), (9_000_000, 1)])
def test_sharing_is_bounded_by_the_work_of_all_experts(rows, most):
    class Same:
        """Every sharing predicts equally well."""

        cells = Runs(np.arange(0, rows + 1, 250))

        def by_own_experts(self, sharing):
            return scored(np.ones(100))

    assert choose_sharing(Same())[0] == most


def scored(errors, seed=0):
    answers = Answers(np.zeros(len(errors)), np.full(len(errors), 0.5), np.ones(len(errors)))
    y = errors * np.random.default_rng(seed).standard_normal(len(errors))
    return Scored(np.arange(len(y)), y, answers, Calibration.learnt(answers, y, Setting(0.1, 1.0)))


def test_a_gain_must_be_worth_while_and_not_chance():
    small, large = scored(np.full(2000, 0.1)), scored(np.full(2000, 0.3))
    gain = Gain.of(small, large)
    assert gain.value == pytest.approx(2 / 3, rel=0.1)
    assert gain.exceeds(0.01)
    assert not Gain.of(large, small).exceeds(0.0)
    assert not Gain(0.004, 0.0001).exceeds(0.005)
    assert not Gain(0.1, 0.11).exceeds(0.005)
