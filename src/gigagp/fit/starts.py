"""Where training starts: theta at several scales, judged by held-out predictions.

A thousand scattered rows show no structure that is shorter than the distance between them, and training that starts
from a theta which explains such structure as noise does not find it. Two other starts use smaller distances: rows that
are near each other in all columns, and single columns, along which the target may vary much faster than scattered rows
can show.

A column of numbers may identify things: flights of exactly the same distance connect the same airports. Rows with the
same value are rare in groups that are formed in any other metric, so that neither evidence nor variograms show what
they have in common. Where a target says little (`Plan.latents`), columns whose values repeat are therefore tried as
identifiers, with the shortest possible length-scale.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.data.scan import Sample
from gigagp.data.store import split_targets
from gigagp.fit.groups import Groups
from gigagp.fit.held_out_scores import Scorer
from gigagp.fit.plan import Log, Plan
from gigagp.fit.rough_theta import ROUGH
from gigagp.fit.training import Trace, maximise
from gigagp.linalg.categories import variances
from gigagp.linalg.row_noise import ADDED
from gigagp.model.fit_report import Candidate, Stage
from gigagp.model.neighbourhood import Neighbourhood

_GROUPS = 16  # of neighbouring rows per round
_ROUNDS = 2  # of forming groups and training on them
_ITERATIONS = 20  # of L-BFGS per round
_NEIGHBOURS = 32  # of the held-out predictions that compare the starts
_NOISE_SHARE = 0.1  # of the variance within a group, where training starts
_SPREADS = 2.0  # length-scales at the start, in standard deviations within a group
_SHORTEST_SHARE = 1e-3  # of a column's standard deviation: the shortest length-scale at a start
_VARIOGRAM_ROWS = 1 << 16  # rows of the sample, at most, that variograms are formed of
_LEAST_VARIOGRAM_ROWS = 4096  # rows from which variograms are formed
_LONGEST_LAG = 4  # as one over a share of the rows
_STANDARD_ERRORS = 5.0  # number of standard errors by which a variogram must rise
_IDENTIFIED_ROWS = 1024  # held-out rows that judge a column as an identifier
_MOST_IDENTIFIERS = 3  # columns, one after the other, from which training starts as identifiers
_SHORT = 2.5  # difference to the shortest log-length-scale up to which a column already is one
_LEAST_RISE = 0.02  # of a variogram, as a share of its value at the longest lag


@dataclass(frozen=True, eq=False)
class Start:
    """A theta from which training may start, and its score."""

    theta: Array
    candidate: Candidate
    stages: tuple[Stage, ...]


def find_starts(
    plan: Plan, sample: Sample, theta: Array, groups: Groups, scorer: Scorer, log: Log, trace: Trace
) -> list[Start]:
    """Theta from scattered rows, from near rows and from single columns, each trained on groups; the best is marked."""
    thetas = {"scattered rows": theta, "near rows": _near_rows(plan, sample, groups)}
    columns = _single_columns(plan, sample, theta)
    if columns is not None:
        thetas["single columns"] = columns

    def trained(name: str, theta: Array, metric: Array) -> Start:
        theta, stages = trained_briefly(name, plan, groups, theta, metric, log, trace, _GROUPS)
        score = scorer.score(_near(plan, groups, theta)).score
        return Start(theta, Candidate("start", name, score), stages)

    starts = []
    for name, start in thetas.items():
        metric = _deviations(plan, sample) ** -1 if name == "near rows" else plan.metric(start, groups.columns)
        starts.append(trained(name, start, metric))
    best = min(starts, key=lambda each: each.candidate.score)
    for _ in range(0 if plan.latents is None else _MOST_IDENTIFIERS):
        identified = _identifier(plan, sample, groups, scorer, best.theta)
        if identified is None:
            break
        name, start = identified
        starts.append(trained(name, start, plan.metric(start, groups.columns)))
        if starts[-1].candidate.score >= best.candidate.score:
            break
        best = starts[-1]
    return [replace(each, candidate=replace(each.candidate, chosen=each is best)) for each in starts]


def trained_briefly(
    name: str, plan: Plan, groups: Groups, theta: Array, metric: Array, log: Log, trace: Trace, count: int
) -> tuple[Array, tuple[Stage, ...]]:
    """Theta after some rounds of forming groups and training on them; the first groups are formed in this metric."""
    stages = []
    for _ in range(_ROUNDS):
        evidence = groups.evidence_of(plan.kernel, *groups.around(metric, count), log)
        optimum = maximise(name, evidence, None, theta, plan.bounds, trace, ROUGH, _ITERATIONS)
        theta = optimum.theta
        stages.append(optimum.stage)
        metric = plan.metric(theta, groups.columns)
    return theta, tuple(stages)


def _near(plan: Plan, groups: Groups, theta: Array) -> Neighbourhood:
    """The model whose held-out predictions judge a start."""
    return replace(groups.model(plan.kernel, theta, _NEIGHBOURS), exact=groups.exact)


def _identifier(
    plan: Plan, sample: Sample, groups: Groups, scorer: Scorer, theta: Array
) -> tuple[str, Array] | None:  # fmt: skip
    """Theta with the length-scale of one column so short that only rows with the same value are near; None for none.

    Columns are tried in which a row shares its value with as many others as predict it, and which have so many values
    that equal ones are rare in a group. That with the best held-out predictions before training is chosen.
    """
    best: tuple[float, str, Array] | None = None
    for place, columns in plan.kernel.lengthscales(groups.columns):
        shortest = plan.bounds[place, 0]
        if len(columns) > 1 or columns[0] in plan.categories or theta[place] < shortest + _SHORT:
            continue
        if not _NEIGHBOURS < len(np.unique(sample.X[:, columns[0]])) <= len(sample.X) / _NEIGHBOURS:
            continue
        start = theta.copy()
        start[place] = shortest
        score = scorer.score(_near(plan, groups, start), _IDENTIFIED_ROWS).score
        if best is None or score < best[0]:
            best = score, f"identifier {plan.names[place]}", start
    return None if best is None else best[1:]


def _deviations(plan: Plan, sample: Sample) -> Array:
    deviation = np.sqrt(variances(sample.X, plan.categories))
    return np.where(deviation > 0, deviation, 1.0)


def _with_lengthscales(plan: Plan, theta: Array, scales: Array) -> Array:
    """Theta with these length-scales, one per column, inside the bounds."""
    return np.clip(plan.kernel.with_lengthscales(theta, scales), *plan.bounds.T)


def _near_rows(plan: Plan, sample: Sample, groups: Groups) -> Array:
    """Length-scales equal to the widths of groups of near rows; those of constant columns are left as they are."""
    deviations = _deviations(plan, sample)
    store, cells = groups.around(deviations**-1, _GROUPS)
    within = np.mean([variances(store.read(cells, i)[0], plan.categories) for i in range(len(cells))], axis=0)
    noise = np.mean([store.read(cells, i)[1].var(dtype=float) for i in range(len(cells))])
    scales = np.maximum(_SPREADS * np.sqrt(within), _SHORTEST_SHARE * deviations)
    unchanged = 1 / np.maximum(plan.metric(plan.start, len(scales)), 1e-300)
    theta = _with_lengthscales(plan, plan.start, np.where(np.ptp(sample.X, axis=0) > 0, scales, unchanged))
    if plan.latents is None:
        theta[-1] = np.log(max(_NOISE_SHARE * float(noise) * plan.noise_unit, 1e-300))
    return np.clip(theta, *plan.bounds.T)


def _single_columns(plan: Plan, sample: Sample, theta: Array) -> Array | None:
    """Theta with a shorter length-scale for every column whose variogram rises over a shorter distance.

    None where there is no such column.
    """
    X, targets = (np.asarray(a, float) for a in sample.first(_VARIOGRAM_ROWS))
    y, row_noise = split_targets(targets)
    if row_noise is not None:  # differences of rows that are mostly noise would hide all others
        y = np.where(row_noise[:, ADDED] > plan.target_variance, np.median(y), y)
    if len(y) < _LEAST_VARIOGRAM_ROWS:
        return None
    metric = plan.metric(theta, X.shape[1])
    scales = 1 / np.maximum(metric, 1e-300)
    shorter = False
    for j in sorted(set(range(X.shape[1])) - set(plan.categories)):
        order = np.lexsort((sample.keys[: len(y)], X[:, j]))
        scale = _rise(X[order, j], y[order], len(y) // _LONGEST_LAG)
        if scale is not None and scale < scales[j] / 2:
            scales[j], shorter = scale, True
    return _with_lengthscales(plan, theta, scales) if shorter else None


def _rise(x: Array, y: Array, lag: int) -> float | None:
    """The distance over which half of the variogram's rise up to a lag takes place; None where it does not rise.

    x, y : sorted by x
    """
    lags = [1 << k for k in range(lag.bit_length())]
    means = [float(np.abs(y[k:] - y[:-k]).mean()) for k in lags]
    differences = np.abs(y[lags[-1] :] - y[: -lags[-1]]) - np.abs(y[1:] - y[:-1])[: len(y) - lags[-1]]
    error = float(differences.std()) / np.sqrt(len(differences))
    rise = means[-1] - means[0]
    if rise < max(_STANDARD_ERRORS * error, _LEAST_RISE * means[-1]):
        return None
    half = next(k for k, mean in zip(lags, means, strict=True) if mean >= means[0] + rise / 2)
    distance = float(np.median(x[half:] - x[:-half]))
    return distance if distance > 0 else None
