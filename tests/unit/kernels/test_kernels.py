"""Kernels: conformance of every one of them, closed forms, parameters, composition."""

import pickle
from dataclasses import replace
from functools import reduce
from operator import add, mul

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigagp import kernels
from gigagp.errors import InvalidParameter
from gigagp.kernels import (
    Constant,
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    OnColumns,
    Parameter,
    Periodic,
    Product,
    RationalQuadratic,
    SquaredExponential,
    Sum,
)
from gigagp.kernels.base import parameter, place
from gigagp.testing import check_kernel

STATIONARY = [SquaredExponential, Matern12, Matern32, Matern52, RationalQuadratic]
KERNELS = [
    *(kind() for kind in STATIONARY),
    *(kind(ard=False) for kind in STATIONARY),
    *(kind(variance=2.5, lengthscale=[0.3, 1, 4]) for kind in STATIONARY),
    RationalQuadratic(alpha=0.1),
    RationalQuadratic(alpha=200.0),
    Periodic(),
    Periodic(0.5, [0.7, 1, 2], [3, 5, 7]),
    Linear(),
    Linear(0.3, ard=False),
    Linear([0.1, 1, 10]),
    Constant(),
    Constant(3.0),
    SquaredExponential() + Linear(),
    Constant(0.5) * Matern32(),
    SquaredExponential() * Periodic() + Matern12(ard=False),
    (Constant() + Linear(ard=False)) * (RationalQuadratic() + Constant(2.0)),
    OnColumns(Matern52().bind(2), (2, 0), 3),
    OnColumns(SquaredExponential(ard=False).bind(2), (1, 2), 3, (0.5, 2.0)),
    OnColumns(Periodic().bind(1), (1,), 3) * OnColumns(Matern32().bind(2), (0, 2), 3) + Linear(),
    reduce(add, [SquaredExponential(), Matern52(), Constant(), Linear()]),
    reduce(mul, [SquaredExponential(), Matern52(), Constant(), Linear()]),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_every_kernel_conforms(kernel):
    check_kernel(kernel)


def test_no_exported_kernel_escapes_the_conformance_test():
    exported = {getattr(kernels, name) for name in kernels.__all__} - {Kernel, Parameter}
    assert {type(kernel) for kernel in KERNELS} == exported


@given(data=st.data())
def test_any_composition_conforms(data):
    leaf = st.sampled_from([SquaredExponential(), Matern12(), Matern52(ard=False), Periodic(), Linear(), Constant()])
    pair = st.sampled_from([Sum, Product])
    nested = st.recursive(leaf, lambda inner: st.builds(lambda c, a, b: c(a, b), pair, inner, inner), max_leaves=4)
    check_kernel(data.draw(nested), n_features=2, seed=data.draw(st.integers(0, 1000)))


# Closed forms (Rasmussen & Williams 2006, chapter 4), between x and z


def scaled_distance(x, z, lengthscale):
    return np.sqrt(sum(((a - b) / l) ** 2 for a, b, l in zip(x, z, lengthscale, strict=True)))


def squared_exponential(x, z, v, l):  # eq. 4.9
    return v * np.exp(-(scaled_distance(x, z, l) ** 2) / 2)


def matern12(x, z, v, l):  # eq. 4.18
    return v * np.exp(-scaled_distance(x, z, l))


def matern32(x, z, v, l):  # eq. 4.17
    r = np.sqrt(3) * scaled_distance(x, z, l)
    return v * (1 + r) * np.exp(-r)


def matern52(x, z, v, l):  # eq. 4.17
    r = scaled_distance(x, z, l)
    return v * (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r)


def rational_quadratic(x, z, v, l, alpha):  # eq. 4.19
    return v * (1 + scaled_distance(x, z, l) ** 2 / (2 * alpha)) ** -alpha


def periodic(x, z, v, l, period):  # eq. 4.31, a period of its own for each column
    waves = [2 * (np.sin(np.pi * (a - b) / t) / s) ** 2 for a, b, t, s in zip(x, z, period, l, strict=True)]
    return v * np.exp(-sum(waves))


def linear(x, z, v):
    return sum(s * a * b for a, b, s in zip(x, z, v, strict=True))


L3, V3, T3 = (0.5, 1.0, 3.0), (0.2, 1.0, 4.0), (1.0, 2.5, 6.0)
FORMULAS = [
    (SquaredExponential(1.7, L3), lambda x, z: squared_exponential(x, z, 1.7, L3)),
    (SquaredExponential(1.7, 0.8, ard=False), lambda x, z: squared_exponential(x, z, 1.7, [0.8] * 3)),
    (Matern12(1.7, L3), lambda x, z: matern12(x, z, 1.7, L3)),
    (Matern32(1.7, L3), lambda x, z: matern32(x, z, 1.7, L3)),
    (Matern52(1.7, L3), lambda x, z: matern52(x, z, 1.7, L3)),
    (RationalQuadratic(1.7, L3, 0.6), lambda x, z: rational_quadratic(x, z, 1.7, L3, 0.6)),
    (Periodic(1.7, L3, T3), lambda x, z: periodic(x, z, 1.7, L3, T3)),
    (Linear(V3), lambda x, z: linear(x, z, V3)),
    (Linear(0.9, ard=False), lambda x, z: linear(x, z, [0.9] * 3)),
    (Constant(1.7), lambda x, z: 1.7),
    (Constant(0.4) * Matern32(1.7, L3) + Linear(V3), lambda x, z: 0.4 * matern32(x, z, 1.7, L3) + linear(x, z, V3)),
]


@pytest.mark.parametrize(("kernel", "formula"), FORMULAS, ids=[repr(k) for k, _ in FORMULAS])
def test_closed_form(kernel, formula):
    rng = np.random.default_rng(1)
    X, Z = rng.standard_normal((6, 3)), rng.standard_normal((5, 3))
    X[0], Z[0], Z[1] = 0, 0, X[1]
    theta = kernel.bind(3).theta
    np.testing.assert_allclose(
        kernel.cross(theta, X, Z), [[formula(x, z) for z in Z] for x in X], rtol=1e-13, atol=1e-15
    )
    gram = np.array([[formula(x, z) for z in X] for x in X])
    np.testing.assert_allclose(np.tril(kernel.gram(theta, X)), np.tril(gram), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(kernel.diagonal(theta, X), np.diagonal(gram), rtol=1e-13, atol=1e-15)


def test_large_alpha_makes_the_rational_quadratic_a_squared_exponential():
    X = np.random.default_rng(0).standard_normal((5, 2))
    kernel, limit = (
        RationalQuadratic(2.0, 0.7, 1e8, alpha_bounds=(1, 1e9)).bind(2),
        SquaredExponential(2.0, 0.7).bind(2),
    )
    np.testing.assert_allclose(kernel.gram(kernel.theta, X), limit.gram(limit.theta, X), rtol=1e-6)


@pytest.mark.parametrize("kind", STATIONARY)
@pytest.mark.parametrize(
    ("precision", "far"), [(np.float64, [1e9, 1e150, 1e160, 1e300]), (np.float32, [1e9, 1e17, 1e30])]
)
def test_points_far_apart_are_all_but_independent(kind, precision, far):
    kernel = kind()
    X, Z = np.zeros((1, 1), precision), np.array(far, precision)[:, None]
    assert np.all(np.abs(kernel.cross(kernel.theta, Z, X)) < 1e-15)
    assert np.all(np.abs(np.tril(kernel.gram(kernel.theta, Z), -1)) < 1e-15)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_no_points_give_empty_matrices(kernel):
    kernel = kernel.bind(3)
    X, none = np.ones((4, 3)), np.empty((0, 3))
    assert kernel.cross(kernel.theta, X, none).shape == (4, 0)
    assert kernel.diagonal(kernel.theta, none).shape == (0,)


# A kernel of the user's own, in plain Python


class Cosine(Kernel):
    """k = variance * prod_d cos(x_d - z_d): gram and pullback, nothing else."""

    def __init__(self, variance=1.0):
        self.parameters = (parameter("variance", variance, (1e-3, 1e3)),)

    def gram(self, theta, X, out=None):
        return place(np.exp(theta[0]) * np.cos(X[:, None, :] - X[None, :, :]).prod(axis=2), out)

    def pullback(self, theta, X, W, K):
        p = len(X)
        both = np.tril(W[:p, :p] * K[:p, :p])
        return np.array([2 * both.sum() - np.trace(both)])


def test_a_kernel_with_only_gram_and_pullback_conforms():
    check_kernel(Cosine())
    check_kernel(Cosine(2.0) * SquaredExponential() + Constant())


class Fixed(Cosine):
    """As Cosine, with nothing to learn."""

    def __init__(self):
        self.parameters = ()

    def gram(self, theta, X, out=None):
        return super().gram(np.zeros(1), X, out)

    def pullback(self, theta, X, W, K):
        return np.empty(0)


def test_a_kernel_without_parameters_conforms():
    check_kernel(Fixed())
    check_kernel(Fixed() * SquaredExponential())


class Doubled(SquaredExponential):
    """A subclass with passes of its own, which the compiled leaf must not overlook."""

    def gram(self, theta, X, out=None):
        return place(2 * super().gram(theta, X), out)

    def cross(self, theta, X, Z, out=None):
        return place(2 * super().cross(theta, X, Z), out)

    def diagonal(self, theta, X):
        return 2 * super().diagonal(theta, X)

    def pullback(self, theta, X, W, K):
        return 2 * super().pullback(theta, X, W, super().gram(theta, X))


def test_a_subclass_that_overrides_its_passes_conforms():
    check_kernel(Doubled())


def test_default_diagonal_takes_many_points_a_block_at_a_time():
    X = np.random.default_rng(0).standard_normal((1000, 2))
    np.testing.assert_allclose(Cosine(3.0).diagonal(np.log([3.0]), X), np.full(1000, 3.0))


# What the conformance kit is for: each of these is wrong in one way


class WrongGradient(Cosine):
    def pullback(self, theta, X, W, K):
        return (1 + 1e-5) * super().pullback(theta, X, W, K)


class MissingGradient(Cosine):
    def pullback(self, theta, X, W, K):
        return np.empty(0)


class ReadsAbove(Cosine):
    def pullback(self, theta, X, W, K):
        p = len(X)
        return np.array([np.sum(W[:p, :p] * K[:p, :p])])


class WrongCross(Cosine):
    def cross(self, theta, X, Z, out=None):
        return place(super().cross(theta, X, Z) + 1e-6 * (X[:, :1] - Z[:, 0]), out)


class HalfCross(Cosine):
    def cross(self, theta, X, Z, out=None):
        return place(super().cross(theta, X, Z) * np.where(len(X) == len(Z), 1.0, 0.5), out)


class WrongDiagonal(Cosine):
    def diagonal(self, theta, X):
        return np.full(len(X), 1.0 + np.exp(theta[0]))


class NotPositive(Cosine):
    def gram(self, theta, X, out=None):
        return place(-np.exp(theta[0]) * np.cos(X[:, None, :] - X[None, :, :]).prod(axis=2), out)


class IgnoresOut(Cosine):
    def gram(self, theta, X, out=None):
        return super().gram(theta, X)


class WritesTooMuch(Cosine):
    def cross(self, theta, X, Z, out=None):
        if out is not None:
            out[:] = 0
        return place(super().cross(theta, X, Z), out)


class IgnoresTheta(Cosine):
    def gram(self, theta, X, out=None):
        return super().gram(self.theta, X, out)

    def pullback(self, theta, X, W, K):
        return np.zeros(1)


class WrongProfile(SquaredExponential):
    """The compiled leaf, which trusts the profile, would train another kernel than the one that predicts."""

    def profile(self, theta, n_features):
        f = super().profile(theta, n_features)
        return f._replace(variance=2 * f.variance)


class OutOfBounds(Cosine):
    def __init__(self):
        super().__init__()
        first, *others = self.parameters
        self.parameters = (replace(first, values=(1e4,)), *others)


class DoesNotPickle(Cosine):
    def __init__(self):
        super().__init__()
        self.profile = lambda r: np.cos(r) + 0.0


class ForgetsParameters(Cosine):
    def with_theta(self, theta):
        return type(self)()


class WrongMetric(Cosine):
    def metric(self, theta):
        return np.ones(7)


class ChangesItsInput(Cosine):
    def diagonal(self, theta, X):
        X -= 1
        return np.full(len(X), np.exp(theta[0]))


class BadInSinglePrecision(Cosine):
    def gram(self, theta, X, out=None):
        return super().gram(theta, X.astype(np.float16) if X.dtype == np.float32 else X, out)


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (WrongGradient, r"pullback for variance is .*, central differences say .*: relative error 1\.0e-05"),
        (MissingGradient, r"pullback must have an entry per parameter, 1; got shape \(0,\)"),
        (ReadsAbove, "pullback must read only the lower triangles of W and K"),
        (WrongCross, r"cross\(X, X\) must equal gram|cross\(Z, X\) must be"),
        (HalfCross, r"cross\(X, Z\) must equal gram's block"),
        (WrongDiagonal, "diagonal must equal gram's diagonal; the largest relative difference is 1"),
        (NotPositive, "positive semi-definite; its smallest eigenvalue is -"),
        (IgnoresOut, "gram must write into `out` and return it"),
        (WritesTooMuch, "cross must write nothing outside"),
        (IgnoresTheta, "gram must follow the theta it is given"),
        (WrongProfile, "an expert's evidence and gradient must be those of gram and pullback"),
        (OutOfBounds, r"variance starts at 1e\+04, outside its bounds 0.001 to 1e\+03"),
        (DoesNotPickle, "must pickle"),
        (ForgetsParameters, "with_theta"),
        (WrongMetric, "metric must be None"),
        (ChangesItsInput, "changes the arrays it is given"),
        (BadInSinglePrecision, "gram in float32 must agree"),
    ],
)
def test_broken_kernels_are_caught(broken, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_kernel(broken())


# Parameters


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, [1.0, -2.0], []])
def test_parameters_must_be_positive_and_finite(value):
    with pytest.raises(InvalidParameter, match="lengthscale must be positive and finite; got"):
        SquaredExponential(lengthscale=value)


