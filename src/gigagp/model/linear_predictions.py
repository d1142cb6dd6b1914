"""Predictions as linear functions of the targets, and their errors: what joint distributions of f are made of.

Every method predicts f(z) by a weighted sum of targets, m(z) = sum_i l_i(z) y_i. Under the prior, its error

    r(z) = f(z) - sum_i l_i(z) (f(x_i) + e_i),   e_i the noise of row i,

is Gaussian, and so are the errors at several queries together:

    cov(r(z), r(z')) = k(z, z') - l^T k(X, z') - l'^T k(X, z) + l^T (K + N) l'.

This matrix is positive semi-definite whatever the weights are. Where all rows predict, the weights are
(K + N)^-1 k(X, z), and it is the exact posterior covariance. Neighbourhoods use the weights of the nearest rows, and it
is the exact covariance of the errors of these predictions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from gigagp.arrays import Array
from gigagp.combine import Opinion, Rule
from gigagp.data.store import ExpertStore
from gigagp.engines import Engine, own_workspace
from gigagp.errors import InvalidParameter
from gigagp.kernels.base import Kernel
from gigagp.linalg import cholesky, leaf, neighbourhood, schedule
from gigagp.linalg.compiled import compiled, read_only
from gigagp.linalg.row_noise import variances
from gigagp.linalg.tiny import tiny_is_zero
from gigagp.linalg.workspace import Workspace
from gigagp.model import mixture as mixtures
from gigagp.model import neighbourhood as neighbourhoods
from gigagp.model.averages import Part, weights_of
from gigagp.model.committee import Committee
from gigagp.model.committee_gradient import sum_of_messages
from gigagp.model.duals import Dual
from gigagp.model.expert_gradient import solved
from gigagp.model.neighbour_search import NO_ROW
from gigagp.model.neighbourhood import Neighbourhood, row_noise_of, search_many
from gigagp.model.predictor import Predictor
from gigagp.model.routing import QueriesByExpert, first_expert

_ROWS_AT_ONCE = 1024  # rows whose covariances with all others are in memory together


@dataclass(frozen=True, eq=False)
class LinearPart:
    """The weights of linear predictions under one kernel, and the share of each query's prediction that they are."""

    kernel: Kernel
    theta: Array
    X: Array  # the rows that any of the queries is predicted from
    noise: Array  # their noise variances
    rows: Array  # their numbers in the store
    weights: Any  # (queries, rows), sparse
    share: Array  # per query
    precision: Any  # data type of the stored inputs, in which equal inputs are recognised
    common_noise: float = 0.0  # variance of the noise that rows with equal inputs have in common

    @classmethod
    def of(
        cls, kernel: Kernel, theta: Array, store: ExpertStore, weights: Any, share: Array, common: float = 0.0
    ) -> LinearPart:
        """From a sparse matrix over all rows of the store.

        common : share of the noise variance that rows with equal inputs have in common
        """
        rows = np.unique(weights.indices)
        X, total = np.asarray(store.gather(rows)[0], float), float(np.exp(theta[-1]))
        noise = (1 - common) * total
        own = store.noise_of(rows)
        noises = np.full(len(rows), noise) if own is None else np.asarray(variances(noise, own), float)
        places = np.searchsorted(rows, weights.indices)
        small = sparse.csr_matrix((weights.data, places, weights.indptr), (weights.shape[0], len(rows)))
        return cls(kernel, theta, X, noises, rows, small, share, store.X.dtype, common * total)

    def by_inputs(self, Z: Array) -> tuple[Any, Array]:
        """How the noise that equal inputs have in common enters the errors, and the distinct inputs that it belongs to.

        The errors are B g, where g has one number per distinct input and B, sparse, has one row per query.
        """
        Z = Z.astype(self.precision).astype(float)
        inputs, places = np.unique(np.concatenate([Z, self.X]), axis=0, return_inverse=True)
        places, rows = places.ravel(), np.arange(len(Z))
        of_queries = sparse.csr_matrix((np.ones(len(Z)), (rows, places[: len(Z)])), (len(Z), len(inputs)))
        of_rows = (np.ones(len(self.X)), (np.arange(len(self.X)), places[len(Z) :]))
        return of_queries - self.weights @ sparse.csr_matrix(of_rows, (len(self.X), len(inputs))), inputs

    @tiny_is_zero
    def covariance(self, Z: Array, engine: Engine) -> Array:
        """Covariances of the errors at the scaled queries, multiplied by the roots of the shares."""
        kernel, theta, L = self.kernel, self.theta[:-1], self.weights
        total = _cross(kernel, theta, Z, Z)
        by_columns = L.tocsc()

        def add_rows(start: int, work: Workspace) -> tuple[Array, Array]:
            """What some of the rows add: l^T (K l' - k(X, z')), and l^T k(X, z')."""
            here = slice(start, start + _ROWS_AT_ONCE)
            block = self.X[here]
            with_queries = _cross(kernel, theta, block, Z)
            K = _cross(kernel, theta, block, self.X)
            K[np.arange(len(block)), start + np.arange(len(block))] += self.noise[here]
            some = by_columns[:, here].tocsr()
            return some @ ((L @ K.T).T - with_queries), some @ with_queries

        for both, single in engine.local.map(add_rows, range(0, len(self.X), _ROWS_AT_ONCE)):
            total += both
            total -= single.T
        if self.common_noise:
            errors, _ = self.by_inputs(Z)
            total += self.common_noise * (errors @ errors.T).toarray()
        root = np.sqrt(self.share)
        return np.asarray(0.5 * (total + total.T) * (root[:, None] * root))


