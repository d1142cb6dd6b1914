"""Workers of a Dask cluster, here or on other machines, that come and go. Nothing they hold is the only copy.

Training: the tree is divided among shards (section 3.4); a shard is a task that reads its rows from the expert store's
files, so that the scheduler has it read again when its worker is lost. A step sends theta to the shards, each adds up
its subtrees, and sums climb on the workers as the tree says. Prediction: bundles of questions go out, and answers come
back in order.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import dask
from distributed import CancelledError, Client, Future, KilledWorker, LocalCluster, get_worker

from gigagp.data.folders import TemporaryFolder
from gigagp.data.store import MappedFile
from gigagp.engines.base import Engine, OverLeaves, own_workspace
from gigagp.engines.blas_threads import one_blas_thread
from gigagp.engines.shards import Levels, Shard, ShardFiles, sums_below
from gigagp.engines.threads import ThreadsEngine
from gigagp.engines.transport import Depot, unpack, unpack_once
from gigagp.errors import DamagedFile, InvalidParameter, WorkerLost
from gigagp.linalg.workspace import Workspace
from gigagp.tree import Division, Node, Tree, V, divide
from gigagp.version import __version__

T = TypeVar("T")
R = TypeVar("R")

_SHARDS_A_THREAD = 4  # small enough to even out workers of different speed
_MOST_SHARDS = 2000
_AHEAD = 3  # bundles under way a thread
_AGAIN = 5  # times work is begun again where workers died too often for the scheduler's patience
_PATIENCE = 60  # seconds without any worker
# For a cluster of our own; docs/clusters.md says how to set them where a scheduler is started.
_SETTINGS = {
    "distributed.scheduler.allowed-failures": 10,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-ttl": "60s",
}


class DaskEngine(Engine):
    """The workers of a Dask client. The client is its owner's to close.

    folder : one that all workers see, for what is passed to them; default where the expert store is
    n_jobs : threads of this process, for what only this process can do
    """

    reads_files = True

    def __init__(self, client: Client, folder: str | Path | None = None, n_jobs: int = 1) -> None:
        if client.asynchronous:
            raise InvalidParameter("an asynchronous Dask client cannot be waited for; use Client(asynchronous=False)")
        self.client, self.folder, self.n_jobs = client, folder, n_jobs
        self._owned: list[Client | LocalCluster] = []
        self._local: ThreadsEngine | None = None
        self._depot: Depot | None = None
        self._temporary: TemporaryFolder | None = None
        self._held: _Held | None = None
        self._run, self._count = uuid.uuid4().hex[:8], 0
        self._check_workers()

    @classmethod
    def on_this_machine(cls, workers: int) -> DaskEngine:
        """A cluster of its own, one thread a worker, that ends with the engine."""
        with dask.config.set(_SETTINGS):
            cluster = LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None)
            client = Client(cluster)
        engine = cls(client, n_jobs=workers)
        engine._owned = [client, cluster]
        return engine

    @classmethod
    def at(cls, address: str, n_jobs: int) -> DaskEngine:
        """The cluster of the scheduler at an address; the connection ends with the engine."""
        try:
            client = Client(address, timeout=10)
        except (OSError, ValueError) as error:
            raise InvalidParameter(f"no Dask scheduler answers at {address} ({error}); is it running there?") from None
        engine = cls(client, n_jobs=n_jobs)
        engine._owned = [client]
        return engine

    @property
    def local(self) -> Engine:
        if self._local is None:
            self._local = ThreadsEngine(self.n_jobs)
        return self._local

    def close(self) -> None:
        self._held = None
        if self._local is not None:
            self._local.close()
            self._local = None
        for owned in self._owned:
            owned.close()
        self._owned = []

    def __reduce__(self) -> tuple[Any, ...]:
        address = self.client.scheduler.address if self.client.scheduler is not None else ""
        return DaskEngine.at, (address, self.n_jobs)

    # Folders and workers

    def use_folder(self, folder: Path) -> None:
        self._temporary = TemporaryFolder(self.folder if self.folder is not None else folder)
        self._depot = Depot(self._temporary.path)
        for seen in dict.fromkeys((str(folder), str(self._temporary.path))):
            blind = [where for where, found in self._of_workers(_sees, seen).items() if found is not True]
            if blind:
                raise InvalidParameter(
                    f"some workers do not see the folder {seen}: {_listed(blind)}; choose one on a file system that "
                    "all share, with fit(..., store=folder), checkpoint=folder or DaskEngine(client, folder=folder)"
                )

    def _depot_in_use(self) -> Depot:
        if self._depot is None:
            self.use_folder(TemporaryFolder().path.parent)
        assert self._depot is not None
        return self._depot

    def _of_workers(self, function: Callable[..., Any], *about: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.client.run(function, *about, on_error="return")
        return found

    def _check_workers(self) -> None:
        """Every worker has this version of the package."""
        try:
            self.client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError:
            raise WorkerLost("the Dask cluster has no workers; start some, and repeat the call") from None
        found = self._of_workers(_version)
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

    def _result(self, future: Future, name: str, again: Callable[[], Future]) -> Any:
        """The result. Workers that die take nothing with them: what they did is done again."""
        for attempt in range(_AGAIN):
            try:
                return future.result()
            except KilledWorker as killed:
                if attempt == _AGAIN - 1:
                    raise WorkerLost(
                        f"workers died again and again over {name!r}, the last at {killed.last_worker.address}: most "
                        "often they are out of memory; give them more of it, or use more workers or smaller leaves"
                    ) from None
            except CancelledError as error:
                if self.client.status != "running":
                    raise WorkerLost(
                        "the Dask scheduler is gone; start it and its workers, and repeat the call: with "
                        "fit(..., checkpoint=folder) it goes on where it was"
                    ) from error
            future = again()
        raise WorkerLost(f"the scheduler cancelled {name!r} again and again; look at its log")

    # Whatever is a map

    def map(self, function: Callable[[T, Workspace], R], tasks: Iterable[T], together: int = 1) -> Iterator[R]:
        depot, name = self._depot_in_use(), getattr(function, "name", "task")
        packed, waiting = depot.pack(function), iter(tasks)
        ahead: deque[tuple[bytes, Future]] = deque()
        try:
            while True:
                most = _AHEAD * max(1, sum(self.client.nthreads().values()))
                while len(ahead) < most and (bundle := list(islice(waiting, together))):
                    content = depot.pack(bundle)
                    ahead.append((content, self._submit(name, _run, packed, content)))
                if not ahead:
                    return
                content, future = ahead.popleft()
                yield from self._result(future, name, partial(self._submit, name, _run, packed, content))
        finally:
            for _, future in ahead:
                future.cancel()

    # Sums over the tree

    def sum(self, tree: Tree, leaf_value: Callable[[int, Workspace], V]) -> V:
        """Subtrees are added up where their rows are; the sums climb as the tree says, on the workers."""
        if isinstance(leaf_value, OverLeaves):
            held: V = self._sum_held(tree, leaf_value)
            return held
        division, packed = self._divide(tree), self._depot_in_use().pack(leaf_value)
        name = getattr(leaf_value, "name", "leaves")

        def begin() -> Future:
            below = [(nodes[0].leaves.start, tuple(n.alone().levels for n in nodes)) for nodes in _shares(division)]
            return self._climb(name, division, [self._submit(name, _sum, packed, *part) for part in below])

        total: V = self._result(begin(), name, begin).values[0]
        return total

    def _sum_held(self, tree: Tree, over: OverLeaves[V]) -> V:
        name, packed = getattr(over.value, "name", "leaves"), self._depot_in_use().pack(over.value)

        def begin() -> Future:
            held = self._hold(tree, over)
            return self._climb(name, held.division, [self._submit(name, _sum_shard, s, packed) for s in held.shards])

        def begin_anew() -> Future:
            self._held = None  # what could not be loaded is remembered as an error
            return begin()

        found: _Sums = self._result(begin(), name, begin_anew)
        if self._held is not None:
            self._held.compare(found.checksums)
        total: V = found.values[0]
        return total

    def _divide(self, tree: Tree) -> Division:
        threads = sum(self.client.nthreads().values())
        return divide(tree, max(1, min(_SHARDS_A_THREAD * threads, _MOST_SHARDS, tree.n_leaves)))

    def _climb(self, name: str, division: Division, parts: list[Future]) -> Future:
        """The sums of inner nodes, each formed on a worker from what its children's workers send."""
        at: dict[tuple[int, int], tuple[Future, int]] = {}
        for part, nodes in zip(parts, _shares(division), strict=True):
            at |= {(node.depth, node.index): (part, i) for i, node in enumerate(nodes)}
        for inner in division.sums:
            below = [at[child.depth, child.index] for child in inner.node.children]
            senders = list(dict.fromkeys(future for future, _ in below))
            picks = [(senders.index(future), i) for future, i in below]
            at[inner.node.depth, inner.node.index] = self._submit(f"add-{name}", _add, senders, picks), 0
        return at[0, 0][0]

    # Who holds which rows

    def _hold(self, tree: Tree, over: OverLeaves[Any]) -> _Held:
        """The shards of these leaves, loaded or being loaded; those of other leaves are let go."""
        held = self._held
        if held is None or not held.suits(tree, over):
            self._held = None
            held = self._held = _Held(self._depot_in_use().files(over.store), over, tree, self._divide(tree))
            threads = self.client.nthreads()
            places = [worker for worker, n in threads.items() for _ in range(n)] or [None]
            count = len(held.specs)
            for i, spec in enumerate(held.specs):  # neighbours together, as the tree's units
                held.shards.append(self._load(spec, places[i * len(places) // count]))
            held.workers = set(threads)
        self._share_with_newcomers(held)
        return held

    def _load(self, spec: ShardFiles, worker: str | None) -> Future:
        where = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        return self._submit("load-shard", _load, self._depot_in_use().pack(spec), **where)

    def _share_with_newcomers(self, held: _Held) -> None:
        """Workers that have come since get shards of those that hold most."""
        threads = self.client.nthreads()
        if held.workers.issuperset(threads):
            held.workers = set(threads)
            return
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
                held.shards[moved] = self._load(held.specs[moved], worker)


class _Held:
    """The shards of some leaves: what they are of, where they are, and what they were when they were first seen."""

    def __init__(self, files: tuple[MappedFile, ...], over: OverLeaves[Any], tree: Tree, division: Division) -> None:
        self._store, self._lists, self._leaves, self._tree = over.store, over.lists, over.leaves, tree
        self.division = division
        self.specs = [ShardFiles.of(files, over, nodes) for nodes in _shares(division)]
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


# What runs on workers


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over subtrees, and of which shards they are: their first leaves and checksums."""

    values: list[Any]
    checksums: dict[int, int] = field(default_factory=dict)


@contextmanager
def _at_work() -> Iterator[None]:
    """One BLAS thread; an error says where it happened."""
    try:
        with one_blas_thread():
            yield
    except Exception as error:
        worker = get_worker()
        error.add_note(f"on the worker {worker.name} at {worker.address}")
        raise


def _load(packed: bytes) -> Shard:
    with _at_work():
        spec: ShardFiles = unpack(packed)
        return spec.load()


def _sum_shard(shard: Shard, packed: bytes) -> _Sums:
    with _at_work():
        values = shard.sums(unpack_once(packed), own_workspace())
        return _Sums(values, {int(shard.leaves[0]): shard.checksum})


def _sum(packed: bytes, first: int, subtrees: tuple[Levels, ...]) -> _Sums:
    with _at_work():
        of_leaf, work = unpack_once(packed), own_workspace()
        return _Sums(sums_below(subtrees, lambda place: of_leaf(first + place, work)))


def _add(senders: list[_Sums], picks: list[tuple[int, int]]) -> _Sums:
    (sender, i), *others = picks
    total = senders[sender].values[i]
    for sender, i in others:
        total = total + senders[sender].values[i]
    checksums: dict[int, int] = {}
    for sums in senders:
        checksums |= sums.checksums
    return _Sums([total], checksums)


def _run(packed: bytes, content: bytes) -> list[Any]:
    with _at_work():
        function, work = unpack_once(packed), own_workspace()
        return [function(task, work) for task in unpack(content)]


def _version() -> str | None:
    try:
        from gigagp.version import __version__ as found  # noqa: PLC0415
    except ImportError:
        return None
    return str(found)


def _sees(folder: str) -> bool:
    import os  # noqa: PLC0415

    return os.path.isdir(folder)


for _probe in (_version, _sees):
    _probe.__module__ = "__main__"  # they travel whole: workers may not have this package


def _listed(names: list[str]) -> str:
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")