@pytest.mark.parametrize("bounds", [(0, 1), (-1, 1), (2, 1), (1, np.inf), (np.nan, 1)])
def test_bounds_must_be_positive_ordered_and_finite(bounds):
    with pytest.raises(InvalidParameter, match="the bounds of value must be 0 < low <= high; got"):
        Constant(bounds=bounds)


def test_values_beyond_the_columns_are_refused_with_the_cure():
    with pytest.raises(
        InvalidParameter, match="2 values of lengthscale for 3 columns; give one value, or one per column"
    ):
        Matern32(lengthscale=[1, 2]).bind(3)
    with pytest.raises(InvalidParameter, match="2 values of variance for 3 columns"):
        (Constant() + Linear([1, 2])).bind(3)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("lengthscale", lambda: SquaredExponential(lengthscale=[1, 2], ard=False)),
        ("variance", lambda: SquaredExponential(variance=[1, 2])),
        ("alpha", lambda: RationalQuadratic(alpha=[1, 2])),
        ("variance", lambda: Linear([1, 2], ard=False)),
        ("value", lambda: Constant([1, 2])),
    ],
)
def test_several_values_of_what_has_one_are_refused(name, make):
    with pytest.raises(InvalidParameter, match=name):
        make().bind(2)


def test_one_value_is_repeated_for_each_column_on_bind():
    kernel = SquaredExponential(2.0, 0.5)
    assert kernel.names == ("variance", "lengthscale[0]")
    bound = kernel.bind(3)
    assert bound.names == ("variance", "lengthscale[0]", "lengthscale[1]", "lengthscale[2]")
    np.testing.assert_allclose(np.exp(bound.theta), [2, 0.5, 0.5, 0.5])
    assert len(kernel.theta) == 2  # the kernel itself is as it was
    assert bound.bind(3) == bound


