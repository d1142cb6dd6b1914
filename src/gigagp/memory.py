"""The memory budget of a fit, and the memory of the machine and of this process."""

from __future__ import annotations

import os
import re
import sys
from numbers import Real
from pathlib import Path

from gigagp.errors import InvalidParameter

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][0-9]+)?)\s*([KMGT]?I?)B?\s*", re.IGNORECASE)
_DEFAULT_SHARE = 0.5  # of the memory of the machine
LEAST = 64 << 20  # bytes, the smallest budget


def budget(memory: str | int | None) -> int:
    """The memory for data in bytes, from a size such as "2GB", a number of bytes, or None for half of the machine."""
    if memory is None:
        return int(_DEFAULT_SHARE * _available())
    size = None
    if isinstance(memory, str):
        match = _SIZE.fullmatch(memory)
        if match and match[2].upper() in _UNITS:
            size = float(match[1]) * _UNITS[match[2].upper()]
    elif isinstance(memory, Real) and not isinstance(memory, bool):
        size = float(memory)
    if size is None or not LEAST <= size < 2**62:
        raise InvalidParameter(f'memory must be a size such as "2GB" of at least 64MiB, or None; got {memory!r}')
    return int(size)


def size_text(size: int) -> str:
    """A number of bytes as text: 900 bytes, 24.5 KiB, 64 MiB."""
    if size < 1024:
        return f"{size} bytes"
    power, unit = next(
        (power, unit)
        for power, unit in ((10, "KiB"), (20, "MiB"), (30, "GiB"), (40, "TiB"))
        if size < 999.95 * 2**power or unit == "TiB"  # One decimal would print more as 1000.0.
    )
    return f"{size / 2**power:.1f} {unit}".replace(".0 ", " ")


def _available() -> int:
    """Memory of the machine, or the limit of the container if that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            machine = min(machine, int(Path(limit).read_text()))
        except (OSError, ValueError):
            continue
    return machine


def peak_memory() -> float:
    """Largest resident memory of this process so far, in GB."""
    import resource  # noqa: PLC0415 not on every platform

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
