"""Results do not depend on where arrays lie in memory.

Compiled loops check whether their arrays lie too close together for vector code. A loop that sums and stores would then
sum in another order.
"""

from functools import partial
from itertools import islice, permutations

import numba
import numpy as np
import pytest

from gigagp import expert
from gigagp.kernels import (
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
)
from gigagp.linalg import cholesky, leaf, stationary
from gigagp.linalg.categories import NO_LIMITS
from gigagp.linalg.workspace import Workspace

KINDS = [np.float64, np.float32]
KERNELS = {
    "squared exponential": SquaredExponential(),
    "Matern 1/2": Matern12(),
    "Matern 3/2": Matern32(),
    "Matern 5/2": Matern52(),
    "rational quadratic": RationalQuadratic(),
    "one length-scale": SquaredExponential(ard=False),
    "periodic": Periodic(),
    "sum": SquaredExponential() + Linear(),
    "product": Matern32() * Periodic(),
}
SIZES = [*range(1, 34), 40, 47, 48, 49, 63, 64, 65, 97, 128, 140]
both_kinds = pytest.mark.parametrize("kind", KINDS)


def placed(array, steps):
    """A copy that begins `steps` elements after the start of a cache line."""
    raw = np.empty(array.nbytes + 64 + steps * array.itemsize, np.uint8)
    start = -raw.ctypes.data % 64 + steps * array.itemsize
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@numba.njit
def memory(size):
    return np.empty(size, np.uint8)


def stir(size, order):
    """Give blocks of `size` bytes, which lie side by side, back in some order: compiled code gets them in reverse."""
    blocks = [memory(size) for _ in order]
    for i in order:
        blocks[i] = None


@both_kinds
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_evidence_does_not_depend_on_addresses(kernel, kind):
    rng, work = np.random.default_rng(0), Workspace()
    for p in SIZES:
        columns = 1 + p % 9
        bound = kernel.bind(columns)
        theta = np.append(bound.theta, -2.0)
        X = rng.standard_normal((p, columns)).astype(kind)
        y = np.sin(X.sum(axis=1)).astype(kind)
        results = set()
        for number, order in enumerate(islice(permutations(range(4)), 0, None, 2)):
            X, y = placed(X, number % 16), placed(y, 5 * number % 16)
            stir(y.nbytes, order)
            evidence = expert.evidence(bound, theta, X, y, work)
            results.add((*evidence.sums, evidence.jitter))
        assert len(results) == 1, f"{p} points"


def side_by_side(arrays, order, gap):
    """Copies of the arrays in one piece of memory, in that order, `gap` bytes apart (and up to 7 more)."""
    sizes = [-(-a.nbytes // 8) * 8 + gap for a in arrays]
    raw, start, copies = np.zeros(sum(sizes), np.uint8), 0, [None] * len(arrays)
    for i in order:
        copies[i] = raw[start : start + arrays[i].nbytes].view(arrays[i].dtype).reshape(arrays[i].shape)
        copies[i][...] = arrays[i]
        start += sizes[i]
    return copies


def gram(profile, x, K):
    stationary.gram(profile, x, 1.3, 0.7, NO_LIMITS, K)


def pull_row(profile, x, w, k, row, gradient):
    stationary.pull_row(profile, x, len(w) - 1, 1.3, 0.7, NO_LIMITS, w, k, row, gradient)


def passes(p, kind):
    """Calls, and the arrays they are about."""
    rng = np.random.default_rng(p)
    x, a, b, c = (rng.standard_normal(size).astype(kind) for size in ((5, p), p, p, p))
    M = (0.1 * rng.standard_normal((p, p)) + 2 * np.eye(p)).astype(kind)
    yield lambda U, b: cholesky.solve_vector(U, b, p), (M, a)
    yield lambda T, y, alpha: leaf.square_and_solve(T, y, alpha, p), (np.tril(M), a, b)
    yield lambda alpha, A: leaf.weights(alpha, A, p), (a, M)
    yield lambda y, alpha, A: leaf.log_likelihood(y, alpha, A, p), (a, b, M)
    for profile in range(stationary.RATIONAL_QUADRATIC + 1):
        yield partial(gram, profile), (x, 0 * M)
        yield partial(pull_row, profile), (x, a, b, c, np.zeros(7))


@both_kinds
@pytest.mark.parametrize("p", [5, 12, 17, 20, 26, 33, 50])
def test_passes_do_not_depend_on_what_lies_beside_what(p, kind):
    for number, (run, arrays) in enumerate(passes(p, kind)):
        results = set()
        for order in permutations(range(len(arrays))):
            for gap in (0, 16, 104):
                copies = side_by_side(arrays, order, gap)
                value = run(*copies)
                results.add((value, *(copy.tobytes() for copy in copies)))
        assert len(results) == 1, f"pass {number}"
