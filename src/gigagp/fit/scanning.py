"""The first pass over the data on the workers of an engine: each reads some ranges of rows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

from gigagp.data.copies import CopySearch, CountedRows, Digests
from gigagp.data.scaling import BLOCK
from gigagp.data.scan import PartialScan, Scan, scan
from gigagp.data.sources import Rows
from gigagp.data.target_checks import possible_blocks
from gigagp.engines import Engine
from gigagp.likelihoods import Likelihood
from gigagp.linalg.workspace import Workspace

_LEAST_ROWS = 1 << 20  # rows of a task
_MOST_TASKS = 512


@dataclass(frozen=True, eq=False)
class ScanTask:
    """Scans a range of rows: a function of the data alone, which any worker can repeat."""

    rows: Rows
    seed: int
    likelihood: Likelihood | None
    empty: PartialScan
    thinning: int  # of the digests by which copies are found; 0 where all rows count
    name = "scan"

    def __call__(self, part: tuple[int, int], work: Workspace) -> tuple[PartialScan, list[Digests]]:
        partial, digests = copy.deepcopy(self.empty), []
        for block in possible_blocks(self.rows, BLOCK, self.likelihood, *part):
            partial.add(block, self.seed)
            if self.thinning:
                digests.append(Digests.of(block, self.thinning))
        return partial, digests


def scan_rows(
    rows: CountedRows, seed: int, likelihood: Likelihood | None, engine: Engine, say: Callable[[int], None],
    search: CopySearch | None = None,
) -> Scan:  # fmt: skip
    """Read all rows once; an error for a target that the likelihood cannot have.

    The result does not depend on the engine. Rows that cannot be divided are read here, one block after the other.

    search : looks for exact copies among the rows
    """
    ranges = None
    if isinstance(rows, Rows) and rows.n_rows is not None:
        ranges = rows.ranges(max(_LEAST_ROWS, rows.n_rows // _MOST_TASKS))
    if not isinstance(rows, Rows) or ranges is None or len(ranges) < 2:
        blocks = possible_blocks(rows, BLOCK, likelihood)
        return scan(blocks if search is None else search.watched(blocks), seed, say)
    total = PartialScan.starting(next(rows.blocks(1)), rows.n_rows)
    task = ScanTask(rows, seed, likelihood, copy.deepcopy(total), 0 if search is None else search.thinning)
    for part, digests in engine.that_reads(rows.paths).map(task, ranges):
        total.join(part)
        if search is not None:
            for each in digests:
                search.add(each)
        say(total.rows)
    result = total.finish()
    if len(result.sample.rows) < min(total.most, total.rows):  # keys are not as uniform as expected
        return scan(possible_blocks(rows, BLOCK, likelihood), seed, say)
    return result
