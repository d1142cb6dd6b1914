"""Factors kept from one call of predict to the next, within a budget of memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from gigagp.expert import Factor

BUDGET = 512 << 20  # bytes


class FactorCache:
    """The factors used last, as many as the budget holds. May be used from several threads."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.budget = budget
        self._held: OrderedDict[int, Factor] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def holds(self, bytes_needed: int) -> bool:
        """Whether factors of that size in all are worth keeping: what does not fit would only push itself out."""
        return bytes_needed <= self.budget

    def get(self, leaf: int) -> Factor | None:
        with self._lock:
            found = self._held.get(leaf)
            if found is not None:
                self._held.move_to_end(leaf)
            return found

    def put(self, leaf: int, factor: Factor) -> None:
        """Keep a factor that lives in memory of its own; the ones used longest ago make room."""
        with self._lock:
            if leaf in self._held:
                return
            self._held[leaf] = factor
            self._bytes += size_of(factor)
            while self._bytes > self.budget and len(self._held) > 1:
                _, dropped = self._held.popitem(last=False)
                self._bytes -= size_of(dropped)

    def __len__(self) -> int:
        return len(self._held)

    def __reduce__(self) -> tuple[Any, ...]:
        return FactorCache, (self.budget,)  # a pickled model begins with an empty cache


def size_of(factor: Factor) -> int:
    return int(factor.U.nbytes + factor.D.nbytes + factor.X.nbytes + factor.alpha.nbytes)
