"""Pseudo-random numbers that belong to rows: they depend on the seed and the rows' numbers alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg.compiled import compiled_strict


@dataclass(frozen=True)
class RowKeys:
    """`row_keys` of one seed, as a value that can be sent to another process."""

    seed: int

    def __call__(self, first: int, count: int) -> Array:
        return row_keys(first, count, self.seed)


def row_keys(first: int, count: int, seed: int) -> Array:
    """A pseudo-random number for each of the rows first, first + 1, ..: splitmix64 (Steele, Lea & Flood 2014)."""
    keys = np.empty(count, np.uint64)
    _fill(np.uint64(first), np.uint64(seed), keys)
    return keys


@compiled_strict
def key_of(number: Any) -> Any:
    """The key of a row: `number` is that of the row plus the seed."""
    z = (number + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled_strict
def _fill(first: Any, seed: Any, keys: Array) -> None:
    for i in range(len(keys)):
        keys[i] = key_of(first + np.uint64(i) + seed)
