"""The fitted attributes of an estimator: views of its model, and the summary that a notebook shows."""

from __future__ import annotations

from dataclasses import replace

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gigagp.arrays import Array
from gigagp.data.sources.share import Share
from gigagp.kernels import Kernel
from gigagp.model.fit_report import FitReport
from gigagp.model.model import Model
from gigagp.model.summary import summary_html
from gigagp.model.target_models import TargetModels
from gigagp.model.units import Units
from gigagp.tree import Tree


class FittedAttributes(BaseEstimator):  # type: ignore[misc]
    """Attributes that end in an underscore, read from `model_`, which `fit` sets."""

    model_: Model
    targets_: TargetModels  # instead of `model_` where the model has several targets

    @property
    def _fitted(self) -> Model | TargetModels:
        """The fitted model, of one target or of several."""
        if "targets_" in self.__dict__:
            return self.targets_
        check_is_fitted(self, "model_")
        return self.model_

    def _of_one(self, what: str) -> Model:
        """The fitted model of one target, which has something that a model of several targets does not have."""
        if "targets_" in self.__dict__:
            raise AttributeError(_several(self.targets_, what))
        return self.model_

    @property
    def report_(self) -> FitReport:
        """What happened during the fit."""
        model = self._of_one("report_")
        return replace(model.report, units=model.units)

    @property
    def theta_(self) -> Array:
        """Log-parameters of kernel and noise, in standardised units; of directions where these replace columns."""
        return self._of_one("theta_").theta

    @property
    def kernel_(self) -> Kernel:
        """The kernel with its trained values; its inputs are directions where these replace columns."""
        return self._of_one("kernel_").kernel

    @property
    def noise_variance_(self) -> float:
        """The noise variance of y, in the user's units; the dispersion where y has a likelihood with one."""
        return self._of_one("noise_variance_").noise_variance

    @property
    def tree_(self) -> Tree:
        """The hierarchy above the experts."""
        return self._of_one("tree_").committee.tree

    @property
    def n_leaves_(self) -> int:
        """The number of experts."""
        return len(self._of_one("n_leaves_").cells)

    @property
    def held_out_(self) -> Share | None:
        """The rows of the data that `fit` held out, for `evaluate`; None if it was given no share."""
        share = self._fitted.share
        return None if share is None else share.others

    @property
    def units_(self) -> Units:
        """Names of columns and target, and their scales."""
        return self._of_one("units_").units

    def _html_repr(self) -> str:
        """The diagram of scikit-learn and, if fitted, a summary of the model."""
        diagram: str = super()._html_repr()
        if "model_" not in self.__dict__:
            return diagram
        parameters = self.units_.parameters(self.kernel_, self.noise_variance_)
        return diagram + summary_html(self.report_, self.tree_, parameters)


def _several(targets: TargetModels, what: str) -> str:
    """Why an attribute or a method is not there."""
    name = targets.names[0]
    return f"the model has {len(targets.names)} targets, and {what} belongs to one: choose it, as in target({name!r})"
