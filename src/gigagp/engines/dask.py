"""Workers of a Dask cluster, here or on other machines, that come and go. Nothing they hold is the only copy.

Training: the tree is divided among shards (section 3.4); a shard is a task that reads its rows from the expert store's
files, so that the scheduler has it read again when its worker is lost. A step sends theta to the shards, each adds up
its subtrees, and sums climb on the workers as the tree says. Prediction: bundles of questions go out, and answers come
back in order.
"""

from __future__ import annotations

import heapq
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import dask
from distributed import CancelledError, Client, Future, KilledWorker, LocalCluster

from gigagp.data.folders import TemporaryFolder
from gigagp.engines import dask_tasks
from gigagp.engines.base import Engine, OverLeaves
from gigagp.engines.shards import ShardFiles
from gigagp.engines.threads import ThreadsEngine
from gigagp.engines.transport import Depot, Packed
from gigagp.engines.workers import worker_count
from gigagp.errors import DamagedFile, GigaGPError, InvalidParameter, WorkerLost
from gigagp.linalg.workspace import Workspace
from gigagp.tree import Division, Node, Tree, V, divide
from gigagp.version import __version__

T = TypeVar("T")
R = TypeVar("R")

_SHARDS_A_THREAD = 4  # small enough to even out workers of different speed
_MOST_SHARDS = 2000
_AHEAD = 3  # bundles under way a thread
_AGAIN = 5  # times work is begun again where workers died too often for the scheduler's patience
_CONNECT = 10  # seconds for a scheduler to answer
_PATIENCE = 60  # seconds without any worker
_NOTICED = 0.5  # seconds in which a client notices that its scheduler is gone
_LOOK = 2  # seconds after which we look whether there are any
_IDLE = 2  # looks in a row at workers that have nothing to do, though we wait for them
# For a cluster of our own; docs/clusters.md says how to set them where a scheduler is started.
_SETTINGS = {
    "distributed.scheduler.allowed-failures": 10,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-ttl": "60s",
}
_START = "start some, and repeat the call: with fit(..., checkpoint=folder) it goes on where it was"
_MEMORY = "give workers more of it, or use more workers or smaller leaves"


