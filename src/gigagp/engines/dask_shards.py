"""Shards on the workers of a Dask cluster: which worker loads which rows, also when workers join later."""

from __future__ import annotations

from typing import Any

import numpy as np
from distributed import Future

from gigagp.engines import dask_tasks
from gigagp.engines.additions import Level, additions, key_of, levels_above
from gigagp.engines.base import OverLeaves
from gigagp.engines.dask_cluster import DaskCluster
from gigagp.engines.shards import ShardFiles
from gigagp.engines.transport import Depot, Packed
from gigagp.errors import DamagedFile
from gigagp.tree import Division, Node, Tree


class LoadedShards:
    """The rows of some leaves as shards on the workers, with the checksums that the shards had when first loaded."""

    def __init__(
        self, cluster: DaskCluster, depot: Depot, over: OverLeaves[Any], tree: Tree, division: Division
    ) -> None:
        self._cluster = cluster
        self._store, self._lists, self._leaves, self._tree = over.store, over.lists, over.leaves, tree
        self.division = division
        files = depot.files(over.store)
        self.specs = [ShardFiles.of(files, over, nodes) for nodes in subtrees_of_shards(division)]
        self._packed = [depot.pack(spec) for spec in self.specs]
        self._workers: set[str] = set()  # those that shards have been assigned to
        self._worker_of: list[str] = []  # the worker of each shard
        self._checksums: dict[int, int] = {}
        self.shards: list[Future] = []
        self.groups: list[Future] = []
        self.shards_of_group: list[list[int]] = []
        self.above: list[Level] = []  # how the sums of the groups are added
        self.load_all()

    def has(self, tree: Tree, over: OverLeaves[Any]) -> bool:
        """Whether these are the shards of such leaves."""
        if over.store is not self._store or over.lists is not self._lists:
            return False
        if over.leaves is None or self._leaves is None:
            return over.leaves is self._leaves and tree is self._tree
        return len(over.leaves) == len(self._leaves) and bool((over.leaves == self._leaves).all())

    def check(self, checksums: dict[int, int]) -> None:
        """Raise DamagedFile if a shard that was loaded again has other rows than before."""
        for first_leaf, checksum in checksums.items():
            if self._checksums.setdefault(first_leaf, checksum) != checksum:
                raise DamagedFile(
                    f"rows of expert {first_leaf} and those after it in {self.specs[0].files[0].path} changed while "
                    "the model was being fitted; fit again"
                )

    def load_all(self) -> None:
        threads = self._cluster.threads()
        self._worker_of = assign_shards([len(spec.leaves) for spec in self.specs], threads)
        self.shards = [self._load(packed, worker) for packed, worker in zip(self._packed, self._worker_of, strict=True)]
        self._workers = set(threads)
        self._form_groups(threads)

    def _load(self, packed: Packed, worker: str) -> Future:
        # Other workers may load it too; otherwise the task would wait forever for a worker that is gone.
        return self._cluster.submit(
            "load-shard", dask_tasks.load, packed.data, workers=[worker], allow_other_workers=True
        )

    def _form_groups(self, threads: dict[str, int]) -> None:
        """Neighbouring shards of one worker for each of its threads: a step is then one task per thread."""
        self.shards_of_group, workers = [], []
        for worker, count in threads.items():
            own = [shard for shard, assigned in enumerate(self._worker_of) if assigned == worker]
            for part in np.array_split(own, min(count, len(own))) if own else []:
                self.shards_of_group.append(part.tolist())
                workers.append(worker)
        nodes = [[key_of(node) for node in nodes] for nodes in subtrees_of_shards(self.division)]
        steps = [additions(self.division, [nodes[shard] for shard in part]) for part in self.shards_of_group]
        self.above = levels_above(self.division, [keys for _, keys in steps])
        self.groups = [
            self._cluster.submit(
                "group-shards", dask_tasks.group, [self.shards[shard] for shard in part], adding, workers=[worker],
                allow_other_workers=True,
            )
            for part, (adding, _), worker in zip(self.shards_of_group, steps, workers, strict=True)
        ]  # fmt: skip

    def rebalance(self) -> None:
        """Give workers that have joined their share, and the shards of lost workers to others."""
        threads = self._cluster.threads()
        if self._workers == set(threads):
            return
        running = self._cluster.running()
        threads = {worker: n for worker, n in threads.items() if worker in running}
        if not threads:
            return
        self._workers = set(threads)
        owner = {key: workers[0] for key, workers in self._cluster.client.who_has(self.shards).items() if workers}
        owns: dict[str, list[int]] = {worker: [] for worker in threads}
        lost: list[int] = []
        for i, shard in enumerate(self.shards):
            where = owner.get(shard.key, self._worker_of[i])
            owns.get(where, lost).append(i)
        for i in lost:  # loaded again where they will be needed, so that no second worker has a copy
            poorest = min(owns, key=lambda w: len(owns[w]) / threads[w])
            owns[poorest].append(i)
            self.shards[i] = self._load(self._packed[i], poorest)
        share = len(self.shards) / sum(threads.values())
        for worker, n in threads.items():
            while len(owns[worker]) < int(share * n):
                richest = max(owns, key=lambda w: len(owns[w]) / threads[w])
                if len(owns[richest]) <= int(share * threads[richest]):
                    break
                moved = owns[richest].pop()
                owns[worker].append(moved)
                self.shards[moved] = self._load(self._packed[moved], worker)
        for worker, own in owns.items():
            for shard in own:
                self._worker_of[shard] = worker
        self._form_groups(threads)


def subtrees_of_shards(division: Division) -> list[list[Node]]:
    """The subtrees of each shard."""
    shares: dict[int, list[Node]] = {}
    for owned in division.owned:
        shares.setdefault(owned.worker, []).append(owned.node)
    return [shares[unit] for unit in sorted(shares)]


def assign_shards(sizes: list[int], threads: dict[str, int]) -> list[str]:
    """A worker for each shard: neighbours to the same one, with about the same load per thread for all."""
    loads, total, before, workers = list(threads.items()), float(sum(sizes)), 0.0, []
    ends = np.cumsum([count for _, count in loads]) / sum(threads.values())
    for size in sizes:
        middle = (before + size / 2) / total
        workers.append(loads[int(np.searchsorted(ends, middle, side="right"))][0])
        before += size
    return workers
