"""The Laplace evidence of one leaf: gradient, weights, several classes, bits."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from gigagp.errors import NotFinite
from gigagp.expert import evidence as exact_evidence
from gigagp.kernels import Constant, Matern12, Matern32, RationalQuadratic, SquaredExponential
from gigagp.likelihoods import (
    LIKELIHOODS,
    Bernoulli,
    Classes,
    Gamma,
    Gaussian,
    LaplaceEvidence,
    NegativeBinomial,
    Poisson,
    SingleLatent,
)
from gigagp.linalg.workspace import Workspace

KERNELS = [
    SquaredExponential(3.0, [0.7, 1.5]),
    Matern12(20.0, [2.0, 0.5]),
    RationalQuadratic(2.0, [1.0, 2.0], 0.7),
    Matern32(2.0, [1.0, 2.0]) + Constant(1.5),  # a kernel without a profile
]


def rows(p=50, classes=2, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(p, 2))
    y = np.floor(classes * (0.5 + np.arctan(X[:, 0] + 0.3 * rng.normal(size=p)) / np.pi)) % classes
    return X, y, Classes(tuple(np.bincount(y.astype(int), minlength=classes).tolist()), (1.0,) * classes)


def evidence(kernel, theta, X, y, classes):
    return LaplaceEvidence(kernel, np.append(theta, -3.0), classes)(0, X, y, Workspace())


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
@pytest.mark.parametrize("number", [2, 3])
def test_gradient_equals_finite_differences(kernel, number):
    X, y, classes = rows(classes=number)
    classes = Classes(classes.counts, (1.0, 2.5, 0.5)[:number])
    theta, step = kernel.theta, 1e-5
    gradient = evidence(kernel, theta, X, y, classes).gradient[:-1]
    for i in range(len(theta)):
        change = np.zeros(len(theta))
        change[i] = step
        values = [evidence(kernel, theta + s * change, X, y, classes).value for s in (1, -1)]
        assert gradient[i] == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-5, abs=1e-6)


def test_weight_two_equals_a_row_given_twice():
    X, y, _ = rows(30)
    kernel = SquaredExponential(2.0, [1.0, 1.0])
    twice = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1), np.flatnonzero(y == 1)])
    counts = (7, 5)  # the prior mean must be the same in both
    weighted = Classes(counts, (1.0, 2.0))
    plain = Classes((7, 10), (1.0, 1.0))
    object.__setattr__(plain, "means", weighted.means)  # a frozen value; only for this comparison
    a = evidence(kernel, kernel.theta, X, y, weighted).value
    b = evidence(kernel, kernel.theta, X[twice], y[twice], plain).value
    assert a == pytest.approx(b, rel=1e-8)


def test_two_classes_as_one_latent_function_or_its_mirror_image():
    X, y, classes = rows()
    mirrored = Classes(classes.counts[::-1], classes.weights[::-1])
    kernel = Matern32(4.0, [1.0, 1.0])
    a, b = (evidence(kernel, kernel.theta, X, *each).value for each in ((y, classes), (1 - y, mirrored)))
    assert a == pytest.approx(b, rel=1e-10)


@pytest.mark.parametrize("variance", [1e-4, 1e4])
@pytest.mark.parametrize("share", [0.02, 1.0])
def test_mode_is_found_at_extreme_variances_and_for_one_class(variance, share):
    X, _, _ = rows(100)
    y = (np.arange(100) < 100 * share).astype(float)
    classes = Classes((int((1 - y).sum()) + 1, int(y.sum())), (1.0, 1.0))
    kernel = SquaredExponential(variance, [0.5, 0.5])
    result = evidence(kernel, kernel.theta, X, y, classes)
    assert result.value < 0
    assert np.isfinite(result.gradient).all()


def test_the_value_does_not_depend_on_what_was_computed_before():
    X, y, classes = rows()
    kernel = Matern32(4.0, [1.0, 1.0])
    work = Workspace()
    question = LaplaceEvidence(kernel, np.append(kernel.theta, 0.0), classes)
    first = question(0, X, y, work)
    LaplaceEvidence(kernel, np.append(kernel.theta + 1.0, 0.0), classes)(0, X[::-1], y, work)
    np.testing.assert_array_equal(first.sums, question(0, X, y, work).sums)


def test_a_kernel_that_is_not_finite_is_an_error():
    X, y, classes = rows()
    kernel = SquaredExponential(1.0, [1.0, 1.0])
    with pytest.raises(NotFinite):
        evidence(kernel, np.array([np.nan, 0.0, 0.0]), X, y, classes)


def test_classes_without_a_row_have_one_latent_function():
    X, y, _ = rows(40, classes=3)
    kernel = Matern32(4.0, [1.0, 1.0])
    classes = Classes((10.0, 10.0, 20.0, 5.0, 5.0), (1.0,) * 5)
    assert classes.distinct(y) == [(0, 1), (1, 1), (2, 1), (3, 2)]
    assert classes.distinct(np.arange(5.0)) == [(k, 1) for k in range(5)]
    whole = evidence(kernel, kernel.theta, X, y, classes)
    each = Classes((1.0, 4.0), (1.0, 1.0))  # the prior mean of each of five classes against the others
    object.__setattr__(each, "means", classes.means[:1])
    parts = [evidence(kernel, kernel.theta, X, (y == k).astype(float), each) for k in range(5)]
    np.testing.assert_allclose(whole.value, sum(part.value for part in parts), rtol=1e-10)
    np.testing.assert_allclose(whole.gradient, sum(part.gradient for part in parts), rtol=1e-8, atol=1e-10)


def numbers(likelihood, p=40, seed=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(p, 2))
    return X, likelihood.sample(1 + np.sin(2 * X[:, 0]), 0.3, rng)


@pytest.mark.parametrize(
    "likelihood", [*(kind() for kind in LIKELIHOODS.values()), Gaussian()], ids=lambda each: type(each).__name__
)
def test_gradient_of_numbers_equals_finite_differences(likelihood):
    X, y = numbers(likelihood)
    kernel, latents, step = Matern32(1.5, [1.0, 2.0]), SingleLatent(likelihood, 0.7), 1e-5
    row_noise = np.column_stack([np.where(np.arange(len(y)) % 3, 1.0, 0.4), np.zeros(len(y))])  # weights 1 and 2.5
    theta = np.append(kernel.theta, np.log(0.4))

    def value(theta):
        return LaplaceEvidence(kernel, theta, latents)(0, X, y, Workspace(), row_noise)

    gradient = value(theta).gradient
    for i in range(len(theta)):
        change = step * (np.arange(len(theta)) == i)
        slope = (value(theta + change).value - value(theta - change).value) / (2 * step)
        assert gradient[i] == pytest.approx(slope, rel=1e-5, abs=1e-6)


def test_gaussian_targets_have_the_exact_evidence():
    X, y = numbers(Gaussian())
    kernel = Matern32(1.5, [1.0, 2.0])
    theta = np.append(kernel.theta, np.log(0.3))
    exact = exact_evidence(kernel, theta, X, y - 0.7, Workspace(), 0)
    laplace = LaplaceEvidence(kernel, theta, SingleLatent(Gaussian(), 0.7))(0, X, y, Workspace())
    assert laplace.value == pytest.approx(exact.value, rel=1e-10)
    np.testing.assert_allclose(laplace.gradient, exact.gradient, rtol=1e-8)


@pytest.mark.parametrize("y", [[30.0, 42.0], [700.0, 3.0]])
@pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial(), Gamma()], ids=lambda each: type(each).__name__)
def test_evidence_of_two_rows_is_near_that_of_quadrature(likelihood, y):
    X, y, mean, d = np.array([[0.0], [1.0]]), np.array(y), 3.0, 0.05
    kernel = Matern32(0.8, [1.5])
    K = kernel.gram(kernel.theta, X)
    K = np.tril(K) + np.tril(K, -1).T
    got = LaplaceEvidence(kernel, np.append(kernel.theta, np.log(d)), SingleLatent(likelihood, mean))(
        0, X, y, Workspace()
    )
    side = np.linspace(mean - 7, mean + 7, 1401)
    f = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    logs = sum(likelihood.log_density(np.full(len(f), y[i]), f[:, i], d) for i in range(2))
    logs += multivariate_normal([mean, mean], K).logpdf(f)
    right = np.log(np.exp(logs - logs.max()).sum()) + logs.max() + 2 * np.log(side[1] - side[0])
    assert got.value == pytest.approx(right, abs=0.02)  # Laplace's approximation: these targets say much about f


def test_one_latent_function_of_labels_is_that_of_two_classes():
    X, y, classes = rows()
    kernel = Matern32(4.0, [1.0, 1.0])
    labels = evidence(kernel, kernel.theta, X, y, SingleLatent(Bernoulli(), float(classes.means[0])))
    np.testing.assert_array_equal(labels.sums, evidence(kernel, kernel.theta, X, y, classes).sums)