class DaskEngine(Engine):
    """The workers of a Dask client. The client is its owner's to close.

    folder : one that all workers see, for what is passed to them; default where the expert store is
    n_jobs : threads of this process, for what only this process can do
    """

    reads_files = True

    def __init__(self, client: Client, folder: str | Path | None = None, n_jobs: int = 1) -> None:
        if client.asynchronous:
            raise InvalidParameter("an asynchronous Dask client cannot be waited for; use Client(asynchronous=False)")
        self.client, self.folder, self.n_jobs = client, folder, worker_count(n_jobs)
        self._owned: list[Client | LocalCluster] = []
        self._local: ThreadsEngine | None = None
        self._depot: Depot | None = None
        self._temporary: TemporaryFolder | None = None
        self._given: Path | None = None
        self._held: _Held | None = None
        self._run, self._count = uuid.uuid4().hex[:8], 0
        self._check_workers()

    @classmethod
    def on_this_machine(cls, workers: int) -> DaskEngine:
        """A cluster of its own, one thread a worker, that ends with the engine."""
        with dask.config.set(_SETTINGS):
            cluster = LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0")
            client = Client(cluster)
        return cls._owning([client, cluster], None, workers)

    @classmethod
    def at(cls, address: str, n_jobs: int, folder: str | Path | None = None) -> DaskEngine:
        """The cluster of the scheduler at an address; the connection ends with the engine."""
        try:
            client = Client(address, timeout=_CONNECT)
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
        self._held = None
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

    # Folders and workers

    def use_folder(self, folder: Path) -> None:
        if self._temporary is None or self._given != folder or not self._temporary.path.exists():
            self._held = None  # what it was loaded from goes
            self._leave_folder()
            self._temporary = TemporaryFolder(self.folder if self.folder is not None else folder)
            self._depot, self._given = Depot(self._temporary.path), folder
        for seen in dict.fromkeys((str(folder), str(self._temporary.path))):
            blind = [where for where, found in self._of_workers(dask_tasks.sees, seen).items() if found is not True]
            if blind:
                raise InvalidParameter(
                    f"some workers do not see the folder {seen}: {_listed(blind)}; choose one on a file system that "
                    "all share, with fit(..., store=folder), checkpoint=folder or DaskEngine(client, folder=folder)"
                )

    def _leave_folder(self) -> None:
        if self._temporary is not None:
            self._temporary.remove()
        self._temporary = self._depot = self._given = None

    def _depot_in_use(self) -> Depot:
        if self._depot is None:
            self.use_folder(TemporaryFolder().path.parent)
        assert self._depot is not None
        return self._depot

    def _of_workers(self, function: Callable[..., Any], *about: Any) -> dict[str, Any]:
        """What each worker says; one that is lost meanwhile says nothing."""
        with self._scheduler():
            found: dict[str, Any] = self.client.run(function, *about, on_error="return")
        return {where: said for where, said in found.items() if not isinstance(said, OSError)}

    @contextmanager
    def _scheduler(self) -> Iterator[None]:
        """Whatever comes of a lost scheduler is said in one way."""
        try:
            yield
        except GigaGPError:
            raise
        except (Exception, CancelledError) as error:
            if isinstance(error, OSError):
                time.sleep(_NOTICED)
            if self.client.status == "running":
                raise
            raise WorkerLost(
                "the Dask scheduler is gone; start it and its workers, and repeat the call: with "
                "fit(..., checkpoint=folder) it goes on where it was"
            ) from error

    def _threads(self) -> dict[str, int]:
        """Of each worker; there is at least one."""
        found: dict[str, int] = self.client.nthreads()
        if not found:
            self._check_workers()
            found = self.client.nthreads()
        return found

    def _check_workers(self) -> None:
        """Every worker has this version of the package."""
        try:
            self.client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError:
            raise WorkerLost(f"the Dask cluster has had no worker for {_PATIENCE} s; {_START}") from None
        found = self._of_workers(dask_tasks.version)
        wrong = [f"{where} has {has or 'none'}" for where, has in found.items() if has != __version__]
        if wrong:
            raise WorkerLost(
                f"every worker needs gigagp {__version__}: {_listed(wrong)}; install it there "
                f"(pip install gigagp=={__version__}) and start those workers again"
            )

    def _submit(self, name: str, function: Callable[..., Any], *arguments: Any, **how: Any) -> Future:
        self._count += 1
        key = f"{name}-{self._run}-{self._count}"
        return self.client.submit(function, *arguments, key=key, pure=False, **how)

    def _submit_all(self, name: str, function: Callable[..., Any], futures: list[Future], data: bytes) -> list[Future]:
        """function(future, data) for each, in one message: that halves what a task costs client and scheduler."""
        keys = [f"{name}-{self._run}-{self._count + i}" for i in range(1, len(futures) + 1)]
        self._count += len(keys)
        submitted: list[Future] = self.client.map(function, futures, [data] * len(futures), key=keys, pure=False)
        return submitted

    def _result(self, future: Future, name: str, again: Callable[[], Future], who: Callable[[str], str]) -> Any:
        """The result. Workers that die take nothing with them: what they did is done again.

        `who` says which experts the task of a key is about.
        """
        failed = 0
        while failed < _AGAIN:
            try:
                return self._wait(future)
            except KilledWorker as killed:
                failed += 1
                if failed == _AGAIN:
                    self._check_workers()  # one that came late may lack the package
                    raise WorkerLost(
                        f"workers died again and again over {name!r}{who(str(killed.task))}, the last at "
                        f"{killed.last_worker.address}: most often for want of memory: {_MEMORY}"
                    ) from None
            except CancelledError:
                failed += 1
                if self.client.status != "running":
                    raise
            except MemoryError as error:
                where = ", ".join(getattr(error, "__notes__", ()))
                raise WorkerLost(f"a worker is out of memory over {name!r} {where}: {_MEMORY}") from error
            except _Forgotten:
                pass
            future = again()
        raise WorkerLost(f"the scheduler cancelled {name!r} again and again; look at its log")

    def _wait(self, future: Future) -> Any:
        """The result, as long as there are workers to come by it."""
        seen, idle = time.monotonic(), 0
        while True:
            try:
                return future.result(timeout=_LOOK)
            except TimeoutError:
                if future.done():  # it is the task's own
                    raise
            at_work: dict[str, tuple[str, ...]] = self.client.processing()
            if at_work:
                seen = time.monotonic()
            elif time.monotonic() - seen > _PATIENCE:
                raise WorkerLost(f"all workers are lost, and for {_PATIENCE} s none has come; {_START}")
            ours = any(self._run in str(key) for keys in at_work.values() for key in keys)
            idle = idle + 1 if not ours and any(not keys for keys in at_work.values()) else 0
            if idle == _IDLE:
                raise _Forgotten

    # Whatever is a map

    def map(self, function: Callable[[T, Workspace], R], tasks: Iterable[T], together: int = 1) -> Iterator[R]:
        depot, name = self._depot_in_use(), getattr(function, "name", "task")
        packed, waiting = depot.pack(function), iter(tasks)
        ahead: deque[tuple[Callable[[], Future], str, Future]] = deque()
        try:
            with self._scheduler():
                while True:
                    most = _AHEAD * sum(self._threads().values())
                    while len(ahead) < most and (bundle := list(islice(waiting, together))):
                        begin: Callable[[], Future] = partial(self._run_bundle, name, packed, depot.pack(bundle))
                        ahead.append((begin, _experts([t.leaf for t in bundle if hasattr(t, "leaf")]), begin()))
                    if not ahead:
                        return
                    begin, about, future = ahead.popleft()
                    yield from self._result(future, name, begin, lambda _, about=about: about)  # type: ignore[misc]
        finally:
            with suppress(Exception, CancelledError):  # of a scheduler that is gone
                self.client.cancel([future for _, _, future in ahead])

    def _run_bundle(self, name: str, packed: Packed, content: Packed) -> Future:
        return self._submit(name, dask_tasks.run, packed.data, content.data)

    # Sums over the tree

    def sum(self, tree: Tree, leaf_value: Callable[[int, Workspace], V]) -> V:
        """Subtrees are added up where their rows are; the sums climb as the tree says, on the workers."""
        with self._scheduler():
            if isinstance(leaf_value, OverLeaves):
                held: V = self._sum_held(tree, leaf_value)
                return held
            return self._sum_called(tree, leaf_value)

    def _sum_called(self, tree: Tree, leaf_value: Callable[[int, Workspace], V]) -> V:
        division, packed = self._divide(tree), self._depot_in_use().pack(leaf_value)
        name = getattr(leaf_value, "name", "leaves")
        below = [(nodes[0].leaves.start, tuple(n.alone().levels for n in nodes)) for nodes in _shares(division)]

        def begin() -> Future:
            parts = [self._submit(name, dask_tasks.sum_leaves, packed.data, *part) for part in below]
            return self._climb(name, division, parts)

        total: V = self._result(begin(), name, begin, lambda _: "").values[0]
        return total

    def _sum_held(self, tree: Tree, over: OverLeaves[V]) -> V:
        name, packed = getattr(over.value, "name", "leaves"), self._depot_in_use().pack(over.value)
        asked: dict[str, ShardFiles] = {}

        def begin() -> Future:
            held = self._hold(tree, over)
            parts = self._submit_all(name, dask_tasks.sum_shard, held.shards, packed.data)
            for futures in (held.shards, parts):
                asked.update({future.key: spec for future, spec in zip(futures, held.specs, strict=True)})
            return self._climb(name, held.division, parts)

        def begin_anew() -> Future:
            if self._held is not None:
                self._load_all(self._held)  # what could not be loaded is remembered as an error
            return begin()

        def who(key: str) -> str:
            return _experts(asked[key].leaves.tolist()) if key in asked else ""

        try:
            found: dask_tasks.Sums = self._result(begin(), name, begin_anew, who)
            if self._held is not None:
                self._held.compare(found.checksums)
        except BaseException:
            self._held = None
            raise
        total: V = found.values[0]
        return total

    def _divide(self, tree: Tree) -> Division:
        threads = sum(self._threads().values())
        return divide(tree, min(_SHARDS_A_THREAD * threads, _MOST_SHARDS, tree.n_leaves))

    def _climb(self, name: str, division: Division, parts: list[Future]) -> Future:
        """The sums of inner nodes, each formed on a worker from what its children's workers send."""
        at: dict[tuple[int, int], tuple[Future, int]] = {}
        for part, nodes in zip(parts, _shares(division), strict=True):
            at |= {(node.depth, node.index): (part, i) for i, node in enumerate(nodes)}
        for inner in division.sums:
            below = [at[child.depth, child.index] for child in inner.node.children]
            senders = list(dict.fromkeys(future for future, _ in below))
            picks = [(senders.index(future), i) for future, i in below]
            at[inner.node.depth, inner.node.index] = self._submit(f"add-{name}", dask_tasks.add, senders, picks), 0
        return at[0, 0][0]

    # Who holds which rows

    def _hold(self, tree: Tree, over: OverLeaves[Any]) -> _Held:
        """The shards of these leaves, loaded or being loaded; those of other leaves are let go."""
        held = self._held
        if held is None or not held.suits(tree, over):
            self._held = None
            held = self._held = _Held(self._depot_in_use(), over, tree, self._divide(tree))
            self._load_all(held)
        self._share_with_newcomers(held)
        return held

    def _ready(self) -> set[str]:
        """Workers that take tasks; one that is still starting would be passed over."""
        known = self.client.scheduler_info(n_workers=-1)["workers"]
        return {worker for worker, told in known.items() if told.get("status") == "running"}

    def _load_all(self, held: _Held) -> None:
        threads = self._threads()
        places = _places([len(spec.leaves) for spec in held.specs], threads)
        held.shards = [self._load(packed, place) for packed, place in zip(held.packed, places, strict=True)]
        held.workers = set(threads)

    def _load(self, packed: Packed, worker: str) -> Future:
        # Others may load it too: a worker that is gone would be waited for without end.
        return self._submit("load-shard", dask_tasks.load, packed.data, workers=[worker], allow_other_workers=True)

    def _share_with_newcomers(self, held: _Held) -> None:
        """Workers that have come since get shards of those that hold most."""
        threads = self._threads()
        if held.workers.issuperset(threads):
            held.workers = set(threads)
            return
        ready = self._ready()
        threads = {worker: n for worker, n in threads.items() if worker in ready}
        held.workers = set(threads)
        owner = {key: who[0] for key, who in self.client.who_has(held.shards).items() if who}
        owns: dict[str, list[int]] = {worker: [] for worker in threads}
        for i, shard in enumerate(held.shards):
            if owner.get(shard.key) in owns:
                owns[owner[shard.key]].append(i)
        share = len(held.shards) / max(1, sum(threads.values()))
        for worker, n in threads.items():
            while len(owns[worker]) < int(share * n):
                richest = max(owns, key=lambda w: len(owns[w]) / threads[w])
                if len(owns[richest]) <= int(share * threads[richest]):
                    break
                moved = owns[richest].pop()
                owns[worker].append(moved)
                held.shards[moved] = self._load(held.packed[moved], worker)


