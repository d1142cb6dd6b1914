"""What is left open is chosen by held-out predictions; the choice is right, reported and kept."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern

import gigagp
from gigagp import HGPRegressor
from gigagp.data.row_lists import Runs
from gigagp.data.store import ExpertStore
from gigagp.datasets import robot_arm
from gigagp.engines import SerialEngine
from gigagp.errors import InvalidParameter
from gigagp.fit import held_out_scores
from gigagp.fit.committee_scores import choose_sharing
from gigagp.fit.held_out_scores import Gain, HeldOutScore, NumberScoring, Scorer
from gigagp.fit.selection import choose_inner
from gigagp.kernels import Linear, Matern32, Matern52, SquaredExponential
from gigagp.model.calibration import Calibration, Setting
from gigagp.model.fit_report import Candidate
from gigagp.model.latent import LatentPrediction

FAMILIES = {"SquaredExponential", "Matern52", "Matern32", "Matern12", "RationalQuadratic"}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def draw(kernel, rows, noise=0.02, seed=0):
    """A function drawn from a process, at random places."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (rows, 2))
    K = kernel(X) + 1e-10 * np.eye(rows)
    return X, np.linalg.cholesky(K) @ rng.standard_normal(rows) + noise * rng.standard_normal(rows)


def chosen(model, what):
    (name,) = [c.name for c in model.report_.choices if c.what == what and c.chosen]
    return name


@pytest.mark.full_choices
@pytest.mark.parametrize(
    ("kernel", "rows", "allowed"),  # few rows are cross-fitted, of more the best families alone see all
    [(RBF(1.0), 400, {"SquaredExponential", "RationalQuadratic"}), (Matern(1.5, nu=0.5), 800, {"Matern12"})],
)
def test_smooth_and_rough_functions_are_told_apart(kernel, rows, allowed):
    model = HGPRegressor(random_state=0).fit(*draw(kernel, rows))
    candidates = [c for c in model.report_.choices if c.what == "kernel"]
    assert {c.name for c in candidates} == FAMILIES
    name = chosen(model, "kernel")
    assert name in allowed
    (score,) = [c.score for c in candidates if c.chosen]
    assert score <= min(c.score for c in candidates) + 0.003
    assert type(model.kernel_).__name__ == name
    assert f"{name} {score:.4f} (chosen)" in " ".join(repr(model.report_).split())


@pytest.mark.full_choices
@pytest.mark.slow
def test_smooth_functions_are_answered_by_the_committee():
    X, y = robot_arm(3000, noise=0.005)
    smooth = HGPRegressor(SquaredExponential(), random_state=0).fit(X, y)
    assert chosen(smooth, "prediction") == "committee"
    assert chosen(smooth, "neighbours") == "256"


@pytest.mark.slow
@pytest.mark.full_choices
def test_rough_functions_are_answered_by_neighbours():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 300, (3000, 1))
    y = np.cumsum(rng.standard_normal(30_001))[(100 * X[:, 0]).astype(int)] / 30
    rough = HGPRegressor(random_state=0).fit(X, y)
    assert chosen(rough, "prediction").endswith("neighbours")
    assert int(chosen(rough, "neighbours").split()[0]) <= 64  # of two numbers the first one is of the nearest rows
    assert {c.name for c in rough.report_.choices if c.what == "kernel"} == FAMILIES


@pytest.mark.slow
@pytest.mark.full_choices
def test_kernels_rougher_than_one_that_is_too_rough_are_not_tried():
    model = HGPRegressor(method="neighbourhood", neighbours=64, random_state=0).fit(*robot_arm(2500, noise=0.001))
    tried = {c.name: c.score for c in model.report_.choices if c.what == "kernel"}
    *smoother, last = (name for name in ("SquaredExponential", "Matern52", "Matern32", "Matern12") if name in tried)
    assert "Matern12" not in tried
    assert "RationalQuadratic" in tried
    assert tried[last] > 1.01 * min(tried[name] for name in smoother)
    assert tried[chosen(model, "kernel")] <= 1.003 * min(tried.values())


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


@pytest.mark.full_choices
@pytest.mark.filterwarnings("ignore:.*has no metric")
def test_kernels_without_a_metric_are_answered_by_the_committee(wave):
    model = HGPRegressor(Linear(), leaf_size=100, random_state=0).fit(*wave)
    assert not [c for c in model.report_.choices if c.what == "neighbours"]
    assert np.isfinite(model.predict(wave[0][:5], return_std=True)).all()


@pytest.mark.full_choices
def test_few_rows_are_not_enough_to_choose(wave):
    X, y = wave
    model = HGPRegressor(random_state=0, leaf_size=256).fit(X[:49], y[:49])
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


@pytest.mark.full_choices
@pytest.mark.parametrize(("rows", "most"), [(1_000_000, 2), (9_000_000, 1)])
def test_sharing_is_bounded_by_the_work_of_all_experts(rows, most):
    class Same:
        """Every sharing predicts equally well."""

        cells = Runs(np.arange(0, rows + 1, 250))

        def by_own_experts(self, sharing):
            return scored(np.ones(100))

    assert choose_sharing(Same())[0] == most


