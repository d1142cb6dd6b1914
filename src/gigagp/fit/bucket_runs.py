"""Where the runs of a bucket sort are kept: files of a folder, or objects at an address."""

from __future__ import annotations

import shutil
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gigagp.arrays import Array
from gigagp.data.object_files import changed
from gigagp.data.objects import ObjectFolder, side_by_side

WriteRun = Callable[[dict[str, Any]], None]  # names -> bytes: all files of a run


@dataclass(frozen=True, eq=False)
class Piece:
    """Bytes of a run, and where they are wanted."""

    name: str
    start: int
    out: Array  # bytes
    crc: int  # 0 where it is not compared


class Runs(Protocol):
    """Runs of sorted rows: a value that is sent to the workers, which write and read."""

    checked: bool  # whether the bytes of each bucket are compared with their CRC

    def begin(self) -> None:
        """Remove what an earlier fit has left."""

    def writing(self, part: str) -> Any:
        """A context with a function that writes the runs of one part of the data."""

    def read(self, pieces: list[Piece]) -> None: ...

    def remove(self, names: list[str]) -> None: ...

    def end(self) -> None:
        """Remove everything."""


@dataclass(frozen=True)
class FolderRuns:
    """Runs in a folder that all workers see. The runs of a part appear together, when they are complete."""

    folder: str
    checked = False

    def begin(self) -> None:
        self.end()
        Path(self.folder).mkdir()

    @contextmanager
    def writing(self, part: str) -> Iterator[WriteRun]:
        final = Path(self.folder) / part
        partial = final.with_name(f".{final.name}-{uuid.uuid4().hex}")

        def write(files: dict[str, Any]) -> None:
            for name, raw in files.items():
                (partial / Path(name).name).write_bytes(raw)

        try:
            partial.mkdir()
            yield write
            try:
                partial.rename(final)
            except OSError:
                if not final.is_dir():  # else another worker has done the same
                    raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def read(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            with open(f"{self.folder}/{piece.name}", "rb", buffering=0) as file:
                file.seek(piece.start)
                filled = 0
                while filled < len(piece.out):
                    count = file.readinto(piece.out[filled:].data)
                    if not count:
                        raise OSError(f"{file.name} is shorter than it was written")
                    filled += count

    def remove(self, names: list[str]) -> None:
        for name in names:
            (Path(self.folder) / name).unlink(missing_ok=True)

    def end(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True)
class ObjectRuns:
    """Runs as objects at an address. A repeated task replaces its objects by the same ones.

    Nothing is read before the task that writes it has ended.
    """

    folder: ObjectFolder
    checked = True

    def begin(self) -> None:
        self.end()

    @contextmanager
    def writing(self, part: str) -> Iterator[WriteRun]:
        def write(files: dict[str, Any]) -> None:
            side_by_side(lambda file: self.folder.put(*file), [file for file in files.items() if len(file[1])])

        yield write

    def read(self, pieces: list[Piece]) -> None:
        side_by_side(self._read, pieces)

    def _read(self, piece: Piece) -> None:
        content = self.folder.get(piece.name, piece.start, len(piece.out))
        if content is None:
            raise changed(self.folder, piece.name, "was removed")
        if len(content) != len(piece.out) or zlib.crc32(content) != piece.crc:
            raise changed(self.folder, piece.name, "has changed")
        piece.out.data[:] = content

    def remove(self, names: list[str]) -> None:
        """They are removed at the end, a thousand in each request."""

    def end(self) -> None:
        self.folder.clear()