def _cross(kernel: Kernel, theta: Array, X: Array, Z: Array) -> Array:
    return np.array(kernel.cross(theta, X, Z)[: len(X), : len(Z)], float)


@dataclass(frozen=True, eq=False)
class JointErrors:
    """The errors of predictions at some queries: those of several parts, which are independent, and common shifts.

    shifts : vectors b that add b b^T to the covariance: how far each of several models is from their mean
    """

    parts: list[LinearPart]
    shifts: list[Array]

    def covariance(self, Z: Array, engine: Engine) -> Array:
        """The covariance of all errors, in the model's units and before calibration."""
        total = sum(part.covariance(Z, engine) for part in self.parts)
        for shift in self.shifts:
            total = total + np.outer(shift, shift)
        return np.asarray(total)


def joint_errors(predictor: Predictor, Z: Array, engine: Engine) -> JointErrors:
    """The errors of a predictor at scaled queries."""
    if predictor.model.likelihood is not None:
        raise InvalidParameter("joint distributions are those of Gaussian targets; this model has another likelihood")
    Z = np.ascontiguousarray(Z, float)
    if predictor.neighbourhood is not None:
        return _of_neighbourhood(predictor.neighbourhood, Z, engine)
    if predictor.mixture is not None:
        return _of_mixture(predictor.mixture, Z, engine)
    predictor.check_communication()
    if not isinstance(predictor.rule, Rule) or predictor.rule.needs_communication:
        raise InvalidParameter(
            f'{predictor.rule!r} has no joint distribution; use another combine, such as "healed_blend"'
        )
    return _of_committee(predictor.model.committee, predictor.rule, predictor.experts_per_query, Z)


def _of_neighbourhood(model: Neighbourhood, Z: Array, engine: Engine) -> JointErrors:
    """Where kernels are averaged, each counts by the weight of its prediction."""
    shares = [np.ones(len(Z))]
    if model.others:
        assert model.prior is not None
        predictions = [neighbourhoods.predict(each, Z, engine) for each in model.members]
        parts = [
            Part(prediction, each.typical_noise, each.prior or model.prior)
            for prediction, each in zip(predictions, model.members, strict=True)
        ]
        shares = weights_of(parts, model.prior)
    return JointErrors(
        [_neighbour_weights(each, Z, share, engine) for each, share in zip(model.members, shares, strict=True)], []
    )


@dataclass(frozen=True, eq=False)
class _WeightsOfChunk:
    """The neighbours of some queries, their weights in the mean, and how many there are."""

    model: Neighbourhood

    name = "weights"

    @tiny_is_zero
    def __call__(self, Z: Array, work: Workspace) -> tuple[Array, Array, Array]:
        model, p, inner = self.model, self.model.count, self.model.inner_count
        squares, rows, sizes = search_many(model, Z, np.full(len(Z), NO_ROW))
        weights = np.zeros((len(Z), p))
        profile = model.kernel.profile(model.theta[:-1], Z.shape[1])
        buffers = leaf.buffers(p, np.dtype(float), work)
        if profile is None:
            _weights_with_any_kernel(model, Z, squares, rows, sizes, buffers, weights)
        else:
            _weights_with_profile(  # type: ignore[call-arg]
                *profile[:5], model.common_noise, model.noise, read_only(model.store.X), model.store.y,
                row_noise_of(model), read_only(Z), squares, rows, sizes, *_operations(p), inner,
                *_operations(inner or p), *buffers, weights,
            )  # fmt: skip
        neighbourhoods.positive_definite(model, weights[:, 0])
        model.store.touched(len(Z) * model.limit)
        return rows[:, :p], weights, np.minimum(sizes, p)


