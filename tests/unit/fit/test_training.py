"""Training: the optimum is one, batches are honest, and the report says what happened."""

from __future__ import annotations

import itertools
import time
import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from gigagp import HGPRegressor
from gigagp.expert import Evidence
from gigagp.fit.training import (
    FIRST_GROUPS,
    NEGLIGIBLE,
    Precision,
    Trace,
    bound_warnings,
    expected_loss,
    groups_for,
    maximise,
    train_full,
    train_on_groups,
    train_progressive,
)
from gigagp.kernels import SquaredExponential

WIDE = np.array([[-20.0, 20.0]] * 2)


def data(n, seed=0, noise=0.2):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X).sum(axis=1) + noise * rng.standard_normal(n)


class Leaves:
    """Leaves whose evidence is a parabola each: -(points / 2) (theta - c_i)^T H (theta - c_i)."""

    def __init__(self, n, spread, seed=0, points=10):
        rng = np.random.default_rng(seed)
        self.centres = 1 + spread * rng.standard_normal((n, 2)) + spread * np.linspace(-1, 1, n)[:, None]
        self.H = np.array([[2.0, 0.5], [0.5, 1.0]])
        self.points = points
        self.asked: list[np.ndarray | None] = []

    def of(self, theta, leaf):
        off = theta - self.centres[leaf]
        gradient = -self.points * self.H @ off
        return Evidence.of(0.5 * float(off @ gradient), gradient, self.points, 0.0)

    def __call__(self, theta, leaves):
        self.asked.append(leaves)
        which = range(len(self.centres)) if leaves is None else leaves
        first, *others = (self.of(theta, leaf) for leaf in which)
        for other in others:
            first = first + other
        return first

    @property
    def sizes(self):
        return np.full(len(self.centres), self.points)

    def loss(self, theta):
        """Evidence per point lost against the optimum over all leaves."""
        off = theta - self.centres.mean(axis=0)
        return 0.5 * off @ self.H @ off


def progressive(leaves, seed=0, start=(0.0, 0.0), bounds=WIDE):
    leaves.asked.clear()
    trace = Trace()
    rng = np.random.default_rng(seed)
    return train_progressive(leaves, np.array(start), bounds, trace, Precision(), leaves.sizes, rng), trace


@pytest.fixture
def small_batches(monkeypatch):
    """Progressive training begins with 8 experts, however small they are."""
    monkeypatch.setattr("gigagp.fit.training._FIRST_POINTS", 1)


def test_full_training_finds_the_optimum_and_sees_every_leaf():
    leaves, trace = Leaves(20, 0.3), Trace()
    trained = train_full(leaves, np.zeros(2), WIDE, trace, Precision())
    np.testing.assert_allclose(trained.theta, leaves.centres.mean(axis=0), atol=1e-3)
    assert all(asked is None for asked in leaves.asked)
    assert len(trace.evidence) == len(leaves.asked)
    (stage,) = trained.stages
    assert (stage.name, stage.experts, stage.points, stage.converged) == ("full", 20, 200, True)
    np.testing.assert_allclose(stage.evidence_per_point, leaves(trained.theta, None).value / 200)


def test_training_stays_within_bounds():
    leaves, trace = Leaves(20, 0.0), Trace()
    bounds = np.array([[-1.0, 0.5], [-20, 20]])
    best = maximise("some", leaves, np.arange(5), np.array([-0.9, 0.0]), bounds, trace, Precision())
    assert best.theta[0] == 0.5
    assert all(-1 <= theta[0] <= 0.5 for theta in trace.theta)
    assert maximise("far", leaves, None, np.array([7.0, 0.0]), bounds, trace, Precision()).theta[0] == 0.5
    np.testing.assert_allclose(best.theta[1], 1 + 0.5 * 0.5, atol=1e-3)
    assert best.evidence.experts == 5
    assert (best.inverse_hessian[0] == 0).all()  # what is at a bound cannot move
    assert (best.inverse_hessian[:, 0] == 0).all()
    np.testing.assert_allclose(best.inverse_hessian[1, 1], 1.0, rtol=0.2)


