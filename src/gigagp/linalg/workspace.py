"""Scratch memory of one worker, grown when needed and used again for the next leaf."""

from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg.team import Team

# NumPy asks the kernel for huge pages from 4 MB on. Blocks of a leaf are read down their columns, one page per row,
# and with small pages the processor spends much of its time on page lookups.
_LEAST_BYTES = 1 << 22  # of a buffer
_PAGE = 1 << 21  # bytes of a huge page
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
        """Zeros that begin near the start of a huge page."""
        stagger = len(self._flat) * _STAGGER
        bytes_needed = max(size * dtype.itemsize, _LEAST_BYTES) + stagger
        raw = np.zeros(bytes_needed + _PAGE, np.uint8)
        start = -raw.ctypes.data % _PAGE + stagger
        return raw[start : start + max(size * dtype.itemsize, _LEAST_BYTES)].view(dtype)
