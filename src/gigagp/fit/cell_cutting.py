"""Rows sorted into cells in the metric of a theta, and again where the metric has changed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.data.directions import Directions
from gigagp.data.scaled import ArrayRows, CombinedRows, ScaledRows, StoredRows
from gigagp.data.scan import Sample
from gigagp.engines import Engine
from gigagp.fit.groups import Groups
from gigagp.fit.plan import Plan, Seeds
from gigagp.fit.store_writer import Storage, write_store
from gigagp.partition.base import StoredPartition

_EXPERTS_WORK = 4e11  # multiplications of all experts of a committee, each factored once: about five seconds
_SHARING = 4  # points of an expert per point of its cell
_LARGEST_SHARE = 0.5  # of all rows that an expert has
_LARGER = 1.3  # ratio of sizes from which cells are cut again


def store_rows(
    plan: Plan, data: ScaledRows, theta: Array, sample: Sample, engine: Engine, seeds: Seeds, storage: Storage
) -> StoredPartition:
    """The rows, sorted into leaves; local ones are cut in the metric of theta."""
    metric = plan.metric(theta, data.columns)
    here = engine.that_reads(data.paths) if plan.partitioner.local else engine.local
    return write_store(
        plan.partitioner, data, plan.shape, metric, sample, seeds.keys, seeds.partition, storage, here, plan.categories
    )


@dataclass(eq=False)
class CellCutter:
    """Sorts the rows into new cells where the metric has changed."""

    sample: Sample
    engine: Engine
    seeds: Seeds
    storage: Storage

    def cut(self, plan: Plan, groups: Groups, theta: Array) -> Groups:
        """The rows in cells of the metric of theta; the present cells where the search through them finds enough."""
        return groups if groups.well_cut(plan.kernel, theta) else self._cut(plan, groups, theta)

    def with_directions(self, plan: Plan, groups: Groups, theta: Array, directions: Directions) -> Groups:
        """The rows with directions instead of columns, in cells of the metric of theta."""
        sample = self.sample
        self.sample = replace(sample, X=directions.apply(sample.X))
        return self._cut(plan, groups, theta, directions)

    def cut_for_committee(self, plan: Plan, groups: Groups, theta: Array) -> Groups:
        """The rows in larger cells, if the user has left their size open and a committee can afford them.

        For the same work of all experts together, larger cells with less sharing give each expert more rows.
        """
        affordable = int((3 * _EXPERTS_WORK / (_SHARING**3 * groups.rows)) ** 0.5)
        size = min(affordable, int(_LARGEST_SHARE * groups.rows / _SHARING))
        free = plan.shape.free and plan.shape.sharing is None and plan.method != "neighbourhood"
        if not free or size < _LARGER * groups.stored.cells.sizes.mean():
            return groups
        return self._cut(replace(plan, shape=replace(plan.shape, leaf_size=size)), groups, theta)

    def _cut(self, plan: Plan, groups: Groups, theta: Array, directions: Directions | None = None) -> Groups:
        store = groups.stored.store
        others = 0 if store.others is None else store.others.shape[1]
        data: ScaledRows
        if store.mapped:
            data = StoredRows(store) if directions is None else CombinedRows(store, directions)
        else:
            X = np.asarray(store.X) if directions is None else directions.apply(store.X)
            data = ArrayRows(X, store.targets_of(slice(None)), others)
        self.storage = self.storage.second()
        stored = store_rows(plan, data, theta, self.sample, self.engine, self.seeds, self.storage)
        return replace(groups, stored=stored, search_all=False)
