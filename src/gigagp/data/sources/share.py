"""A random share of a source's rows, and the others: held-out rows of files too large to shuffle in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_keys import row_keys
from gigagp.errors import InvalidParameter


@dataclass(frozen=True)
class Share:
    """About `fraction` of the rows: those whose pseudo-random key is small, or (`rest`) all others.

    Which rows those are depends on the seed and on their places in the data alone, so two passes agree, and so do
    two formats of the same data.
    """

    fraction: float
    seed: int = 0
    rest: bool = False

    def __post_init__(self) -> None:
        whole = isinstance(self.seed, int | np.integer) and 0 <= self.seed < 2**63
        if not isinstance(self.fraction, Real) or not 0 < self.fraction < 1 or not whole:
            raise InvalidParameter(
                f"a share must be a fraction between 0 and 1, both excluded, and a seed of at least 0; got {self!r}"
            )

    @property
    def others(self) -> Share:
        return replace(self, rest=not self.rest)

    def mask(self, first: int, count: int) -> Array:
        """Whether each of the rows first, first + 1, .. belongs to it."""
        seed = int(np.random.SeedSequence(self.seed).generate_state(1, np.uint64)[0])  # not the keys of the sample
        inside = row_keys(first, count, seed) < np.uint64(int(self.fraction * 2**64))
        return np.asarray(~inside if self.rest else inside)
