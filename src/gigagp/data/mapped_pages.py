"""How much of mapped files is in memory: the system maps much more than is read where rows are far from each other.

Where the page cache has large folios (Linux maps a folio as a whole), one number that is read may map 2 MB.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence

import numpy as np

from gigagp.arrays import Array

WINDOW = 1 << 21  # bytes that the system may map around each position that is read


def mapped_now() -> int:
    """Bytes of mapped files, libraries among them, that are in this process's memory; 0 where that is not known."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read().split()[2]) * mmap.PAGESIZE
    except OSError:
        return 0


def release(array: Array) -> None:
    """Give the pages of a mapped array back to the system; what is read again is mapped again."""
    mapped = getattr(array, "_mmap", None)
    if isinstance(mapped, mmap.mmap):
        mapped.madvise(mmap.MADV_DONTNEED)


def windows_of(rows: Array, bytes_per_row: int) -> int:
    """How many windows are mapped when these rows are read one after the other."""
    return 1 + int(np.count_nonzero(np.diff(rows * bytes_per_row // WINDOW)))


def pieces(rows: Array, bytes_per_row: int, most: int) -> list[Array]:
    """Places of the rows in the list, in the order of the file, in pieces that lie in at most so many windows."""
    order = np.argsort(rows, kind="stable")
    number = np.cumsum(np.diff(rows[order] * bytes_per_row // WINDOW, prepend=-1) != 0) - 1
    return np.split(order, np.flatnonzero(np.diff(number // max(1, most))) + 1)


def take_in_pieces(
    arrays: Sequence[Array], rows: Array, bytes_per_row: int, most: int, release: Callable[[], None]
) -> list[Array]:
    """Rows of mapped arrays, of which at most so many windows are in memory at a time.

    bytes_per_row : of the array with the largest rows
    release : gives the mapped pages back
    """
    taken = [np.empty((len(rows), *array.shape[1:]), array.dtype) for array in arrays]
    for places in pieces(rows, bytes_per_row, most):
        for part, array in zip(taken, arrays, strict=True):
            part[places] = array[rows[places]]
        release()
    return taken
