"""Folders of objects at addresses such as s3://bucket/prefix: objects are written whole, and read whole or in part.

An object is complete or absent. S3 and the like write it in one step; on other file systems it gets its name when it is
complete.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from gigagp.data.addresses import is_remote, locate, reason, without_password
from gigagp.errors import DiskFull, GigaGPError, InvalidInput, InvalidParameter

_CHUNK = 1 << 24  # bytes that are copied at a time
_REQUESTS = 8  # requests of one process at the same time: each waits some 20 ms for its reply, whatever its size
_AT_ONCE = ("s3", "gcs", "abfs")  # kinds of file systems on which an object appears when it is complete
_OPTION = "allow_delayed_open=true"  # of S3: one request instead of three for a small object; not in old pyarrow

Listing = dict[str, tuple[int, int | None]]  # names below the address -> sizes, and nanoseconds of the last change

T = TypeVar("T")
R = TypeVar("R")


def cache_folder() -> Path:
    """Where copies of what is at an address are kept: $GIGAGP_CACHE, or gigagp in the user's cache folder."""
    own, general = os.environ.get("GIGAGP_CACHE"), os.environ.get("XDG_CACHE_HOME")
    folder = Path(own).expanduser() if own else Path(general or "~/.cache").expanduser() / "gigagp"
    return folder.absolute()


def temporary_parent(place: str | os.PathLike[str] | None) -> Path | None:
    """Where temporary files of a fit are created: in its folder, or in the cache if that is at an address."""
    if place is None:
        return None
    return cache_folder() if is_remote(place) else Path(place)


