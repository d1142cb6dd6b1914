"""Targets that a likelihood cannot have, with their row numbers; and targets that look as if one should be chosen."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gigagp.arrays import Array
from gigagp.data.copies import CountedRows
from gigagp.data.scan import Scan
from gigagp.data.sources.rows import Block, Rows
from gigagp.data.store import split_targets
from gigagp.errors import InvalidInput
from gigagp.likelihoods.base import Likelihood

_LEAST_ROWS = 20  # below which nothing is concluded from the values of targets
_FEW_DEVIATIONS = 3.0  # counts whose mean is farther from zero are as well described by a Gaussian
LABELS, COUNTS, SHARES = "labels", "counts", "shares"


def possible_blocks(
    rows: CountedRows, size: int, likelihood: Likelihood | None, start: int = 0, stop: int | None = None
) -> Iterator[Block]:
    """The blocks of the rows, or of one of their ranges; an error for a target that the likelihood cannot have."""
    for block in rows.blocks(size, start, stop) if isinstance(rows, Rows) else rows.blocks(size):
        if likelihood is not None:
            assert block.y is not None
            possible = likelihood.is_possible(block.y)
            if not possible.all():
                place = int(np.argmin(possible))
                number = block.first_row + place if block.source_rows is None else int(block.source_rows[place])
                raise InvalidInput(
                    f"{_name(rows)} has the value {block.y[place]:g} at row {number}; the {likelihood.name} likelihood "
                    f"needs {likelihood.requirement}. Correct or drop such rows, or choose another likelihood"
                )
        yield block


def _name(rows: CountedRows) -> str:
    target = rows.target if isinstance(rows, Rows) else None
    return "y" if target is None or target.beside is not None else f"column {target.column!r} of {rows.source.name}"


def looks_like(data: Scan) -> str:
    """Whether the targets look like counts, labels 0 and 1, or shares; "" where they look like none of these."""
    y: Array = split_targets(data.sample.y)[0]
    low, high = float(data.target.low[0]), float(data.target.high[0])
    if data.rows < _LEAST_ROWS or low < 0 or low == high:
        return ""
    whole = bool((y == np.floor(y)).all())
    if whole and high == 1:
        return LABELS
    if high <= 1:
        return SHARES
    few = float(data.target.mean[0]) < _FEW_DEVIATIONS * float(data.target.deviation[0])
    return COUNTS if whole and few else ""
