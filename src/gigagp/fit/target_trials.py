"""Decides whether several targets share one theta: both ways are tried on some rows, and predict others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gigagp.arrays import Array
from gigagp.data.sources import Rows, Share
from gigagp.fit.held_out_scores import DOUBLING_GAIN
from gigagp.model.fit_report import Candidate
from gigagp.model.target_models import TargetsPredictor

MOST_SEPARATE = 2048  # rows up to which targets are always separate: several exact GPs then predict each of them
_TRIAL_ROWS = 4096  # about how many rows the trials are fitted to
_LARGEST_SHARE = 2 / 3  # of all rows, likewise
_JUDGES = 2048  # about how many other rows compare them


@dataclass(frozen=True)
class Within(Share):
    """A share of a share of the rows."""

    outer: Share | None = None

    def mask(self, first_row: int, n_rows: int) -> Array:
        own = super().mask(first_row, n_rows)
        return own if self.outer is None else own & self.outer.mask(first_row, n_rows)


def part_of(share: Share, rows: Rows) -> Rows:
    """A share of rows, which may be a share of the source themselves."""
    return rows.part(Within(share.fraction, share.seed, share.rest, rows.share))


@dataclass(frozen=True)
class TrialRows:
    """The rows that trials are fitted to, and the others, of which some compare the trials."""

    train: Share
    judges: Share

    @classmethod
    def of(cls, rows: int, seed: int) -> TrialRows:
        train = Share(min(_LARGEST_SHARE, _TRIAL_ROWS / rows), seed)
        left = (1 - train.fraction) * rows
        return cls(train, Share(min(0.999, _JUDGES / left), seed + 1))


def judge(
    rows: Rows, trial: TrialRows, values: Array, shared: TargetsPredictor, separate: TargetsPredictor
) -> tuple[Candidate, Candidate]:
    """The mean scores of shared and separate thetas on rows that neither has seen, in deviations of the targets.

    Separate ones are chosen only if they are clearly better, because they take as much time and memory as all models
    together.
    """
    chosen = part_of(trial.judges, part_of(trial.train.others, rows))
    losses: list[Array] = []
    scale = np.maximum(values.std(axis=0), np.finfo(float).tiny)
    with shared.engine() as engine:
        for block in chosen.blocks():
            numbers = block.first_row + np.arange(len(block.X)) if block.source_rows is None else block.source_rows
            laws = [each.distribution_at(block.X, engine) for each in (shared, separate)]
            losses.append(np.stack([(law.crps(values[numbers]) / scale).mean(axis=1) for law in laws]))
    together, alone = np.concatenate(losses, axis=1)
    gain = (together - alone) / max(float(together.mean()), 1e-300)
    error = float(gain.std() / np.sqrt(len(gain)))
    better = float(gain.mean()) > max(DOUBLING_GAIN, error)
    return (
        Candidate("targets", "shared", float(together.mean()), not better),
        Candidate("targets", "separate", float(alone.mean()), better),
    )