class ObjectFolder:
    """A folder on another file system: a value that can be sent to other processes, which use their own credentials.

    address : with a query, such as that of an endpoint, if there is one
    located : its file system, and its path on it, where they are known
    """

    def __init__(self, address: str, located: tuple[Any, str] | None = None) -> None:
        base, mark, query = address.partition("?")
        self.address, self._base, self._query = address, base.rstrip("/"), mark + query
        if self._base.endswith(":"):
            raise InvalidParameter(f"the address {base} names no bucket; give one such as s3://bucket/folder")
        self.name = without_password(self._base)
        with self.errors("open", InvalidParameter):
            self.system, self._root = located or _located(self._base, self._query, _settings())

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectFolder, (self.address,)

    def below(self, name: str) -> ObjectFolder:
        """The folder of that name in this one."""
        return ObjectFolder(f"{self._base}/{name}{self._query}", (self.system, self.place(name)))

    def place(self, name: str) -> str:
        """The path of an object on the file system."""
        return posixpath.join(self._root, name)

    def put(self, name: str, content: Any) -> None:
        """Write an object; one of that name is replaced."""
        with self.errors("write", DiskFull, name):
            final = self.place(name)
            if self.system.type_name in _AT_ONCE:
                self._write(final, content)
                return
            partial = f"{final}.partial-{uuid.uuid4().hex}"
            self.system.create_dir(posixpath.dirname(final), recursive=True)
            self._write(partial, content)
            self.system.move(partial, final)

    def _write(self, place: str, content: Any) -> None:
        with self.system.open_output_stream(place) as stream:
            stream.write(content)

    def upload(self, name: str, path: Path) -> None:
        """Write a file of any size as one object."""
        with self.errors("write", DiskFull, name):
            if self.system.type_name not in _AT_ONCE:
                self.system.create_dir(posixpath.dirname(self.place(name)), recursive=True)
            try:
                with path.open("rb") as source, self.system.open_output_stream(self.place(name)) as to:
                    expected = os.fstat(source.fileno()).st_size
                    shutil.copyfileobj(source, to, _CHUNK)
                size = self.system.get_file_info(self.place(name)).size
                if size != expected:
                    raise OSError(f"it has {size} bytes after the upload of {expected}; repeat the call")
            except BaseException:  # what was written until then has been given the name
                with suppress(GigaGPError):
                    self.remove(name)
                raise

    def get(self, name: str, start: int = 0, size: int | None = None) -> bytes | None:
        """The content of an object, or the part of it that begins at `start`; None if the object does not exist."""
        with self.errors("read", InvalidInput, name):
            try:
                with self.system.open_input_file(self.place(name)) as file:
                    size = file.size() - start if size is None else size
                    content: bytes = file.read_at(size, start)
                    return content
            except FileNotFoundError:
                return None

    def chunks(self, name: str) -> Iterator[bytes]:
        """The content of an object, some MB at a time."""
        with self.errors("read", InvalidInput), self.system.open_input_stream(self.place(name)) as source:
            while chunk := source.read(_CHUNK):
                yield chunk

    def files(self) -> Listing:
        """All objects in this folder and below."""
        from pyarrow import fs  # noqa: PLC0415

        infos = self.system.get_file_info(fs.FileSelector(self._root, allow_not_found=True, recursive=True))
        bucket = self._root.split("/")[0]
        empty = not infos and self.system.type_name == "s3"
        if empty and self.system.get_file_info(bucket).type == fs.FileType.NotFound:
            raise FileNotFoundError(f"there is no bucket {bucket!r}, or it may not be seen")
        return {
            posixpath.relpath(info.path, self._root): (int(info.size), info.mtime_ns)
            for info in infos
            if info.type == fs.FileType.File
        }

    def names(self) -> list[str]:
        """The objects and folders in this folder."""
        from pyarrow import fs  # noqa: PLC0415

        with self.errors("read", InvalidInput):
            infos = self.system.get_file_info(fs.FileSelector(self._root, allow_not_found=True))
            return sorted(posixpath.relpath(info.path, self._root) for info in infos)

    def has(self, name: str) -> bool:
        """Whether there is an object of that name."""
        from pyarrow import fs  # noqa: PLC0415

        with self.errors("read", InvalidInput, name):
            return bool(self.system.get_file_info(self.place(name)).type == fs.FileType.File)

    def remove(self, name: str) -> None:
        """Remove an object, if it exists."""
        with self.errors("remove", DiskFull, name), suppress(FileNotFoundError):
            self.system.delete_file(self.place(name))

    def clear(self) -> None:
        """Remove the folder with all that is in it."""
        with self.errors("remove", DiskFull), suppress(FileNotFoundError):
            self.system.delete_dir(self._root)

    @contextmanager
    def errors(self, what: str, kind: type[GigaGPError], name: str = "") -> Iterator[None]:
        """Turn errors of the file system into one of the package."""
        try:
            yield
        except GigaGPError:
            raise
        except _failures() as error:
            place = f"{self.name}/{name}" if name else self.name
            raise kind(f"cannot {what} {place}: {reason(error)}") from error


def side_by_side(function: Callable[[T], R], tasks: Iterable[T]) -> list[R]:
    """The function's values, in order; some requests wait for their replies at the same time."""
    tasks = list(tasks)
    return [function(tasks[0])] if len(tasks) == 1 else list(_pool().map(function, tasks))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_REQUESTS, thread_name_prefix="gigagp-objects")


@lru_cache(maxsize=64)
def _located(base: str, query: str, settings: tuple[tuple[str, str], ...]) -> tuple[Any, str]:
    """File system and path; opened once, because finding credentials and region takes time.

    settings : of the environment, which determine the file system
    """
    from pyarrow import ArrowInvalid  # noqa: PLC0415

    if not base.startswith("s3://"):
        return locate(base, query)
    try:
        return locate(base, f"{query}&{_OPTION}" if query else f"?{_OPTION}")
    except ArrowInvalid:
        return locate(base, query)


def _settings() -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_")))


@cache
def _failures() -> tuple[type[BaseException], ...]:
    from pyarrow import ArrowException  # noqa: PLC0415 pyarrow takes time to load

    return ArrowException, OSError, ImportError
