"""The conformance kit: checks of a kernel, a combination rule, a partition, a likelihood or an engine of your own.

Each check returns nothing if all is well, and otherwise raises AssertionError with a sentence that says what is wrong.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import numpy as np

from gigagp.arrays import Array
from gigagp.combine import LAWS, CombinationRule, JointRule, Opinion, Prediction, Rule
from gigagp.data.row_keys import row_keys
from gigagp.data.scaled import ArrayRows
from gigagp.data.scan import Sample
from gigagp.engines import Engine, SerialEngine
from gigagp.errors import InvalidParameter
from gigagp.expert import evidence
from gigagp.fit.store_writer import DataSorter, MemoryStorage
from gigagp.kernels import Kernel
from gigagp.linalg.workspace import Workspace
from gigagp.partition import Partition, Partitioner, Shape
from gigagp.testing.likelihoods import check_likelihood
from gigagp.tree import Tree

__all__ = ["check_engine", "check_kernel", "check_likelihood", "check_partition", "check_rule"]

_STEP = 1e-4  # change of a log-parameter in five-point differences, whose error is of fourth order
_GRADIENT = 1e-6  # relative tolerance of gradients
_SAME = 1e-10  # relative tolerance of two computations of the same number in float64
_JOINT = 1e-6  # as _SAME, for a rule that regularises the system it solves


def check_kernel(kernel: Kernel, n_features: int = 3, seed: int = 0) -> None:
    """Check on random points that gram, cross, diagonal, pullback and the parameters of a kernel are consistent."""
    for columns in sorted({1, n_features}) if _binds_to_one_column(kernel) else [n_features]:
        bound, rng = kernel.bind(columns), np.random.default_rng([seed, columns])
        _check_parameters(bound, columns)
        start = bound.theta
        moved = np.clip(start + rng.uniform(-0.3, 0.3, len(start)), *bound.bounds.T)
        X, Z = rng.standard_normal((9, columns)), rng.standard_normal((6, columns))
        X[-1] = X[0]  # a duplicated row
        originals = [a.copy() for a in (start, moved, X, Z)]
        for theta in (start, moved):
            _check_values(bound, theta, X, Z)
            _check_buffers(bound, theta, X, Z)
            _check_pullback(bound, theta, X, rng)
            _check_evidence(bound, theta, X)
            _check_single_precision(bound, theta, X, Z)
        unchanged = all(
            np.array_equal(before, now) for before, now in zip(originals, (start, moved, X, Z), strict=True)
        )
        _ensure(unchanged, f"{kernel!r} changes the arrays it is given; it must only read them")
        sentence = "gram must follow the theta it is given, not the values the kernel was made with"
        _close(np.tril(bound.with_theta(moved).gram(start, X)), np.tril(bound.gram(start, X)), _SAME, sentence)


def check_rule(rule: CombinationRule) -> None:
    """Check that a rule gives valid predictions, that its messages add in any order, and the laws that it declares.

    Laws of whole models (continuity, and behaviour far from all data) need tests with data.
    """
    unknown = sorted(rule.laws - LAWS)
    _ensure(not unknown, f"{rule!r} declares unknown laws {unknown}; allowed: {sorted(LAWS)}")
    _check_pickle(rule)
    if isinstance(rule, JointRule):
        _check_joint_rule(rule)
        return
    _ensure(isinstance(rule, Rule), f"{rule!r} must be a Rule or a JointRule")
    assert isinstance(rule, Rule)
    opinions = _opinions(np.random.default_rng(0))
    prior, noise = opinions[0].prior, opinions[0].noise if rule.target == "y" else 0.0
    right = _finish(rule, opinions)
    _check_valid(rule, right)
    a, b, c = (rule.message(o) for o in opinions)
    for order, total in {"(b + a) + c": (b + a) + c, "a + (b + c)": a + (b + c), "c + (b + a)": c + (b + a)}.items():
        sentence = f"messages of {rule!r} must add in any order and grouping, but {order} is not (a + b) + c"
        _same(rule.finish(total, prior, opinions[0].communication), right, _SAME, sentence)
    if "exact_with_one_leaf" in rule.laws:
        alone = Prediction(opinions[0].mean, opinions[0].variance + noise)
        _same(
            _finish(rule, opinions[:1]), alone, _SAME, f"{rule!r} with one expert must return that expert's prediction"
        )
    if "returns_to_prior" in rule.laws:
        no_data = Prediction(0 * prior, prior)
        priors = [replace(o, mean=no_data.mean, variance=prior, communication=no_data) for o in opinions]
        sentence = f"{rule!r} must return the prior when every expert predicts the prior"
        _same(_finish(rule, priors), Prediction(no_data.mean, prior + noise), _SAME, sentence)
    if not rule.mean_needs_variance:
        vague = _finish(rule, [replace(o, variance=prior) for o in opinions])
        sentence = f"the mean of {rule!r} changes with the experts' variances, so mean_needs_variance must be True"
        _close(vague.mean, right.mean, _SAME, sentence)


def check_partition(partitioner: Partitioner, shape: Shape | None = None, rows: int = 600, seed: int = 0) -> None:
    """Whether a partition stores every row once, gives every leaf rows, and has a tree above them; the same every time.

    shape : the hierarchy to divide into; default what the partition itself chooses
    """
    name, shape = repr(partitioner), shape or Shape()
    scattered = np.random.default_rng(seed).standard_normal((rows, 3))
    for X in (scattered, np.floor(scattered), np.ones_like(scattered)):  # no ties, many ties, nothing but ties
        before = X.copy()
        partitioner.check(rows, shape)
        parts, again = (partitioner.split(X, shape, np.random.default_rng(seed)) for _ in range(2))
        _ensure(np.array_equal(X, before), f"{name} changes the inputs it is given; it must only read them")
        once = np.array_equal(np.sort(parts.order), np.arange(rows))
        _ensure(once, f"the order of {name} must contain every row number from 0 to {rows - 1} exactly once")
        _check_leaves(name, parts, rows)
        _check_large(partitioner, X, shape, seed)
        same = np.array_equal(parts.order, again.order) and all(
            np.array_equal(a[leaf], b[leaf])
            for a, b in ((parts.cells, again.cells), (parts.experts, again.experts))
            for leaf in range(parts.n_leaves)
        )
        _ensure(same, f"{name} must divide the same rows in the same way when the random numbers are the same")


def _check_leaves(name: str, parts: Partition, rows: int) -> None:
    leaves = parts.tree.n_leaves
    for which, lists in (("cells", parts.cells), ("experts", parts.experts)):
        _ensure(len(lists) == leaves, f"{name} has {len(lists)} {which}, but its tree has {leaves} leaves")
        numbers = [lists[leaf] for leaf in range(leaves)]
        _ensure(min(map(len, numbers)) >= 2, f"every list of rows in the {which} of {name} must have two rows or more")
        every = np.concatenate(numbers)
        inside = bool(every.min() >= 0 and every.max() < rows)
        _ensure(inside, f"the {which} of {name} must list positions in the order, from 0 to {rows - 1}")
        _ensure(len(np.unique(every)) == rows, f"every row must be in at least one of the {which} of {name}")
        repeated = any(len(np.unique(own)) < len(own) for own in numbers)
        _ensure(not repeated, f"a list of rows in the {which} of {name} contains a row twice")


def _check_large(partitioner: Partitioner, X: Array, shape: Shape, seed: int) -> None:
    """Partitions of more rows than are divided at once: `split_large`, with buckets of a quarter of the rows."""
    rows, numbers = len(X), np.arange(len(X), dtype=float)
    keys = row_keys(0, rows, seed)
    sampled = np.argsort(keys)[: rows // 2]
    sample = Sample(keys[sampled], sampled, X[sampled], numbers[sampled])
    sorter = DataSorter(ArrayRows(X, numbers), np.ones(X.shape[1]), sample, seed, MemoryStorage(), SerialEngine())
    sorter.bucket_rows = rows // 4
    stored = partitioner.split_large(sorter, shape, np.random.default_rng(seed))
    order, name = stored.store.y.astype(int), f"split_large of {partitioner!r}"
    complete = np.array_equal(np.sort(order), np.arange(rows)) and np.array_equal(stored.store.X, X[order])
    _ensure(complete, f"{name} must store every row once, with its own target")
    _check_leaves(name, Partition(order, stored.cells, stored.experts, stored.tree), rows)


def check_engine(engine: Engine) -> None:
    """Check that an engine keeps the order, sums bit for bit as the serial engine does, and survives errors."""
    name, tasks = type(engine).__name__, list(range(23))

    def works(when: str) -> None:
        got = list(engine.map(_square, tasks))
        _ensure(got == [t * t for t in tasks], f"{name}.map must return the results in the tasks' order{when}")

    works("")
    _ensure(list(engine.map(_square, [])) == [], f"{name}.map of no tasks must return nothing")
    trees = (Tree.balanced(1), Tree.balanced(201), Tree.regular(3, 4), Tree.nested([2, [3, [1, 5]], [[[7]]]]))
    for tree in trees:
        got, right = engine.sum(tree, _leaf_value), SerialEngine().sum(tree, _leaf_value)
        _ensure(np.array_equal(got, right), f"{name}.sum over {tree!r} differs from the serial engine's bits")
    for failing in (partial(engine.map, _fail_at_five, tasks), partial(engine.sum, trees[1], _fail_at_five)):
        error = _error_of(failing)
        _ensure(isinstance(error, LookupError), f"{name} must pass on the LookupError a task raised; got {error!r}")
        works(" after a task has failed")
    next(iter(engine.map(_square, tasks)))
    works(" after a reader has left early")


def _binds_to_one_column(kernel: Kernel) -> bool:
    """Whether a kernel can be used with a single column: not if it chooses columns, or has values for several."""
    try:
        kernel.bind(1)
    except InvalidParameter:
        return False
    return True


def _check_parameters(kernel: Kernel, columns: int) -> None:
    theta, bounds = kernel.theta, kernel.bounds
    for name, (low, high), value in zip(kernel.names, bounds, theta, strict=True):
        sentence = f"{name} starts at {np.exp(value):.3g}, outside its bounds {np.exp(low):.3g} to {np.exp(high):.3g}"
        _ensure(low - _SAME <= value <= high + _SAME, sentence)
    moved = kernel.with_theta(theta + 0.1)
    _close(moved.theta, theta + 0.1, _SAME, "with_theta(theta).theta must be theta")
    same = type(moved) is type(kernel) and moved.names == kernel.names and np.array_equal(moved.bounds, bounds)
    _ensure(same, f"with_theta must change nothing but values; {kernel!r} with names {kernel.names} became {moved!r}")
    _check_pickle(kernel)
    metric = kernel.metric(theta)
    if metric is not None:
        fits = metric.shape in ((1,), (columns,)) and bool(np.all(np.isfinite(metric) & (metric >= 0)))
        _ensure(fits, f"metric must be None, or not negative and of shape ({columns},) or (1,); got {metric!r}")


def _check_values(kernel: Kernel, theta: Array, X: Array, Z: Array) -> None:
    p, q = len(X), len(Z)
    K = np.tril(kernel.gram(theta, X)[:p, :p])
    across = kernel.cross(theta, X, Z)
    _ensure(bool(np.all(np.isfinite(K))), "gram must be finite")
    _close(np.tril(kernel.cross(theta, X, X)), K, _SAME, "cross(X, X) must equal gram(X) in the lower triangle")
    _close(kernel.cross(theta, Z, X), across.T, _SAME, "cross(Z, X) must be cross(X, Z) transposed")
    block = kernel.gram(theta, np.concatenate([Z, X]))[q : p + q, :q]
    _close(across, block, _SAME, "cross(X, Z) must equal gram's block between X and Z")
    _close(kernel.diagonal(theta, X), np.diagonal(K), _SAME, "diagonal must equal gram's diagonal")
    _close(kernel.gram(theta, X[:1])[:1, :1], K[:1, :1], _SAME, "gram of one point must equal its entry among others")
    eigenvalues = np.linalg.eigvalsh(K + np.tril(K, -1).T)
    sentence = f"gram must be positive semi-definite; its smallest eigenvalue is {eigenvalues[0]:.3g}"
    _ensure(bool(eigenvalues[0] >= -_SAME * eigenvalues[-1]), sentence)


def _check_buffers(kernel: Kernel, theta: Array, X: Array, Z: Array) -> None:
    """`out` may be larger than the result: the corner is written, the rest must not change."""
    calls = {"gram": (partial(kernel.gram, theta, X), X), "cross": (partial(kernel.cross, theta, X, Z), Z)}
    for name, (call, columns) in calls.items():
        lower = np.tril if name == "gram" else np.asarray
        p, q = len(X), len(columns)
        out = np.full((p + 2, p + 5), 7e5)
        _ensure(call(out=out) is out, f"{name} must write into `out` and return it")
        _close(lower(out[:p, :q]), lower(call()[:p, :q]), _SAME, f"{name} with `out` must give what it gives without")
        rest = np.concatenate([out[p:].ravel(), out[:, q:].ravel()])
        _ensure(bool(np.all(rest == 7e5)), f"{name} must write nothing outside out[:{p}, :{q}]")


def _check_pullback(kernel: Kernel, theta: Array, X: Array, rng: np.random.Generator) -> None:
    p = len(X)
    W, K = rng.standard_normal((p, p)), kernel.gram(theta, X)
    twice = 2 * np.tril(W, -1) + np.diag(np.diagonal(W))  # the lower triangle stands for both
    got, again = (kernel.pullback(theta, X, _garbled(W, rng), _garbled(K, rng)) for _ in range(2))
    _ensure(got.shape == theta.shape, f"pullback must have an entry per parameter, {len(theta)}; got shape {got.shape}")
    sentence = "pullback must read only the lower triangles of W and K, but values above the diagonal change its result"
    _close(again, got, _SAME, sentence)

    def total(theta: Array) -> float:
        return float(np.sum(twice * np.tril(kernel.gram(theta, X)[:p, :p])))

    size = float(np.sum(np.abs(twice * np.tril(K[:p, :p]))))
    for i, name in enumerate(kernel.names):
        step = _STEP * (np.arange(len(theta)) == i)
        near, far = total(theta + step) - total(theta - step), total(theta + 2 * step) - total(theta - 2 * step)
        slope = (8 * near - far) / (12 * _STEP)
        off = abs(float(got[i]) - slope) / max(abs(slope), 1e-4 * size, 1e-300)
        sentence = f"pullback for {name} is {got[i]:.9g}, central differences say {slope:.9g}: relative error {off:.1e}"
        _ensure(off <= _GRADIENT, sentence)


def _check_evidence(kernel: Kernel, theta: Array, X: Array) -> None:
    """An expert may compute its evidence without gram and pullback, with the same result."""
    p, noise = len(X), 0.3
    y, K = np.cos(np.arange(p, dtype=float)), kernel.gram(theta, X)
    lower = np.tril(K[:p, :p])
    inverse = np.linalg.inv(lower + np.tril(lower, -1).T + noise * np.eye(p))
    alpha = inverse @ y
    value = -0.5 * (y @ alpha - np.linalg.slogdet(inverse)[1] + p * np.log(2 * np.pi))
    slopes = kernel.pullback(theta, X, 0.5 * (np.outer(alpha, alpha) - inverse), K)
    got = evidence(kernel, np.append(theta, np.log(noise)), X, y, Workspace())
    sentence = "an expert's evidence and gradient must be those of gram and pullback (was only one of them overridden?)"
    _close(np.append(got.value, got.gradient[:-1]), np.append(value, slopes), 1e-8, sentence)


def _garbled(lower: Array, rng: np.random.Generator) -> Array:
    """The lower triangle in a wider buffer, with arbitrary numbers everywhere else."""
    p = len(lower)
    return np.tril(np.pad(lower[:p, :p], ((0, 0), (0, 5)))) + np.triu(1e3 * rng.standard_normal((p, p + 5)), 1)


def _check_single_precision(kernel: Kernel, theta: Array, X: Array, Z: Array) -> None:
    x, z, p = X.astype(np.float32), Z.astype(np.float32), len(X)
    W = np.tril(np.cos(np.arange(p * p, dtype=float).reshape(p, p)))
    K, single = kernel.gram(theta, X), np.asarray(kernel.gram(theta, x), np.float32)
    _close(np.tril(single), np.tril(K), 1e-4, "gram in float32 must agree with float64")
    _close(kernel.cross(theta, x, z), kernel.cross(theta, X, Z), 1e-4, "cross in float32 must agree with float64")
    _close(kernel.diagonal(theta, x), kernel.diagonal(theta, X), 1e-4, "diagonal in float32 must agree with float64")
    got, right = kernel.pullback(theta, x, W.astype(np.float32), single), kernel.pullback(theta, X, W, K)
    off = np.abs(got - right) / max(float(np.sum(np.abs(W * K))), 1e-300)
    _ensure(bool(np.all(off < 1e-2)), f"pullback in float32 must agree with float64; relative differences {off}")


def _opinions(rng: np.random.Generator, queries: int = 7) -> list[Opinion]:
    """Three opinions more certain than the communication expert's, which is more certain than the prior."""
    prior = rng.uniform(0.5, 2, queries)
    means, shares, closeness = rng.standard_normal((3, queries)), *rng.uniform(0.1, 0.9, (2, 3, queries))
    common = Prediction(rng.standard_normal(queries), 0.95 * prior)
    firsts = np.eye(3, 1, dtype=bool) & np.full(queries, True)
    return [Opinion(means[k], shares[k] * prior, prior, 0.3, closeness[k], common, firsts[k]) for k in range(3)]


