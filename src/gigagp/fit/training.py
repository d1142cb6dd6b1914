"""Training: the shared theta maximises the summed evidence of the experts (eq. 5), by L-BFGS-B over log-parameters.

full: every expert at every evaluation, as the paper. progressive: batches of experts, each batch containing the last,
grown until what is still lost by not seeing all experts is negligible. The sum over a random batch, scaled up, is an
unbiased estimate of the sum over all; its maximiser misses the full one by about H^-1 times the error of the batch's
mean gradient, which costs, in evidence, half the trace of H^-1 times that error's covariance. The covariance is known
from what the batch's leaves sent up anyway, H from L-BFGS.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import minimize

from gigagp import expert
from gigagp.arrays import Array
from gigagp.data.row_lists import RowLists
from gigagp.data.store import ExpertStore
from gigagp.engines import Engine, OverLeaves
from gigagp.expert import Evidence
from gigagp.kernels.base import Kernel
from gigagp.linalg.workspace import Workspace
from gigagp.model.fit_report import Stage
from gigagp.model.fit_warnings import ParameterAtBound
from gigagp.progress import Event, Listener, silent
from gigagp.tree import Tree

# theta, leaves (None: all) -> summed evidence of those leaves
Objective = Callable[[Array, Array | None], Evidence]

NEGLIGIBLE = 1e-3  # evidence per point, in nats, that a batch may expect to lose
_NEGLIGIBLE_GAIN = 5e-3  # evidence per point, in nats, below which training ends
_FIRST_GROUPS = 32
_MOST_GROUPS = 256
_VAIN_ROUNDS = 2  # in succession that do not improve held-out predictions, after which training ends
_GROUP_ITERATIONS = 30  # of L-BFGS on the same groups: more would fit what is particular to them
_FIRST_POINTS = 8192  # points in the first batch
_FIRST_EXPERTS = 8
_ITERATIONS = 200
_AT_BOUND = 1e-3  # a log-parameter this near to a bound has hit it
_ROUNDING = 100  # a line search that fails where the slope is below so many times the tolerance met only rounding


@dataclass(frozen=True, eq=False)
class LeafEvidence:
    """Eq. 6 at theta, for any leaf's rows; with finite dof each leaf has a scale of its own."""

    kernel: Kernel
    theta: Array
    dof: float = np.inf

    name = "evidence"

    def __call__(self, leaf: int, X: Array, y: Array, work: Workspace) -> Evidence:
        return expert.evidence(self.kernel, self.theta, X, y, work, leaf, self.dof)

    def several(self, X: Array, y: Array, starts: Array, ends: Array, work: Workspace) -> list[Evidence | None]:
        """Leaves of the rows starts[i] .. ends[i], to the same bits as one at a time; None where that is needed."""
        return expert.evidences(self.kernel, self.theta, X, y, starts, ends, work, self.dof)


def summed_evidence(
    kernel: Kernel, store: ExpertStore, cells: RowLists, tree: Tree, engine: Engine, dof: float = np.inf
) -> Objective:
    """Eq. 5 as a function of theta, over all leaves or over some (which then hang from a tree of their own)."""

    def evidence(theta: Array, leaves: Array | None) -> Evidence:
        over = OverLeaves(store, cells, leaves, LeafEvidence(kernel, theta, dof))
        return engine.sum(tree if leaves is None else Tree.balanced(len(leaves)), over)

    return evidence


@dataclass(frozen=True)
class Precision:
    """When to stop: relative change of the evidence per point, and its largest slope, that count as none."""

    change: float = 1e-8
    slope: float = 1e-5

    @classmethod
    def of(cls, dtype: str) -> Precision:
        return cls() if dtype == "float64" else cls(1e-6, 1e-3)

    def no_finer(self, than: Precision) -> Precision:
        return Precision(max(self.change, than.change), max(self.slope, than.slope))


NEAR = Precision(
    1e-7, 1e-3
)  # as precise as is worth while: predictions of many experts do not tell it from the optimum


