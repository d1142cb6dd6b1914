"""The format of a saved model: the names of its files, its version, and checks that saving and loading share."""

from __future__ import annotations

import os
import reprlib
from pathlib import Path
from typing import Any

from gigagp import memory
from gigagp.combine import CombinationRule
from gigagp.data import folders
from gigagp.data.store import ROW_NOISE
from gigagp.data.update_log import NAME as UPDATES
from gigagp.errors import InvalidParameter
from gigagp.kernels import Kernel
from gigagp.likelihoods import Likelihood
from gigagp.model.trend_format import ARRAYS as TREND_ARRAYS
from gigagp.partition import Partitioner

FORMAT = "gigagp-model"
VERSION = 12  # of the format that is written where directions take the places of columns
SKEWED_VERSION = 11  # of the format that is written where the distribution of errors is not symmetric
BLOCKS_VERSION = 10  # of the format that is written where blocks of rows have a tree of boxes with corners of one byte
WARPED_VERSION = 8  # of the format that is written where columns are warped
COLUMNS_VERSION = 7  # of the format that is written for categories, averages of several kernels and mean functions
ROW_NOISE_VERSION = 6  # of the format that is written where rows differ in noise or targets are not Gaussian
EQUAL_NOISE_VERSION = 5  # of the format that is written for all other models: it has neither
OLDEST_VERSION = 4  # of the format that can be read: it differs from version 5 in having no mixtures
TARGETS_FORMAT = "gigagp-targets"  # of a folder with one model per target
TARGETS_VERSION = 1
MANIFEST = "manifest.json"
BLOCK_CODES = "block_codes"  # codes of the rows in these blocks (`linalg.row_codes`); models may lack them
# The arrays of a `BlockTree`. Models of versions before 10 have boxes in the metric instead, of blocks only or a
# tree of them, under other names; the tree is then built again from the rows. The division of cells into blocks,
# `partition.kdtree.block_starts`, is part of all these formats.
BLOCK_TREE = ("block_starts", "block_frames", "block_corners", "block_below")
EARLIER_BLOCKS = ("block_lows", "block_highs", "block_sides")
ARRAYS = (
    "X", "y", "cells_starts", "cells_rows", "experts_starts", "experts_rows", "outside", "tree", "centres", "lows",
    "highs", *EARLIER_BLOCKS, *BLOCK_TREE, "metric", "communication", "theta", "inputs", "target", "evidence_trace",
    "theta_trace", "held_out_errors", BLOCK_CODES, ROW_NOISE, "noise_points", "noise_weights", "noise_theta",
    "arrivals", "prequential", "recent", "warps", "directions", *TREND_ARRAYS,
)  # fmt: skip
_OBJECTS: dict[str, type] = {  # settings that may be objects
    "kernel": Kernel, "partition": Partitioner, "combine": CombinationRule, "likelihood": Likelihood
}  # fmt: skip
FILE_NAMES = {MANIFEST, UPDATES, *(f"{name}.npy" for name in ARRAYS)}  # of all files that a model may have


def folder_path(folder: str | os.PathLike[str]) -> Path:
    """The path of a folder of a model or of a fit; InvalidParameter where the argument is not a path."""
    name = os.fspath(folder) if isinstance(folder, str | os.PathLike) else None
    if not isinstance(name, str) or not name or "\0" in name or name.startswith("file://"):
        raise InvalidParameter(f"folder must be a path, without file://; got {folder!r}")
    return Path(name)


def check_settings(settings: dict[str, Any]) -> None:
    """Check the settings that prediction uses and those that are objects; `fit` checks the others."""
    for name, kind in _OBJECTS.items():
        value = settings.get(name)
        if not (value is None or isinstance(value, str | kind)):
            raise InvalidParameter(f"{name} must be a name or a {kind.__name__}; got {reprlib.repr(value)}")
    others = [each for name, each in settings.items() if name not in _OBJECTS]
    if any(isinstance(each, tuple(_OBJECTS.values())) for each in others):
        raise InvalidParameter("a setting that must be a plain value is an object")
    memory.budget(settings.get("memory"))


def foreign_names(folder: Path) -> list[str]:
    """Names in a folder that a saved model, of one target or of several, would not have; [] for a model."""
    names = {path.name for path in folder.iterdir()}
    if folders.is_of_kind(folder / MANIFEST, TARGETS_FORMAT):
        parts = [name for name in names - {MANIFEST} if name.isdecimal() and (folder / name).is_dir()]
        others = [f"{name}/{other}" for name in parts for other in foreign_names(folder / name)]
        return sorted(names - {MANIFEST, *parts}) + others
    if names <= FILE_NAMES and not folders.is_of_kind(folder / MANIFEST, FORMAT):
        return [MANIFEST]
    return sorted(names - FILE_NAMES)