def _finish(rule: Rule, opinions: list[Opinion]) -> Prediction:
    total = rule.message(opinions[0])
    for opinion in opinions[1:]:
        total = total + rule.message(opinion)
    return rule.finish(total, opinions[0].prior, opinions[0].communication)


def _check_joint_rule(rule: JointRule) -> None:
    """Check a rule with experts that are projections of f onto subspaces: means P_i f, covariances f' P_i P_j f."""
    rng = np.random.default_rng(0)
    f, means = rng.standard_normal((5, 12)), rng.standard_normal((5, 3))
    prior = np.sum(f * f, axis=1)
    bases = [np.linalg.qr(rng.standard_normal((12, 4)))[0] for _ in range(3)]
    projections = np.stack([f @ B @ B.T for B in bases], axis=1)
    A = projections @ projections.transpose(0, 2, 1)
    right = rule.combine(means, A, prior)
    _check_valid(rule, right)
    reversed_order = rule.combine(means[:, ::-1], A[:, ::-1, ::-1], prior)
    _same(reversed_order, right, _JOINT, f"{rule!r} must not depend on the order of the experts")
    alone, expert = rule.combine(means[:, :1], A[:, :1, :1], prior), Prediction(means[:, 0], prior - A[:, 0, 0])
    _same(alone, expert, _JOINT, f"{rule!r} with one expert must return that expert's prediction")
    nothing = rule.combine(0 * means, 0 * A, prior)
    _same(
        nothing,
        Prediction(0 * prior, prior),
        _JOINT,
        f"{rule!r} must return the prior when experts have no information",
    )


