"""Training: the common theta maximises the summed evidence of the experts (eq. 5), by L-BFGS-B over log-parameters.

full: every expert at every evaluation, as the paper. progressive: batches of experts, each batch containing the last,
grown until the expected loss of not using all experts is negligible. The sum over a random batch, scaled up, is an
unbiased estimate of the sum over all; its maximiser misses the full one by about H^-1 times the error of the batch's
mean gradient, which costs, in evidence, half the trace of H^-1 times that error's covariance. The covariance is
estimated from the gradients of the batch's leaves, H by L-BFGS.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import minimize

from gigagp import expert, sparse
from gigagp.arrays import Array
from gigagp.data.directions import DIRECTION
from gigagp.data.row_lists import RowLists
from gigagp.data.store import ExpertStore
from gigagp.engines import Engine, OverLeaves
from gigagp.expert import Evidence
from gigagp.fit.theta_prior import ThetaPrior
from gigagp.kernels.base import Kernel
from gigagp.likelihoods import LaplaceEvidence, Latents
from gigagp.linalg.workspace import Workspace
from gigagp.model.fit_report import Stage
from gigagp.model.fit_warnings import ParameterAtBound
from gigagp.progress import Event, Listener, silent
from gigagp.tree import Tree

# theta, leaves (None: all) -> summed evidence of those leaves
Objective = Callable[[Array, Array | None], Evidence]

NEGLIGIBLE = 1e-3  # evidence per point, in nats, that a batch may expect to lose
_NEGLIGIBLE_GAIN = 5e-3  # evidence per point, in nats, below which training ends
FIRST_GROUPS = 32  # groups in the first round, at least
_GROUPS_PER_PARAMETER = 2  # fewer groups determine many length-scales badly, and theta fits the groups by chance
_MANY_GROUPS = 64  # that are enough for any number of parameters, until there are rounds of more
_MOST_GROUPS = 256  # groups in a round
_VAIN_ROUNDS = 2  # successive rounds without better held-out predictions, after which training ends
_GROUP_ITERATIONS = 30  # iterations of L-BFGS on the same groups: more would overfit them
_FIRST_POINTS = 8192  # points in the first batch
_FIRST_EXPERTS = 8  # experts in the first batch, at least
_ITERATIONS = 200  # of L-BFGS, at most
_AT_BOUND = 1e-3  # distance to a bound, of a log-parameter, below which it counts as at the bound
_ROUNDING = 100  # multiple of the tolerance: a line search that fails at a smaller slope failed because of rounding


@dataclass(frozen=True, eq=False)
class LeafEvidence:
    """The log marginal likelihood (eq. 6) of one leaf's rows at theta; with finite dof each leaf has its own scale.

    inducing : number of inducing points of a sparse leaf, whose evidence is a lower bound; None for exact leaves
    """

    kernel: Kernel
    theta: Array
    dof: float = np.inf
    inducing: int | None = None

    name = "evidence"

    def __call__(self, leaf: int, X: Array, y: Array, work: Workspace, row_noise: Array | None = None) -> Evidence:
        if self.inducing is not None:
            return sparse.evidence(self.kernel, self.theta, X, y, self.inducing, work, leaf, row_noise)
        return expert.evidence(self.kernel, self.theta, X, y, work, leaf, self.dof, row_noise)

    def several(
        self, X: Array, y: Array, starts: Array, ends: Array, work: Workspace, row_noise: Array | None = None
    ) -> list[Evidence | None]:
        """The evidence of leaves with the rows starts[i] .. ends[i]; None for those that must be evaluated singly.

        The results have the same bits as those of `__call__`.
        """
        if self.inducing is not None:
            return [None] * len(starts)
        return expert.evidences(self.kernel, self.theta, X, y, starts, ends, work, self.dof, row_noise)


def leaf_evidence(
    kernel: Kernel, theta: Array, dof: float, inducing: int | None, latents: Latents | None
) -> LeafEvidence | LaplaceEvidence:
    """The evidence of one leaf as a function of its rows."""
    return LeafEvidence(kernel, theta, dof, inducing) if latents is None else LaplaceEvidence(kernel, theta, latents)


def summed_evidence(
    kernel: Kernel, store: ExpertStore, cells: RowLists, tree: Tree, engine: Engine, dof: float = np.inf,
    inducing: int | None = None, latents: Latents | None = None,
) -> Objective:  # fmt: skip
    """The summed evidence (eq. 5) as a function of theta, over all leaves or over some (added in their own tree).

    inducing : number of inducing points of a sparse leaf
    latents : where targets are not Gaussian, so that their evidence is approximate
    """

    def evidence(theta: Array, leaves: Array | None) -> Evidence:
        over = OverLeaves(store, cells, leaves, leaf_evidence(kernel, theta, dof, inducing, latents))
        return engine.sum(tree if leaves is None else Tree.balanced(len(leaves)), over)

    return evidence


def with_prior(evidence: Objective, prior: ThetaPrior, rows: float) -> Objective:
    """The evidence with a prior of theta, which counts once for all rows: leaves with half of them have half of it."""

    def posterior(theta: Array, leaves: Array | None) -> Evidence:
        total = evidence(theta, leaves)
        share = total.points / rows
        return total.plus(share * prior.log_density(theta), share * prior.gradient(theta))

    return posterior


@dataclass(frozen=True)
class Precision:
    """When L-BFGS-B stops: relative change of the evidence per point, and largest slope, that count as zero."""

    change: float = 1e-8
    slope: float = 1e-5

    @classmethod
    def of(cls, dtype: str) -> Precision:
        return cls() if dtype == "float64" else cls(1e-6, 1e-3)

    def no_finer(self, than: Precision) -> Precision:
        return Precision(max(self.change, than.change), max(self.slope, than.slope))


# Precise enough: predictions of many experts hardly differ from those at the optimum.
NEAR = Precision(change=1e-7, slope=1e-3)


@dataclass(eq=False)
class Trace:
    """All evaluations of the evidence during a fit, in order."""

    evidence: list[float] = field(default_factory=list)
    theta: list[Array] = field(default_factory=list)
    jitter: float = 0.0
    jittered: int = 0
    tell: Listener = silent
    _stage: str = ""
    _first: int = 0
    _begun: float = 0.0

    def begin(self, stage: str) -> None:
        """Report the evaluations that follow as those of this stage."""
        self._stage, self._first, self._begun = stage, len(self.evidence), time.perf_counter()

    def inner(self) -> Trace:
        """An empty trace whose evaluations are reported as further ones of the present stage."""
        return Trace(tell=self.tell, _stage=self._stage, _first=self._first - len(self.evidence), _begun=self._begun)

    def add(self, other: Trace) -> None:
        """The evaluations of another trace, after those of this one."""
        self.evidence += other.evidence
        self.theta += other.theta
        self.jitter, self.jittered = max(self.jitter, other.jitter), max(self.jittered, other.jittered)

    def thetas(self, length: int) -> Array:
        """All thetas as one array; those of candidates with another number of parameters are NaN."""
        table = np.full((len(self.theta), length), np.nan)
        for row, theta in zip(table, self.theta, strict=True):
            if len(theta) == length:
                row[:] = theta
        return table

    def record(self, theta: Array, total: Evidence) -> None:
        self.evidence.append(total.value / total.points)
        self.theta.append(theta.copy())
        self.jitter = max(self.jitter, total.jitter)
        self.jittered = max(self.jittered, total.jittered)
        number, slope = len(self.evidence) - self._first, float(np.linalg.norm(total.gradient)) / total.points
        spent = time.perf_counter() - self._begun
        self.tell(Event(self._stage, number, None, spent, self.evidence[-1], slope, total.experts))


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """The trained theta, and the optimisations that led to it."""

    theta: Array
    stages: tuple[Stage, ...]


@dataclass(frozen=True, eq=False)
class Optimum:
    """The end of one optimisation, with the evidence there."""

    theta: Array
    evidence: Evidence
    stage: Stage
    inverse_hessian: Array  # of minus the evidence per point


def maximise(
    name: str, evidence: Objective, leaves: Array | None, start: Array, bounds: Array, trace: Trace,
    precision: Precision, iterations: int = _ITERATIONS,
) -> Optimum:  # fmt: skip
    """Maximise the evidence per point of some leaves by L-BFGS-B."""
    best: tuple[bytes, Evidence] | None = None

    def loss(theta: Array) -> tuple[float, Array]:
        nonlocal best
        total = evidence(theta, leaves)
        if best is None or total.value > best[1].value:
            best = theta.tobytes(), total
        trace.record(theta, total)
        return -total.value / total.points, -total.gradient / total.points

    start = np.clip(start, bounds[:, 0], bounds[:, 1])
    if np.all(bounds[:, 0] == bounds[:, 1]):
        loss(start)
        assert best is not None
        total = best[1]
        stage = Stage(
            name, total.experts, total.points, 0, 1, total.value / total.points, "all of theta is fixed", True
        )
        return Optimum(start, total, stage, np.zeros((len(start), len(start))))
    result = minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=bounds,
        options={"maxiter": iterations, "ftol": precision.change, "gtol": precision.slope, "maxcor": 20},
    )  # fmt: skip
    theta = np.asarray(result.x)
    total = best[1] if best is not None and best[0] == theta.tobytes() else evidence(theta, leaves)
    message, converged = str(result.message).strip(" :"), bool(result.success)
    if not converged and _projected_slope(theta, total, bounds) < _ROUNDING * precision.slope:
        message, converged = f"{message}: no better point within rounding", True
    stage = Stage(
        name, total.experts, total.points, int(result.nit), int(result.nfev), total.value / total.points, message,
        converged,
    )  # fmt: skip
    free = (theta > bounds[:, 0] + 1e-9) & (theta < bounds[:, 1] - 1e-9)
    inverse = np.asarray(result.hess_inv.todense())
    inverse[~free] = 0.0
    inverse[:, ~free] = 0.0
    return Optimum(theta, total, stage, inverse)


def _projected_slope(theta: Array, total: Evidence, bounds: Array) -> float:
    """The largest slope of the evidence per point in a direction that the bounds allow."""
    uphill = total.gradient / total.points
    return float(np.abs(np.clip(theta + uphill, bounds[:, 0], bounds[:, 1]) - theta).max())


def train_full(evidence: Objective, start: Array, bounds: Array, trace: Trace, precision: Precision) -> TrainingResult:
    """Train on all experts, at every evaluation."""
    best = maximise("full", evidence, None, start, bounds, trace, precision)
    return TrainingResult(best.theta, (best.stage,))


def groups_for(parameters: int, least: int) -> int:
    """How many groups of rows so many parameters are learnt from."""
    return max(least, min(_GROUPS_PER_PARAMETER * parameters, _MANY_GROUPS))


def train_on_groups(
    gather: Callable[[Array, int], Objective], judge: Callable[[Array], float], start: Array, bounds: Array,
    trace: Trace, precision: Precision, first_count: int,
) -> TrainingResult:  # fmt: skip
    """Train on new groups of neighbouring rows, twice as many in each round, until a round gains next to nothing.

    gather : the summed evidence of a number of groups, formed in the metric of theta
    judge : the score of held-out predictions at theta; lower is better
    first_count : the number of groups in the first round

    What theta gains on new groups is at least what it had lost by being trained on fewer. The theta of a round that
    makes held-out predictions worse is discarded: the next round starts from the best theta so far. If that round, with
    twice as many groups, is worse as well, then evidence and predictions disagree, and more groups do not help.
    """
    best, best_score, stages, count, vain = start, judge(start), [], first_count, 0
    while True:
        first = len(trace.evidence)
        optimum = maximise(
            "groups", gather(best, count), None, best, bounds, trace, precision.no_finer(NEAR), _GROUP_ITERATIONS
        )
        stages.append(optimum.stage)
        score = judge(optimum.theta)
        vain += 1
        if score <= best_score:
            best, best_score, vain = optimum.theta, score, 0
        gain = optimum.stage.evidence_per_point - trace.evidence[first]
        settled = count > first_count and gain < _NEGLIGIBLE_GAIN
        if settled or count >= _MOST_GROUPS or vain == _VAIN_ROUNDS:
            return TrainingResult(best, tuple(stages))
        count *= 2


def train_progressive(
    evidence: Objective, start: Array, bounds: Array, trace: Trace, precision: Precision, sizes: Array,
    rng: np.random.Generator,
) -> TrainingResult:  # fmt: skip
    """Train on nested random batches of experts, doubled until the expected loss is negligible or all are included."""
    shuffled = rng.permutation(len(sizes))
    count = max(_FIRST_EXPERTS, int(np.ceil(_FIRST_POINTS / sizes.mean())))
    theta, stages = start, []
    loss, points_before = 0.0, 0
    while True:
        batch = np.sort(shuffled[:count])
        whole = count >= len(sizes)
        name, leaves = ("all experts", None) if whole else ("batch", batch)
        stop = precision if whole else precision.no_finer(NEAR)
        best = maximise(name, evidence, leaves, theta, bounds, trace, stop)
        theta = best.theta
        stages.append(best.stage)
        # In a batch that starts near its optimum L-BFGS learns little about H. The loss then is at least what the
        # previous one implies, since it decreases as one over the number of points.
        total = best.evidence
        loss = max(expected_loss(total, best.inverse_hessian, len(sizes)), loss * points_before / total.points)
        if whole or loss < NEGLIGIBLE:
            break
        points_before = total.points
        count *= 2
    if not whole:
        check = np.sort(shuffled[count : 2 * count])
        total = evidence(theta, check)
        trace.record(theta, total)
        stages.append(
            Stage(
                "check",
                total.experts,
                total.points,
                0,
                1,
                total.value / total.points,
                f"{stages[-1].message}; evidence on experts not trained on",
                stages[-1].converged,
            )
        )
    return TrainingResult(theta, tuple(stages))


def expected_loss(total: Evidence, inverse_hessian: Array, n_experts: int) -> float:
    """Expected loss of evidence per point by training on a random batch of the experts: tr(H^-1 S) / 2.

    S is the covariance of the batch's mean gradient (per point), from the scatter of the leaves' gradients, with the
    correction for drawing without replacement; H is L-BFGS's estimate of the Hessian of minus the evidence per point.
    """
    m = total.experts
    if m < 2:
        return np.inf
    mean = total.gradient / m
    covariance = (total.scatter / m - np.outer(mean, mean)) * m / (m - 1)
    per_point = covariance * m / total.points**2 * (1 - m / n_experts)
    return 0.5 * float(np.sum(inverse_hessian * per_point))


def bound_warnings(theta: Array, bounds: Array, names: tuple[str, ...]) -> list[ParameterAtBound]:
    """A warning for each parameter that ended at a bound it was free to leave."""
    warnings = []
    for value, (low, high), name in zip(theta, bounds, names, strict=True):
        if low == high or DIRECTION in name:  # a direction without influence says nothing about any column
            continue
        for bound, side in ((low, "lower"), (high, "upper")):
            if side == "upper" and name == "alpha":
                continue  # a rational quadratic may become the squared exponential
            if abs(value - bound) < _AT_BOUND:
                warnings.append(ParameterAtBound(name, side, float(np.exp(value)), float(np.exp(bound))))
    return warnings
