"""The compiled linear algebra against SciPy, at sizes on both sides of every tile border."""

import numba
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from gigagp.linalg import cholesky
from gigagp.linalg.exponential import exp_nonpositive
from gigagp.linalg.jitter import factor_noisy, largest_jitter, transpose_and_add
from gigagp.linalg.workspace import Workspace

SIZES = [1, 2, 7, 8, 9, 15, 16, 17, 23, 24, 25, 33, 47, 48, 49, 71, 73, 96, 97, 100, 128, 191, 192, 193, 257, 400, 800]
KINDS = [np.float64, np.float32]
TOLERANCE = {np.float64: 1e-12, np.float32: 2e-5}
GARBAGE = np.nan  # where a function has no business to read


class Problem:
    """A well-conditioned matrix in a buffer wider than itself, garbage below its diagonal, and its factor."""

    def __init__(self, p, kind, extra=0, seed=0):
        rng = np.random.default_rng([seed, p])
        B = rng.standard_normal((p, p))
        self.p, self.kind, self.rng = p, kind, rng
        self.A = B @ B.T / p + np.eye(p)
        self.L = scipy.linalg.cholesky(self.A, lower=True)
        self.stored = np.full((p, cholesky.stride(p) + extra), GARBAGE, kind)
        self.stored[:, :p][np.triu_indices(p)] = self.A[np.triu_indices(p)]
        self.D = np.full((p, cholesky.WIDTH), GARBAGE, kind)

    def factored(self):
        assert cholesky.factor(self.stored, self.D, self.p) == 0
        return self

    def right_side(self, q, columns):
        B = np.full((self.p, columns), GARBAGE, self.kind)
        B[:, :q] = self.rng.standard_normal((self.p, q))
        return B

    def close(self, got, wanted):
        size = np.abs(wanted).max()
        np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCE[self.kind] * size)


def untouched(stored):
    return np.isnan(stored).all()


def problems(test):
    """Every size in both precisions; every other one with rows longer than the leaf stores them."""
    cases = [(p, kind, 13 * ((i + j) % 2)) for i, p in enumerate(SIZES) for j, kind in enumerate(KINDS)]
    return pytest.mark.parametrize(("p", "kind", "extra"), cases)(test)


@problems
def test_factor_is_the_cholesky_factor(p, kind, extra):
    problem = Problem(p, kind, extra).factored()
    problem.close(np.triu(problem.stored[:, :p]), problem.L.T)
    assert untouched(problem.stored[:, p:])


@problems
def test_factor_leaves_the_inverses_of_its_diagonal_blocks(p, kind, extra):
    problem = Problem(p, kind, extra).factored()
    width = problem.D.shape[1]
    for j in range(0, p, width):
        b = min(width, p - j)
        problem.close(problem.D[j : j + b, :b], np.linalg.inv(problem.L[j : j + b, j : j + b]))


@problems
def test_solve_vector(p, kind, extra):
    problem = Problem(p, kind, extra).factored()
    b = problem.rng.standard_normal(p).astype(kind)
    wanted = scipy.linalg.cho_solve((problem.L, True), b.astype(float))
    cholesky.solve_vector(problem.stored, b, p)
    problem.close(b, wanted)


@problems
def test_triangular_solves(p, kind, extra):
    problem = Problem(p, kind, extra).factored()
    for q, columns in ((1, 1), (7, 7), (33, 40)):
        for transposed, solve in enumerate((cholesky.solve_lower, cholesky.solve_lower_transposed)):
            B = problem.right_side(q, columns)
            wanted = scipy.linalg.solve_triangular(problem.L, B[:, :q].astype(float), lower=True, trans=transposed)
            solve(problem.stored, problem.D, B, p, q)
            problem.close(B[:, :q], wanted)
            assert untouched(B[:, q:])


@problems
def test_inverse(p, kind, extra):
    problem = Problem(p, kind, extra).factored()
    T = np.full_like(problem.stored, GARBAGE)
    cholesky.inverse(problem.stored, problem.D, T, p)
    problem.close(np.tril(problem.stored[:, :p]), np.tril(np.linalg.inv(problem.A)))
    assert untouched(problem.stored[:, p:])


@problems
def test_log_determinant(p, kind, extra):
    problem = Problem(p, kind, extra).factored()
    wanted = np.linalg.slogdet(problem.A)[1]
    assert cholesky.log_determinant(problem.stored, p) == pytest.approx(wanted, rel=TOLERANCE[kind] * 10)


@given(data=st.data(), p=st.sampled_from([1, 2, 16, 17, 33, 64, 100, 257]), kind=st.sampled_from(KINDS))
def test_failure_names_the_first_row_whose_pivot_is_not_positive(data, p, kind):
    row = data.draw(st.integers(0, p - 1))
    below = data.draw(st.sampled_from([-0.5, -1e3, -np.inf, np.nan]))
    problem = Problem(p, kind)
    explained = np.sum(problem.L[row, :row] ** 2)  # what the rows above leave of A[row, row] is its pivot
    problem.stored[row, row] = explained + below
    assert cholesky.factor(problem.stored, problem.D, p) == row + 1


@pytest.mark.parametrize("p", [1, 17, 100])
def test_infinite_pivot_is_a_failure(p):
    problem = Problem(p, np.float64)
    problem.stored[p - 1, p - 1] = np.inf
    assert cholesky.factor(problem.stored, problem.D, p) == p


@given(st.integers(1, 100_000))
def test_rows_are_stored_off_the_powers_of_two(p):
    stored = cholesky.stride(p)
    assert p <= stored <= p + 15
    assert stored % 8 == 0
    assert stored % 64 != 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [1, 7, 8, 9, 31, 64, 100])
