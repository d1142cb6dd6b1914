"""The functions that run on the workers of a Dask cluster, which therefore need this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from distributed import get_worker

from gigagp.data.objects import ObjectFolder
from gigagp.engines.additions import Additions
from gigagp.engines.base import LeafValue, own_workspace
from gigagp.engines.blas_threads import one_blas_thread
from gigagp.engines.shards import Levels, Shard, ShardFiles, sums_below
from gigagp.engines.threads import ThreadsEngine
from gigagp.engines.transport import forget_values, unpack, unpack_once
from gigagp.errors import GigaGPError
from gigagp.linalg.workspace import Workspace


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over subtrees, and the checksums of the shards that they come from, by first leaf."""

    values: list[Any]
    checksums: dict[int, int] = field(default_factory=dict)


@contextmanager
def _at_work() -> Iterator[None]:
    """Add the worker to the message of an error."""
    try:
        yield
    except Exception as error:
        worker = get_worker()
        error.add_note(f"on the worker {worker.name} at {worker.address}")
        raise


def load(packed: bytes) -> Shard:
    with _at_work():
        spec: ShardFiles = unpack(packed)
        return spec.load()


@dataclass(frozen=True, eq=False)
class ShardGroup:
    """The shards of one worker, and what is added of their sums before they are handed on."""

    shards: list[Shard]
    adding: Additions

    @cached_property
    def checksums(self) -> dict[int, int]:
        """Those of the shards, by first leaf."""
        return {int(shard.leaves[0]): shard.checksum for shard in self.shards}

    def __sizeof__(self) -> int:  # what the scheduler counts: the shards are counted already
        return 1024


@dataclass(frozen=True, eq=False)
class _SumsOf:
    """The sums over the subtrees of a shard."""

    value: LeafValue[Any]

    def __call__(self, shard: Shard, work: Workspace) -> list[Any]:
        return shard.sums(self.value, work)


@lru_cache(maxsize=1)
def _threads(count: int) -> ThreadsEngine:
    """The threads that share the work of one task: as many as the worker may use."""
    return ThreadsEngine(count)


def group(shards: list[Shard], adding: Additions) -> ShardGroup:
    return ShardGroup(shards, adding)


def sum_group(group: ShardGroup, packed: bytes) -> Sums:
    with _at_work():
        value = unpack_once(packed)  # may load a BLAS
        with one_blas_thread():
            values = list(_threads(get_worker().state.nthreads).map(_SumsOf(value), group.shards))
        return Sums(group.adding.apply(values), group.checksums)


def sum_leaves(packed: bytes, first: int, subtrees: tuple[Levels, ...]) -> Sums:
    with _at_work():
        of_leaf, work = unpack_once(packed), own_workspace()
        with one_blas_thread():
            return Sums(sums_below(subtrees, lambda place: of_leaf(first + place, work)))


def add(senders: list[Sums], adding: Additions) -> Sums:
    checksums: dict[int, int] = {}
    for sums in senders:
        checksums |= sums.checksums
    return Sums(adding.apply([sums.values for sums in senders]), checksums)


def run(packed: bytes, content: bytes) -> list[Any]:
    with _at_work():
        function, work = unpack_once(packed), own_workspace()
        tasks = unpack(content)
        with one_blas_thread():
            return [function(task, work) for task in tasks]


def reaches(folder: ObjectFolder, name: str, content: bytes) -> str:
    """Why this worker does not read an object with this content; empty where it does."""
    try:
        return "" if folder.get(name) == content else "it sees other objects there"
    except GigaGPError as error:
        return str(error)


def forget(addresses: list[str]) -> None:
    """Give back what this worker has been sent, and remove what it has copied from addresses."""
    forget_values(*addresses)


def version() -> str | None:
    try:
        from gigagp.version import __version__  # noqa: PLC0415
    except ImportError:
        return None
    return str(__version__)


def sees(folder: str) -> bool:
    import os  # noqa: PLC0415

    return os.path.isdir(folder)


def sees_files(paths: list[tuple[str, int]]) -> bool:
    import os  # noqa: PLC0415

    return all(os.path.isfile(path) and os.path.getsize(path) == size for path, size in paths)


for _probe in (version, sees, sees_files):
    _probe.__module__ = "__main__"  # so that they are pickled by value: workers may not have this package
