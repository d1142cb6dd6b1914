"""From leaves with their rows to committees: boxes to find experts by, and points shared among neighbours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from gigagp.arrays import Array
from gigagp.boxes import extents
from gigagp.data.store import ExpertStore
from gigagp.inference import Committee
from gigagp.partition.base import RowLists, Runs, run_means
from gigagp.placing import Placed
from gigagp.plan import Plan
from gigagp.routing import Router
from gigagp.sharing import share_nearest


@dataclass(frozen=True, eq=False)
class Extents:
    """Of each leaf the mean, the least and the greatest of every column."""

    means: Array
    lows: Array
    highs: Array

    @classmethod
    def of(cls, store: ExpertStore, lists: RowLists) -> Extents:
        if isinstance(lists, Runs) and not store.mapped:
            return cls(run_means(store.X, lists.starts), *extents(store.X, lists.starts))
        shape = (len(lists), store.X.shape[1])
        found = cls(np.empty(shape), np.empty(shape), np.empty(shape))
        for leaf in range(len(lists)):
            X, _ = store.read(lists, leaf)
            whole = np.array([0, len(X)])
            found.means[leaf] = run_means(X, whole)[0]
            found.lows[leaf], found.highs[leaf] = (side[0] for side in extents(X, whole))
        return found

    def router(self, metric: Array, local: bool) -> Router:
        """By cells where experts have them."""
        return Router(self.means * metric, metric, (self.lows * metric, self.highs * metric) if local else None)


def committees(plan: Plan, placed: Placed, sides: Extents, theta: Array) -> Callable[[float], Committee]:
    """The committee at theta, for any sharing among local experts."""
    store, cells = placed.store, placed.cells
    local = plan.partitioner.local and isinstance(cells, Runs)
    router = sides.router(plan.metric(theta, store.X.shape[1]), local)
    whole = Committee(plan.kernel, theta, store, placed.experts, placed.tree, router, student=plan.student)
    if not (local and isinstance(cells, Runs)):
        return lambda sharing: whole
    return cache(lambda sharing: replace(whole, experts=share_nearest(store, cells, router, sharing)))
