"""Writes the predictions of files of any size to one Parquet or CSV file, in bounded memory; a call can be resumed."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from gigagp.arrays import Array
from gigagp.data import folders
from gigagp.data.parts import CSV, ROW_GROUP, Parts
from gigagp.data.sources import Rows
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.model.fingerprint import fingerprint
from gigagp.progress import Counter, Listener, silent

ENDINGS = (".parquet", ".pq", CSV)
_GROUP_BYTES = 1 << 27  # bytes of the largest row group; where kept columns are wide it has fewer rows
_SAMPLE_ROWS = 1024  # rows from which the size of kept columns is estimated


@dataclass(frozen=True)
class PredictionReport:
    """What `predict_file` did."""

    output: Path
    rows: int  # rows predicted
    dropped: int  # rows with missing values
    seconds: float
    resumed: int = 0  # rows that an interrupted call had predicted
    discarded: str = ""  # what an interrupted call left that could not be used, and why


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be predicted, and how. `model` is the fingerprint of everything that determines predictions."""

    rows: Rows
    predict: Callable[[Array], list[Array]]  # queries -> the predicted columns
    names: tuple[str, ...]  # of the predicted columns
    options: dict[str, Any]  # plain values that determine what is predicted
    model: str
    at_once: int  # queries in memory, a power of two
    tell: Listener = silent

    def __post_init__(self) -> None:
        assert self.at_once & (self.at_once - 1) == 0
        twice = [name for name in self.names if self.names.count(name) > 1]
        if twice:
            raise InvalidParameter(f"predicted columns must be different; got {twice[0]} twice")
        for name in self.rows.keep:
            if name in self.names:
                raise InvalidParameter(
                    f"keep: the prediction writes a column {name!r} of its own; rename the one in the data, or leave "
                    "it out"
                )

    def identity(self) -> dict[str, str]:
        """Everything that determines the content of the output."""
        options = [*self.options.values(), self.rows.keep, self.rows.missing]
        names = ("gigagp", "numpy", "scipy", "numba", "llvmlite", "pyarrow")
        versions = [*(metadata.version(name) for name in names), platform.machine()]
        return {
            "data": self.rows.fingerprint(),
            "model": self.model,
            "options": fingerprint([json.dumps(options)]),
            "versions": fingerprint([json.dumps(versions)]),
        }

    def table(self, X: Array, kept: Any) -> Any:
        """The output's rows for some queries."""
        table = pa.table(dict(zip(self.names, self.predict(X), strict=True)))
        for place, name in enumerate(self.rows.keep):
            table = table.add_column(place, name, kept[name])
        return table


def predict_file(task: Task, data: Any, output: str | os.PathLike[str], overwrite: bool = False) -> PredictionReport:
    """Predict all rows of the task into `output`. `data` is what the user called them."""
    begun = time.perf_counter()
    parts = Parts(_path(output))
    with parts.disk_errors():
        _check_apart(parts.final, data, task.rows)
        if not parts.folder.exists():
            parts.check_free(overwrite)
        identity = task.identity()
        with parts.claimed():
            about = parts.published() if parts.existed else {}
            resumed = 0
            if about.get("identity") != identity:  # otherwise only the cleaning up was interrupted
                parts.check_free(overwrite)
                resumed = parts.resume(identity, [*task.rows.keep, *task.names], task.at_once).rows
                about = _predict(task, identity, parts, overwrite)
            parts.clear()
    seconds = time.perf_counter() - begun
    return PredictionReport(parts.final, about["rows"], about["dropped"], seconds, resumed, parts.discarded)


def _predict(task: Task, identity: dict[str, str], parts: Parts, overwrite: bool) -> dict[str, Any]:
    """Predict the remaining rows, and join the parts to one file."""
    progress, rows = parts.progress, task.rows
    if progress.counts.get("rows") != progress.rows:
        n_rows, size = rows.source.n_rows, progress.rows_at_once
        if n_rows is not None:
            folders.check_space(parts.folder, 16 * (n_rows - progress.rows) * len(task.names), "the prediction")
        blocks = rows.blocks(size, -(-progress.rows // size) * size)
        count = Counter("prediction", n_rows, task.tell)
        while True:
            with _bad_data(parts):
                block = next(blocks, None)
            if block is None:
                break
            parts.add(task.table(block.X, block.kept), list(task.names))
            count(progress.rows)
        assert rows.n_dropped is not None
        parts.complete({"rows": progress.rows, "dropped": rows.n_dropped})
    about = {"version": metadata.version("gigagp"), **task.options}
    about |= {**progress.counts, "identity": identity}
    most = _GROUP_BYTES // (bytes_of_kept(rows) + 8 * len(task.names))
    parts.publish(about, list(task.names), min(ROW_GROUP, 1 << max(0, most.bit_length() - 1)), overwrite)
    return about


@contextmanager
def _bad_data(parts: Parts) -> Iterator[None]:
    """Add to an error in the data how many rows are done."""
    try:
        yield
    except InvalidInput as error:
        raise type(error)(f"{error}; {parts.standing()}") from error


def has_types(output: Any) -> bool:
    """Whether columns of an output have types, which those of a CSV file have not."""
    return not str(output).lower().endswith(CSV)


def bytes_of_kept(rows: Rows) -> int:
    """Bytes per row of the columns that are copied to the output, estimated from the first rows."""
    for batch in islice(rows.source.batches(rows.keep, _SAMPLE_ROWS) if rows.keep else (), 1):
        return int(batch.table(rows.keep).nbytes // max(1, batch.n_rows)) + 1
    return 0


def _path(output: str | os.PathLike[str]) -> Path:
    name = os.fspath(output) if isinstance(output, str | os.PathLike) else None
    if not isinstance(name, str) or not name or "\0" in name or "://" in name:
        raise InvalidParameter(f"output must be a path on this machine; got {output!r}")
    if not name.lower().endswith(ENDINGS):
        raise InvalidParameter(f"output is written as Parquet or CSV, and must end in {', '.join(ENDINGS)}; got {name}")
    return Path(os.path.realpath(os.path.expanduser(name)))


def _check_apart(final: Path, data: Any, rows: Rows) -> None:
    """Raise InvalidParameter for an output that would replace the data, or lie in the folder that is read."""
    if final.exists() and not final.is_file():
        raise InvalidParameter(f"{final} is not a file; choose another output")
    read = [file.path for file in getattr(getattr(rows.source, "files", None), "files", ())]
    if isinstance(data, str | os.PathLike):
        read.append(os.path.expanduser(os.fspath(data).removeprefix("file://")))
    for path in map(Path, map(os.path.realpath, read)):
        if path == final or path in final.parents:
            raise InvalidParameter(f"{final} would lie among the data that are read; choose another output")