def test_a_lower_triangle_is_turned_up(kind, p):
    rng = np.random.default_rng(p)
    K = rng.standard_normal((p, p + 3)).astype(kind)
    A = np.full((p, p + 8), GARBAGE, kind)
    transpose_and_add(K, A, p, 0.5)
    np.testing.assert_array_equal(np.triu(A[:, :p]), np.tril(K[:, :p]).T + kind(0.5) * np.eye(p, dtype=kind))
    assert untouched(A[:, p:])


# Jitter


def with_smallest_eigenvalue(p, smallest, seed=0):
    """A matrix of unit mean diagonal, eigenvalues near one but for the smallest."""
    V = np.linalg.qr(np.random.default_rng(seed).standard_normal((p, p)))[0]
    values = np.full(p, 1.0)
    values[0], values[1] = smallest, 2 - smallest
    return (V * values) @ V.T


def jittered(K, noise, kind=np.float64):
    p = len(K)
    K = np.ascontiguousarray(K, dtype=kind)
    A = np.full((p, cholesky.stride(p)), GARBAGE, kind)
    D = np.zeros((p, cholesky.WIDTH), kind)
    kept = K.copy()
    jitter = factor_noisy(K, noise, A, D, p)
    np.testing.assert_array_equal(K, kept)
    return jitter, np.triu(A[:, :p]).T


@pytest.mark.parametrize("kind", KINDS)
def test_no_jitter_where_none_is_needed(kind):
    K = with_smallest_eigenvalue(40, 1e-3)
    jitter, L = jittered(K, 0.25, kind)
    assert jitter == 0
    np.testing.assert_allclose(L @ L.T, K + 0.25 * np.eye(40), atol=TOLERANCE[kind] * 4)


@pytest.mark.parametrize("needed", [3e-12, 3e-11, 3e-9, 3e-7, 3e-6])
@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_jitter_grows_until_it_suffices_and_no_further(needed, scale):
    K = scale * with_smallest_eigenvalue(40, -needed)
    jitter, L = jittered(K, 0.0)
    assert needed * scale < jitter < 10 * needed * scale
    np.testing.assert_allclose(L @ L.T, K + jitter * np.eye(40), atol=1e-13 * scale)


@pytest.mark.parametrize("kind", KINDS)
def test_jitter_of_a_matrix_of_equal_rows_is_small_and_reported(kind):
    jitter, L = jittered(np.ones((50, 50)), 0.0, kind)
    assert 0 < jitter <= 1e3 * np.finfo(kind).eps * 50
    np.testing.assert_allclose(L @ L.T, np.ones((50, 50)) + jitter * np.eye(50), atol=50 * np.finfo(kind).eps)


@pytest.mark.parametrize("kind", KINDS)
def test_jitter_is_bounded(kind):
    name = np.dtype(kind).name
    assert np.isfinite(jittered(with_smallest_eigenvalue(40, -0.5 * largest_jitter(name)), 0.0, kind)[0])
    assert jittered(with_smallest_eigenvalue(40, -2 * largest_jitter(name)), 0.0, kind)[0] == np.inf


@pytest.mark.parametrize("hopeless", [np.nan, np.inf, -1.0, 0.0])
@pytest.mark.parametrize("kind", KINDS)
def test_hopeless_matrices_are_infinitely_far(hopeless, kind):
    assert jittered(np.full((20, 20), hopeless), 0.0, kind)[0] == np.inf


# e^x


@numba.njit
def exponentials(x, out):
    for i in range(len(x)):
        out[i] = exp_nonpositive(x[i])


@pytest.mark.parametrize(("kind", "lowest", "ulps"), [(np.float64, -708, 2.5), (np.float32, -87, 1.5)])
def test_exponential_is_right_to_the_last_bits(kind, lowest, ulps):
    rng = np.random.default_rng(0)
    spread = -np.exp(rng.uniform(-45, np.log(-lowest), 100_000))
    x = np.concatenate([np.linspace(lowest, 0, 100_001), spread]).astype(kind)
    got = np.empty_like(x)
    exponentials(x, got)
    wanted = np.exp(x.astype(np.longdouble))
    assert np.max(np.abs(got - wanted) / np.spacing(wanted.astype(kind))) < ulps


@pytest.mark.parametrize(("kind", "lowest"), [(np.float64, -708), (np.float32, -87)])
def test_exponential_at_its_extremes(kind, lowest):
    tiny = np.finfo(kind).smallest_subnormal
    x = np.array([0, -0.0, -tiny, lowest, lowest - 1, -1e30, -np.inf, np.nan], kind)
    got = np.empty_like(x)
    exponentials(x, got)
    assert np.all(got[:3] == 1)
    np.testing.assert_allclose(got[3], np.exp(float(lowest)), rtol=1e-6)
    assert np.all(got[4:7] == 0)  # never a subnormal
    assert np.isnan(got[7])


# Workspace


def test_workspace_gives_the_same_memory_again_and_grows_when_asked():
    work, double = Workspace(), np.dtype(np.float64)
    first = work.take("K", 4, 6, double)
    assert first.shape == (4, 6)
    assert first.flags.c_contiguous
    assert np.shares_memory(first, work.take("K", 3, 5, double))
    assert work.take("K", 100, 7, double).shape == (100, 7)


def test_workspace_keeps_names_and_precisions_apart():
    work, double, single = Workspace(), np.dtype(np.float64), np.dtype(np.float32)
    a, b, c = work.take("K", 4, 4, double), work.take("L", 4, 4, double), work.take("K", 4, 4, single)
    assert c.dtype == single
    assert not any(np.shares_memory(m, n) for m, n in ((a, b), (a, c), (b, c)))


def test_workspace_content_is_finite():
    assert np.all(np.isfinite(Workspace().take("K", 300, 300, np.dtype(np.float64))))