def test_batches_grow_until_the_loss_is_negligible(small_batches):
    leaves = Leaves(2000, 0.08)
    trained, trace = progressive(leaves)
    batches = [stage for stage in trained.stages if stage.name == "batch"]
    assert [stage.experts for stage in batches] == [8 * 2**i for i in range(len(batches))]
    assert len(batches) > 1
    assert trained.stages[-1].name == "check"
    asked = list({leaves_.tobytes(): leaves_ for leaves_ in leaves.asked}.values())
    assert len(asked) == len(batches) + 1
    for smaller, larger in itertools.pairwise(asked[:-1]):
        assert set(smaller) < set(larger)  # each batch contains the last
    assert not set(asked[-1]) & set(asked[-2])  # the check is on experts not trained on
    assert trained.stages[-1].experts == len(asked[-1]) == len(asked[-2])
    assert leaves.loss(trained.theta) < 10 * NEGLIGIBLE
    assert sum(stage.evaluations for stage in trained.stages) == len(trace.evidence) == len(leaves.asked)


def test_batches_end_with_all_experts_where_these_differ_much(small_batches):
    leaves = Leaves(50, 3.0)
    trained, _ = progressive(leaves)
    assert [stage.experts for stage in trained.stages] == [8, 16, 32, 50]
    assert trained.stages[-1].name == "all experts"
    assert leaves.asked[-1] is None
    np.testing.assert_allclose(trained.theta, leaves.centres.mean(axis=0), atol=1e-3)


def test_experts_that_agree_need_one_batch(small_batches):
    trained, _ = progressive(Leaves(500, 0.0))
    assert [stage.name for stage in trained.stages] == ["batch", "check"]


def test_the_first_batch_holds_enough_points():
    leaves = Leaves(2000, 0.0)
    progressive(leaves)
    assert len(leaves.asked[0]) == 820  # 8192 points of 10 a leaf


def test_batches_are_decided_by_the_seed(small_batches):
    leaves = Leaves(300, 0.1)
    one, same, other = (progressive(leaves, seed)[0].theta for seed in (1, 1, 2))
    assert (one == same).all()
    assert (one != other).any()


@pytest.mark.slow
def test_batches_are_unbiased(small_batches):
    """Scaled up, the evidence and gradient of the first batch are those of all leaves, on average over seeds."""
    leaves, theta = Leaves(60, 0.5), np.array([0.3, -0.2])
    estimates = []
    for seed in range(150):
        progressive(leaves, seed, theta)
        batch = leaves.asked[0]
        seen = leaves(theta, batch)
        estimates.append(np.append(seen.value, seen.gradient) * 60 / len(batch))
    whole = leaves(theta, None)
    error = np.std(estimates, axis=0) / np.sqrt(len(estimates))
    assert (error > 0).all()
    assert (abs(np.mean(estimates, axis=0) - np.append(whole.value, whole.gradient)) < 3.5 * error).all()


def test_expected_loss_by_hand():
    rng = np.random.default_rng(0)
    gradients, A = rng.standard_normal((12, 3)) + 0.5, rng.standard_normal((3, 3))
    inverse = A @ A.T
    seen = Evidence.of(0.0, gradients[0], 7, 0.0)
    for gradient in gradients[1:]:
        seen = seen + Evidence.of(0.0, gradient, 7, 0.0)
    # The mean gradient per point of m leaves out of n has covariance cov / (m points^2) (1 - m / n).
    of_mean = np.cov(gradients.T, ddof=1) / 12 / 7**2 * (1 - 12 / 50)
    np.testing.assert_allclose(expected_loss(seen, inverse, 50), 0.5 * np.trace(inverse @ of_mean), rtol=1e-12)
    assert expected_loss(seen, inverse, 12) == 0  # all experts seen: nothing lost
    assert expected_loss(Evidence.of(0.0, gradients[0], 7, 0.0), inverse, 50) == np.inf


def test_expected_loss_is_what_batches_lose():
    """Parabolas of one curvature: the optimum of a batch is the mean of its centres."""
    leaves, inverse = Leaves(100, 0.5), np.linalg.inv(Leaves(1, 0).H)
    rng, lost, expected = np.random.default_rng(0), [], []
    for _ in range(600):
        batch = rng.permutation(100)[:20]
        theta = leaves.centres[batch].mean(axis=0)
        lost.append(leaves.loss(theta))
        expected.append(expected_loss(leaves(theta, batch), inverse, 100))
    np.testing.assert_allclose(np.mean(expected), np.mean(lost), rtol=0.15)