def test_ard_off_keeps_one_value():
    kernel = Matern52(lengthscale=0.5, ard=False).bind(4)
    assert kernel.names == ("variance", "lengthscale")
    assert kernel.metric(kernel.theta).shape == (1,)


def test_bounds_are_logarithms_in_the_order_of_theta():
    kernel = RationalQuadratic(variance_bounds=(0.1, 10), lengthscale_bounds=(0.2, 20), alpha_bounds=(0.3, 30)).bind(2)
    np.testing.assert_allclose(np.exp(kernel.bounds), [[0.1, 10], [0.2, 20], [0.2, 20], [0.3, 30]])


def test_equal_bounds_are_allowed_and_fix_a_parameter():
    np.testing.assert_array_equal(Constant(2.0, bounds=(2, 2)).bounds, np.log([[2, 2]]))


@given(st.lists(st.floats(-9, 9), min_size=4, max_size=4))
def test_with_theta_and_theta_are_inverse(theta):
    kernel = SquaredExponential().bind(2) + Constant()
    np.testing.assert_allclose(kernel.with_theta(np.array(theta)).theta, theta, atol=1e-12)
    assert kernel == SquaredExponential().bind(2) + Constant()


@pytest.mark.parametrize("count", [0, 2, 4])
def test_theta_of_another_length_is_refused(count):
    with pytest.raises(InvalidParameter):
        SquaredExponential().bind(2).with_theta(np.zeros(count))


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (SquaredExponential(2.0, 0.5).bind(3), "SquaredExponential(variance=2, lengthscale=0.5)"),
        (Matern32(1.0, [0.1, 22.2222]), "Matern32(variance=1, lengthscale=[0.1, 22.2])"),
        (Constant(0.5) * Linear(2.0), "(Constant(value=0.5) * Linear(variance=2))"),
        (Constant() + Linear() * Constant(), "(Constant(value=1) + (Linear(variance=1) * Constant(value=1)))"),
    ],
)
def test_repr_is_short_and_tells_the_values(kernel, text):
    assert repr(kernel) == text


