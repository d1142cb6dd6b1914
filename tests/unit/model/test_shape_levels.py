"""Intervals of a shape cover the errors that it was adjusted to as often as they claim."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from gigagp.model.distribution import Shape
from gigagp.model.shape_learning import learn_shape, learn_symmetric
from gigagp.model.shape_levels import _nearest_weights, with_levels

LEVELS = np.array([0.5, 0.8, 0.95])


def coverage(shape, z):
    low, high = (shape.quantile(0.5 + sign * LEVELS / 2) for sign in (-1, 1))
    return np.array([np.mean((z >= a) & (z <= b)) for a, b in zip(low, high, strict=True)])


def shape_of(components):
    used = components.used
    return Shape.of(used.weights, used.widths, used.centres)


def symmetric(z, dof=8.0):
    return shape_of(learn_symmetric(z, dof))


@pytest.mark.parametrize("skewed", [False, True], ids=["Laplace after Student", "gamma after gamma"])
def test_intervals_cover_what_they_claim(skewed):
    """Errors of another distribution than those that the shape was learnt from."""
    rng = np.random.default_rng(0)
    if skewed:
        learnt = shape_of(learn_shape((rng.gamma(2.0, size=8000) - 2) / 2**0.5, 8.0))
    else:
        learnt = symmetric(rng.standard_t(3, 8000) / 3**0.5)

    def draw(n):
        return (rng.gamma(2.5, size=n) - 2.5) / 2.5**0.5 if skewed else rng.laplace(size=n) / 2**0.5

    z, fresh = draw(8000), draw(20000)
    adjusted = with_levels(learnt, z)
    assert np.abs(coverage(learnt, z) - LEVELS).max() > 0.01  # there was something to adjust
    np.testing.assert_allclose(coverage(adjusted, z), LEVELS, atol=2e-3)
    np.testing.assert_allclose(coverage(adjusted, fresh), LEVELS, atol=0.015)
    assert abs(adjusted.weights @ adjusted.centres) < 1e-8
    assert adjusted.weights @ (adjusted.widths**2 + adjusted.centres**2) == pytest.approx(1)


def test_a_shape_that_is_right_hardly_changes():
    z = np.random.default_rng(0).standard_t(5, 50_000) / (5 / 3) ** 0.5
    shape = symmetric(z, 5.0)
    adjusted = with_levels(shape, z)
    levels = np.linspace(0.01, 0.99, 50)
    np.testing.assert_allclose(adjusted.quantile(levels), shape.quantile(levels), atol=0.02)


def test_few_errors_and_errors_that_are_equal_change_nothing():
    rng = np.random.default_rng(0)
    z, shape = rng.uniform(-1, 1, 999), symmetric(rng.standard_normal(2000))
    assert with_levels(shape, z) is shape
    assert with_levels(shape, np.repeat([0.1, -0.7, 1.3], 1000)) is shape
    assert with_levels(Shape.gaussian(), rng.uniform(-1, 1, 5000)).is_gaussian


def test_agreement_does_not_make_errors_improbable():
    """Gaussians with mean zero agree with evenly spread errors only together with very wide ones."""
    rng = np.random.default_rng(0)
    shape, z = symmetric(rng.standard_normal(2000)), rng.uniform(-1, 1, 5000)
    adjusted = with_levels(shape, z)
    assert adjusted.log_density(z).mean() > shape.log_density(z).mean() - 0.01
    np.testing.assert_allclose(adjusted.weights @ adjusted.widths**2, 1)


@given(seed=st.integers(0, 2**32 - 1), components=st.integers(3, 8))
@settings(deadline=None)
def test_weights_are_the_nearest_that_agree(seed, components):
    """Against SciPy's solution of the primal problem: the least Kullback-Leibler divergence under the constraints."""
    rng = np.random.default_rng(seed)
    before = rng.dirichlet(np.full(components, 3.0))
    constraints = rng.uniform(size=(1, components))
    constraints -= constraints @ rng.dirichlet(np.full(components, 3.0))  # some weights agree with them
    weights = _nearest_weights(before, constraints)
    assert weights is not None
    found = minimize(
        lambda w: float(np.sum(w * np.log(np.maximum(w, 1e-300) / before))), np.full(components, 1 / components),
        bounds=[(0, 1)] * components, method="SLSQP", options={"ftol": 1e-14, "maxiter": 500},
        constraints=[
            {"type": "eq", "fun": lambda w: w.sum() - 1}, {"type": "eq", "fun": lambda w: constraints @ w},
        ],
    )  # fmt: skip
    if found.success:
        np.testing.assert_allclose(weights, found.x, atol=2e-3)
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(constraints @ weights, 0, atol=1e-3)


def test_constraints_that_no_weights_meet_are_refused():
    assert _nearest_weights(np.array([0.5, 0.5]), np.array([[0.1, 0.2]])) is None
