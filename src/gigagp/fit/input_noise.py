"""Noise that depends on the inputs: a second GP learns its logarithm from held-out errors.

The squared held-out error r^2 of a row has the expectation v + noise, v the variance of f there. The logarithm of
r^2 / (v + noise) is regressed on the inputs, with a kernel of its own: the noise may depend on columns that the mean
ignores. These logarithms are mostly noise, of variance pi^2 / 2 for Gaussian errors, so that a prediction needs very
many of them, while the function is smooth: a sparse expert on all of them (`sparse`). The predicted factor of each row
becomes its row noise, theta is trained again, and the errors of that model correct the factors once more. (Goldberg,
Williams & Bishop 1998, and Kersting et al. 2007, alternate between two GPs in this way.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gigagp import sparse
from gigagp.arrays import Array
from gigagp.data.array_files import ArrayFile
from gigagp.data.directions import Directions
from gigagp.data.row_lists import Runs
from gigagp.data.scaling import Scaling
from gigagp.data.scan import Sample
from gigagp.data.store import ExpertStore
from gigagp.engines import Engine, own_workspace
from gigagp.fit.groups import Groups
from gigagp.fit.held_out_scores import Gain, HeldOutScore, Scorer
from gigagp.fit.plan import Log, Plan
from gigagp.fit.rough_theta import rough_theta
from gigagp.fit.training import NEAR, Optimum, Trace, maximise, summed_evidence
from gigagp.kernels import Kernel, Matern32
from gigagp.linalg.categories import variances
from gigagp.linalg.row_noise import ADDED, COLUMNS, FACTOR
from gigagp.model import neighbourhood
from gigagp.model.fit_report import Candidate, Stage
from gigagp.model.input_noise import InputNoise, scaled_columns
from gigagp.model.neighbourhood import Neighbourhood
from gigagp.partition import RandomPartition, Shape
from gigagp.tree import Tree

_LEAST_GAIN = 0.001  # relative gain of held-out predictions for which noise="auto" lets the noise depend on the inputs
_ROUNDS = 2  # of learning the noise and training theta with it
_INDUCING = 128  # inducing points of the second GP
_ITERATIONS = 30  # of L-BFGS on its bound
_LEAST_SQUARE = 1e-3  # of the median squared error: added to all, since errors of zero prove little
_MEAN_LOG_SQUARE = -1.2703628454614782  # of a standard Gaussian: digamma(1/2) + ln 2
_START_NOISE = 0.7  # share of the variance of the logarithms that is not explained, where training starts
_NOISE_BOUNDS = (1e-3, 10.0)  # of that share
_ROWS_AT_ONCE = 1 << 16  # rows whose factors are predicted together


@dataclass(frozen=True, eq=False)
class NoisyNeighbourhood:
    """A neighbourhood whose noise depends on the inputs, and its predictions of held-out rows."""

    name: str
    noise: InputNoise
    neighbourhood: Neighbourhood
    groups: Groups
    held_out: HeldOutScore
    stages: tuple[Stage, ...]


def with_input_noise(
    near: Neighbourhood, before: HeldOutScore, groups: Groups, scorer: Scorer, if_visible: bool,
    directions: Directions | None, train: Callable[[Groups, Array], Array], log: Log, trace: Trace,
) -> list[NoisyNeighbourhood]:  # fmt: skip
    """Learn how the noise depends on the inputs, for predicted deviations alone and for the rows too.

    before : held-out predictions with constant noise
    if_visible : return nothing where some of the errors show no dependence
    directions : what takes the places of columns in the store
    train : the theta that training on groups of rows reaches from another theta
    """
    engine = groups.engine
    residuals = Residuals.of(near, scorer.order, engine, directions)
    log_noise = LogNoise.of(residuals, groups.plan.categories, engine.local, log, trace)
    if log_noise is None or (if_visible and not log_noise.is_visible):
        return []
    trained = log_noise.trained(engine.local, log, trace)
    noise = trained.given(residuals)
    X = np.ascontiguousarray(near.store.gather(before.rows)[0])
    prediction = replace(before.prediction, noise=near.noise * noise.factors(X))
    score = scorer.with_calibration(before.rows, before.y, prediction, near)
    first = NoisyNeighbourhood("inputs, deviations only", noise, near, groups, score, trained.stages)
    for number in range(_ROUNDS):
        noise = noise if number == 0 else trained.given(Residuals.of(near, scorer.order, engine, directions))
        store = with_row_noise(groups.stored.store, noise, f"input_noise_{number}")
        groups = replace(groups, stored=replace(groups.stored, store=store))
        theta = train(groups, near.theta)
        near = replace(near, store=store, theta=theta, router=groups.model(near.kernel, theta, 1).router)
    return [first, NoisyNeighbourhood("inputs", noise, near, groups, scorer.calibrate(near), trained.stages)]


def better_noise(
    before: HeldOutScore, candidates: list[NoisyNeighbourhood], must_depend: bool
) -> tuple[NoisyNeighbourhood | None, list[Candidate]]:
    """What predicts held-out rows best, None where constant noise does unless noise must depend; and all scores."""
    if not candidates:
        return None, []
    gains = [_gain(each.held_out, before) for each in candidates]
    first = int(np.argmax([gain.value for gain in gains]))
    best = candidates[first] if must_depend or gains[first].exceeds(_LEAST_GAIN) else None
    scores = [Candidate("noise", "constant", before.score, best is None)]
    for each, gain in zip(candidates, gains, strict=True):
        scores.append(Candidate("noise", each.name, before.score * (1 - gain.value), each is best))
    return best, scores


def _gain(candidate: HeldOutScore, before: HeldOutScore) -> Gain:
    """The gain over constant noise; both with the weights that rows had with constant noise."""
    count, setting = min(len(candidate.y), len(before.y)), before.calibration.setting
    reliability = None if setting is None else before.prediction.reliability(setting.typical)
    weights = 1.0 if reliability is None else reliability[:count]
    losses, reference = (
        weights * each.calibration.crps(each.prediction, each.y)[:count] for each in (candidate, before)
    )
    difference = (reference - losses) / max(float(reference.mean()), float(np.finfo(float).tiny))
    return Gain(float(difference.mean()), float(difference.std() / np.sqrt(count)))


@dataclass(frozen=True, eq=False)
class Residuals:
    """Held-out errors of some rows of a store."""

    X: Array  # scaled columns
    squares: Array  # squared errors, relative to v + noise
    rho: float  # typical ratio of v and noise
    directions: Directions | None = None  # of the store

    @classmethod
    def of(cls, model: Neighbourhood, rows: Array, engine: Engine, directions: Directions | None = None) -> Residuals:
        """The errors of predicting these rows from their neighbours without themselves."""
        X, y = model.store.gather(rows)
        X = np.ascontiguousarray(X)
        prediction = neighbourhood.predict(model, X, engine, held_out=rows)
        assert prediction.variance is not None
        row_noise = model.store.noise_of(rows)
        added = 0.0 if row_noise is None else row_noise[:, ADDED].astype(float)
        squares = (y - prediction.mean) ** 2 / (prediction.variance + model.noise + added)
        rho = float(np.median(prediction.variance) / model.noise)
        return cls(scaled_columns(X, directions), squares, rho, directions)

    @property
    def logarithms(self) -> Array:
        """ln r^2, shifted so that its expectation is the logarithm of the variance where errors are Gaussian."""
        least = _LEAST_SQUARE * float(np.median(self.squares))
        return np.asarray(np.log(self.squares + max(least, np.finfo(float).tiny)) - _MEAN_LOG_SQUARE)

    def targets(self, scaling: Scaling) -> Array:
        """The standardised logarithms, in the precision of the rows."""
        return scaling.apply(self.logarithms[:, None], self.X.dtype)[:, 0]


@dataclass(frozen=True, eq=False)
class LogNoise:
    """The second GP before its training: the plan, its rows, and a first theta."""

    plan: Plan
    store: ExpertStore
    target: Scaling
    first: Optimum

    @classmethod
    def of(
        cls, residuals: Residuals, categories: tuple[int, ...], engine: Engine, log: Log, trace: Trace
    ) -> LogNoise | None:
        """With a theta from an exact GP on some of the rows; None where all logarithms are the same."""
        logarithms = residuals.logarithms
        deviation = float(logarithms.std())
        if not deviation > 0:
            return None
        target = Scaling(np.array([logarithms.mean()]), np.array([deviation]))
        plan, y, numbers = _plan(residuals.X, categories), residuals.targets(target), np.arange(len(residuals.X))
        first = rough_theta(plan, Sample(numbers, numbers, residuals.X, y), engine, log, trace)[-1]
        return cls(plan, ExpertStore(residuals.X, y), target, first)

    @property
    def is_visible(self) -> bool:
        """Whether the exact GP has more evidence than noise alone, by more than a nat per parameter."""
        gain = self.first.stage.evidence_per_point + 0.5 * np.log(2 * np.pi * np.e)
        return bool(gain * self.first.stage.points > len(self.first.theta))

    def trained(self, engine: Engine, log: Log, trace: Trace) -> TrainedLogNoise:
        """The theta that maximises the bound of all rows."""
        plan, whole, tree = self.plan, Runs(np.array([0, len(self.store.y)])), Tree.regular(1, 1)
        bound = log.recorded(summed_evidence(plan.kernel, self.store, whole, tree, engine, inducing=_INDUCING))
        best = maximise("noise", bound, None, self.first.theta, plan.bounds, trace, NEAR, _ITERATIONS)
        return TrainedLogNoise(plan.kernel, best.theta, self.target, (self.first.stage, best.stage))


@dataclass(frozen=True, eq=False)
class TrainedLogNoise:
    """Kernel and theta of the second GP."""

    kernel: Kernel
    theta: Array
    target: Scaling
    stages: tuple[Stage, ...]

    def given(self, residuals: Residuals) -> InputNoise:
        """How the noise depends on the inputs, given these errors."""
        y = residuals.targets(self.target)
        factor = sparse.factor(self.kernel, self.theta, residuals.X, y, _INDUCING, own_workspace())
        return InputNoise(
            self.kernel, self.theta, factor.X, factor.alpha, self.target, residuals.rho, residuals.directions
        )


def _plan(X: Array, categories: tuple[int, ...]) -> Plan:
    """The plan of the second GP. Matérn 3/2, since noise may change abruptly; its length-scales span the rows."""
    width = np.sqrt(variances(X, categories))
    width = np.where(width > 0, width, 1.0)
    bounds = (1e-3 * float(width.min()), 1e3 * float(width.max()))
    return Plan(
        kernel=Matern32(1.0, len(width) ** 0.5 * width, lengthscale_bounds=bounds).with_categories(categories),
        noise_start=_START_NOISE, noise_bounds=_NOISE_BOUNDS, partitioner=RandomPartition(), shape=Shape(),
        training="full", precision=NEAR,
    )  # fmt: skip


def with_row_noise(store: ExpertStore, noise: InputNoise, name: str) -> ExpertStore:
    """The same rows with their own noise; in a file of this name where the rows are in files."""
    n = len(store.y)
    blocks = (_row_noise(store, slice(a, a + _ROWS_AT_ONCE), noise) for a in range(0, n, _ROWS_AT_ONCE))
    if not store.mapped:
        return ExpertStore(store.X, store.y, np.concatenate(list(blocks)), store.keeper)
    path = Path(store.files[0].path).with_name(f"{name}.npy")
    file = ArrayFile(path, (n, COLUMNS), store.X.dtype)
    for block in blocks:
        file.append(block)
    file.close()
    X, y, *_ = (each.open() for each in store.files)
    return ExpertStore(X, y, np.load(path, mmap_mode="r"), store.keeper)


def _row_noise(store: ExpertStore, rows: slice, noise: InputNoise) -> Array:
    X = np.ascontiguousarray(store.gather(rows)[0])
    result = np.empty((len(X), COLUMNS), X.dtype)
    before = store.noise_of(rows)  # rows that look like outliers have noise of their own
    result[:, FACTOR], result[:, ADDED] = noise.factors(X), 0.0 if before is None else before[:, ADDED]
    return result
