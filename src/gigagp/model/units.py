"""Trained parameters in the units of the user's columns."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gigagp.kernels import Kernel, Linear, Periodic, Product, Sum
from gigagp.kernels.stationary import Stationary


@dataclass(frozen=True)
class Quantity:
    """A parameter: its name, with that of the column, its value, and the unit of the value."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True)
class Units:
    """Names of columns and target, and the size of one standardised unit of each."""

    columns: tuple[str, ...]
    target: str
    widths: tuple[float, ...]
    height: float

    def named(self, text: str) -> str:
        """The text with names of columns instead of their numbers: lengthscale[joint7], not lengthscale[7]."""
        return re.sub(r"(?<=[a-z])\[(\d+)\]", lambda match: f"[{self.columns[int(match[1])]}]", text)

    def parameters(self, kernel: Kernel, noise_variance: float) -> list[Quantity]:
        """Each trained parameter. The noise variance is in the user's units already.

        Parameters without a meaning in the user's units (one length-scale for all columns, factors of a product) stay
        in standardised units, and their unit says so.
        """
        noise = Quantity("noise_variance", noise_variance, f"{self.target}^2")
        return [*self._of_kernel(kernel, "", within_product=False), noise]

    def _of_kernel(self, kernel: Kernel, prefix: str, within_product: bool) -> list[Quantity]:
        if isinstance(kernel, Sum | Product):
            inside = within_product or isinstance(kernel, Product)
            left = self._of_kernel(kernel.left, f"{prefix}left.", inside)
            return left + self._of_kernel(kernel.right, f"{prefix}right.", inside)
        ours = isinstance(kernel, Stationary | Periodic | Linear) or type(kernel).__name__ == "Constant"
        quantities = []
        for parameter in kernel.parameters:
            for d, value in enumerate(parameter.values):
                name, unit, factor = parameter.name, "standardised", 1.0
                if parameter.per_feature:
                    name = f"{name}[{self.columns[d]}]"
                if not ours or (not parameter.per_feature and name != "variance"):
                    unit = "" if name == "alpha" else unit
                elif isinstance(kernel, Linear):
                    if parameter.per_feature and not within_product:
                        unit = f"{self.target}^2/{self.columns[d]}^2"
                        factor = self.height**2 / self.widths[d] ** 2
                elif parameter.per_feature and parameter.name == "lengthscale" and isinstance(kernel, Periodic):
                    unit = ""  # of the circle that a column is wound onto
                elif parameter.per_feature:
                    unit, factor = self.columns[d], self.widths[d]
                elif not within_product:
                    unit, factor = f"{self.target}^2", self.height**2
                quantities.append(Quantity(prefix + name, value * factor, unit))
        return quantities
