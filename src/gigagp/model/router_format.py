"""Reads the search for experts and rows of a saved model: centres, boxes of cells, and the tree of boxes of blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gigagp.arrays import Array
from gigagp.data.array_files import ArrayFiles
from gigagp.data.folders import damaged
from gigagp.data.row_lists import RowLists, Runs
from gigagp.data.sources import Encoding
from gigagp.linalg.compiled import read_only
from gigagp.linalg.row_codes import length as codes_length
from gigagp.linalg.searching import FANOUT, STEPS
from gigagp.model.block_tree import BlockTree, complete, count_nodes
from gigagp.model.model_format import BLOCK_CODES, BLOCK_TREE, EARLIER_BLOCKS
from gigagp.model.routing import Router
from gigagp.partition.kdtree import block_starts

_NOT_DISTANCES = "its numbers cannot be distances"
_FARTHEST = 1e140  # a distance whose square, in any number of columns, does not overflow


def read_router(
    files: ArrayFiles, leaves: int, X: Array, cells: RowLists, verify: bool, kept: int, encoding: Encoding | None,
    trusted: bool = False,
) -> Router:  # fmt: skip
    """The search for experts: by boxes of cells, or by centres for partitions and earlier models without boxes.

    X : the rows, of which models of earlier versions get a new tree of boxes
    verify : whether the checksum of codes is compared
    trusted : whether centres and boxes are not checked, but only mapped
    kept : bytes of codes of rows that are read into memory; more are mapped
    """
    columns = X.shape[1]
    categories = () if encoding is None else encoding.category_places
    metric = files.read("metric", (columns,), "float64")
    if not (metric.min() >= 0 and metric.max() <= _FARTHEST):
        raise damaged(files.path("metric"), _NOT_DISTANCES)
    (centres,) = _places(files, ("centres",), (leaves, columns), trusted)
    if "lows" not in files:
        return Router(centres, metric, categories=categories)
    boxes = _boxes(files, ("lows", "highs"), (leaves, columns), trusted)
    if not isinstance(cells, Runs):
        return Router(centres, metric, boxes, categories=categories)
    blocks: BlockTree | None = None
    if BLOCK_TREE[1] in files:
        codes = _codes(files, len(X), columns, verify, kept)
        blocks = _block_tree(files, cells, (columns, X.dtype.name), codes, trusted)
    elif any(name in files for name in EARLIER_BLOCKS):
        blocks = BlockTree.of_rows(X, block_starts(cells.starts), coded=BLOCK_CODES in files and X.size <= kept)
    return Router(centres, metric, boxes, blocks, categories)


def _codes(files: ArrayFiles, rows: int, columns: int, verify: bool, kept: int) -> Array:
    """The codes of rows; empty where the model has none."""
    if BLOCK_CODES not in files:
        return np.empty(0, np.uint8)
    length = codes_length(rows, columns)
    codes = files.map(BLOCK_CODES, (length,), "uint8", verify)
    return np.array(codes) if length <= kept else np.asarray(codes)


def _block_tree(files: ArrayFiles, cells: Runs, row: tuple[int, str], codes: Array, trusted: bool) -> BlockTree:
    """The tree of boxes of blocks, mapped; unless it is trusted, it must be the one that its lowest boxes give.

    row : the number of columns and the type of the rows
    """
    starts_name, frames_name, corners_name, below_name = BLOCK_TREE
    (columns, dtype), check = row, not trusted
    count, nodes = files.length(starts_name), files.length(below_name)
    starts = np.asarray(files.map(starts_name, (count,), "int64", check))
    frames = np.asarray(files.map(frames_name, (nodes, 2, columns), dtype, check))
    corners = np.asarray(files.map(corners_name, (nodes, 2, columns, FANOUT), "uint8", check))
    below = np.asarray(files.map(below_name, (nodes,), "int64", check))
    tree = BlockTree(starts, frames, corners, below, read_only(codes))
    if trusted:
        return tree
    if count < 2 or not np.array_equal(starts, block_starts(cells.starts)) or nodes != count_nodes(count - 1):
        raise damaged(files.path(starts_name), "its blocks are not those of the cells")
    if not (float(np.abs(frames).max()) <= _FARTHEST and frames[:, 1].min() >= 0):
        raise damaged(files.path(frames_name), _NOT_DISTANCES)
    lows, highs = (
        corners[: -(-(count - 1) // FANOUT), side].transpose(0, 2, 1).reshape(-1, columns) for side in (0, 1)
    )
    absent = slice(count - 1, None)
    if (lows > highs)[: count - 1].any() or (lows[absent] != STEPS).any() or highs[absent].any():
        raise damaged(files.path(corners_name), "it is not that of a tree of boxes")
    own_frames, own_corners = frames.copy(), corners.copy()
    own_below = complete(own_frames, own_corners, count - 1)
    pairs = ((frames_name, frames, own_frames), (corners_name, corners, own_corners), (below_name, below, own_below))
    for name, given, expected in pairs:
        if not np.array_equal(given, expected):
            raise damaged(files.path(name), "it is not that of a tree of boxes")
    return tree


def _places(files: ArrayFiles, names: tuple[str, ...], shape: tuple[int, int], trusted: bool) -> list[Array]:
    if trusted:
        return [np.asarray(files.map(name, shape, "float64", verify=False)) for name in names]
    arrays = [files.read(name, shape, "float64") for name in names]
    for name, array in zip(names, arrays, strict=True):
        if not (np.isfinite(array).all() and np.abs(array).max() <= _FARTHEST):
            raise damaged(files.path(name), _NOT_DISTANCES)
    return arrays


def _boxes(files: ArrayFiles, names: tuple[str, str], shape: tuple[int, int], trusted: bool) -> tuple[Array, Array]:
    lows, highs = _places(files, names, shape, trusted)
    if not trusted:
        _check_sides(files.path(names[0]), lows, highs)
    return lows, highs


def _check_sides(path: Path, lows: Array, highs: Array) -> None:
    """Raise DamagedFile if these are not the sides of boxes."""
    if not all(np.isfinite(side).all() and np.abs(side).max() <= _FARTHEST for side in (lows, highs)):
        raise damaged(path, _NOT_DISTANCES)
    if (lows > highs).any():
        raise damaged(path, "a lower side of a box is above its upper side")
