"""Arrays that carry their derivatives: forward differentiation of code that was written for arrays.

A `Dual` has a value of some shape and a tangent with one more axis: the derivatives of each element by a few variables,
here the columns of the element's own query. NumPy's functions apply the chain rule to it, so that the combination
rules, the average of models and the calibration are differentiated as they are written, and no formula has a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from gigagp.arrays import Array

_PLAIN = {np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal, np.isfinite, np.isnan}


class Dual(NDArrayOperatorsMixin):
    """value, of any shape, and tangent, of that shape and one axis more."""

    def __init__(self, value: Array, tangent: Array) -> None:
        self.value, self.tangent = value, tangent

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    @property
    def shape(self) -> Any:
        return self.value.shape

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, index: Any) -> Dual:
        return Dual(self.value[index], self.tangent[index])

    def __iter__(self) -> Iterator[Dual]:
        return (self[i] for i in range(len(self)))

    def astype(self, dtype: Any) -> Dual:
        return Dual(self.value.astype(dtype), self.tangent)

    def sum(self, axis: int) -> Dual:
        axis %= self.value.ndim
        return Dual(self.value.sum(axis=axis), self.tangent.sum(axis=axis))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        if method != "__call__" or named:
            return NotImplemented
        values = [value_of(each) for each in inputs]
        with np.errstate(invalid="ignore", divide="ignore"):
            result = ufunc(*values)
            if ufunc in _PLAIN:
                return result
            if ufunc not in _SLOPES:
                return NotImplemented
            total: Any = 0.0
            for each, slope in zip(inputs, _SLOPES[ufunc](*values, result), strict=True):
                if isinstance(each, Dual):
                    total = total + np.asarray(slope)[..., None] * each.tangent
        return Dual(result, np.broadcast_to(total, (*np.shape(result), np.shape(total)[-1])))

    def __array_function__(self, function: Any, types: Any, args: Any, named: Any) -> Any:
        if function not in _FUNCTIONS:
            return NotImplemented
        return _FUNCTIONS[function](*args, **named)


def value_of(x: Any) -> Any:
    """The value of a dual; anything else as it is."""
    return x.value if isinstance(x, Dual) else x


# The derivative of each function by each argument, given the arguments and the result.
_SLOPES: dict[Any, Callable[..., tuple[Any, ...]]] = {
    np.add: lambda x, y, r: (1.0, 1.0),
    np.subtract: lambda x, y, r: (1.0, -1.0),
    np.multiply: lambda x, y, r: (y, x),
    np.divide: lambda x, y, r: (1 / y, -r / y),
    np.negative: lambda x, r: (-1.0,),
    np.sqrt: lambda x, r: (0.5 / r,),
    np.exp: lambda x, r: (r,),
    np.log: lambda x, r: (1 / x,),
    np.power: lambda x, n, r: (n * np.power(x, n - 1), np.nan),  # exponents are never duals
    np.square: lambda x, r: (2 * x,),
    np.maximum: lambda x, y, r: (np.greater_equal(x, y) * 1.0, np.less(x, y) * 1.0),
    np.minimum: lambda x, y, r: (np.less_equal(x, y) * 1.0, np.greater(x, y) * 1.0),
}


def _tangent(x: Any, shape: tuple[int, ...], columns: int) -> Array:
    return np.broadcast_to(x.tangent if isinstance(x, Dual) else 0.0, (*shape, columns))


def _columns(parts: Any) -> int:
    return int(next(part.tangent.shape[-1] for part in parts if isinstance(part, Dual)))


def _where(condition: Any, x: Any, y: Any) -> Dual:
    value, columns = np.where(condition, value_of(x), value_of(y)), _columns((x, y))
    parts = (_tangent(part, value.shape, columns) for part in (x, y))
    return Dual(value, np.where(np.asarray(condition)[..., None], *parts))


def _clip(x: Any, low: Any, high: Any) -> Dual:
    inside = (x.value >= low) & (x.value <= high)
    return Dual(np.clip(x.value, low, high), np.where(inside[..., None], x.tangent, 0.0))


def _stack(parts: Any, axis: int = 0) -> Dual:
    columns = _columns(parts)
    value = np.stack([np.asarray(value_of(part)) for part in parts], axis=axis)
    tangents = [_tangent(part, np.shape(value_of(part)), columns) for part in parts]
    return Dual(value, np.stack(tangents, axis=axis % value.ndim))


def _broadcast_to(x: Dual, shape: tuple[int, ...]) -> Dual:
    return Dual(np.broadcast_to(x.value, shape), _tangent(x, shape, x.tangent.shape[-1]))


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.where: _where,
    np.clip: _clip,
    np.stack: _stack,
    np.column_stack: lambda parts: _stack(parts, axis=1),
    np.broadcast_to: _broadcast_to,
    np.ones_like: lambda x: np.ones_like(x.value),
    np.zeros_like: lambda x: np.zeros_like(x.value),
}
