"""Fingerprints: whether two fits or two predictions are of the same settings, data and model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from gigagp.arrays import Array

_NUMBERS_AT_ONCE = 1 << 20  # numbers that are hashed at a time


def described(value: object) -> str:
    """A setting as text, with all its attributes in full precision, which its repr may round or omit."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, tuple | list):
        return f"({', '.join(map(described, value))})"
    if hasattr(value, "__dict__"):
        parts = ", ".join(f"{name}={described(part)}" for name, part in sorted(vars(value).items()))
        return f"{type(value).__name__}({parts})"
    return repr(value)


def fingerprint(parts: Iterable[Array | str]) -> str:
    """A hash of arrays and texts, in this order."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, str):
            digest.update(f"{len(part)}:{part}".encode())
            continue
        digest.update(f"{part.dtype.str}{part.shape}".encode())
        step = max(1, _NUMBERS_AT_ONCE // max(1, int(np.prod(part.shape[1:]))))
        for start in range(0, len(part), step):
            digest.update(np.ascontiguousarray(part[start : start + step]).tobytes())
    return digest.hexdigest()
