"""Sums and products of kernels: gram matrices add or multiply, pullbacks follow."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gigagp.arrays import Array
from gigagp.kernels.base import Kernel, Parameter, place
from gigagp.kernels.inputs import InputColumns
from gigagp.kernels.on_columns import OnColumns


class _Pair(Kernel):
    """Two kernels on the same inputs; theta is the left's followed by the right's."""

    sign: str

    def __init__(self, left: Kernel, right: Kernel) -> None:
        self.left, self.right = left, right
        self.parameters = _named_apart(parts(self))

    def _split(self, theta: Array) -> tuple[Array, Array]:
        at = len(self.left.theta)
        return theta[:at], theta[at:]

    def fits(self, n_features: int) -> bool:
        return self.left.fits(n_features) and self.right.fits(n_features)

    def bound(self, inputs: InputColumns, is_factor: bool = False) -> Kernel:
        return type(self)(self.left.bound(inputs, is_factor), self.right.bound(inputs, is_factor or self.sign == "*"))

    def with_parameters(self, parameters: tuple[Parameter, ...]) -> Kernel:
        own = (*self.left.parameters, *self.right.parameters)
        bare = [replace(p, name=before.name) for p, before in zip(parameters, own, strict=True)]
        at = len(self.left.parameters)
        return type(self)(self.left.with_parameters(tuple(bare[:at])), self.right.with_parameters(tuple(bare[at:])))

    def metric(self, theta: Array) -> Array | None:
        """Differences that matter to both kernels matter more: the squared weights add.

        If one kernel has no metric, the other's counts. Columns that only the former sees have the weight 1, as all
        columns have if neither kernel has a metric: distances in them are in standard deviations.
        """
        a, b = self._split(theta)
        left, right = self.left.metric(a), self.right.metric(b)
        if left is not None and right is not None:
            return np.asarray(np.sqrt(left**2 + right**2))
        known, unknown = (left, self.right) if right is None else (right, self.left)
        if known is None or not known.any():
            return None
        if len(known) == 1 and not isinstance(unknown, OnColumns):
            return known  # one length-scale for all columns
        n_features = max(len(known), unknown.n_features if isinstance(unknown, OnColumns) else 0)
        return np.where(known > 0, known, np.where(unknown.sees(n_features), 1.0, 0.0))

    @property
    def categories(self) -> tuple[int, ...]:
        return tuple(sorted({*self.left.categories, *self.right.categories}))

    def with_categories(self, columns: Sequence[int], names: Sequence[str] = ()) -> Kernel:
        return type(self)(self.left.with_categories(columns, names), self.right.with_categories(columns, names))

    @property
    def stationary(self) -> bool:
        return self.left.stationary and self.right.stationary

    def sees(self, n_features: int) -> Array:
        return np.asarray(self.left.sees(n_features) | self.right.sees(n_features))

    @property
    def _content(self) -> tuple[object, ...]:
        return self.left, self.right

    def __repr__(self) -> str:
        return f"({self.left!r} {self.sign} {self.right!r})"


class Sum(_Pair):
    """k = k_left + k_right."""

    sign = "+"

    @property
    def local(self) -> bool:
        return all(kernel.local or _is_constant(kernel) for kernel in (self.left, self.right))

    def gram(self, theta: Array, X: Array, out: Array | None = None) -> Array:
        a, b = self._split(theta)
        return place(self.left.gram(a, X) + self.right.gram(b, X), out)

    def cross(self, theta: Array, X: Array, Z: Array, out: Array | None = None) -> Array:
        a, b = self._split(theta)
        return place(self.left.cross(a, X, Z) + self.right.cross(b, X, Z), out)

    def diagonal(self, theta: Array, X: Array) -> Array:
        a, b = self._split(theta)
        return self.left.diagonal(a, X) + self.right.diagonal(b, X)

    def query_gradient(self, theta: Array, X: Array, Z: Array, G: Array) -> Array:
        a, b = self._split(theta)
        return self.left.query_gradient(a, X, Z, G) + self.right.query_gradient(b, X, Z, G)

    def diagonal_gradient(self, theta: Array, Z: Array) -> Array:
        a, b = self._split(theta)
        return self.left.diagonal_gradient(a, Z) + self.right.diagonal_gradient(b, Z)

    def pullback(self, theta: Array, X: Array, W: Array, K: Array) -> Array:
        a, b = self._split(theta)
        left, right = self.left.gram(a, X), self.right.gram(b, X)
        return np.concatenate([self.left.pullback(a, X, W, left), self.right.pullback(b, X, W, right)])


class Product(_Pair):
    """k = k_left * k_right."""

    sign = "*"

    @property
    def local(self) -> bool:
        return self.left.local or self.right.local

    def gram(self, theta: Array, X: Array, out: Array | None = None) -> Array:
        a, b = self._split(theta)
        return place(self.left.gram(a, X) * self.right.gram(b, X), out)

    def cross(self, theta: Array, X: Array, Z: Array, out: Array | None = None) -> Array:
        a, b = self._split(theta)
        return place(self.left.cross(a, X, Z) * self.right.cross(b, X, Z), out)

    def diagonal(self, theta: Array, X: Array) -> Array:
        a, b = self._split(theta)
        return self.left.diagonal(a, X) * self.right.diagonal(b, X)

    def query_gradient(self, theta: Array, X: Array, Z: Array, G: Array) -> Array:
        (a, b), p, q = self._split(theta), len(X), len(Z)
        left, right = self.left.cross(a, X, Z)[:p, :q], self.right.cross(b, X, Z)[:p, :q]
        return self.left.query_gradient(a, X, Z, G * right) + self.right.query_gradient(b, X, Z, G * left)

    def diagonal_gradient(self, theta: Array, Z: Array) -> Array:
        a, b = self._split(theta)
        left, right = self.left.diagonal(a, Z)[:, None], self.right.diagonal(b, Z)[:, None]
        return np.asarray(self.left.diagonal_gradient(a, Z) * right + self.right.diagonal_gradient(b, Z) * left)

    def pullback(self, theta: Array, X: Array, W: Array, K: Array) -> Array:
        a, b = self._split(theta)
        p = len(X)
        left, right = self.left.gram(a, X), self.right.gram(b, X)
        W = W[:p, :p]
        return np.concatenate([self.left.pullback(a, X, W * right, left), self.right.pullback(b, X, W * left, right)])


def parts(kernel: Kernel) -> list[Kernel]:
    """The kernels that sums and products are made of, from left to right."""
    return [*parts(kernel.left), *parts(kernel.right)] if isinstance(kernel, _Pair) else [kernel]


def _is_constant(kernel: Kernel) -> bool:
    metric = kernel.metric(kernel.theta)
    return metric is not None and not metric.any()


def _named_apart(parts: list[Kernel]) -> tuple[Parameter, ...]:
    """The parameters of all parts. A name that several of them use is preceded by the name of its kernel.

    Kernels of the same class are numbered.
    """
    uses = Counter(p.name for part in parts for p in part.parameters)
    labels = [_label(part) for part in parts]
    total, so_far, apart = Counter(labels), Counter[str](), []
    for part, label in zip(parts, labels, strict=True):
        so_far[label] += 1
        prefix = f"{label}_{so_far[label]}." if total[label] > 1 else f"{label}."
        for p in part.parameters:
            apart.append(replace(p, name=prefix + p.name) if uses[p.name] > 1 else p)
    return tuple(apart)


def _label(kernel: Kernel) -> str:
    """What a kernel is called in names of parameters: squared_exponential for SquaredExponential."""
    kind = type(kernel.kernel if isinstance(kernel, OnColumns) else kernel)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__).lower()