class _Forgotten(Exception):
    """When all workers are lost at once, tasks that had a place wait for it without end, whoever comes."""


class _Held:
    """The shards of some leaves: what they are of, where they are, and what they were when they were first seen."""

    def __init__(self, depot: Depot, over: OverLeaves[Any], tree: Tree, division: Division) -> None:
        self._store, self._lists, self._leaves, self._tree = over.store, over.lists, over.leaves, tree
        self.division = division
        files = depot.files(over.store)
        self.specs = [ShardFiles.of(files, over, nodes) for nodes in _shares(division)]
        self.packed = [depot.pack(spec) for spec in self.specs]
        self.shards: list[Future] = []
        self.workers: set[str] = set()
        self._checksums: dict[int, int] = {}

    def suits(self, tree: Tree, over: OverLeaves[Any]) -> bool:
        if over.store is not self._store or over.lists is not self._lists:
            return False
        if over.leaves is None or self._leaves is None:
            return over.leaves is self._leaves and tree is self._tree
        return len(over.leaves) == len(self._leaves) and bool((over.leaves == self._leaves).all())

    def compare(self, found: dict[int, int]) -> None:
        """A shard that was loaded again holds what it held before."""
        for first_leaf, checksum in found.items():
            if self._checksums.setdefault(first_leaf, checksum) != checksum:
                raise DamagedFile(
                    f"rows of expert {first_leaf} and those after it in {self.specs[0].files[0].path} changed while "
                    "the model was being fitted; fit again"
                )


def _shares(division: Division) -> list[list[Node]]:
    """The subtrees of each shard."""
    shares: dict[int, list[Node]] = {}
    for owned in division.owned:
        shares.setdefault(owned.worker, []).append(owned.node)
    return [shares[unit] for unit in sorted(shares)]


def _places(sizes: list[int], threads: dict[str, int]) -> list[str]:
    """A worker for each shard, the largest first, to whoever has least a thread: sizes differ by a factor of two."""
    places = dict.fromkeys(range(len(sizes)), "")
    loads = [(0.0, i, worker) for i, worker in enumerate(threads)]  # a heap
    for shard in sorted(places, key=lambda shard: -sizes[shard]):
        load, i, worker = loads[0]
        places[shard] = worker
        heapq.heapreplace(loads, (load + sizes[shard] / threads[worker], i, worker))
    return list(places.values())


def _listed(names: list[str]) -> str:
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")


def _experts(leaves: list[int]) -> str:
    if not leaves:
        return ""
    first, last = min(leaves), max(leaves)
    return f" of expert {first}" if first == last else f" of {len(leaves)} experts from {first} to {last}"
