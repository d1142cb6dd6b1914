"""Directions instead of columns: linear combinations of the columns, where held-out rows are then predicted better.

A kernel with one length-scale per column cannot describe a target that varies with a difference or a sum of columns.
Directions are learnt from the slopes g of held-out predictions. With C the covariance of the columns, and M the mean of
g g^T, the directions are the columns of the matrix A for which

    A^T C A = I,   A^-1 M A^-T = diagonal

so that coordinates along them are uncorrelated, and so are the slopes. These directions do not depend on the units in
which columns are measured, nor on linear combinations of columns that the user may have made. (Without C, this is the
average gradient outer product of Radhakrishnan et al. 2024, Science 383.) Linearly dependent columns do not vary in
some directions; these are completed to a basis.

Directions are learnt in rounds, each from the better predictions of the one before. Theta is trained briefly in each,
and the round that predicts held-out rows best is chosen. Short trainings vary by some percent, so that the first rounds
may seem to gain nothing: on protein (split 3, a trial) the RMSE was .475 where the second round was the last one, and
.451 where further ones followed. Whether directions take the places of columns is decided after a complete training
(`theta_learning`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gigagp.arrays import Array
from gigagp.data.array_files import ArrayFile
from gigagp.data.directions import Directions
from gigagp.data.scan import Sample
from gigagp.data.store import ExpertStore
from gigagp.fit.groups import Groups
from gigagp.fit.held_out_scores import Gain, HeldOutScore, Scorer
from gigagp.fit.plan import Log, Plan
from gigagp.fit.starts import trained_briefly
from gigagp.fit.training import Trace, groups_for
from gigagp.model.fit_report import Candidate, Stage
from gigagp.model.neighbourhood import Neighbourhood
from gigagp.model.neighbourhood_gradient import held_out_slopes

MOST_ROWS = 1 << 18  # of tables whose directions are learnt
_GROUPS = 16  # of neighbouring rows, at least, to train theta on
_ROUNDS = 8  # of learning directions, at most
_PATIENCE = 3  # rounds after the best one
_NEIGHBOURS = 64  # of the held-out predictions
_SLOPES = 4096  # rows, at most, whose slopes are computed
_LARGEST_SLOPE = 0.95  # quantile of the lengths of slopes to which longer ones are shortened
_LEAST_SLOPE = 0.02  # 1 / length-scale at the start of training: beyond it, the evidence hardly changes
_LEAST_VARIANCE = 1e-6  # of a direction that is not linearly dependent on others, as a share of the largest
_FEWEST_COLUMNS = 2  # that can be combined
# Relative gain of the score for which columns are replaced: directions are learnt from many more numbers than length-
# scales, and a model in the user's columns is easier to understand.
LEAST_GAIN = 0.01


@dataclass(frozen=True, eq=False)
class LearntDirections:
    """Directions, theta along them, the rows with them, the scores with and without them, and stages of training."""

    directions: Directions | None  # None where columns predict as well
    theta: Array
    groups: Groups
    candidates: tuple[Candidate, ...] = ()
    stages: tuple[Stage, ...] = ()


@dataclass(frozen=True, eq=False)
class _Trial:
    """Some directions, theta along them after a short training, and the score; the rows with these directions."""

    name: str
    directions: Directions | None
    groups: Groups
    theta: Array
    score: HeldOutScore

    @property
    def loss(self) -> float:
        return self.score.score


def may_have_directions(plan: Plan, groups: Groups) -> bool:
    """Whether directions may take the places of columns: in tables of moderate size, whose targets are numbers."""
    numbers = plan.latents is None and groups.stored.store.others is None
    return plan.directions and bool(plan.families) and numbers and groups.rows <= MOST_ROWS


def combinable(plan: Plan, sample: Sample) -> list[int]:
    """The columns that may be combined: numbers that vary, each with a length-scale of its own."""
    own = [columns[0] for _, columns in plan.kernel.lengthscales(sample.X.shape[1]) if len(columns) == 1]
    return [d for d in own if d not in plan.categories and np.ptp(sample.X[:, d]) > 0]


def learn_directions(
    plan: Plan, groups: Groups, theta: Array, sample: Sample, scorer: Scorer, log: Log, trace: Trace
) -> LearntDirections:
    """Directions and theta along them, if these may predict better than columns; otherwise columns and their theta.

    theta : of the columns, after a short training
    """
    places = combinable(plan, sample)
    if len(places) < _FEWEST_COLUMNS:
        return LearntDirections(None, theta, groups)
    columns = np.asarray(sample.X, float)[:, places]

    candidates: list[Candidate] = []
    stages: list[Stage] = []

    def trial(name: str, start: Array, directions: Directions | None) -> _Trial:
        there = groups if directions is None else along_directions(groups, directions, f"directions_{len(stages)}")
        metric, count = plan.metric(start, groups.columns), groups_for(len(theta), _GROUPS)
        trained, own_stages = trained_briefly(name, plan, there, start, metric, log, trace, count)
        score = scorer.score(_near(there, plan, trained))
        stages.extend(own_stages)
        candidates.append(Candidate("directions", name, score.score))
        return _Trial(name, directions, there, trained, score)

    # The columns get the same training that directions get, so that only the directions make the difference.
    reference = last = trial("columns", theta, None)
    best: _Trial | None = None
    since_best = 0
    for number in range(1, _ROUNDS + 1):
        if since_best == _PATIENCE:
            break
        slopes = _slopes(last.groups, plan, last.theta, scorer)[:, places]
        if len(slopes) == 0:
            break
        previous = np.eye(groups.columns) if last.directions is None else last.directions.matrix
        step = canonical(columns @ previous[np.ix_(places, places)], slopes)
        new = np.eye(groups.columns)
        new[np.ix_(places, places)] = previous[np.ix_(places, places)] @ step
        if not Directions.is_valid(new):
            break
        start = _start(plan, last.theta, places, slopes @ np.linalg.inv(step).T, groups.columns)
        following = trial(f"combinations, round {number}", start, Directions(new))
        improved = best is None or following.loss < best.loss
        previous_ones, best = (last, best), following if improved else best
        last, since_best = following, 0 if improved else since_best + 1
        _discard(previous_ones, but=(best, reference))
    gains = best is not None and Gain.of(best.score, reference.score).may_exceed(LEAST_GAIN)
    chosen = best if best is not None and gains else reference
    _discard((last, best), but=(chosen, reference))
    marked = (replace(each, chosen=each.name == chosen.name) for each in candidates)
    return LearntDirections(chosen.directions, chosen.theta, chosen.groups, tuple(marked), tuple(stages))


def canonical(columns: Array, slopes: Array) -> Array:
    """The matrix A of directions along which neither coordinates nor slopes are correlated, steepest first."""
    variances, axes = np.linalg.eigh(np.cov(columns.T))
    used = variances > _LEAST_VARIANCE * variances[-1]
    deviations, axes, unused = np.sqrt(variances[used]), axes[:, used], axes[:, ~used]
    by_component = slopes @ (axes * deviations)
    _, rotation = np.linalg.eigh(by_component.T @ by_component)
    directions = np.column_stack([(axes / deviations) @ rotation[:, ::-1], unused])
    largest = np.abs(directions).argmax(axis=0)
    return np.asarray(directions * np.sign(directions[largest, np.arange(len(directions))]))


def along_directions(groups: Groups, directions: Directions, name: str) -> Groups:
    """The same rows, in the same order and cells, with directions instead of columns.

    name : of the file with their coordinates, where the rows are in files
    """
    store = groups.stored.store
    if store.mapped:
        path = Path(store.files[0].path).with_name(f"{name}.npy")
        file = ArrayFile(path, store.X.shape, store.X.dtype)
        for X, _ in store.blocks():
            file.append(directions.apply(X))
        file.close()
        _, y, *noise = (each.open() for each in store.files)
        combined = ExpertStore(np.load(path, mmap_mode="r"), y, noise[0] if noise else None, store.keeper)
    else:
        combined = ExpertStore(directions.apply(store.X), store.y, store.row_noise)
    return replace(groups, stored=replace(groups.stored, store=combined), search_all=True)


def remove_file(groups: Groups) -> None:
    """Remove the file that `along_directions` has written, if any; nothing must read these rows again."""
    store = groups.stored.store
    if store.mapped:
        Path(store.files[0].path).unlink(missing_ok=True)


def _discard(trials: tuple[_Trial | None, ...], but: tuple[_Trial | None, ...]) -> None:
    for trial in trials:
        if trial is not None and not any(trial is each for each in but):
            remove_file(trial.groups)


def _near(groups: Groups, plan: Plan, theta: Array) -> Neighbourhood:
    """The model that predicts held-out rows; its search is exact, since cells were cut in another metric."""
    return replace(groups.model(plan.kernel, theta, _NEIGHBOURS), exact=groups.exact)


def _slopes(groups: Groups, plan: Plan, theta: Array, scorer: Scorer) -> Array:
    """The slopes of held-out predictions of random rows."""
    count = min(groups.rows, _SLOPES)
    rows = np.sort(np.random.default_rng(0).choice(groups.rows, count, replace=False))
    X = np.ascontiguousarray(groups.stored.store.gather(rows)[0])
    slopes = held_out_slopes(_near(groups, plan, theta), X, scorer.engine, rows)
    return shortened(slopes[np.isfinite(slopes).all(axis=1)])


def shortened(slopes: Array) -> Array:
    """Slopes, those longer than nearly all others shortened: a few rows beside jumps would outweigh all others."""
    lengths = np.linalg.norm(slopes, axis=1)
    if not lengths.any():
        return slopes
    longest = np.quantile(lengths[lengths > 0], _LARGEST_SLOPE)
    return np.asarray(slopes * (longest / np.maximum(lengths, longest))[:, None])


def _start(plan: Plan, theta: Array, places: list[int], slopes: Array, columns: int) -> Array:
    """Theta where training along directions starts, from the slopes along them.

    The mean square of the slope of a Gaussian process is its variance over the squared length-scale.
    """
    metric = plan.metric(theta, columns)
    metric[places] = np.maximum(np.sqrt(np.mean(slopes**2, axis=0) / np.exp(theta[0])), _LEAST_SLOPE)
    return np.asarray(np.clip(plan.kernel.with_lengthscales(theta, 1 / metric), *plan.bounds.T))