@dataclass(eq=False)
class Trace:
    """All evaluations of a fit, in order."""

    evidence: list[float] = field(default_factory=list)
    theta: list[Array] = field(default_factory=list)
    jitter: float = 0.0
    jittered: int = 0
    tell: Listener = silent
    _stage: str = ""
    _first: int = 0
    _begun: float = 0.0

    def begin(self, stage: str) -> None:
        """Evaluations that follow are told as this stage's."""
        self._stage, self._first, self._begun = stage, len(self.evidence), time.perf_counter()

    def add(self, other: Trace) -> None:
        """The evaluations of another trace, after those of this one."""
        self.evidence += other.evidence
        self.theta += other.theta
        self.jitter, self.jittered = max(self.jitter, other.jitter), max(self.jittered, other.jittered)

    def record(self, theta: Array, seen: Evidence) -> None:
        self.evidence.append(seen.value / seen.points)
        self.theta.append(theta.copy())
        self.jitter = max(self.jitter, seen.jitter)
        self.jittered = max(self.jittered, seen.jittered)
        number, slope = len(self.evidence) - self._first, float(np.linalg.norm(seen.gradient)) / seen.points
        spent = time.perf_counter() - self._begun
        self.tell(Event(self._stage, number, None, spent, self.evidence[-1], slope, seen.experts))


@dataclass(frozen=True, eq=False)
class Trained:
    theta: Array
    stages: tuple[Stage, ...]


@dataclass(frozen=True, eq=False)
class Optimum:
    theta: Array
    seen: Evidence
    stage: Stage
    inverse_hessian: Array  # of minus the evidence per point


def maximise(
    name: str, evidence: Objective, leaves: Array | None, start: Array, bounds: Array, trace: Trace,
    precision: Precision, iterations: int = _ITERATIONS,
) -> Optimum:  # fmt: skip
    """L-BFGS-B on the evidence per point of some leaves."""
    best: tuple[bytes, Evidence] | None = None

    def loss(theta: Array) -> tuple[float, Array]:
        nonlocal best
        seen = evidence(theta, leaves)
        if best is None or seen.value > best[1].value:
            best = theta.tobytes(), seen
        trace.record(theta, seen)
        return -seen.value / seen.points, -seen.gradient / seen.points

    start = np.clip(start, bounds[:, 0], bounds[:, 1])
    if np.all(bounds[:, 0] == bounds[:, 1]):
        loss(start)
        assert best is not None
        seen = best[1]
        stage = Stage(name, seen.experts, seen.points, 0, 1, seen.value / seen.points, "all of theta is fixed", True)
        return Optimum(start, seen, stage, np.zeros((len(start), len(start))))
    result = minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=bounds,
        options={"maxiter": iterations, "ftol": precision.change, "gtol": precision.slope, "maxcor": 20},
    )  # fmt: skip
    theta = np.asarray(result.x)
    seen = best[1] if best is not None and best[0] == theta.tobytes() else evidence(theta, leaves)
    message, converged = str(result.message).strip(" :"), bool(result.success)
    if not converged and _projected_slope(theta, seen, bounds) < _ROUNDING * precision.slope:
        message, converged = f"{message}: no better point within rounding", True
    stage = Stage(
        name, seen.experts, seen.points, int(result.nit), int(result.nfev), seen.value / seen.points, message,
        converged,
    )  # fmt: skip
    free = (theta > bounds[:, 0] + 1e-9) & (theta < bounds[:, 1] - 1e-9)
    inverse = np.asarray(result.hess_inv.todense())
    inverse[~free] = 0.0
    inverse[:, ~free] = 0.0
    return Optimum(theta, seen, stage, inverse)


def _projected_slope(theta: Array, seen: Evidence, bounds: Array) -> float:
    """The steepest way up, per point, that the bounds leave open."""
    uphill = seen.gradient / seen.points
    return float(np.abs(np.clip(theta + uphill, bounds[:, 0], bounds[:, 1]) - theta).max())


def train_full(evidence: Objective, start: Array, bounds: Array, trace: Trace, precision: Precision) -> Trained:
    """Every expert at every evaluation."""
    best = maximise("full", evidence, None, start, bounds, trace, precision)
    return Trained(best.theta, (best.stage,))


