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
from gigagp.linalg.searching import FANOUT
from gigagp.model.model_format import BLOCK_CODES, BLOCK_SIDES, BLOCK_TREE
from gigagp.model.neighbour_search import BlockTree
from gigagp.model.routing import Router
from gigagp.partition.kdtree import block_starts

_NOT_DISTANCES = "its numbers cannot be distances"
_FARTHEST = 1e140  # a distance whose square, in any number of columns, does not overflow


def read_router(
    files: ArrayFiles, leaves: int, columns: int, cells: RowLists, verify: bool, kept: int, encoding: Encoding | None,
    trusted: bool = False,
) -> Router:  # fmt: skip
    """The search for experts: by boxes of cells, or by centres for partitions and earlier models without boxes.

    verify : whether the checksum of codes is compared
    trusted : whether centres and boxes are not checked, but only mapped
    kept : bytes of codes of rows that are read into memory; more are mapped
    """
    categories = () if encoding is None else encoding.category_places
    metric = files.read("metric", (columns,), "float64")
    if not (metric.min() >= 0 and metric.max() <= _FARTHEST):
        raise damaged(files.path("metric"), _NOT_DISTANCES)
    (centres,) = _places(files, ("centres",), (leaves, columns), trusted)
    if "lows" not in files:
        return Router(centres, metric, categories=categories)
    boxes = _boxes(files, ("lows", "highs"), (leaves, columns), trusted)
    tree = BLOCK_TREE[0] in files
    if not ((tree or BLOCK_SIDES[0] in files) and isinstance(cells, Runs)):
        return Router(centres, metric, boxes, categories=categories)
    codes = None
    if BLOCK_CODES in files:
        length = codes_length(int(cells.starts[-1]), columns)
        codes = files.map(BLOCK_CODES, (length,), "uint8", verify)
        codes = np.array(codes) if length <= kept else np.asarray(codes)
    if tree:
        return Router(centres, metric, boxes, _block_tree(files, cells, columns, codes, trusted), categories)
    starts = block_starts(cells.starts)
    sides = _boxes(files, BLOCK_SIDES, (len(starts) - 1, columns), trusted)
    return Router(centres, metric, boxes, BlockTree.of(starts, *sides, codes), categories)


def _block_tree(files: ArrayFiles, cells: Runs, columns: int, codes: Array | None, trusted: bool) -> BlockTree:
    """The tree of boxes of blocks, mapped; unless it is trusted, it must be the one that its lowest boxes give."""
    starts_name, sides_name, below_name = BLOCK_TREE
    count, nodes = files.length(starts_name), files.length(below_name)
    starts = np.asarray(files.map(starts_name, (count,), "int64", not trusted))
    sides = np.asarray(files.map(sides_name, (nodes, 2, columns, FANOUT), "float64", not trusted, finite=False))
    below = np.asarray(files.map(below_name, (nodes,), "int64", not trusted))
    tree = BlockTree(starts, sides, below, read_only(np.empty(0, np.uint8) if codes is None else codes))
    if trusted:
        return tree
    if count < 2 or not np.array_equal(starts, block_starts(cells.starts)) or nodes < -(-(count - 1) // FANOUT):
        raise damaged(files.path(starts_name), "its blocks are not those of the cells")
    lows, highs = tree.boxes()
    _check_sides(files.path(sides_name), lows, highs)
    same = BlockTree.of(starts, lows, highs)
    for name, own, expected in ((sides_name, sides, same.sides), (below_name, below, same.first_below)):
        if not np.array_equal(own, expected):
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
