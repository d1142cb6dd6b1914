"""Scratch memory of one worker, grown when needed and used again for the next leaf."""

from typing import Any

import numpy as np

from gigagp.arrays import Array


class Workspace:
    """Named buffers. What `take` returns is valid until the same name is taken again."""

    def __init__(self) -> None:
        self._flat: dict[tuple[str, str], Array] = {}

    def take(self, name: str, rows: int, columns: int, dtype: np.dtype[Any]) -> Array:
        """A (rows, columns) matrix with arbitrary (but finite) content."""
        key, size = (name, dtype.str), rows * columns
        flat = self._flat.get(key)
        if flat is None or flat.size < size:
            flat = self._flat[key] = np.zeros(size, dtype)
        return flat[:size].reshape(rows, columns)
