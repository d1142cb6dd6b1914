"""Applies the log of a folder's updates to the model that was saved in it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gigagp.data import update_log
from gigagp.data.array_files import ArrayFiles
from gigagp.data.folders import damaged
from gigagp.data.update_log import CHANGE, FORGET, ROWS, RowsRecord
from gigagp.engines import SerialEngine
from gigagp.model import prequential, recent_rows
from gigagp.model.adaptation import changed, with_scores
from gigagp.model.model import Model
from gigagp.model.model_format import MANIFEST
from gigagp.model.online import added, check_updates, without
from gigagp.model.plain_values import count
from gigagp.model.row_segments import ArrivingRows

_ROWS_AT_ONCE = 1 << 20  # rows of several records that are added together


@dataclass(frozen=True)
class LogPlace:
    """Up to where a model has the updates of a log: its folder, the folder's identity, and the last record's end."""

    path: Path
    folder: tuple[int, int, int]
    end: int


def read_updates(files: ArrayFiles, manifest: dict[str, Any], rows: int) -> dict[str, Any]:
    """The order of arrival of the rows, the scores of arriving ones, and the last predictions, where there are any."""
    arrays: dict[str, Any] = {}
    if "arrivals" in files:
        arrays["arrivals"] = files.read("arrivals", (rows,), "int64")
    if "next_arrival" in manifest:
        arrays["next_arrival"] = count(manifest, "next_arrival", rows)
    if "prequential" in manifest:
        shape = (count(manifest, "prequential", 1), prequential.COLUMNS)
        arrays["prequential"] = files.read("prequential", shape, "float64")
    if "recent" in manifest:
        shape = (count(manifest, "recent", 1), recent_rows.COLUMNS)
        arrays["recent"] = files.read("recent", shape, "float64")
    return arrays


def with_updates(model: Model, folder: Path) -> Model:
    """The model that was read from a folder, with all updates of its log; it knows up to where."""
    model, end = replayed(model, folder)
    return replace(model, log=LogPlace(folder.resolve(), identity(folder), end))


def identity(folder: Path) -> tuple[int, int, int]:
    """Device and inode of a folder, and when its manifest was written: at least one changes when it is replaced.

    The inode alone does not tell: the file system gives that of a removed folder to the next one.
    """
    status = folder.stat()
    return status.st_dev, status.st_ino, (folder / MANIFEST).stat().st_mtime_ns


def refreshed(model: Model) -> Model | None:
    """The model with the updates that have been written since; None if its folder has been replaced."""
    place = model.log
    assert isinstance(place, LogPlace)
    if identity(place.path) != place.folder:
        return None
    model, end = replayed(model, place.path, place.end)
    return replace(model, log=replace(place, end=end))


def replayed(model: Model, folder: Path, start: int = 0) -> tuple[Model, int]:
    """The model with the updates of the folder's log from a place on, and where the log ended."""
    path = folder / update_log.NAME
    if not path.exists():
        return model, start
    waiting: list[ArrivingRows] = []
    engine, end = SerialEngine(), start
    for record in update_log.read(path, start):
        try:
            if record.kind == ROWS:
                rows = RowsRecord.of(record.content)
                if rows.X.shape[1] != model.store.X.shape[1] or rows.X.dtype != model.store.X.dtype:
                    raise ValueError("a record has other columns than the model")
                waiting.append(ArrivingRows(rows.X, rows.y, rows.row_noise, rows.arrivals))
                if len(rows.score):
                    model = with_scores(model, rows.score)
            elif record.kind == CHANGE:
                model = changed(model, json.loads(record.content))
            elif record.kind == FORGET and len(record.content) % 8 == 0:
                model, waiting = _added(model, waiting, engine), []
                model = without(model, np.frombuffer(record.content, np.int64), engine)
            else:
                raise ValueError("a record is of an unknown kind")
        except ValueError as error:
            raise damaged(path, str(error)) from None
        if sum(map(len, waiting)) >= _ROWS_AT_ONCE:
            model, waiting = _added(model, waiting, engine), []
        end = record.end
    return _added(model, waiting, engine), end


def _added(model: Model, rows: list[ArrivingRows], engine: SerialEngine) -> Model:
    if not rows:
        return model
    check_updates(model)
    return added(model, ArrivingRows.joined(rows), engine)
