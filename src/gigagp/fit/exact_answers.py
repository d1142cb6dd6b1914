"""Exact GPs on all rows, for tables of some thousand rows.

They are what neighbourhoods and committees approximate. Where more neighbours still help, or rows are so few that it
takes little time, an exact GP with the trained theta is compared with the neighbourhood by the same held-out rows. If
it predicts clearly better, it answers queries. A second family of kernels is then trained, and both are averaged if
that gains too; their weights maximise the held-out log density of all rows, as in small tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from gigagp.arrays import Array
from gigagp.data.store import ExpertStore
from gigagp.engines import Engine
from gigagp.expert import Factor
from gigagp.fit.held_out_scores import (
    DOUBLING_GAIN,
    NEGLIGIBLE_GAIN,
    Gain,
    HeldOutScore,
    NumberScoring,
    Scorer,
    rows_predicted_quickly,
)
from gigagp.fit.small_tables import stacking_weights
from gigagp.kernels.base import Kernel
from gigagp.model.factor_cache import FactorCache
from gigagp.model.fit_report import Candidate
from gigagp.model.leave_one_out import LeaveOneOut
from gigagp.model.mixture import Member, Mixture, factors_of, mixed

_LITTLE_WORK = 1.25e11  # cube of the rows up to which an exact GP is always tried: 5,000 rows, some seconds
_MATRICES = 5  # of all pairs of rows, in memory together: two while a family is factored, two factors, and columns
_MEMORY_SHARE = 0.5  # of the budget that these may take
_COMPARED_ROWS = 1024  # held-out rows by which candidates are compared
_HELD_OUT_ROWS = 8192  # held-out rows from which the distribution of errors is learnt
_AVERAGE_GAIN = 0.005  # nats per row for which two families are compared with one

Theta = tuple[Kernel, Array]


def most_rows(budget: int) -> int:
    """Rows up to which an exact GP on all of them answers queries in reasonable time, within a memory budget."""
    in_memory = (_MEMORY_SHARE * budget / (8 * _MATRICES)) ** 0.5
    return int(min(in_memory, rows_predicted_quickly(members=1)))


def is_little_work(rows: int) -> bool:
    """Whether an exact GP is tried even if more neighbours seem not to help."""
    return float(rows) ** 3 <= _LITTLE_WORK


@dataclass(frozen=True, eq=False)
class ExactAnswer:
    """A mixture of exact GPs that answers queries, and its predictions of held-out rows."""

    mixture: Mixture
    held_out: HeldOutScore


def choose_exact(
    first: Theta, another: Callable[[], Theta | None], store: ExpertStore, near: HeldOutScore, scorer: Scorer
) -> tuple[ExactAnswer | None, list[Candidate]]:
    """Exact GPs, if they predict held-out rows better than neighbours; None otherwise. And the scores of candidates.

    first : kernel and theta of the neighbourhood
    another : trains another family of kernels; None where there is none
    near : held-out predictions of the neighbourhood
    """
    own = _Family.of(first, store, scorer.engine)
    alone = _score([own], store, near.rows[:_COMPARED_ROWS], scorer)
    gain = Gain.of(alone, near)
    better = gain.exceeds(NEGLIGIBLE_GAIN)
    score = near.score * (1 - gain.value)  # that of the neighbourhood is the mean of more rows
    candidates = [Candidate("prediction", "exact GP", score, better)]
    if not better:
        return None, candidates
    families = [own]
    rival = another() if len(store.y) <= rows_predicted_quickly(members=2) else None
    if rival is not None:
        both = [own, _Family.of(rival, store, scorer.engine)]
        if _log_density(both) - _log_density([own]) > _AVERAGE_GAIN:
            together = _score(both, store, near.rows[:_COMPARED_ROWS], scorer)
            gain = Gain.of(together, alone)
            gains = gain.exceeds(DOUBLING_GAIN)
            names = " and ".join(type(family.kernel).__name__ for family in both)
            candidates.append(Candidate("average", names, score * (1 - gain.value), gains))
            families = both if gains else families
    held_out = _with_common_factor(_score(families, store, scorer.order[:_HELD_OUT_ROWS], scorer), families)
    return ExactAnswer(_mixture(families, store), held_out), candidates


@dataclass(frozen=True, eq=False)
class _Family:
    """A kernel at its theta, the factor of all rows, and every row predicted by all others."""

    kernel: Kernel
    theta: Array
    factor: Factor
    each: LeaveOneOut

    @classmethod
    def of(cls, theta: Theta, store: ExpertStore, engine: Engine) -> _Family:
        kernel, values = theta
        model = Mixture((Member(kernel, values, 1.0, np.empty(0)),), store)
        (factor,) = factors_of(model, engine)
        return cls(kernel, values, factor, LeaveOneOut.from_factor(kernel, values, model.rows()[1], factor, engine))


def _weights(families: list[_Family]) -> Array:
    """The weights that maximise the held-out log density of all rows."""
    return stacking_weights(-np.column_stack([family.each.losses for family in families]))


def _log_density(families: list[_Family]) -> float:
    """The mean log density of all rows under the mixture, each predicted by the others."""
    losses = np.column_stack([family.each.losses for family in families])
    return float(logsumexp(-losses, axis=1, b=_weights(families)).mean())


def _with_common_factor(some: HeldOutScore, families: list[_Family]) -> HeldOutScore:
    """Held-out predictions of some rows, the factor of their variances corrected by the errors of all rows.

    Errors in predicted deviations cost nothing where the misfit is left out, so that all rows have them. The
    distribution of errors is learnt from some rows; if these happen to have larger errors than all rows, their common
    factor is too large.
    """
    calibration = some.calibration
    if not calibration.rows:
        return some
    weights, each = _weights(families), [family.each for family in families]
    means, variances = np.array([one.mean for one in each]), np.array([one.variance for one in each])
    mean = weights @ means
    sizes = np.abs(each[0].y - mean) / np.sqrt(weights @ (variances + (means - mean) ** 2))
    shift = 2 * np.log(sizes.mean() / sizes[some.rows].mean())
    coefficients = calibration.coefficients + np.array([shift, 0.0, 0.0])
    return replace(some, calibration=replace(calibration, coefficients=coefficients))


def _mixture(families: list[_Family], store: ExpertStore) -> Mixture:
    members = tuple(
        Member(family.kernel, family.theta, weight, family.each.errors)
        for family, weight in zip(families, _weights(families).tolist(), strict=True)
    )
    model = Mixture(members, store, FactorCache(sum(family.factor.nbytes for family in families)))
    for index, family in enumerate(families):
        model.cache.put(index, family.factor)
    return model


def _score(families: list[_Family], store: ExpertStore, rows: Array, scorer: Scorer) -> HeldOutScore:
    """Held-out predictions of some rows by the mixture of all families."""
    scoring, model = scorer.scoring, _mixture(families, store)
    assert isinstance(scoring, NumberScoring)
    parts = [family.each.held_out(rows, scorer.engine) for family in families]
    prediction = mixed(parts, _weights(families), model.noise, store.noise_of(rows))
    return scoring.score_with_noise(rows, store.gather(rows)[1], prediction, model)
