"""A kernel on some of the columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gigagp.arrays import Array
from gigagp.errors import InvalidParameter
from gigagp.kernels.base import Kernel
from gigagp.kernels.inputs import InputColumns
from gigagp.kernels.parameters import LENGTH, Parameter


class OnColumns(Kernel):
    """k(x, z) = kernel(s * x_c, s * z_c), where x_c are the entries of x in the columns c, and s are fixed scales.

    `Kernel.bound` makes it of a kernel that was written with columns=; users have no need to.

    kernel : bound to the number of the columns c
    places : the numbers of the columns c
    n_features : the number of all columns
    scales : one per column of c, where one length-scale serves several columns of different units; None for ones
    circles : of a periodic kernel: for each column of c the numbers of the two columns that are its circle, which its
        metric uses; () where there are none
    """

    def __init__(
        self, kernel: Kernel, places: Sequence[int], n_features: int, scales: Sequence[float] | None = None,
        circles: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.circles = tuple(int(place) for place in circles)
        self.kernel, self.places, self.n_features = kernel, tuple(int(place) for place in places), int(n_features)
        self.scales = None if scales is None else tuple(float(scale) for scale in scales)
        inside = all(0 <= place < self.n_features for place in self.places)
        if not self.places or len(set(self.places)) < len(self.places) or not inside:
            raise InvalidParameter(f"places must be different numbers of {n_features} columns; got {places!r}")
        if self.circles and not (
            len(self.circles) == 2 * len(self.places) and all(0 <= place < self.n_features for place in self.circles)
        ):
            raise InvalidParameter(f"circles must be two of {n_features} columns per column; got {circles!r}")
        if self.scales is not None and not (len(self.scales) == len(self.places) and min(self.scales) > 0):
            raise InvalidParameter(f"scales must be {len(self.places)} positive numbers; got {scales!r}")
        self.parameters = tuple(
            replace(p, columns=self.places) if p.per_feature or p.quantity == LENGTH else p for p in kernel.parameters
        )

    def _seen(self, X: Array) -> Array:
        """The chosen columns, in rows."""
        chosen = np.ascontiguousarray(X[:, self.places])
        return chosen if self.scales is None else chosen * np.array(self.scales, X.dtype)

    def gram(self, theta: Array, X: Array, out: Array | None = None) -> Array:
        return self.kernel.gram(theta, self._seen(X), out)

    def cross(self, theta: Array, X: Array, Z: Array, out: Array | None = None) -> Array:
        return self.kernel.cross(theta, self._seen(X), self._seen(Z), out)

    def diagonal(self, theta: Array, X: Array) -> Array:
        return self.kernel.diagonal(theta, self._seen(X))

    def pullback(self, theta: Array, X: Array, W: Array, K: Array) -> Array:
        return self.kernel.pullback(theta, self._seen(X), W, K)

    def query_gradient(self, theta: Array, X: Array, Z: Array, G: Array) -> Array:
        return self._spread(self.kernel.query_gradient(theta, self._seen(X), self._seen(Z), G))

    def diagonal_gradient(self, theta: Array, Z: Array) -> Array:
        return self._spread(self.kernel.diagonal_gradient(theta, self._seen(Z)))

    def _spread(self, gradient: Array) -> Array:
        """A gradient by the chosen columns as one by all columns."""
        out = np.zeros((len(gradient), self.n_features))
        out[:, list(self.places)] = gradient if self.scales is None else gradient * np.array(self.scales)
        return out

    def metric(self, theta: Array) -> Array | None:
        """That of the kernel in its columns, or on their circles, and zero in all others."""
        if self.circles:
            on_circles = np.zeros(self.n_features)
            on_circles[list(self.circles)] = np.repeat(np.exp(-theta[1 : 1 + len(self.places)]), 2)
            return on_circles
        own = self.kernel.metric(theta)
        if own is None:
            return None
        weights = np.zeros(self.n_features)
        weights[list(self.places)] = own if self.scales is None else own * np.array(self.scales)
        return weights

    @property
    def categories(self) -> tuple[int, ...]:
        return tuple(self.places[i] for i in self.kernel.categories)

    def with_categories(self, columns: Sequence[int], names: Sequence[str] = ()) -> Kernel:
        own = [i for i, place in enumerate(self.places) if place in columns]
        inner = self.kernel.with_categories(own, names)
        return OnColumns(inner, self.places, self.n_features, self.scales, self.circles)

    @property
    def stationary(self) -> bool:
        return bool(self.circles) or self.kernel.stationary

    @property
    def local(self) -> bool:
        return self.kernel.local

    def sees(self, n_features: int) -> Array:
        seen = np.full(n_features, False)
        seen[list(self.places)] = self.kernel.sees(len(self.places))
        return seen

    def fits(self, n_features: int) -> bool:
        return n_features == self.n_features and self.kernel.fits(len(self.places))

    def bound(self, inputs: InputColumns, is_factor: bool = False) -> Kernel:
        if inputs.count != self.n_features:
            raise InvalidParameter(f"{self!r} is bound to {self.n_features} columns; the data have {inputs.count}")
        return self

    def with_parameters(self, parameters: tuple[Parameter, ...]) -> Kernel:
        own = zip(parameters, self.kernel.parameters, strict=True)
        inner = self.kernel.with_parameters(tuple(replace(p, columns=before.columns) for p, before in own))
        return OnColumns(inner, self.places, self.n_features, self.scales, self.circles)

    @property
    def _content(self) -> tuple[object, ...]:
        return self.kernel, self.places, self.n_features, self.scales, self.circles

    def __repr__(self) -> str:
        places = str(self.places[0]) if len(self.places) == 1 else str(list(self.places))
        return f"{repr(self.kernel)[:-1]}, columns={places})"
