"""Interface of the kernels: a gram matrix and its pullback, as functions of theta, the logarithms of the parameters."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.errors import InvalidParameter
from gigagp.linalg.leaf import Profile

_BLOCK = 64  # rows whose gram matrix is formed to read its diagonal


@dataclass(frozen=True)
class Parameter:
    """A positive parameter: its values (one, or one per input dimension) and the bounds training keeps them in.

    Equal bounds fix it. `per_feature` parameters given as one value are repeated for each column on `bind`.
    """

    name: str
    values: tuple[float, ...]
    bounds: tuple[float, float] = (1e-5, 1e5)
    per_feature: bool = False

    def __post_init__(self) -> None:
        if not self.values or not all(np.isfinite(v) and v > 0 for v in self.values):
            raise InvalidParameter(f"{self.name} must be positive and finite; got {self.values}")
        low, high = self.bounds
        if not 0 < low <= high < np.inf:
            raise InvalidParameter(f"the bounds of {self.name} must be 0 < low <= high; got {self.bounds}")

    @property
    def names(self) -> tuple[str, ...]:
        if len(self.values) == 1 and not self.per_feature:
            return (self.name,)
        return tuple(f"{self.name}[{i}]" for i in range(len(self.values)))


def parameter(
    name: str, value: float | Sequence[float], bounds: tuple[float, float], per_feature: bool = False
) -> Parameter:
    """A Parameter from what a user writes: a number, or one number per column."""
    values = tuple(float(v) for v in np.atleast_1d(np.asarray(value, dtype=float)))
    if len(values) != 1 and not per_feature:
        raise InvalidParameter(f"{name} takes one value here; got {len(values)}")
    checked = Parameter(name, values, (float(bounds[0]), float(bounds[1])), per_feature)
    if not all(checked.bounds[0] <= v <= checked.bounds[1] for v in values):
        raise InvalidParameter(f"{name}={value} starts outside its bounds {checked.bounds}; widen them too")
    return checked


class Kernel(ABC):
    """A covariance function k(x, z).

    To write one, set `parameters` and give `gram` and `pullback`; `cross` and `diagonal` have slow defaults built
    on `gram`. `gigagp.testing.check_kernel` checks that all of them agree. Inputs and target are those of the model:
    standardised, unless standardize=False.
    """

    parameters: tuple[Parameter, ...] = ()

    @abstractmethod
    def gram(self, theta: Array, X: Array, out: Array | None = None) -> Array:
        """K = k(X, X), (p, p); at least the lower triangle. Written to out[:p, :p] when `out` is given."""

    @abstractmethod
    def pullback(self, theta: Array, X: Array, W: Array, K: Array) -> Array:
        """d/dtheta of sum_ij W_ij k(x_i, x_j) for symmetric W, of which the lower triangle is given.

        K is this kernel's gram matrix at theta and X (lower triangle), kept by the caller.
        """

    def cross(self, theta: Array, X: Array, Z: Array, out: Array | None = None) -> Array:
        """k(X, Z), (p, q). Written to out[:p, :q] when `out` is given."""
        p, q = len(X), len(Z)
        block = np.asarray(self.gram(theta, np.concatenate([Z, X])))[q : p + q, :q]
        return place(block, out)

    def diagonal(self, theta: Array, X: Array) -> Array:
        """k(x_i, x_i), (p,)."""
        blocks = [np.diagonal(self.gram(theta, X[i : i + _BLOCK])) for i in range(0, len(X), _BLOCK)]
        return np.concatenate(blocks) if blocks else np.empty(0, X.dtype)

    def metric(self, theta: Array) -> Array | None:
        """Weights m such that |m * (x - z)| is the distance on which the kernel depends, or None.

        None means that the kernel is not stationary, and partition="local" has no meaning for it.
        """
        return None

    def profile(self, theta: Array, n_features: int) -> Profile | None:
        """What the compiled leaf needs of a kernel of the scaled distance; None for all others."""
        return None

    def bind(self, n_features: int) -> Kernel:
        """The kernel with one value per column wherever a parameter is per feature."""
        bound = []
        for p in self.parameters:
            if p.per_feature and len(p.values) == 1:
                p = replace(p, values=p.values * n_features)  # noqa: PLW2901
            if p.per_feature and len(p.values) != n_features:
                raise InvalidParameter(
                    f"{type(self).__name__} has {len(p.values)} values of {p.name} for {n_features} columns; "
                    "give one value, or one per column"
                )
            bound.append(p)
        return self.with_parameters(tuple(bound))

    @property
    def theta(self) -> Array:
        """Logarithms of all parameter values, in order."""
        return np.log([v for p in self.parameters for v in p.values]) if self.parameters else np.empty(0)

    def with_theta(self, theta: Array) -> Kernel:
        """The same kernel with other parameter values."""
        values = [float(v) for v in np.exp(np.asarray(theta, dtype=float))]
        expected = sum(len(p.values) for p in self.parameters)
        if len(values) != expected:
            raise InvalidParameter(f"theta of {type(self).__name__} has {expected} entries; got {len(values)}")
        changed, at = [], 0
        for p in self.parameters:
            changed.append(replace(p, values=tuple(values[at : at + len(p.values)])))
            at += len(p.values)
        return self.with_parameters(tuple(changed))

    def with_parameters(self, parameters: tuple[Parameter, ...]) -> Kernel:
        """The same kernel with other parameters: as many, of the same names, with values and bounds."""
        other = copy.copy(self)
        other.parameters = parameters
        return other

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for p in self.parameters for name in p.names)

    @property
    def bounds(self) -> Array:
        """Logarithms of the bounds, (len(theta), 2)."""
        rows = [p.bounds for p in self.parameters for _ in p.values]
        return np.log(rows) if rows else np.empty((0, 2))

    def __add__(self, other: Kernel) -> Kernel:
        from gigagp.kernels.compose import Sum

        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel) -> Kernel:
        from gigagp.kernels.compose import Product

        return Product(self, other) if isinstance(other, Kernel) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Kernel) and self.parameters == other.parameters

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.parameters))

    def __repr__(self) -> str:
        parts = [
            f"{p.name}={p.values[0]:.3g}" if len(set(p.values)) == 1 else
            f"{p.name}=[{', '.join(f'{v:.3g}' for v in p.values)}]"
            for p in self.parameters
        ]  # fmt: skip
        return f"{type(self).__name__}({', '.join(parts)})"


def place(block: Array, out: Array | None) -> Array:
    """`block`, written into the corner of `out` when there is one."""
    if out is None:
        return block
    out[: block.shape[0], : block.shape[1]] = block
    return out
