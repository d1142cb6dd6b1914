"""One expert: gradients, leave-one-out, variances that stay positive, errors that help, sums of evidence."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigagp import expert
from gigagp.errors import NotPositiveDefinite
from gigagp.expert import Evidence
from gigagp.kernels import (
    Constant,
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
)
from gigagp.linalg import cholesky
from gigagp.linalg.workspace import Workspace

KERNELS = [
    SquaredExponential(1.3, 0.9),
    SquaredExponential(1.3, 0.9, ard=False),
    Matern12(0.8, 1.5),
    Matern32(0.8, 1.5),
    Matern52(0.8, 1.5),
    RationalQuadratic(1.1, 0.7, 0.8),
    RationalQuadratic(1.1, 0.7, 0.8, ard=False),
    Periodic(1.0, 1.2, 3.0),
    Linear(0.6),
    Linear(0.6, ard=False),
    Constant(0.4),
    SquaredExponential() + Linear(0.2),
    Constant(0.4) * Matern32(1.0, 0.8),
    (SquaredExponential() + Periodic(period=4.0)) * Linear(0.5) + Constant(),
]


def leaf(p, D=3, noise=0.1, seed=0, kind=np.float64):
    """Inputs, targets and a log noise variance."""
    rng = np.random.default_rng([seed, p, D])
    X = rng.standard_normal((p, D))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(p)
    return X.astype(kind), y.astype(kind), np.log(noise)


def bound(kernel, X, log_noise):
    kernel = kernel.bind(X.shape[1])
    return kernel, np.append(kernel.theta, log_noise)


# Evidence


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize(("p", "D"), [(1, 1), (5, 2), (40, 3), (70, 9)])
def test_gradient_is_the_slope_of_the_evidence(kernel, p, D):
    X, y, log_noise = leaf(p, D)
    kernel, theta = bound(kernel, X, log_noise)
    work, h = Workspace(), 1e-3

    def value(theta):
        return expert.evidence(kernel, theta, X, y, work).value

    slopes = []
    for step in h * np.eye(len(theta)):
        near, far = value(theta + step) - value(theta - step), value(theta + 2 * step) - value(theta - 2 * step)
        slopes.append((8 * near - far) / (12 * h))
    got = expert.evidence(kernel, theta, X, y, work).gradient
    np.testing.assert_allclose(got, slopes, rtol=1e-6, atol=1e-6 * max(1e-2, np.abs(slopes).max()))


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_what_a_workspace_held_before_does_not_matter(kind):
    kernel, work = SquaredExponential().bind(3), Workspace()
    theta = np.append(kernel.theta, np.log(0.1))
    for p in (130, 20, 131, 1, 64):
        X, y, _ = leaf(p, kind=kind)
        for other in (np.float64, np.float32):
            expert.evidence(kernel, theta, *leaf(p + 33, kind=other)[:2], work)
        again, fresh = (expert.evidence(kernel, theta, X, y, w) for w in (work, Workspace()))
        np.testing.assert_array_equal(again.sums, fresh.sums)


def test_evidence_reads_its_leaf_and_leaves_it_alone():
    X, y, log_noise = leaf(30)
    kernel, theta = bound(KERNELS[0], X, log_noise)
    before = [a.copy() for a in (X, y, theta)]
    expert.evidence(kernel, theta, X, y, Workspace())
    expert.held_out(kernel, theta, X, y, X, np.arange(30), Workspace())
    for a, b in zip((X, y, theta), before, strict=True):
        np.testing.assert_array_equal(a, b)


numbers = st.floats(-1e6, 1e6)


@st.composite
def evidences(draw, n=3):
    gradient = np.array(draw(st.lists(numbers, min_size=n, max_size=n)))
    jitter = draw(st.sampled_from([0.0, 1e-9, 1e-6]))
    return draw(numbers), gradient, draw(st.integers(1, 10**6)), jitter


@given(st.lists(evidences(), min_size=1, max_size=6))
def test_evidence_adds_all_it_carries(parts):
    total = Evidence.of(*parts[0])
    for part in parts[1:]:
        total = total + Evidence.of(*part)
    values, gradients, points, jitters = zip(*parts, strict=True)
    assert total.value == pytest.approx(sum(values))
    np.testing.assert_allclose(total.gradient, sum(gradients), rtol=1e-12, atol=1e-8)
    np.testing.assert_allclose(total.scatter, sum(np.outer(g, g) for g in gradients), rtol=1e-12, atol=1e-2)
    assert total.points == sum(points)
    assert total.experts == len(parts)
    assert total.jitter == max(jitters)
    assert total.jittered == sum(j > 0 for j in jitters)


@pytest.mark.parametrize("n", range(1, 40))
def test_evidence_of_any_number_of_parameters(n):
    gradient = np.arange(1.0, n + 1)
    one = Evidence.of(-3.0, gradient, 7, 0.0)
    np.testing.assert_array_equal(one.gradient, gradient)
    np.testing.assert_array_equal(one.scatter, np.outer(gradient, gradient))


def test_evidence_crosses_processes():
    one = Evidence.of(-3.0, np.arange(4.0), 7, 1e-9)
    back = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(back.sums, one.sums)
    assert back.jitter == one.jitter


def test_adding_evidence_changes_neither_part():
    a, b = Evidence.of(1.0, np.ones(2), 3, 0.0), Evidence.of(2.0, np.ones(2), 4, 1e-9)
    a + b
    assert (a.value, a.points, a.jitter, b.value, b.points, b.jitter) == (1.0, 3, 0.0, 2.0, 4, 1e-9)


# Prediction


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("p", [2, 18, 70])
def test_a_row_left_out_is_predicted_as_by_refitting_without_it(kernel, p):
    X, y, log_noise = leaf(p)
    kernel, theta = bound(kernel, X, log_noise)
    got, work = expert.held_out(kernel, theta, X, y, X, np.arange(p), Workspace()), Workspace()
    for i in range(p):
        others = np.arange(p) != i
        factor = expert.factor(kernel, theta, X[others], y[others], work)
        mean, variance = expert.posterior(kernel, theta, factor, X[i : i + 1], work)
        assert got[0][i] == pytest.approx(mean[0], rel=1e-8, abs=1e-9)
        assert got[1][i] == pytest.approx(variance[0], rel=1e-6)
        assert got[2][i] == pytest.approx(factor.scale, rel=1e-8)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("queries", [0, 1, 512, 700])
def test_means_alone_are_the_same_means(kind, queries):
    X, y, log_noise = leaf(50, kind=kind)
    kernel, theta = bound(Matern32(), X, log_noise)
    work = Workspace()
    factor, Z = expert.factor(kernel, theta, X, y, work), leaf(queries, seed=1, kind=kind)[0]
    mean, _ = expert.posterior(kernel, theta, factor, Z, work)
    np.testing.assert_array_equal(expert.posterior_mean(kernel, theta, factor, Z, work), mean)


def test_means_alone_cost_no_variance_work(monkeypatch):
    X, y, log_noise = leaf(50)
    kernel, theta = bound(Matern32(), X, log_noise)
    work, calls = Workspace(), []
    factor = expert.factor(kernel, theta, X, y, work)
    solve, diagonal = cholesky.solve_lower, type(kernel).diagonal
    monkeypatch.setattr(cholesky, "solve_lower", lambda *a: (calls.append("solve"), solve(*a)))
    monkeypatch.setattr(type(kernel), "diagonal", lambda *a: (calls.append("diagonal"), diagonal(*a))[1])
    expert.posterior_mean(kernel, theta, factor, X, work)
    assert calls == []
    expert.posterior(kernel, theta, factor, X, work)
    assert sorted(calls) == ["diagonal", "solve"]  # the count counts


def test_a_kept_factor_outlives_the_next_leaf():
    X, y, log_noise = leaf(50)
    kernel, theta = bound(Matern32(), X, log_noise)
    work = Workspace()
    kept = expert.factor(kernel, theta, X, y, work, keep=True)
    before = expert.posterior(kernel, theta, kept, X, work)
    expert.evidence(kernel, theta, *leaf(50, seed=5)[:2], work)
    after = expert.posterior(kernel, theta, kept, X, work)
    np.testing.assert_array_equal(before, after)


def test_far_from_data_the_posterior_is_the_prior():
    X, y, log_noise = leaf(50)
    kernel, theta = bound(SquaredExponential(1.7), X, log_noise)
    work = Workspace()
    mean, variance = expert.posterior(kernel, theta, expert.factor(kernel, theta, X, y, work), X + 100, work)
    np.testing.assert_allclose(mean, 0, atol=1e-12)
    np.testing.assert_allclose(variance, 1.7, rtol=1e-12)


@given(data=st.data())
def test_a_variance_is_always_positive(data):
    """Duplicated points, next to no noise, queries on top of the data, single precision."""
    kind = data.draw(st.sampled_from([np.float64, np.float32]))
    kernel = data.draw(st.sampled_from([SquaredExponential, Matern12, Matern32, Matern52, RationalQuadratic]))(
        variance=data.draw(st.sampled_from([1e-4, 1.0, 1e4])),
        lengthscale=data.draw(st.sampled_from([1e-3, 0.5, 10.0, 1e3])),
    )
    if data.draw(st.booleans()):
        kernel = kernel + data.draw(st.sampled_from([Linear(), Constant(), Periodic()]))
    log_noise = np.log(data.draw(st.sampled_from([1e-30, 1e-12, 1e-6, 1.0])))
    cells = st.lists(st.tuples(*[st.integers(-3, 3)] * 2), min_size=1, max_size=40)
    X = np.array(data.draw(cells), kind) / 2
    y = np.sin(X.sum(axis=1)) + np.arange(len(X), dtype=kind)
    Z = np.concatenate([X, X + np.finfo(kind).eps, np.array(data.draw(cells), kind) * 50]).astype(kind)
    kernel, theta = bound(kernel, X, log_noise)
    work = Workspace()
    factor = expert.factor(kernel, theta, X, y, work)
    mean, variance = expert.posterior(kernel, theta, factor, Z, work)
    prior = kernel.diagonal(theta[:-1], Z)
    assert np.all(np.isfinite(mean))
    assert np.all(np.isfinite(variance))
    assert np.all(variance > 0)
    assert np.all(variance <= prior * (1 + 1e-6) + 1e-30)
    mean, variance, scale = expert.held_out(kernel, theta, X, y, X, np.arange(len(X)), work)
    assert np.all(np.isfinite(mean))
    assert np.all(variance > 0)
    assert np.all(scale > 0)


def test_a_variance_is_positive_where_the_prior_is_not():
    X, y, log_noise = leaf(20)
    kernel, theta = bound(Linear(), X, log_noise)
    work = Workspace()
    _, variance = expert.posterior(kernel, theta, expert.factor(kernel, theta, X, y, work), np.zeros((2, 3)), work)
    assert np.all(variance > 0)
    assert np.all(variance < 1e-200)


# Jitter and failure


def test_jitter_is_reported():
    X, y, _ = leaf(40)
    X[20:] = X[:20]  # every point twice
    kernel, theta = bound(SquaredExponential(lengthscale=3.0), X, np.log(1e-30))
    got, work = expert.evidence(kernel, theta, X, y, Workspace()), Workspace()
    assert 0 < got.jitter <= 1e-5 * 1.0001
    assert got.jittered == 1
    assert expert.factor(kernel, theta, X, y, work).jitter == got.jitter
    assert expert.factor(kernel, np.append(kernel.theta, np.log(0.1)), X, y, work).jitter == 0


class Indefinite(Kernel):
    """k(x, x) is too small for what x shares with others."""

    def __init__(self):
        self.parameters = SquaredExponential(2.0, 5.0).parameters

    def gram(self, theta, X, out=None):
        K = SquaredExponential().bind(X.shape[1]).gram(theta, X, out)
        K[np.arange(len(X)), np.arange(len(X))] *= 0.1
        return K

    def pullback(self, theta, X, W, K):
        return np.zeros(len(theta))


def failing(call, kind=np.float64, number=None):
    X, y, _ = leaf(30, kind=kind)
    kernel, theta = bound(Indefinite(), X, np.log(1e-3))
    with pytest.raises(NotPositiveDefinite) as caught:
        call(kernel, theta, X, y, Workspace(), number)
    return caught.value


def left_out(kernel, theta, X, y, work, number):
    return expert.held_out(kernel, theta, X, y, X, np.arange(len(X)), work, number)


@pytest.mark.parametrize("call", [expert.evidence, expert.factor, left_out])
def test_failure_names_expert_theta_and_cure(call):
    error = failing(call, number=17)
    assert error.expert == 17
    names = ["variance", "lengthscale[0]", "lengthscale[1]", "lengthscale[2]", "noise_variance"]
    assert list(error.theta) == names
    np.testing.assert_allclose(list(error.theta.values()), [2, 5, 5, 5, 1e-3])
    text = str(error)
    for part in ("expert 17", "variance=2", "lengthscale[2]=5", "noise_variance=0.001", "jitter 1e-05", "check_kernel"):
        assert part in text
    assert "raise the lower bound of the noise variance (noise_bounds)" in text
    assert "float64" not in text
    assert isinstance(error, ArithmeticError)


def test_failure_in_single_precision_advises_double():
    text = str(failing(expert.evidence, np.float32))
    assert 'use dtype="float64"' in text
    assert "the expert is not positive definite" in text
    assert "jitter 0.001" in text


def test_failure_crosses_processes():
    error = failing(expert.evidence, number=3)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is NotPositiveDefinite
    assert str(back) == str(error)
    assert (back.expert, back.theta, back.jitter, back.dtype) == (error.expert, error.theta, error.jitter, error.dtype)


@pytest.mark.parametrize("kernel", [k for k in KERNELS if not isinstance(k, Constant)], ids=repr)
def test_failure_of_a_matrix_that_is_not_finite(kernel):
    X, y, log_noise = leaf(30)
    X[3, 1] = np.nan
    kernel, theta = bound(kernel, X, log_noise)
    with pytest.raises(NotPositiveDefinite):
        expert.evidence(kernel, theta, X, y, Workspace())


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_evidence_of_a_leaf_does_not_depend_on_its_bundle(kind):
    """Leaves of several sizes in one call, one of which needs jitter and is left to be taken alone."""
    (X, y, _), kernel = leaf(400, kind=kind), Matern32(0.8, 1.5).bind(3)
    X[100:133] = X[100]  # rows that are all alike
    for array in (X, y):
        array.flags.writeable = False
    theta, work = np.append(kernel.theta, -40.0), Workspace()
    borders = np.array([0, 50, 100, 133, 183, 240, 290])
    bundle = expert.evidences(kernel, theta, X, y, borders[:-1], borders[1:], work, 100.0)
    assert [evidence is None for evidence in bundle] == [False, False, True, False, False, False]
    for first, end, evidence in zip(borders[:-1], borders[1:], bundle, strict=True):
        alone = expert.evidence(kernel, theta, X[first:end], y[first:end], Workspace(), dof=100.0)
        assert (alone.jitter > 0) == (evidence is None)
        if evidence is not None:
            assert np.array_equal(evidence.sums, alone.sums)
