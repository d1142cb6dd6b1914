"""Shards on the workers of a Dask cluster: which worker loads which rows, also when workers join later."""

from __future__ import annotations

import heapq
from typing import Any

from distributed import Future

from gigagp.engines import dask_tasks
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
        self._checksums: dict[int, int] = {}
        self.shards: list[Future] = []
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
        workers = assign_shards([len(spec.leaves) for spec in self.specs], threads)
        self.shards = [self._load(packed, worker) for packed, worker in zip(self._packed, workers, strict=True)]
        self._workers = set(threads)

    def _load(self, packed: Packed, worker: str) -> Future:
        # Other workers may load it too; otherwise the task would wait forever for a worker that is gone.
        return self._cluster.submit(
            "load-shard", dask_tasks.load, packed.data, workers=[worker], allow_other_workers=True
        )

    def rebalance(self) -> None:
        """Move shards to workers that have joined since, from the workers with the most shards per thread."""
        threads = self._cluster.threads()
        if self._workers.issuperset(threads):
            self._workers = set(threads)
            return
        running = self._cluster.running()
        threads = {worker: n for worker, n in threads.items() if worker in running}
        self._workers = set(threads)
        owner = {key: workers[0] for key, workers in self._cluster.client.who_has(self.shards).items() if workers}
        owns: dict[str, list[int]] = {worker: [] for worker in threads}
        for i, shard in enumerate(self.shards):
            if owner.get(shard.key) in owns:
                owns[owner[shard.key]].append(i)
        share = len(self.shards) / max(1, sum(threads.values()))
        for worker, n in threads.items():
            while len(owns[worker]) < int(share * n):
                richest = max(owns, key=lambda w: len(owns[w]) / threads[w])
                if len(owns[richest]) <= int(share * threads[richest]):
                    break
                moved = owns[richest].pop()
                owns[worker].append(moved)
                self.shards[moved] = self._load(self._packed[moved], worker)


def subtrees_of_shards(division: Division) -> list[list[Node]]:
    """The subtrees of each shard."""
    shares: dict[int, list[Node]] = {}
    for owned in division.owned:
        shares.setdefault(owned.worker, []).append(owned.node)
    return [shares[unit] for unit in sorted(shares)]


def assign_shards(sizes: list[int], threads: dict[str, int]) -> list[str]:
    """A worker for each shard: the largest shard first, to the worker with the least load per thread."""
    workers = dict.fromkeys(range(len(sizes)), "")
    loads = [(0.0, i, worker) for i, worker in enumerate(threads)]  # a heap
    for shard in sorted(workers, key=lambda shard: -sizes[shard]):
        load, i, worker = loads[0]
        workers[shard] = worker
        heapq.heapreplace(loads, (load + sizes[shard] / threads[worker], i, worker))
    return list(workers.values())