def projected_gradient(model):
    """Gradient per point, less what a bound holds back."""
    _, gradient = model.log_marginal_likelihood(eval_gradient=True)
    low, high = np.vstack([model.kernel_.bounds, np.log([1e-6, 10])]).T
    at_bound = ((model.theta_ < low + 1e-6) & (gradient < 0)) | ((model.theta_ > high - 1e-6) & (gradient > 0))
    return np.where(at_bound, 0, gradient) / model.report_.rows


@pytest.mark.parametrize("partition", ["random", "stratified", "local"])
def test_full_training_ends_where_the_gradient_vanishes(partition):
    X, y = data(500)
    settings = {"leaf_size": 50, "training": "full", "experts": "gaussian", "random_state": 0}
    model = HGPRegressor(partition=partition, **settings).fit(X, y)
    assert abs(projected_gradient(model)).max() < 1e-3
    assert model.report_.converged


def test_one_leaf_trains_as_well_as_scikit_learn():
    X, y = data(80)
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    kernel = ConstantKernel(1.0, (1e-4, 1e4)) * RBF([1.0, 1.0], (1e-3, 1e3)) + WhiteKernel(0.1, (1e-6, 10))
    theirs = GaussianProcessRegressor(kernel, alpha=0, n_restarts_optimizer=3, random_state=0).fit(X, y)
    ours = HGPRegressor(partition="random", leaf_size=80, training="full", random_state=0).fit(X, y)
    assert ours.n_leaves_ == 1
    assert ours.log_marginal_likelihood() >= theirs.log_marginal_likelihood_value_ - 1e-3


def test_progressive_training_is_as_good_as_full(monkeypatch):
    monkeypatch.setattr("gigagp.fit.training._FIRST_POINTS", 500)
    monkeypatch.setattr("gigagp.fit.training.NEGLIGIBLE", 5e-4)
    X, y = data(10_000)
    settings = {"kernel": SquaredExponential(), "partition": "local", "leaf_size": 25, "random_state": 0}
    full = HGPRegressor(**settings, training="full").fit(X, y)
    some = HGPRegressor(**settings, training="progressive").fit(X, y)
    again = HGPRegressor(**settings, training="progressive").fit(X, y)
    assert max(stage.experts for stage in some.report_.stages) < 400  # it did not see all
    assert full.log_marginal_likelihood() - some.log_marginal_likelihood() < 1e-3 * 10_000
    np.testing.assert_array_equal(some.theta_, again.theta_)
    other = HGPRegressor(**(settings | {"random_state": 1}), training="progressive").fit(X, y)
    assert (other.theta_ != some.theta_).any()


def test_auto_picks_by_the_size_of_the_work(monkeypatch):
    X, y = data(200)
    model = HGPRegressor(leaf_size=10, partition="random", random_state=0)
    assert model.fit(X, y).report_.stages[-1].name == "full"
    monkeypatch.setattr("gigagp.fit.theta_training._FULL_WORK", 1)
    assert model.fit(X, y).report_.stages[-1].name == "all experts"


def test_auto_learns_from_groups_where_experts_are_local():
    X, y = data(200)
    stages = HGPRegressor(leaf_size=20, random_state=0).fit(X, y).report_.stages
    assert stages[-1].name == "groups"
    assert stages[-1].points == stages[-1].experts * 20


STUCK = SquaredExponential(1.0, [300.0, 300.0])  # so smooth that all is noise


@pytest.mark.parametrize("leaf_size", [100, 10])
def test_restarts_find_at_least_as_good_evidence(leaf_size):
    X, y = data(200)
    settings = {"partition": "random", "leaf_size": leaf_size, "training": "full", "random_state": 0}
    once = HGPRegressor(**settings).fit(X, y)
    more = HGPRegressor(**settings, n_restarts=3).fit(X, y)
    assert more.log_marginal_likelihood() >= once.log_marginal_likelihood() - 1e-4 * 200


@pytest.mark.full_choices
@pytest.mark.parametrize(("parameters", "groups"), [(3, 32), (16, 32), (20, 40), (28, 56), (200, 64)])
def test_many_parameters_are_learnt_from_more_groups(parameters, groups):
    seen = []

    def gather(theta, count):
        seen.append(count)
        return lambda theta, leaves: Evidence.of(-float(theta @ theta), -2 * theta, 10, 0.0)

    bounds = np.tile([-9.0, 9.0], (parameters, 1))
    start, precision = np.ones(parameters), Precision.of("float64")
    first = groups_for(parameters, FIRST_GROUPS)
    train_on_groups(gather, lambda theta: float(theta @ theta), start, bounds, Trace(), precision, first)
    assert seen[0] == groups
    assert all(after == 2 * before for before, after in itertools.pairwise(seen))


