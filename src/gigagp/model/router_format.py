"""Reads the search for experts and rows of a saved model: centres, boxes of cells, and the tree of boxes of blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gigagp.arrays import Array
from gigagp.data.array_files import ArrayFiles
from gigagp.data.folders import damaged
from gigagp.data.mapped_pages import release
from gigagp.data.row_lists import RowLists, Runs
from gigagp.data.sources import Encoding
from gigagp.linalg.compiled import read_only
from gigagp.linalg.row_codes import length as codes_length
from gigagp.linalg.searching import FANOUT, STEPS
from gigagp.model.block_tree import BlockTree, count_nodes, first_below, upper_nodes
from gigagp.model.model_format import BLOCK_CODES, BLOCK_TREE, EARLIER_BLOCKS
from gigagp.model.routing import Router
from gigagp.partition.kdtree import block_starts

_NOT_DISTANCES = "its numbers cannot be distances"
_NO_TREE = "it is not that of a tree of boxes"
_STEP = 1 << 16  # cells or nodes that are checked at a time
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
    centres = np.asarray(_places(files, ("centres",), (leaves, columns), trusted)[0])
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
    if count < 2 or not _are_blocks_of(starts, cells.starts) or nodes != count_nodes(count - 1):
        raise damaged(files.path(starts_name), "its blocks are not those of the cells")
    _check_distances(files.path(frames_name), frames)
    if frames[:, 1].min() < 0:
        raise damaged(files.path(frames_name), _NOT_DISTANCES)
    if not _are_boxes(corners, count - 1):
        raise damaged(files.path(corners_name), _NO_TREE)
    if not np.array_equal(below, first_below(count - 1)):
        raise damaged(files.path(below_name), _NO_TREE)
    for place, own_frames, own_corners in upper_nodes(frames, count - 1):
        for name, given, own in ((frames_name, frames, own_frames), (corners_name, corners, own_corners)):
            if not np.array_equal(given[place], own):
                raise damaged(files.path(name), _NO_TREE)
    return tree


def _are_blocks_of(starts: Array, cells: Array) -> bool:
    """Whether these are the borders of the blocks of cells with such borders. Some cells are divided at a time."""
    at = 0
    for first in range(0, len(cells) - 1, _STEP):
        expected = block_starts(cells[first : first + _STEP + 1])
        if not np.array_equal(starts[at : at + len(expected)], expected):
            return False
        at += len(expected) - 1
    return at == len(starts) - 1


def _are_boxes(corners: Array, blocks: int) -> bool:
    """Whether lows are not above highs where there are blocks, and boxes that do not exist are marked as such."""
    for first in range(0, -(-blocks // FANOUT), _STEP):
        some = corners[first : min(first + _STEP, -(-blocks // FANOUT))]
        present = (first * FANOUT + np.arange(len(some) * FANOUT).reshape(-1, 1, FANOUT)) < blocks
        lows, highs = some[:, 0], some[:, 1]
        if not np.where(present, lows <= highs, (lows == STEPS) & (highs == 0)).all():
            return False
    return True


def _places(files: ArrayFiles, names: tuple[str, ...], shape: tuple[int, int], trusted: bool) -> list[Array]:
    """Mapped arrays of centres or of sides of boxes. Neighbourhoods do not read them, so no page stays in memory."""
    arrays = [files.map(name, shape, "float64", verify=not trusted) for name in names]
    for name, array in zip(() if trusted else names, arrays, strict=False):
        _check_distances(files.path(name), array)
        release(array)
    return arrays


def _boxes(files: ArrayFiles, names: tuple[str, str], shape: tuple[int, int], trusted: bool) -> tuple[Array, Array]:
    lows, highs = _places(files, names, shape, trusted)
    for first in () if trusted else range(0, len(lows), _STEP):
        some = slice(first, first + _STEP)
        if (lows[some] > highs[some]).any():
            raise damaged(files.path(names[0]), "a lower side of a box is above its upper side")
    for side in (lows, highs):
        release(side)
    return np.asarray(lows), np.asarray(highs)


def _check_distances(path: Path, array: Array) -> None:
    """Raise DamagedFile unless all numbers are finite and their squares are; no copy of the array is made."""
    if not (float(array.min()) >= -_FARTHEST and float(array.max()) <= _FARTHEST):
        raise damaged(path, _NOT_DISTANCES)
