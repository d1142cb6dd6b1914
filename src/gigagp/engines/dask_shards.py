"""Shards on the workers of a Dask cluster: which worker loads which rows, also when workers join later."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from distributed import Future

from gigagp.engines import dask_tasks
from gigagp.engines.additions import FAN_IN, Ascent, additions, ascent, key_of
from gigagp.engines.base import OverLeaves
from gigagp.engines.dask_cluster import DaskCluster
from gigagp.engines.shards import ShardFiles
from gigagp.engines.transport import Depot, Packed
from gigagp.errors import DamagedFile
from gigagp.tree import Division, Node, Tree

MOST_GATHERED = FAN_IN  # sums that the client adds itself: one message fewer than adding them on a worker
_LOOK_SECONDS = 1  # seconds after which we look for workers that have come or gone


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
        self._looked = time.monotonic()  # when the workers were last counted
        self._workers: set[str] = set()  # those that shards have been assigned to
        self._worker_of: list[str] = []  # the worker of each shard
        self._checksums: dict[int, int] = {}
        self.shards: list[Future] = []
        self.groups: list[Future] = []
        self.shards_of_group: list[list[int]] = []
        self.ascent: Ascent  # how the sums of the groups are added
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
        """The shards of each worker as one group: a step is then one task per worker."""
        shards: dict[str, list[int]] = {worker: [] for worker in threads}
        for shard, worker in enumerate(self._worker_of):
            shards[worker].append(shard)
        workers = [worker for worker, own in shards.items() if own]
        self.shards_of_group = [shards[worker] for worker in workers]
        nodes = [[key_of(node) for node in nodes] for nodes in subtrees_of_shards(self.division)]
        steps = [additions(self.division, [nodes[shard] for shard in part]) for part in self.shards_of_group]
        self.ascent = ascent(self.division, [keys for _, keys in steps], MOST_GATHERED)
        self.groups = [
            self._cluster.submit(
                "group-shards", dask_tasks.group, [self.shards[shard] for shard in part], adding, workers=[worker],
                allow_other_workers=True,
            )
            for part, (adding, _), worker in zip(self.shards_of_group, steps, workers, strict=True)
        ]  # fmt: skip

    def leaves_of(self, key: str) -> list[int]:
        """The leaves whose rows a task loads or groups."""
        futures = [*self.shards, *self.groups]
        shards = [*([i] for i in range(len(self.shards))), *self.shards_of_group]
        return next((self.leaves(own) for future, own in zip(futures, shards, strict=True) if future.key == key), [])

    def leaves(self, shards: list[int]) -> list[int]:
        """The leaves of some shards."""
        return [leaf for shard in shards for leaf in self.specs[shard].leaves.tolist()]

    def rebalance(self) -> None:
        """Give workers that have joined their share, and the shards of lost workers to others.

        Short steps do not ask the scheduler for its workers every time: a reply takes milliseconds.
        """
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
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
