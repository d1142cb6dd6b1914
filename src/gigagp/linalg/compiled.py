"""How every compiled function of the package is built: without the GIL and cached on disk."""

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

from gigagp.arrays import Array

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
    """As `compiled`, but every operation is rounded as it is written; fused multiply-adds are written as such.

    For element-wise passes over a batch. LLVM compiles such a loop twice, once for whole vectors and once for the
    remainder, and with the freedom to regroup or fuse it rounds the two differently, so that a result would depend on
    its place in the batch (Matern kernels on AVX2).
    """
    return njit(fastmath=False, **_OPTIONS)(function)  # type: ignore[no-any-return]


def compiled_apart(function: F) -> F:
    """As `compiled_strict`, for large functions that are not copied into those that call them.

    Only for functions whose every rounding is written out, in vector code or by `compiled_strict`: it does not matter
    then which copy of them a process runs. Copied into all callers they would take most of the time to compile these.
    """
    # All options are given because Numba otherwise takes them from the function that happens to call this one first.
    return njit(fastmath=False, _nrt=True, **_OPTIONS | {"forceinline": False})(function)  # type: ignore[no-any-return]


def compiled_apart_in_place(function: F) -> F:
    """As `compiled_apart`, for functions that allocate nothing: arrays are not reference-counted in them."""
    return njit(fastmath=False, _nrt=False, **_OPTIONS | {"forceinline": False})(function)  # type: ignore[no-any-return]


def compiled_in_place(function: F) -> F:
    """As `compiled_strict`, for functions that allocate nothing: arrays are not reference-counted in them.

    Numba counts references by atomic additions to a counter that all views of an array share, even where it is only
    read; when several threads search the same rows, the counter's cache line travels between them at every call.
    """
    return njit(fastmath=False, _nrt=False, **_OPTIONS)(function)  # type: ignore[no-any-return]


def compiled_sums_in_place(function: F) -> F:
    """As `compiled`, for functions that allocate nothing: arrays are not reference-counted in them.

    An atomic addition waits until everything before it is stored; without them the passes
    over a leaf of 128 points took a third less time.
    """
    return njit(fastmath=_FASTMATH, _nrt=False, **_OPTIONS)(function)  # type: ignore[no-any-return]


def compiled_brief(function: F) -> F:
    """As `compiled_strict`, for functions of a microsecond that Python calls: they keep the GIL.

    Giving it up and asking for it again wakes the other workers, which takes longer than the function.
    """
    return njit(fastmath=False, **_OPTIONS | {"nogil": False})(function)  # type: ignore[no-any-return]


def read_only(array: Array) -> Array:
    """A view of the array that cannot be written to.

    To Numba arrays that may be written to are of another type, and a large function takes half a minute to compile
    for each type: inputs of such functions pass through here.
    """
    view = array.view()
    view.flags.writeable = False
    return view
