"""The fitted attributes of an estimator: views of its model, and the summary that a notebook shows."""

from __future__ import annotations

from dataclasses import replace

from sklearn.base import BaseEstimator

from gigagp.arrays import Array
from gigagp.data.sources.share import Share
from gigagp.kernels import Kernel
from gigagp.model.fit_report import FitReport
from gigagp.model.model import Model
from gigagp.model.summary import summary_html
from gigagp.model.units import Units
from gigagp.tree import Tree


class FittedAttributes(BaseEstimator):  # type: ignore[misc]
    """Attributes that end in an underscore, read from `model_`, which `fit` sets."""

    model_: Model

    @property
    def report_(self) -> FitReport:
        """What happened during the fit."""
        return replace(self.model_.report, units=self.model_.units)

    @property
    def theta_(self) -> Array:
        """Log-parameters of kernel and noise, in standardised units."""
        return self.model_.theta

    @property
    def kernel_(self) -> Kernel:
        """The kernel with its trained values."""
        return self.model_.kernel

    @property
    def noise_variance_(self) -> float:
        """The noise variance of y, in the user's units; the dispersion where y has a likelihood with one."""
        return self.model_.noise_variance

    @property
    def tree_(self) -> Tree:
        """The hierarchy above the experts."""
        return self.model_.committee.tree

    @property
    def n_leaves_(self) -> int:
        """The number of experts."""
        return len(self.model_.cells)

    @property
    def held_out_(self) -> Share | None:
        """The rows of the data that `fit` held out, for `evaluate`; None if it was given no share."""
        return None if self.model_.share is None else self.model_.share.others

    @property
    def units_(self) -> Units:
        """Names of columns and target, and their scales."""
        return self.model_.units

    def _html_repr(self) -> str:
        """The diagram of scikit-learn and, if fitted, a summary of the model."""
        diagram: str = super()._html_repr()
        if not hasattr(self, "model_"):
            return diagram
        parameters = self.units_.parameters(self.kernel_, self.noise_variance_)
        return diagram + summary_html(self.report_, self.tree_, parameters)
