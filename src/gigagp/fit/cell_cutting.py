"""Rows sorted into cells in the metric of a theta, and again where the metric has changed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gigagp.arrays import Array
from gigagp.data.scaled import ArrayRows, ScaledRows, StoredRows
from gigagp.data.scan import Sample
from gigagp.engines import Engine
from gigagp.fit.groups import Groups
from gigagp.fit.plan import Plan, Seeds
from gigagp.fit.store_writer import Storage, write_store
from gigagp.partition.base import StoredPartition


def store_rows(
    plan: Plan, data: ScaledRows, theta: Array, sample: Sample, engine: Engine, seeds: Seeds, storage: Storage
) -> StoredPartition:
    """The rows, sorted into leaves; local ones are cut in the metric of theta."""
    metric, here = plan.metric(theta, data.columns), engine.local
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
        if groups.well_cut(plan.kernel, theta):
            return groups
        store = groups.stored.store
        data = StoredRows(store) if store.mapped else ArrayRows(store.X, store.targets_of(slice(None)))
        self.storage = self.storage.second()
        stored = store_rows(plan, data, theta, self.sample, self.engine, self.seeds, self.storage)
        return replace(groups, stored=stored)