def _neighbour_weights(model: Neighbourhood, Z: Array, share: Array, engine: Engine) -> LinearPart:
    chunks, _ = neighbourhoods.chunks_of(model, Z, model.work)
    rows, weights = np.zeros((len(Z), model.count), np.int64), np.zeros((len(Z), model.count))
    sizes = np.zeros(len(Z), np.int64)
    parts = engine.map(_WeightsOfChunk(model), (Z[chunk] for chunk in chunks))
    for chunk, part in zip(chunks, parts, strict=True):
        rows[chunk], weights[chunk], sizes[chunk] = part
    present = np.arange(model.count) < sizes[:, None]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    matrix = sparse.csr_matrix((weights[present], rows[present], starts), (len(Z), len(model.store.y)))
    return LinearPart.of(model.kernel, model.theta, model.store, matrix, share, model.common)


def _operations(p: int) -> tuple[Array, Array]:
    return neighbourhoods.factoring(p), schedule.inverting_factor(p, cholesky.WIDTH)


@compiled
def _mixed_weights(
    K: Array, k: Array, y: Array, noises: Array, squares: Array, size: int, count: int, prior: float, typical: float,
    factoring: Array, inverting: Array, inner: int, inner_factoring: Array, inner_inverting: Array, A: Array, T: Array,
    D: Array, tapered: Array, out: Array,
) -> bool:  # fmt: skip
    """out := the weights of the neighbours in the mean of the prediction; False where a matrix has no factor."""
    p = len(K)
    alpha, precision = np.empty(p), np.empty(p)
    many, few, solved_few = np.empty(3), np.empty(3), np.empty(p)
    neighbourhood.taper(squares, size, count, tapered)
    good = neighbourhood.posterior(
        K, k, y, noises, tapered, count, prior, factoring, inverting, A, T, D, alpha, precision, many
    )
    neighbourhood.solved_from(T, k, count, out)
    nearer = neighbourhood.few_rows(squares, inner, count)
    if good and nearer > 0:
        usual = nearer == inner
        if not usual:
            neighbourhood.keep_first(nearer, K, k, y)
        neighbourhood.taper(squares, count, nearer, tapered)
        good = neighbourhood.posterior(
            K, k, y, noises, tapered[: inner if usual else p], nearer, prior,
            inner_factoring if usual else factoring, inner_inverting if usual else inverting, A, T, D, alpha,
            precision, few,
        )  # fmt: skip
        neighbourhood.solved_from(T, k, nearer, solved_few)
        weight = neighbourhood.weight_of_few(few, typical, many)
        for i in range(count):
            out[i] *= 1 - weight
        for i in range(nearer):
            out[i] += weight * solved_few[i]
    return good


@compiled
def _weights_with_profile(
    kind: int, variance: float, scales: Array, shape: float, limits: Array, common: float, noise: float, X: Array,
    y: Array, row_noise: Array, Z: Array, squares: Array, rows: Array, sizes: Array, factoring: Array,
    inverting: Array, inner: int, inner_factoring: Array, inner_inverting: Array, K: Array, A: Array, T: Array,
    D: Array, weights: Array,
) -> None:  # fmt: skip
    p, columns = len(K), X.shape[1]
    x, targets, tapered, k, noises = np.empty((columns, p)), np.empty(p), np.ones(p), np.empty(p), np.empty(p)
    for q in range(len(sizes)):
        count = min(sizes[q], p)
        neighbourhood.gather(X, y, rows[q], count, scales, x, targets)
        typical = neighbourhood.gather_noise(noise, row_noise, rows[q], count, noises)
        neighbourhood.covariances(kind, variance, shape, limits, x, squares[q], count, K, k)
        if common > 0:
            neighbourhood.add_common_noise(common, X, rows[q], Z[q], squares[q], count, K, k)
        if not _mixed_weights(
            K, k, targets, noises, squares[q], sizes[q], count, variance + common, typical, factoring, inverting, inner,
            inner_factoring, inner_inverting, A, T, D, tapered, weights[q],
        ):  # fmt: skip
            weights[q, 0] = np.nan


