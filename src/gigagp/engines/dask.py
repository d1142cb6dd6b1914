"""The Dask engine: workers of a cluster, on this machine or others, that may join and leave at any time.

Training: the tree is divided among shards (section 3.4). A shard is a task that reads its rows from the files of the
expert store, so the scheduler can have it read again when its worker is lost. A step sends theta to the workers; one
task per worker sums the subtrees of its shards, so that the number of tasks does not grow with the number of shards,
and further tasks add these sums in the order of the tree. Prediction: bundles of tasks are sent out, and results are
returned in order. No worker has the only copy of anything.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import dask
from distributed import CancelledError, Client, Future, LocalCluster

from gigagp.data.addresses import is_remote
from gigagp.data.folders import TemporaryFolder
from gigagp.data.leases import TemporaryObjects
from gigagp.data.mirrors import Mirror
from gigagp.engines import dask_tasks
from gigagp.engines.additions import Ascent, ascent, key_of
from gigagp.engines.base import Engine, OverLeaves
from gigagp.engines.dask_cluster import DaskCluster, TaskKey, shortened
from gigagp.engines.dask_shards import LoadedShards, subtrees_of_shards
from gigagp.engines.threads import ThreadsEngine
from gigagp.engines.transport import Depot, Packed
from gigagp.engines.workers import worker_count
from gigagp.errors import InvalidParameter
from gigagp.linalg.workspace import Workspace
from gigagp.tree import Division, Tree, V, divide

T = TypeVar("T")
R = TypeVar("R")

SHARDS_PER_THREAD = 4  # small shards, so that fast and slow workers can have different numbers of them
MOST_SHARDS = 2000  # of clusters with fewer threads than that: the scheduler handles each load of a shard
_BUNDLES_AHEAD = 3  # bundles of tasks per thread that are submitted before their results are read
_CONNECT_SECONDS = 10  # seconds for a scheduler to answer
_PROBE = "probe"  # object that all workers must be able to read
# Settings of a cluster on this machine; docs/clusters.md says how to set them where a scheduler is started.
SETTINGS = {
    "distributed.scheduler.allowed-failures": 10,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-ttl": "60s",
}


class DaskEngine(Engine):
    """The workers of a Dask client, which remains open when the engine is closed.

    folder : one that all workers see, for data that are passed to them; default where the expert store is
    n_jobs : threads of this process, for work that only this process can do
    """

    reads_files = True
    one_machine = False  # at least not necessarily

    def __init__(self, client: Client, folder: str | Path | None = None, n_jobs: int = 1) -> None:
        if is_remote(folder):
            raise InvalidParameter(
                f"folder must be one that all workers see as a folder; pass the address {folder} to "
                "fit(..., store=address) instead"
            )
        if client.asynchronous:
            raise InvalidParameter("asynchronous Dask clients are not supported; use Client(asynchronous=False)")
        self.client, self.folder, self.n_jobs = client, folder, worker_count(n_jobs)
        self._cluster = DaskCluster(client)
        self._owned: list[Client | LocalCluster] = []
        self._local: ThreadsEngine | None = None
        self._depot: Depot | None = None
        self._temporary: TemporaryFolder | None = None
        self._store_folder: Path | Mirror | None = None
        self._loaded: LoadedShards | None = None
        self._cluster.check_workers()

    @classmethod
    def on_this_machine(cls, workers: int) -> DaskEngine:
        """A new cluster on this machine, one thread per worker; it is closed with the engine."""
        with dask.config.set(SETTINGS):
            cluster = LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0")
            client = Client(cluster)
        return cls._owning([client, cluster], None, workers)

    @classmethod
    def at(cls, address: str, n_jobs: int, folder: str | Path | None = None) -> DaskEngine:
        """The cluster of the scheduler at an address; the connection is closed with the engine."""
        try:
            client = Client(address, timeout=_CONNECT_SECONDS)
        except (OSError, ValueError) as error:
            raise InvalidParameter(f"no Dask scheduler answers at {address} ({error}); is it running there?") from None
        return cls._owning([client], folder, n_jobs)

    @classmethod
    def _owning(cls, owned: list[Client | LocalCluster], folder: str | Path | None, n_jobs: int) -> DaskEngine:
        try:
            engine = cls(owned[0], folder, n_jobs)
        except BaseException:
            for one in owned:
                one.close()
            raise
        engine._owned = owned
        return engine

    @property
    def local(self) -> Engine:
        if self._local is None:
            self._local = ThreadsEngine(self.n_jobs)
        return self._local

    def close(self) -> None:
        self._loaded = None
        self._cluster.forget()
        self._leave_folder()
        if self._local is not None:
            self._local.close()
            self._local = None
        for owned in self._owned:
            owned.close()
        self._owned = []

    def __reduce__(self) -> tuple[Any, ...]:
        address = self.client.scheduler.address if self.client.scheduler is not None else ""
        return DaskEngine.at, (address, self.n_jobs, self.folder)

    def use_folder(self, folder: Path | Mirror) -> None:
        if self._temporary is None or self._store_folder != folder or not self._temporary.path.exists():
            self._loaded = None  # its files are removed with the folder
            self._leave_folder()
            if isinstance(folder, Mirror):
                self._temporary = TemporaryFolder(folder.folder)
                self._depot = Depot(self._temporary.path, folder, TemporaryObjects(folder.base))
            else:
                self._temporary = TemporaryFolder(self.folder if self.folder is not None else folder)
                self._depot = Depot(self._temporary.path)
            self._store_folder = folder
        if isinstance(folder, Mirror):
            self._check_address()
        else:
            self._check_folders(str(folder), str(self._temporary.path))

    def _check_folders(self, *paths: str) -> None:
        for path in dict.fromkeys(paths):
            visible = self._cluster.ask_workers(dask_tasks.sees, path)
            blind = [worker for worker, reply in visible.items() if reply is not True]
            if blind:
                raise InvalidParameter(
                    f"some workers do not see the folder {path}: {shortened(blind)}; choose one on a file system that "
                    "all share, or an address such as s3://bucket/folder, with fit(..., store=folder), "
                    "checkpoint=folder or DaskEngine(client, folder=folder)"
                )

    def _check_address(self) -> None:
        assert self._depot is not None
        assert self._depot.objects is not None
        folder, content = self._depot.objects.folder, uuid.uuid4().bytes
        folder.put(_PROBE, content)
        replies = self._cluster.ask_workers(dask_tasks.reaches, folder, _PROBE, content)
        blind = [f"{worker} ({reply})" for worker, reply in replies.items() if reply]
        if blind:
            raise InvalidParameter(
                f"some workers do not read from {folder.name}: {shortened(blind)}; workers need the same credentials "
                "and settings as this process, as environment variables"
            )

    def that_reads(self, paths: list[tuple[str, int]] | None) -> Engine:
        if paths is None:
            return self.local
        if isinstance(self._store_folder, Mirror):
            paths = [file for file in paths if not self._store_folder.has(file[0])]
        replies = self._cluster.ask_workers(dask_tasks.sees_files, paths) if paths else {}
        return self if all(reply is True for reply in replies.values()) else self.local

    @property
    def slots(self) -> int:
        return sum(self._cluster.threads().values())

    def sees(self, folder: Path) -> bool:
        return all(reply is True for reply in self._cluster.ask_workers(dask_tasks.sees, str(folder)).values())

    def _leave_folder(self) -> None:
        objects = None if self._depot is None else self._depot.objects
        addresses = [] if objects is None else [objects.folder.address]
        if isinstance(self._store_folder, Mirror):
            addresses.append(self._store_folder.home.address)
        if self._temporary is not None:
            # Files that are removed take space as long as a worker maps them.
            self._cluster.tell_workers(dask_tasks.forget, addresses)
            self._temporary.remove()
        if objects is not None:
            objects.remove()
        self._temporary = self._depot = self._store_folder = None

    def _depot_in_use(self) -> Depot:
        if self._depot is None:
            self.use_folder(TemporaryFolder().path.parent)
        assert self._depot is not None
        return self._depot

    def map(self, function: Callable[[T, Workspace], R], tasks: Iterable[T], together: int = 1) -> Iterator[R]:
        depot, name = self._depot_in_use(), getattr(function, "name", "task")
        packed, remaining = depot.pack(function), iter(tasks)
        ahead: deque[tuple[Callable[[], list[Future]], str, list[Future]]] = deque()
        try:
            with self._cluster.scheduler_errors():
                while True:
                    most = _BUNDLES_AHEAD * sum(self._cluster.threads().values())
                    while len(ahead) < most and (bundle := list(islice(remaining, together))):
                        submit = partial(self._run_bundle, name, packed, depot.pack(bundle))
                        ahead.append((submit, _experts([t.leaf for t in bundle if hasattr(t, "leaf")]), submit()))
                    if not ahead:
                        return
                    again, about, futures = ahead.popleft()
                    (results,) = self._cluster.results(futures, name, again, lambda _, about=about: about)  # type: ignore[misc]
                    yield from results
        finally:
            with suppress(Exception, CancelledError):  # of a scheduler that is gone
                self.client.cancel([future for _, _, futures in ahead for future in futures])

    def _run_bundle(self, name: str, packed: Packed, content: Packed) -> list[Future]:
        return [self._cluster.submit(name, dask_tasks.run, packed.data, content.data)]

    def sum(self, tree: Tree, leaf_value: Callable[[int, Workspace], V]) -> V:
        """Workers sum the subtrees whose rows they have, and add these sums in the order of the tree."""
        with self._cluster.scheduler_errors():
            if isinstance(leaf_value, OverLeaves):
                total: V = self._sum_over_shards(tree, leaf_value)
                return total
            return self._sum_over_leaves(tree, leaf_value)

    def _sum_over_leaves(self, tree: Tree, leaf_value: Callable[[int, Workspace], V]) -> V:
        division, packed = self._divide(tree), self._depot_in_use().pack(leaf_value)
        name = getattr(leaf_value, "name", "leaves")
        nodes_of_parts = subtrees_of_shards(division)
        below = [(nodes[0].leaves.start, tuple(n.alone().levels for n in nodes)) for nodes in nodes_of_parts]
        above = ascent(division, [[key_of(node) for node in nodes] for nodes in nodes_of_parts])

        def submit() -> list[Future]:
            keys = self._cluster.keys(name, len(below))
            return self._submit_sums(
                name,
                {key: (dask_tasks.sum_leaves, packed.data, *part) for key, part in zip(keys, below, strict=True)},
                above,
            )

        parts = self._cluster.results(submit(), name, submit, lambda _: "")
        total: V = dask_tasks.add(parts, above.last).values[0]
        return total

    def _sum_over_shards(self, tree: Tree, over: OverLeaves[V]) -> V:
        name, packed = getattr(over.value, "name", "leaves"), self._depot_in_use().pack(over.value)
        summed: dict[str, list[int]] = {}  # the shards that a task sums

        def submit() -> list[Future]:
            loaded = self._load(tree, over)
            keys = self._cluster.keys(name, len(loaded.groups))
            summed.update(zip(map(str, keys), loaded.shards_of_group, strict=True))
            graph = {
                key: (dask_tasks.sum_group, group, packed.data) for key, group in zip(keys, loaded.groups, strict=True)
            }
            return self._submit_sums(name, graph, loaded.ascent)

        def load_and_submit() -> list[Future]:
            if self._loaded is not None:
                self._loaded.load_all()  # a shard that could not be loaded is remembered as an error
            return submit()

        def experts(key: str) -> str:
            loaded = self._loaded
            if loaded is None:
                return ""
            return _experts(loaded.leaves(summed[key]) if key in summed else loaded.leaves_of(key))

        try:
            parts = self._cluster.results(submit(), name, load_and_submit, experts)
            assert self._loaded is not None
            sums = dask_tasks.add(parts, self._loaded.ascent.last)
            self._loaded.check(sums.checksums)
        except BaseException:
            self._loaded = None
            raise
        total: V = sums.values[0]
        return total

    def _load(self, tree: Tree, over: OverLeaves[Any]) -> LoadedShards:
        """The shards of these leaves, loaded or being loaded; those of other leaves are released."""
        loaded = self._loaded
        if loaded is None or not loaded.has(tree, over):
            self._loaded = None
            loaded = LoadedShards(self._cluster, self._depot_in_use(), over, tree, self._divide(tree))
            self._loaded = loaded
        loaded.rebalance()
        return loaded

    @property
    def tasks_of_step(self) -> int:
        """How many tasks the last step over shards had."""
        loaded = self._loaded
        return 0 if loaded is None else len(loaded.groups) + sum(len(level.steps) for level in loaded.ascent.levels)

    def _divide(self, tree: Tree) -> Division:
        threads = sum(self._cluster.threads().values())
        return divide(tree, shards_for(threads, tree.n_leaves))

    def _submit_sums(self, name: str, graph: dict[TaskKey, Any], above: Ascent) -> list[Future]:
        """The sums of the graph's tasks; where these are many, tasks that add some of them at a time come on top."""
        parts = list(graph)
        for level in above.levels:
            remaining, parts = iter(parts), self._cluster.keys(f"add-{name}", len(level.steps))
            for key, count, adding in zip(parts, level.senders, level.steps, strict=True):
                graph[key] = dask_tasks.add, list(islice(remaining, count)), adding
        return self._cluster.submit_graph(graph, parts)


def shards_for(threads: int, leaves: int) -> int:
    """Some per thread, but at least one for each of many threads."""
    return min(SHARDS_PER_THREAD * threads, max(MOST_SHARDS, threads), leaves)


def _experts(leaves: list[int]) -> str:
    """The experts that a task computes, for error messages."""
    if not leaves:
        return ""
    first, last = min(leaves), max(leaves)
    return f" of expert {first}" if first == last else f" of {len(leaves)} experts from {first} to {last}"
