"""Trials before training: which family of kernels, and whether leaves twice as large, from a few cells.

Each candidate is trained on the same few cells; cells drawn at random tell, by rows left out, how well it predicts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.committees import Extents, committees
from gigagp.engines import Engine
from gigagp.fit_report import Candidate
from gigagp.kernels.base import Kernel
from gigagp.left_out import Said
from gigagp.partition.base import Runs
from gigagp.partition.local import DEFAULT_LEAF
from gigagp.placing import Placed
from gigagp.plan import Log, Plan
from gigagp.rough_theta import ROUGH
from gigagp.selection import Jury, chosen_among, clearly_better, own_cells
from gigagp.training import Optimum, Trace, maximise, summed_evidence
from gigagp.tree import Tree

_PAIRS = 4  # of neighbouring cells, to train on
_ITERATIONS, _MORE = 10, 6  # of the first candidate; others start where it ended


def merged(placed: Placed) -> Placed:
    """Leaves that are two neighbouring cells each (the last one three, if their number is odd)."""
    assert isinstance(placed.cells, Runs)
    starts = placed.cells.starts
    cells = Runs(np.append(starts[: len(starts) - 2 : 2], starts[-1]))
    return replace(placed, cells=cells, experts=cells, tree=Tree.balanced(len(cells)))


@dataclass(frozen=True, eq=False)
class Tried:
    """A candidate, the theta it was trained to, and what is said with it of the rows left out of each cell."""

    kernel: Kernel
    found: Optimum
    said: list[Said]
    candidate: Candidate


@dataclass(frozen=True, eq=False)
class Bench:
    """Where candidates are tried, all on the same rows."""

    plan: Plan
    placed: Placed
    sides: Extents
    engine: Engine
    log: Log
    trace: Trace
    pairs: Array  # the first cells of pairs of neighbours
    seed: int

    @classmethod
    def drawn(
        cls, plan: Plan, placed: Placed, engine: Engine, log: Log, trace: Trace, rng: np.random.Generator
    ) -> Bench:
        pairs = 2 * np.sort(rng.permutation(max(1, len(placed.cells) // 2))[:_PAIRS])
        sides = Extents.of(placed.store, placed.experts)
        return cls(plan, placed, sides, engine, log, trace, pairs, int(rng.integers(2**32)))

    def try_kernels(self, theta: Array) -> list[Tried]:
        """Each family; the best is marked."""
        tried: list[Tried] = []
        cells = np.union1d(self.pairs, np.minimum(self.pairs + 1, len(self.placed.cells) - 1))
        for kernel in self.plan.families:
            start, iterations = (tried[0].found.theta, _MORE) if tried else (theta, _ITERATIONS)
            tried.append(self._try("kernel", type(kernel).__name__, kernel, self.placed, cells, start, iterations))
        marked = chosen_among([each.candidate for each in tried])
        return [replace(each, candidate=candidate) for each, candidate in zip(tried, marked, strict=True)]

    def try_leaves(self, usual: Tried) -> tuple[Tried, Tried]:
        """Leaves as they are, and twice as large, which are taken if they are clearly better."""
        twice = self._try(
            "leaf size", str(2 * DEFAULT_LEAF), usual.kernel, merged(self.placed), self.pairs // 2, usual.found.theta,
            _MORE,
        )  # fmt: skip
        better = clearly_better(twice.said, usual.said)
        kept = replace(usual.candidate, what="leaf size", name=str(DEFAULT_LEAF), chosen=not better)
        return replace(usual, candidate=kept), replace(twice, candidate=replace(twice.candidate, chosen=better))

    def _try(
        self, what: str, name: str, kernel: Kernel, trained_on: Placed, leaves: Array, start: Array, iterations: int
    ) -> Tried:
        """Trained on some leaves; judged by the experts of the cells as they are, so that theta alone differs."""
        plan = replace(self.plan, kernel=kernel)
        cells, tree = trained_on.cells, trained_on.tree
        evidence = self.log.recorded(summed_evidence(kernel, trained_on.store, cells, tree, self.engine, plan.dof))
        some = None if len(leaves) == len(cells) else leaves
        found = maximise(name, evidence, some, start, plan.bounds, self.trace, ROUGH, iterations)
        shared = committees(plan, self.placed, self.sides, found.theta)
        jury = Jury.drawn(shared, self.placed.cells, self.engine, np.random.default_rng(self.seed))
        said = own_cells(jury, plan.shape.sharing)
        return Tried(kernel, found, said, Candidate(what, name, Said.joined(said).score))