def test_equality_and_hash_are_by_content():
    assert Matern12(2.0) == Matern12(2.0)
    assert Matern12(2.0) != Matern12(3.0)
    assert Matern12() != Matern32()
    assert Constant() + Linear() == Constant() + Linear()
    assert Constant() + Linear() != Constant() * Linear()
    assert Constant() + Linear() != Linear() + Constant()
    assert len({Matern12(), Matern12(), Constant() + Linear(), Constant() + Linear()}) == 2
    assert pickle.loads(pickle.dumps(Constant() + Periodic(period=[1, 2]))) == Constant() + Periodic(period=[1, 2])


# Composition


def test_names_of_a_composition_tell_the_parameters_apart():
    kernel = (Constant() * SquaredExponential() + Linear(ard=False)).bind(2)
    assert kernel.names == (
        "value",
        "squared_exponential.variance",
        "lengthscale[0]",
        "lengthscale[1]",
        "linear.variance",
    )
    several = (Matern32() + Matern12() * (Matern32() + Constant())).bind(1)
    assert several.names == (
        "matern32_1.variance",
        "matern32_1.lengthscale[0]",
        "matern12.variance",
        "matern12.lengthscale[0]",
        "matern32_2.variance",
        "matern32_2.lengthscale[0]",
        "value",
    )
    assert all(len(set(k.names)) == len(k.theta) == len(k.bounds) for k in (kernel, several))


