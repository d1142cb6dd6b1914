"""Interface of the kernels: a gram matrix and its pullback, as functions of theta, the logarithms of the parameters."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gigagp.arrays import Array
from gigagp.errors import InvalidParameter, choose
from gigagp.kernels.inputs import Column, InputColumns
from gigagp.kernels.parameters import LENGTH, Parameter, parameter
from gigagp.linalg.leaf import Profile

__all__ = ["Kernel", "Parameter", "parameter", "place"]

_BLOCK = 64  # rows whose gram matrix is formed to read its diagonal


class Kernel(ABC):
    """A covariance function k(x, z).

    To write one, set `parameters` and give `gram` and `pullback`; `cross` and `diagonal` have slow defaults built
    on `gram`. `gigagp.testing.check_kernel` checks that all of them agree. Inputs and target are those of the model:
    standardised, unless standardize=False.

    columns : the columns that the kernel sees, by name or number; None for all that it can read: a kernel of numbers
        (`takes_categories` is False) cannot read categories
    units : of the values and bounds that the user gives: "data" or "standardised"; None for "data" where columns are
        given, and "standardised" elsewhere
    """

    parameters: tuple[Parameter, ...] = ()
    columns: Column | tuple[Column, ...] | None = None
    units: str | None = None
    takes_categories = False  # whether `gram` and `cross` read columns of `categories` as categories
    _categories: tuple[int, ...] = ()

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

    def query_gradient(self, theta: Array, X: Array, Z: Array, G: Array) -> Array:
        """d / d z_j of sum_i G_ij k(x_i, z_j) for each row z_j of Z, (q, columns); G is (p, q).

        Gradients of predictions need it, and nothing else does.
        """
        raise InvalidParameter(
            f"{type(self).__name__} has no method query_gradient, which gradients of predictions need; write it, or "
            "use a kernel that has one"
        )

    def diagonal_gradient(self, theta: Array, Z: Array) -> Array:
        """d k(z, z) / d z for each row of Z, (q, columns); zero for stationary kernels."""
        if self.stationary:
            return np.zeros(Z.shape)
        raise InvalidParameter(
            f"{type(self).__name__} has no method diagonal_gradient, which gradients of predictions need; write it"
        )

    def metric(self, theta: Array) -> Array | None:
        """Weights m such that |m * (x - z)| is the distance on which the kernel depends, or None.

        None means that it depends on no such distance, and partition="local" has no meaning for it.
        """
        return None

    def profile(self, theta: Array, n_features: int) -> Profile | None:
        """What the compiled leaf needs of a kernel of the scaled distance; None for all others."""
        return None

    @property
    def stationary(self) -> bool:
        """Whether k(x, x) is the same for all x, and k(x, z) depends on a distance that `metric` describes."""
        return self.metric(self.theta) is not None

    @property
    def local(self) -> bool:
        """Whether rows that are far from a query in the kernel's metric tell nothing about it."""
        metric = self.metric(self.theta)
        return metric is not None and bool(metric.any())

    def lengthscales(self, n_features: int) -> list[tuple[int, list[int]]]:
        """Each length-scale: its place in theta, and the columns along which it is a distance."""
        scales, at = [], 0
        for p in self.parameters:
            if p.name.endswith("lengthscale") and p.quantity in (LENGTH, None):
                each = p.columns_of_values if p.per_feature else [list(p.columns) or list(range(n_features))]
                scales += [(at + i, own) for i, own in enumerate(each)]
            at += len(p.values)
        return scales

    def with_lengthscales(self, theta: Array, scales: Array) -> Array:
        """Theta with these length-scales, one per column; their geometric mean where one serves several columns."""
        theta = theta.copy()
        for place, columns in self.lengthscales(len(scales)):
            theta[place] = np.log(scales[columns]).mean()
        return theta

    def sees(self, n_features: int) -> Array:
        """Which columns the kernel depends on."""
        return np.full(n_features, True)

    def fits(self, n_features: int) -> bool:
        """Whether the kernel is bound to inputs with this number of columns."""
        return all(len(p.owners) == n_features for p in self.parameters if p.per_feature)

    def bind(self, n_features: int) -> Kernel:
        """The kernel with one value per column wherever a parameter is per feature."""
        return self.bound(InputColumns.plain(n_features))

    def bound(self, inputs: InputColumns, is_factor: bool = False) -> Kernel:
        """The kernel for inputs with these columns: as `bind`, on the chosen columns, in standardised units.

        is_factor : whether the kernel is a further factor of a product, whose variance is a pure number
        """
        from gigagp.kernels.on_columns import OnColumns

        places = inputs.chosen(self.columns)
        if not self.takes_categories:
            places = tuple(place for place in places if not self._is_left_out(place, inputs))
            if not places:
                raise InvalidParameter(f"{type(self).__name__} is a kernel of numbers; all columns are categories")
        groups = inputs.groups(places)
        spread = [p.spread(groups, type(self).__name__) for p in self.parameters]
        bound = self.with_parameters(tuple(p.standardised(inputs, places, is_factor) for p in spread))
        scales = None  # a length-scale for several columns is measured in one unit, if the user's values are
        if self.in_data_units and any(p.quantity == LENGTH and not p.per_feature for p in self.parameters):
            scales = tuple(inputs.relative_widths(places).tolist())
        own = tuple(i for i, place in enumerate(places) if place in inputs.categories)
        if own:
            bound = bound.with_categories(own, [inputs.name_of(places[i]) for i in own])
        for name in {"columns", "units"} & set(vars(bound)):
            setattr(bound, name, None)
        if places == tuple(range(inputs.count)) and (scales is None or len(set(scales)) == 1):
            return bound
        return OnColumns(bound, places, inputs.count, scales)

    def _is_left_out(self, place: int, inputs: InputColumns) -> bool:
        """Whether a kernel of numbers leaves a category out: all, or the one that says where a number is missing."""
        return place in inputs.categories and (self.columns is None or inputs.marks_gaps(place))

    @property
    def categories(self) -> tuple[int, ...]:
        """Numbers of the columns that are categories, whose levels are coded as `gigagp.linalg.categories` does."""
        return self._categories

    def with_categories(self, columns: Sequence[int], names: Sequence[str] = ()) -> Kernel:
        """The same kernel for inputs of which these columns are categories; `names` of the columns are for messages."""
        if not self.takes_categories and columns:
            which = ", ".join(map(repr, names)) or ", ".join(map(str, columns))
            raise InvalidParameter(
                f"{type(self).__name__} is a kernel of numbers and cannot read the categories in column {which}; name "
                "its columns with columns=, and use a stationary kernel such as Matern32 for categories"
            )
        other = copy.copy(self)
        if columns:
            other._categories = tuple(int(column) for column in columns)
        else:
            other.__dict__.pop("_categories", None)
        return other

    @property
    def in_data_units(self) -> bool:
        """Whether the values that the user gives are in the units of the data."""
        return self.columns is not None if self.units is None else self.units == "data"

    def _select(self, columns: Column | Sequence[Column] | None, units: str | None) -> bool:
        """Keep the choice of columns and units; returns whether values and bounds are in the units of the data."""
        one = columns is None or isinstance(columns, str | int | np.integer)
        self.columns = columns if one else tuple(columns)  # type: ignore[assignment, arg-type]
        if self.columns == ():
            raise InvalidParameter(f"columns of {type(self).__name__} must not be empty; None means all columns")
        self.units = choose("units", units, {"data": "data", "standardised": "standardised"}) if units else None
        return self.in_data_units

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
        rows = [bounds for p in self.parameters for bounds in p.each_bounds]
        return np.log(rows) if rows else np.empty((0, 2))

    def __add__(self, other: Kernel) -> Kernel:
        from gigagp.kernels.compose import Sum

        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel) -> Kernel:
        from gigagp.kernels.compose import Product

        return Product(self, other) if isinstance(other, Kernel) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Kernel) and self._content == other._content

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._content))

    @property
    def _content(self) -> tuple[object, ...]:
        return self.parameters, self.columns, self.units, self.categories

    def __repr__(self) -> str:
        parts = [
            f"{p.name}={p.values[0]:.3g}" if len(set(p.values)) == 1 else
            f"{p.name}=[{', '.join(f'{v:.3g}' for v in p.values)}]"
            for p in self.parameters
        ]  # fmt: skip
        parts += [f"columns={self.columns!r}"] if self.columns is not None else []
        parts += [f"units={self.units!r}"] if self.units is not None else []
        return f"{type(self).__name__}({', '.join(parts)})"


def place(block: Array, out: Array | None) -> Array:
    """`block`, written into the corner of `out` when there is one."""
    if out is None:
        return block
    out[: block.shape[0], : block.shape[1]] = block
    return out
