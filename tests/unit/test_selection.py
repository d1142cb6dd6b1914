"""What is left open is chosen by rows left out: kernel, sharing, rule; the choice is right, reported and kept."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern

import gigagp
from gigagp import HGPRegressor
from gigagp.datasets import robot_arm
from gigagp.kernels import Matern32, Matern52, SquaredExponential

FAMILIES = [SquaredExponential, Matern52, Matern32]


def draw(kernel, rows=1500, noise=0.02, seed=0):
    """A function drawn from a process, at random places."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (rows, 2))
    K = kernel(X) + 1e-10 * np.eye(rows)
    return X, np.linalg.cholesky(K) @ rng.standard_normal(rows) + noise * rng.standard_normal(rows)


@pytest.mark.parametrize(
    ("kernel", "allowed"),
    [(RBF(1.0), {"SquaredExponential"}), (Matern(1.5, nu=1.5), {"Matern32"}), (Matern(1.5, nu=0.5), {"Matern32"})],
)
def test_smooth_and_rough_functions_are_told_apart(kernel, allowed):
    model = HGPRegressor(random_state=0).fit(*draw(kernel))
    tried = [c for c in model.report_.choices if c.what == "kernel"]
    assert {c.name for c in tried} == {family.__name__ for family in FAMILIES}
    (chosen,) = [c for c in tried if c.chosen]
    assert chosen.name in allowed
    assert chosen.score <= min(c.score for c in tried) + 0.006
    assert type(model.kernel_).__name__ == chosen.name
    assert f"{chosen.name} {chosen.score:.4f} (chosen)" in repr(model.report_)


def test_what_the_user_gives_is_taken(wave):
    for kernel in (SquaredExponential(), Matern52()):
        model = HGPRegressor(kernel, sharing=2, combine="blend", experts_per_query=3, random_state=0).fit(*wave)
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


def chosen(model, what):
    (name,) = [c.name for c in model.report_.choices if c.what == what and c.chosen]
    return name


def test_sharing_is_doubled_where_that_pays_only():
    X, y = robot_arm(6000, noise=0.01)
    assert chosen(HGPRegressor(SquaredExponential(), random_state=0).fit(X, y), "sharing") == "8"
    rng = np.random.default_rng(0)
    nothing = HGPRegressor(SquaredExponential(), random_state=0).fit(X, rng.standard_normal(6000))
    assert chosen(nothing, "sharing") == "4"


def test_rule_and_number_of_experts_are_chosen_and_used(tmp_path):
    X, y = robot_arm(4000)
    model = HGPRegressor(Matern52(), random_state=0).fit(X, y)
    names = [c.name for c in model.report_.choices if c.what == "rule"]
    assert names == ["healed_blend of 4", "blend of 4", "healed of 4", "healed_blend of 8"]
    rule, k = chosen(model, "rule").split(" of ")
    explicit = HGPRegressor(
        Matern52(), combine=rule, experts_per_query=int(k), sharing=float(chosen(model, "sharing")), random_state=0
    ).fit(X, y)
    assert np.array_equal(model.predict(X[:20]), explicit.predict(X[:20]))
    model.save(tmp_path / "model")
    assert np.array_equal(gigagp.load(tmp_path / "model").predict(X[:20]), model.predict(X[:20]))


def test_a_part_that_is_fixed_is_not_tried():
    X, y = robot_arm(4000)
    model = HGPRegressor(Matern52(), combine="blend", sharing=2, random_state=0).fit(X, y)
    assert [c.name for c in model.report_.choices] == ["4 experts", "8 experts"]
    model = HGPRegressor(Matern52(), experts_per_query=2, sharing=2, random_state=0).fit(X, y)
    assert [c.name for c in model.report_.choices] == ["healed_blend of 2", "blend of 2", "healed of 2"]


def test_experts_too_large_to_be_left_out_often_are_still_chosen_for(monkeypatch):
    monkeypatch.setattr("gigagp.selection._WORK", 1.0)
    model = HGPRegressor(leaf_size=200, random_state=0).fit(*draw(Matern(1.5, nu=1.5), 600))
    assert [c.what for c in model.report_.choices] == ["kernel"] * 3
    assert np.isfinite([c.score for c in model.report_.choices]).all()
    assert model.report_.calibration.rows == 0