@dataclass(frozen=True)
class Model:
    """A neighbourhood of which only the sizes matter."""

    store: ExpertStore
    neighbours: int
    inner: int = 0

    @property
    def work(self):
        return self.neighbours**3


@pytest.mark.full_choices
@pytest.mark.parametrize(("neighbours", "sizes"), [(32, (16, 128)), (128, (16, 128)), (256, (32, 256))])
@pytest.mark.parametrize("error", [0.9, 1.0])
def test_the_nearest_answer_on_their_own_only_where_that_gains(neighbours, sizes, error, monkeypatch):
    class Same:
        def compare(self, model, reference, previous):
            return scored(np.full(2000, error if model.inner else 1.0)), previous

    model, before = Model(ExpertStore(np.zeros((3000, 1)), np.zeros(3000)), neighbours), scored(np.ones(2000))
    usual = Candidate("neighbours", str(neighbours), before.score, True)
    best, _, candidates = choose_inner(Same(), model, before, [usual])
    assert (best.inner, best.neighbours) == (sizes if error < 1 else (0, neighbours))
    (name,) = [each.name for each in candidates if each.chosen]
    assert name == (f"{sizes[0]} and {sizes[1]}" if error < 1 else str(neighbours))
    few = replace(model, store=ExpertStore(np.zeros((100, 1)), np.zeros(100)))
    assert choose_inner(Same(), few, before, [usual]) == (few, before, [usual])
    # In a table with so many rows that its queries would take minutes, this is tried only if it costs no more.
    monkeypatch.setattr(held_out_scores, "_PREDICTION_WORK", 299 * 128**3)
    best = choose_inner(Same(), model, before, [usual])[0]
    assert best.inner == (sizes[0] if error < 1 and neighbours >= 128 else 0)


def scored(errors, seed=0):
    prediction = LatentPrediction(np.zeros(len(errors)), np.full(len(errors), 0.5), np.ones(len(errors)))
    y = errors * np.random.default_rng(seed).standard_normal(len(errors))
    calibration = Calibration.learnt(prediction, y, Setting(0.1, 1.0))
    return HeldOutScore(np.arange(len(y)), y, prediction, calibration, calibration.crps(prediction, y))


@pytest.mark.full_choices
def test_a_gain_must_be_worth_while_and_not_chance():
    small, large = scored(np.full(2000, 0.1)), scored(np.full(2000, 0.3))
    gain = Gain.of(small, large)
    assert gain.value == pytest.approx(2 / 3, rel=0.1)
    assert gain.exceeds(0.01)
    assert not Gain.of(large, small).exceeds(0.0)
    assert not Gain(0.004, 0.0001).exceeds(0.005)
    assert not Gain(0.1, 0.11).exceeds(0.005)


@pytest.mark.full_choices
def test_a_gain_is_clear_where_more_rows_would_not_change_the_decision():
    assert Gain(0.10, 0.02).is_clear(0.005)
    assert Gain(-0.10, 0.02).is_clear(0.005)
    assert not Gain(0.03, 0.02).is_clear(0.005)
    assert Gain(-0.01, 0.02).may_exceed(0.005)
    assert not Gain(-0.03, 0.02).may_exceed(0.005)


def test_held_out_predictions_are_the_same_at_once_and_in_parts():
    """So that rows of a trial need not be predicted again for the calibration."""
    X, y = robot_arm(1500)
    model = (
        HGPRegressor(Matern32(), method="neighbourhood", neighbours=16, random_state=0).fit(X, y).model_.neighbourhood
    )
    with SerialEngine() as engine:
        scorer = Scorer.drawn(len(y), NumberScoring(1.0), engine, np.random.default_rng(0))
        parts = scorer.extend(model, scorer.score(model, 150), 400)
        whole = scorer.score_rows(model, scorer.order[:400])
    for ours, theirs in (
        (parts.rows, whole.rows),
        (parts.prediction.mean, whole.prediction.mean),
        (parts.prediction.variance, whole.prediction.variance),
        (parts.losses, whole.losses),
    ):
        assert np.array_equal(ours, theirs)


@pytest.mark.slow
@pytest.mark.full_choices
def test_two_models_are_compared_by_as_few_rows_as_the_difference_needs():
    X, y = robot_arm(2000)
    few = HGPRegressor(Matern52(), method="neighbourhood", neighbours=4, random_state=0).fit(X, y).model_.neighbourhood
    with SerialEngine() as engine:
        scorer = Scorer.drawn(len(y), NumberScoring(1.0), engine, np.random.default_rng(0))
        clear, known = scorer.compare(replace(few, neighbours=32), few, scorer.score(few, 512))
        assert len(clear.rows) == len(known.rows) == 512
        unclear, known = scorer.compare(few, few, scorer.score(few, 512))
    assert np.array_equal(unclear.rows, known.rows)
    assert Gain.of(unclear, known).value == 0.0