def _check_valid(rule: CombinationRule, prediction: Prediction) -> None:
    mean, variance = prediction.mean, prediction.variance
    _ensure(bool(np.all(np.isfinite(mean))), f"the means of {rule!r} must be finite; got {mean}")
    valid = variance is not None and bool(np.all(np.isfinite(variance) & (variance > 0)))
    _ensure(valid, f"the variances of {rule!r} must be positive and finite; got {variance}")


def _square(task: int, work: Workspace) -> int:
    """Slow for some tasks, so that results arrive out of order, and wrong if two workers share a workspace."""
    scratch = work.take("check", 1, 1, np.dtype(float))
    scratch[0, 0] = task
    time.sleep(0.0005 * (task % 5 == 0))
    return int(scratch[0, 0]) ** 2


def _leaf_value(leaf: int, work: Workspace) -> Array:
    """Numbers of very different size, so that another order of addition changes the sum."""
    rng = np.random.default_rng(leaf)
    return rng.standard_normal(4) * 10.0 ** rng.integers(-6, 7, 4)


def _fail_at_five(task: int, work: Workspace) -> Array:
    if task == 5:
        raise LookupError("task 5")
    return np.zeros(1)


def _error_of(call: Callable[[], Iterable[object]]) -> Exception | None:
    try:
        list(call())
    except Exception as error:
        return error
    return None


