"""A cache of Cholesky factors between calls of predict, within a memory budget."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from gigagp.expert import Factor

DEFAULT_BUDGET = 512 << 20  # bytes


class FactorCache:
    """Factors of experts, as many as the budget holds. May be used from several threads.

    Factors that the current call needs are not evicted for others that it needs too: if not all fit, some stay and the
    rest are formed again in each call. Factors of earlier calls make room first.
    """

    def __init__(self, budget: int = DEFAULT_BUDGET) -> None:
        self.budget = budget
        self._factors: OrderedDict[int, Factor] = OrderedDict()  # the most recently used last
        self._used_in: dict[int, int] = {}  # the call that used each factor last
        self._call, self._bytes = 0, 0
        self._lock = threading.Lock()

    def within(self, budget: int) -> FactorCache:
        """The same factors in a cache of another budget, if they fit."""
        other = FactorCache(budget)
        with self._lock:
            for leaf, factor in self._factors.items():
                other.put(leaf, factor)
        return other

    def begin(self) -> None:
        """A new call of predict begins: what only earlier calls used may be evicted."""
        with self._lock:
            self._call += 1

    def get(self, leaf: int) -> Factor | None:
        with self._lock:
            factor = self._factors.get(leaf)
            if factor is not None:
                self._factors.move_to_end(leaf)
                self._used_in[leaf] = self._call
            return factor

    def has_room(self, size: int) -> bool:
        """Whether a factor of this size, in bytes, could be cached."""
        with self._lock:
            return self._evictable(size)

    def put(self, leaf: int, factor: Factor) -> None:
        """Keep a factor that lives in memory of its own, if there is room or if older factors can make room."""
        size = factor.nbytes
        with self._lock:
            if leaf in self._factors or not self._evictable(size):
                return
            while self._bytes + size > self.budget:
                oldest, dropped = self._factors.popitem(last=False)
                del self._used_in[oldest]
                self._bytes -= dropped.nbytes
            self._factors[leaf], self._used_in[leaf] = factor, self._call
            self._bytes += size

    def _evictable(self, size: int) -> bool:
        """Whether `size` bytes are free or can be freed by evicting factors that this call has not used."""
        free = self.budget - self._bytes
        for leaf, factor in self._factors.items():
            if free >= size or self._used_in[leaf] == self._call:
                break
            free += factor.nbytes
        return free >= size

    def __len__(self) -> int:
        return len(self._factors)

    def __reduce__(self) -> tuple[Any, ...]:
        return FactorCache, (self.budget,)  # a pickled model begins with an empty cache
