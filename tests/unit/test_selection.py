"""What is left open is chosen by rows left out: kernel, sharing, rule; the choice is right, reported and kept."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF, Matern

import gigagp
from gigagp import HGPRegressor, metrics, trials
from gigagp.data.store import ExpertStore
from gigagp.datasets import robot_arm
from gigagp.kernels import Matern32, Matern52, SquaredExponential
from gigagp.left_out import Said
from gigagp.partition.base import Runs
from gigagp.placing import Placed
from gigagp.selection import choose_sharing, clearly_better
from gigagp.tree import Tree

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
    assert chosen.score <= min(c.score for c in tried) + 0.003
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
    model = HGPRegressor(SquaredExponential(), random_state=0).fit(X, y)
    assert chosen(model, "sharing") == "8, raised to 12"
    assert model.report_.points_per_expert[0] >= 12 * 250
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
        Matern52(),
        combine=rule,
        experts_per_query=int(k),
        sharing=float(chosen(model, "sharing").split()[-1]),
        random_state=0,
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


def many_cells(rows, points=256):
    """A jury that cannot be asked, of as many cells as so many rows have."""

    class Silent:
        cells = Runs(np.arange(0, rows + 1, points))
        order = np.arange(rows // points)

        def own(self, sharing, most):
            return []

    return Silent()


@pytest.mark.parametrize(("rows", "sharing"), [(40_000, 4), (1_000_000, 2), (9_000_000, 1)])
def test_sharing_is_bounded_by_the_work_of_all_experts(rows, sharing):
    assert choose_sharing(many_cells(rows), rows) == (sharing, [])


def test_larger_leaves_are_tried_and_taken_where_they_are_clearly_better(monkeypatch):
    X, y = robot_arm(12_000)
    monkeypatch.setattr(trials, "clearly_better", lambda said, usual: False)
    usual = HGPRegressor(random_state=0).fit(X, y)
    assert {c.name for c in usual.report_.choices if c.what == "leaf size"} == {"256", "512"}
    assert chosen(usual, "leaf size") == "256"
    assert "% of them to choose" in repr(usual.report_)
    assert 0 < usual.report_.choosing < 1
    monkeypatch.setattr(trials, "clearly_better", lambda said, usual: True)
    larger = HGPRegressor(random_state=0).fit(X, y)
    assert chosen(larger, "leaf size") == "512"
    assert larger.n_leaves_ == usual.n_leaves_ // 2
    assert larger.report_.points_per_leaf[0] >= 500
    assert larger.report_.points_per_expert[0] == usual.report_.points_per_expert[0]
    assert larger.report_.points_per_leaf[1] <= 3 * 256  # an odd one joins the last two
    assert metrics.rmse(y[:500], larger.predict(X[:500])) < 0.3 * y.std()
    assert not any(c.what == "leaf size" for c in HGPRegressor(leaf_size=256, random_state=0).fit(X, y).report_.choices)


@given(st.integers(2, 40), st.integers(1, 6))
def test_merged_leaves_hold_all_rows_in_order(count, size):
    cells = Runs(np.arange(count + 1) * size)
    placed = Placed(
        ExpertStore(np.zeros((count * size, 1)), np.zeros(count * size)), cells, cells, Tree.balanced(count)
    )
    merged = trials.merged(placed)
    assert np.array_equal(np.concatenate([merged.cells[i] for i in range(len(merged.cells))]), np.arange(count * size))
    assert len(merged.cells) == count // 2 == merged.tree.n_leaves
    assert set(merged.cells.sizes) <= {2 * size, 3 * size}


def test_what_is_clearly_better_is_so_in_most_cells():
    rng = np.random.default_rng(0)
    y = rng.standard_normal((20, 50))

    def said(width):
        return [Said(each, np.zeros(50), np.full(50, 1.0) if width is None else width * each**2 + 0.5) for each in y]

    assert clearly_better(said(1.0), said(None))
    assert not clearly_better(said(None), said(None))
    assert not clearly_better(said(None), said(1.0))