def train_on_groups(
    gather: Callable[[Array, int], Objective], judge: Callable[[Array], float], start: Array, bounds: Array,
    trace: Trace, precision: Precision,
) -> Trained:  # fmt: skip
    """Fresh groups of neighbouring rows, twice as many each time, until training on them gains next to nothing.

    gather : the summed evidence of so many groups, formed in the metric of theta
    judge : the score of held-out predictions at theta; lower is better

    What theta gains on groups that it has not seen is at least what it had lost by not seeing them. A round that makes
    held-out predictions worse is not followed: the next one starts from the best theta so far. If that, with twice as
    many groups, is worse as well, then the evidence and the predictions disagree, and still more groups change nothing.
    """
    best, least, stages, count, vain = start, judge(start), [], _FIRST_GROUPS, 0
    while True:
        first = len(trace.evidence)
        found = maximise(
            "groups", gather(best, count), None, best, bounds, trace, precision.no_finer(NEAR), _GROUP_ITERATIONS
        )
        stages.append(found.stage)
        score = judge(found.theta)
        vain += 1
        if score <= least:
            best, least, vain = found.theta, score, 0
        gain = found.stage.evidence_per_point - trace.evidence[first]
        settled = count > _FIRST_GROUPS and gain < _NEGLIGIBLE_GAIN
        if settled or count == _MOST_GROUPS or vain == _VAIN_ROUNDS:
            return Trained(best, tuple(stages))
        count *= 2


def train_progressive(
    evidence: Objective, start: Array, bounds: Array, trace: Trace, precision: Precision, sizes: Array,
    rng: np.random.Generator,
) -> Trained:  # fmt: skip
    """Nested random batches of experts, doubled until the expected loss is negligible or all experts are in."""
    shuffled = rng.permutation(len(sizes))
    count = max(_FIRST_EXPERTS, int(np.ceil(_FIRST_POINTS / sizes.mean())))
    theta, stages = start, []
    loss, seen_before = 0.0, 0
    while True:
        batch = np.sort(shuffled[:count])
        whole = count >= len(sizes)
        name, leaves = ("all experts", None) if whole else ("batch", batch)
        stop = precision if whole else precision.no_finer(NEAR)
        best = maximise(name, evidence, leaves, theta, bounds, trace, stop)
        theta = best.theta
        stages.append(best.stage)
        # A batch that starts near its optimum teaches L-BFGS little of H; but the loss falls as one over the points.
        loss = max(expected_loss(best.seen, best.inverse_hessian, len(sizes)), loss * seen_before / best.seen.points)
        if whole or loss < NEGLIGIBLE:
            break
        seen_before = best.seen.points
        count *= 2
    if not whole:
        check = np.sort(shuffled[count : 2 * count])
        seen = evidence(theta, check)
        trace.record(theta, seen)
        stages.append(
            Stage(
                "check",
                seen.experts,
                seen.points,
                0,
                1,
                seen.value / seen.points,
                f"{stages[-1].message}; evidence on experts not trained on",
                stages[-1].converged,
            )
        )
    return Trained(theta, tuple(stages))


def expected_loss(seen: Evidence, inverse_hessian: Array, n_experts: int) -> float:
    """Expected evidence per point lost by training on a random batch of the experts: tr(H^-1 S) / 2.

    S is the covariance of the batch's mean gradient (per point), from the scatter of the leaves' gradients, with the
    correction for drawing without replacement; H the Hessian of minus the evidence per point, as L-BFGS learnt it.
    """
    m = seen.experts
    if m < 2:
        return np.inf
    mean = seen.gradient / m
    covariance = (seen.scatter / m - np.outer(mean, mean)) * m / (m - 1)
    per_point = covariance * m / seen.points**2 * (1 - m / n_experts)
    return 0.5 * float(np.sum(inverse_hessian * per_point))


def bound_warnings(theta: Array, bounds: Array, names: tuple[str, ...]) -> list[ParameterAtBound]:
    """A warning for each parameter that ended at a bound it was free to leave."""
    warnings = []
    for value, (low, high), name in zip(theta, bounds, names, strict=True):
        if low == high:
            continue
        for bound, side in ((low, "lower"), (high, "upper")):
            if side == "upper" and name == "alpha":
                continue  # a rational quadratic may become the squared exponential
            if abs(value - bound) < _AT_BOUND:
                warnings.append(ParameterAtBound(name, side, float(np.exp(value)), float(np.exp(bound))))
    return warnings
