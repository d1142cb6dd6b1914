"""Scratch memory of one worker, grown when needed and used again for the next leaf."""

from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg.team import Team

# NumPy asks the kernel for huge pages from 4 MB on. Blocks of a leaf are read down their columns, one page per row,
# and with small pages the processor spends much of its time on page lookups. Few small pages do no harm, and a huge one
# may have to be formed first, which takes milliseconds: too long for a single query.
_LARGE = 1 << 16  # bytes from which on a buffer consists of huge pages
_LEAST_BYTES = 1 << 22  # of such a buffer
_PAGE = 1 << 21  # bytes of a huge page
_SMALL_PAGE = 1 << 12  # bytes
_STAGGER = 17 * 64  # bytes between the starts of buffers, so that equal positions do not share cache sets


class Workspace:
    """Named buffers. What `take` returns is valid until the same name is taken again."""

    def __init__(self) -> None:
        self._flat: dict[tuple[str, str], Array] = {}
        self.team: Team | None = None  # threads that may take part in a large product
        self.in_use: Any = None  # what a caller took last, with its key, for reuse

    def take(self, name: str, rows: int, columns: int, dtype: np.dtype[Any]) -> Array:
        """A (rows, columns) matrix with arbitrary (but finite) content."""
        key, size = (name, dtype.str), rows * columns
        flat = self._flat.get(key)
        if flat is None or flat.size < size:
            flat = self._flat[key] = self._allocate(size, dtype)
        return flat[:size].reshape(rows, columns)

    def _allocate(self, size: int, dtype: np.dtype[Any]) -> Array:
        """Zeros that begin near the start of a page."""
        stagger, bytes_needed, page = len(self._flat) * _STAGGER, size * dtype.itemsize, _SMALL_PAGE
        if bytes_needed >= _LARGE:
            bytes_needed, page = max(bytes_needed, _LEAST_BYTES), _PAGE
        raw = np.zeros(bytes_needed + stagger + page, np.uint8)
        start = -raw.ctypes.data % page + stagger
        return raw[start : start + bytes_needed].view(dtype)