def test_a_composition_changes_the_values_of_its_parts():
    kernel = (Constant() * Matern32() + Linear(ard=False)).bind(1).with_theta(np.log([2.0, 3.0, 4.0, 5.0]))
    assert repr(kernel) == "((Constant(value=2) * Matern32(variance=3, lengthscale=4)) + Linear(variance=5))"
    np.testing.assert_allclose(np.exp(kernel.left.right.theta), [3, 4])
    assert kernel.left.right.names == ("variance", "lengthscale[0]")


def test_only_kernels_compose():
    for wrong in (2.0, "SquaredExponential"):
        with pytest.raises(TypeError):
            SquaredExponential() + wrong
        with pytest.raises(TypeError):
            SquaredExponential() * wrong


def test_metric_is_what_distance_means_to_the_kernel():
    kernel = SquaredExponential(lengthscale=[0.5, 2.0])
    np.testing.assert_allclose(kernel.metric(kernel.theta), [2.0, 0.5])
    both = kernel * Matern12(lengthscale=[1.0, 1.0])
    np.testing.assert_allclose(both.metric(both.theta), np.sqrt([5.0, 1.25]))


@pytest.mark.parametrize("kernel", [Linear(), Linear() + Periodic(), Constant() * Periodic()], ids=repr)
def test_kernels_without_any_distance_have_no_metric(kernel):
    assert kernel.bind(2).metric(kernel.bind(2).theta) is None
    assert not kernel.bind(2).local


@pytest.mark.parametrize("combine", [add, mul])
@pytest.mark.parametrize("other", [Linear(), Periodic()], ids=repr)
def test_a_composition_has_the_metric_of_the_part_that_has_one(combine, other):
    matern = Matern12(lengthscale=[0.5, 2.0])
    for kernel in (combine(matern, other).bind(2), combine(other, matern).bind(2)):
        np.testing.assert_allclose(kernel.metric(kernel.theta), [2.0, 0.5])
        assert not kernel.stationary
        assert kernel.local == (combine is mul)


@pytest.mark.parametrize("combine", [add, mul])
def test_a_constant_leaves_the_metric_alone(combine):
    kernel = combine(Constant(2.0), SquaredExponential(lengthscale=[0.5, 2.0]))
    metric = kernel.metric(kernel.theta)
    assert metric is not None
    np.testing.assert_allclose(metric, [2.0, 0.5])


def test_a_start_outside_the_bounds_is_refused():
    with pytest.raises(InvalidParameter, match=r"variance=1000000.0 starts outside its bounds .*widen them"):
        SquaredExponential(variance=1e6)
    assert SquaredExponential(variance=1e6, variance_bounds=(1, 1e7)).names[0] == "variance"