def test_restarts_leave_a_bad_start():
    X, y = data(200)
    settings = {"partition": "random", "leaf_size": 100, "training": "full", "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        once = HGPRegressor(STUCK, **settings).fit(X, y)
    more = HGPRegressor(STUCK, **settings, n_restarts=12).fit(X, y)
    assert more.log_marginal_likelihood() > once.log_marginal_likelihood() + 10
    assert more.log_marginal_likelihood() > HGPRegressor(**settings).fit(X, y).log_marginal_likelihood() - 0.1


def test_bound_warnings_name_the_parameter():
    bounds = np.log([[0.1, 10], [0.1, 10], [1, 1], [0.1, 10]])
    names = ("variance", "lengthscale[0]", "fixed", "noise_variance")
    low, high = bound_warnings(np.log([0.1, 10, 1, 2]), bounds, names)
    assert (low.parameter, low.side) == ("variance", "lower")
    assert (high.parameter, high.side) == ("lengthscale[0]", "upper")
    np.testing.assert_allclose([low.bound, low.value, high.bound, high.value], [0.1, 0.1, 10, 10])


def test_a_column_with_a_vanishing_length_scale_is_called_an_identifier():
    bounds = np.log([[0.1, 10], [1e-3, 1e3]])
    (warning,) = bound_warnings(np.log([1.0, 1e-3]), bounds, ("variance", "lengthscale[2]"))
    assert warning.identifier_column == 2
    expected = "lengthscale[2] ended at its lower bound 0.001; column 2 behaves like an identifier"
    assert str(warning).startswith(expected)


@pytest.mark.parametrize("waves", [3, 40, pytest.param(80, marks=pytest.mark.slow)])
def test_fast_waves_are_not_taken_for_noise(waves):
    """From length-scales as long as the data, the evidence shows nothing but noise; more starts are then tried."""
    rng = np.random.default_rng(0)
    X = rng.random((3000, 1))
    y = np.sin(2 * np.pi * waves * X[:, 0])
    model = HGPRegressor(SquaredExponential(), sharing=1, combine="blend", experts_per_query=2, random_state=0)
    model.fit(X[:2500], y[:2500] + 0.1 * rng.standard_normal(2500))
    starts = sum(stage.name == "rough theta" for stage in model.report_.stages)
    assert (starts > 1) == (waves > 3)
    assert np.sqrt(np.mean((model.predict(X[2500:]) - y[2500:]) ** 2)) < 0.1


def test_a_column_without_meaning_is_named():
    X, _ = data(150)
    y = np.sin(2 * X[:, 0]) + 0.1 * np.random.default_rng(9).standard_normal(150)
    kernel = SquaredExponential(1.0, 1.0, lengthscale_bounds=(1e-2, 20))
    with pytest.warns(
        ConvergenceWarning, match=rf"lengthscale\[x1\] ended at its upper bound {20 * X[:, 1].std():.3g} x1"
    ):
        model = HGPRegressor(kernel, partition="random", random_state=0).fit(X, y)
    assert [warning.parameter for warning in model.report_.warnings] == ["lengthscale[1]"]
    assert "warning: lengthscale[x1] ended" in repr(model.report_)


def test_noise_at_a_bound_is_named_unless_it_is_fixed():
    X, y = data(150)
    with pytest.warns(ConvergenceWarning, match=rf"noise_variance ended at its lower bound {0.5 * y.var():.3g} y\^2"):
        HGPRegressor(partition="random", noise_bounds=(0.5, 10), random_state=0).fit(X, y)
    fixed = HGPRegressor(partition="random", noise_bounds=(0.02, 0.02), random_state=0).fit(X, y)
    assert fixed.report_.warnings == ()
    np.testing.assert_allclose(np.exp(fixed.theta_[-1]), 0.02)


def test_not_converging_is_a_warning(monkeypatch):
    def one_step(*args, options, **others):
        return minimize(*args, options=options | {"maxiter": 1}, **others)

    monkeypatch.setattr("gigagp.fit.training.minimize", one_step)
    X, y = data(100)
    with pytest.warns(ConvergenceWarning, match="training did not converge after 1 iterations: .*LIMIT"):
        model = HGPRegressor(partition="random", random_state=0).fit(X, y)
    assert not model.report_.converged
    assert "not converged" in repr(model.report_)


MODES = {
    "full": {"training": "full"},
    "progressive": {"training": "progressive", "leaf_size": 10},
    "all experts": {"training": "progressive", "leaf_size": 50},
    "restarts": {"training": "full", "n_restarts": 2},
    "restarts on some": {"training": "full", "n_restarts": 2, "leaf_size": 20},
    "random": {"partition": "random"},
}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_the_report_counts_what_was_done(mode, small_batches):
    X, y = data(300)
    begun = time.perf_counter()
    model = HGPRegressor(**({"leaf_size": 60, "experts": "gaussian"} | mode), random_state=0).fit(X, y)
    took, report = time.perf_counter() - begun, model.report_
    assert report.rows == 300
    assert report.leaves == model.n_leaves_
    assert len(report.evidence_trace) == len(report.theta_trace) == report.evaluations
    assert report.evaluations >= report.iterations > 0
    assert report.theta_trace.shape[1] == len(report.names)
    assert set(report.names) - {"alpha"} == {"variance", "lengthscale[0]", "lengthscale[1]", "noise_variance"}
    np.testing.assert_array_equal(report.theta, model.theta_)
    chosen = set() if "partition" in mode else {"choice of kernel", "choice of prediction"}
    assert {"partition and store", "training", *chosen} <= set(report.seconds)
    assert (report.choosing > 0) == bool(chosen)
    assert 0 < sum(report.seconds.values()) <= took
    assert min(report.seconds.values()) >= 0
    assert report.jitter == 0
    assert report.jittered_experts == 0
    assert report.converged
    assert "CONVERGENCE" in report.message
    if mode.get("training") == "full":  # the last stage saw all leaves, and its end is among the evaluations
        per_point = model.log_marginal_likelihood() / 300
        own = [stage for stage in report.stages if np.isclose(stage.evidence_per_point, per_point, rtol=1e-10)]
        assert own  # other families that are averaged may be trained after it
        assert np.isclose(report.evidence_trace, per_point, rtol=1e-10).any()
        assert (report.theta_trace == model.theta_).all(axis=1).any()


def test_the_report_reads_well(small_batches):
    X, y = data(300)
    text = repr(HGPRegressor(leaf_size=7, training="progressive", sharing=4, random_state=0).fit(X, y).report_)
    lines = text.splitlines()
    assert lines[0] == "FitReport: 300 rows, 43 leaves of 6 to 7 points (experts predict from 24 to 28)"
    for words in ("rough theta", "batch", "seconds: ", "training", "noise_variance", "jitter: none; converged"):
        assert words in text
    assert max(len(line) for line in lines) < 120


def test_jitter_is_reported():
    """Rows that come twice, and no noise to tell them apart."""
    X, y = data(40, noise=0)
    X, y = np.vstack([X, X]), np.append(y, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = HGPRegressor(partition="random", noise_bounds=(1e-20, 1e-20), random_state=0).fit(X, y)
    assert 0 < model.report_.jitter < 1e-3
    assert model.report_.jittered_experts == 1
    assert "in 1 experts" in repr(model.report_)


def test_a_fit_without_training_has_a_report_too():
    X, _ = data(50)
    report = HGPRegressor(leaf_size=25).fit(X, np.full(50, 3.0)).report_
    assert report.evaluations == report.iterations == len(report.evidence_trace) == 0
    assert report.converged
    assert "50 rows" in repr(report)
    assert report.message


@pytest.mark.parametrize("settings", [{"partition": "random"}, {}, {"training": "progressive", "leaf_size": 32}])
def test_where_all_of_theta_is_fixed_it_stays(settings):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (600, 1))
    kernel = SquaredExponential(2.0, 0.5, variance_bounds=(2.0, 2.0), lengthscale_bounds=(0.5, 0.5))
    model = HGPRegressor(kernel, noise_bounds=(0.05, 0.05), random_state=0, **settings).fit(X, np.sin(3 * X[:, 0]))
    np.testing.assert_allclose(np.exp(model.theta_), [2.0, 0.5, 0.05], rtol=1e-12)
    assert model.report_.converged
    assert np.isfinite(model.predict(X, return_std=True)[1]).all()
