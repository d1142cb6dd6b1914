"""How every compiled function of the package is built: without the GIL and cached on disk."""

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])

# A compiled function is always inlined into the compiled functions that call it. Otherwise the process that compiles
# may run another copy of it, optimised alone, than processes that load the caller from disk, and round differently.
_OPTIONS = {"nogil": True, "cache": True, "error_model": "numpy", "forceinline": True}
# Sums may be regrouped into vector lanes and multiply-adds fused; NaN and infinity keep their meaning.
_FASTMATH = {"reassoc", "contract", "nsz", "arcp"}


def compiled(function: F) -> F:
    """Compile `function` on first use: no GIL, cached on disk, sums vectorised."""
    return njit(fastmath=_FASTMATH, **_OPTIONS)(function)  # type: ignore[no-any-return]


def compiled_strict(function: F) -> F:
    """As `compiled`, for code whose rounding must not be regrouped."""
    return njit(fastmath={"contract"}, **_OPTIONS)(function)  # type: ignore[no-any-return]
