"""Sums and products of kernels: gram matrices add or multiply, pullbacks follow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gigagp.arrays import Array
from gigagp.kernels.base import Kernel, Parameter, place


class _Pair(Kernel):
    """Two kernels on the same inputs; theta is the left's followed by the right's."""

    sign: str

    def __init__(self, left: Kernel, right: Kernel) -> None:
        self.left, self.right = left, right
        self.parameters = tuple(
            replace(p, name=f"{side}.{p.name}")
            for side, kernel in (("left", left), ("right", right))
            for p in kernel.parameters
        )

    def _split(self, theta: Array) -> tuple[Array, Array]:
        at = len(self.left.theta)
        return theta[:at], theta[at:]

    def bind(self, n_features: int) -> Kernel:
        return type(self)(self.left.bind(n_features), self.right.bind(n_features))

    def with_parameters(self, parameters: tuple[Parameter, ...]) -> Kernel:
        at = len(self.left.parameters)
        bare = [replace(p, name=p.name.split(".", 1)[1]) for p in parameters]
        return type(self)(self.left.with_parameters(tuple(bare[:at])), self.right.with_parameters(tuple(bare[at:])))

    def metric(self, theta: Array) -> Array | None:
        """Differences that matter to both kernels matter more: the squared weights add."""
        a, b = self._split(theta)
        left, right = self.left.metric(a), self.right.metric(b)
        if left is None or right is None:
            return None
        return np.asarray(np.sqrt(left**2 + right**2))

    def __eq__(self, other: object) -> bool:
        return (
            type(self) is type(other)
            and isinstance(other, _Pair)
            and (self.left, self.right) == (other.left, other.right)
        )

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.left, self.right))

    def __repr__(self) -> str:
        return f"({self.left!r} {self.sign} {self.right!r})"


class Sum(_Pair):
    """k = k_left + k_right."""

    sign = "+"

    def gram(self, theta: Array, X: Array, out: Array | None = None) -> Array:
        a, b = self._split(theta)
        return place(self.left.gram(a, X) + self.right.gram(b, X), out)

    def cross(self, theta: Array, X: Array, Z: Array, out: Array | None = None) -> Array:
        a, b = self._split(theta)
        return place(self.left.cross(a, X, Z) + self.right.cross(b, X, Z), out)

    def diagonal(self, theta: Array, X: Array) -> Array:
        a, b = self._split(theta)
        return self.left.diagonal(a, X) + self.right.diagonal(b, X)

    def pullback(self, theta: Array, X: Array, W: Array, K: Array) -> Array:
        a, b = self._split(theta)
        left, right = self.left.gram(a, X), self.right.gram(b, X)
        return np.concatenate([self.left.pullback(a, X, W, left), self.right.pullback(b, X, W, right)])


class Product(_Pair):
    """k = k_left * k_right."""

    sign = "*"

    def gram(self, theta: Array, X: Array, out: Array | None = None) -> Array:
        a, b = self._split(theta)
        return place(self.left.gram(a, X) * self.right.gram(b, X), out)

    def cross(self, theta: Array, X: Array, Z: Array, out: Array | None = None) -> Array:
        a, b = self._split(theta)
        return place(self.left.cross(a, X, Z) * self.right.cross(b, X, Z), out)

    def diagonal(self, theta: Array, X: Array) -> Array:
        a, b = self._split(theta)
        return self.left.diagonal(a, X) * self.right.diagonal(b, X)

    def pullback(self, theta: Array, X: Array, W: Array, K: Array) -> Array:
        a, b = self._split(theta)
        p = len(X)
        left, right = self.left.gram(a, X), self.right.gram(b, X)
        W = W[:p, :p]
        return np.concatenate([self.left.pullback(a, X, W * right, left), self.right.pullback(b, X, W * left, right)])