def _weights_with_any_kernel(
    model: Neighbourhood, Z: Array, squares: Array, rows: Array, sizes: Array, buffers: leaf.Buffers, weights: Array
) -> None:
    p, theta, kernel, inner = model.count, model.theta[:-1], model.kernel, model.inner_count
    noises, row_noise, tapered = np.empty(p), row_noise_of(model), np.ones(p)
    K = buffers.K
    for q, z in enumerate(Z):
        count = min(int(sizes[q]), p)
        X, y = (np.asarray(a, float) for a in model.store.gather(rows[q, :count]))
        typical = neighbourhood.gather_noise(model.noise, row_noise, rows[q], count, noises)
        k, targets = np.zeros(p), np.zeros(p)
        targets[:count] = y
        K[:p, :p] = np.eye(p)
        K[:count, :count] = np.asarray(kernel.gram(theta, X))[:count, :count]
        k[:count] = np.asarray(kernel.cross(theta, X, z[None, :]))[:count, 0]
        prior = float(kernel.diagonal(theta, z[None, :])[0])
        if not _mixed_weights(
            K, k, targets, noises, squares[q], int(sizes[q]), count, prior, typical, *_operations(p), inner,
            *_operations(inner or p), *buffers[1:], tapered, weights[q],
        ):  # fmt: skip
            weights[q, 0] = np.nan


def _of_mixture(model: mixtures.Mixture, Z: Array, engine: Engine) -> JointErrors:
    """The law of total covariance: of members, and of their means around the common mean."""
    parts, means = [], []
    for member, factor in zip(model.members, mixtures.factors_of(model, engine), strict=True):
        weights = sparse.csr_matrix(solved(member.kernel, member.theta, factor, Z).T)
        share = np.full(len(Z), member.weight)
        parts.append(LinearPart.of(member.kernel, member.theta, model.store, weights, share))
        means.append(_cross(member.kernel, member.theta[:-1], factor.X, Z).T @ factor.alpha)
    common = sum(member.weight * mean for member, mean in zip(model.members, means, strict=True))
    shifts = [np.sqrt(member.weight) * (mean - common) for member, mean in zip(model.members, means, strict=True)]
    return JointErrors(parts, shifts if len(shifts) > 1 else [])


def _of_committee(committee: Committee, rule: Rule, experts_per_query: int | None, Z: Array) -> JointErrors:
    """The mean of a committee is linear in the means of its experts: the rule, applied to duals, has the coefficients.

    Sparse experts predict from inducing points and have no weights of rows.
    """
    if committee.inducing is not None:
        raise InvalidParameter('joint distributions of a committee need exact experts; fit with leaf="exact"')
    n = len(committee.experts)
    k = n if experts_per_query is None else min(experts_per_query, n)
    route, work = committee.router.nearest(Z, k), own_workspace()
    by_expert, first = QueriesByExpert.of(route), first_expert(route)
    prior = committee.kernel.diagonal(committee.theta[:-1], Z)
    q, messages, solutions = len(Z), [], []
    for leaf_number, rows, slots in map(by_expert.__getitem__, range(len(by_expert))):
        factor, some = committee.factor(leaf_number, work, rule, False), Z[rows].astype(committee.store.X.dtype)
        V = solved(committee.kernel, committee.theta, factor, some)
        cross = _cross(committee.kernel, committee.theta[:-1], factor.X, some)
        variance = np.maximum(prior[rows] - (cross * V).sum(axis=0), np.finfo(some.dtype).eps * prior[rows])
        mean: Any = Dual((cross * factor.alpha[:, None]).sum(axis=0), np.eye(k)[slots])
        closeness = route.closeness[rows, slots]
        opinion = Opinion(mean, variance, prior[rows], committee.noise, closeness, None, first[rows, slots])
        messages.append(rule.message(opinion))
        solutions.append((committee.experts[leaf_number], V))
    total = sum_of_messages(messages, by_expert, q, k)
    coefficients = rule.finish(total, prior, None).mean.tangent  # type: ignore[attr-defined]
    parts = []
    for i, (own, V) in enumerate(solutions):
        _, rows, slots = by_expert[i]
        data = V * coefficients[rows, slots]
        index = np.broadcast_to(rows, data.shape), np.broadcast_to(own[:, None], data.shape)
        places = (index[0].ravel(), index[1].ravel())
        parts.append(sparse.csr_matrix((data.ravel(), places), (q, len(committee.store.y))))
    weights = sum(parts[1:], start=parts[0])
    return JointErrors([LinearPart.of(committee.kernel, committee.theta, committee.store, weights, np.ones(q))], [])