def _check_pickle(thing: object) -> None:
    try:
        back = pickle.loads(pickle.dumps(thing))
    except Exception as error:
        raise AssertionError(f"{thing!r} must pickle, to reach other processes; got {error!r}") from error
    _ensure(back == thing, f"{thing!r} must be equal to itself after pickling; got {back!r}")


def _same(got: Prediction, expected: Prediction, tolerance: float, sentence: str) -> None:
    _close(got.mean, expected.mean, tolerance, sentence + " (mean)")
    _close(got.variance, expected.variance, tolerance, sentence + " (variance)")


def _close(got: Array | None, expected: Array | None, tolerance: float, sentence: str) -> None:
    """The largest difference must be at most `tolerance` times the largest expected number."""
    if got is None or expected is None:
        raise AssertionError(f"{sentence}; got {got!r}")
    _ensure(got.shape == expected.shape, f"{sentence}; got shape {got.shape}, not {expected.shape}")
    off = float(np.max(np.abs(got - expected), initial=0.0)) / max(float(np.max(np.abs(expected), initial=0.0)), 1e-300)
    _ensure(off <= tolerance, f"{sentence}; the largest relative difference is {off:.1e}")


def _ensure(holds: bool, sentence: str) -> None:
    if not holds:
        raise AssertionError(sentence)
