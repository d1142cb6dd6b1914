"""`HGPRegressor` behind the interface of skpro (install `gigagp[skpro]`).

skpro's metrics, tuners and pipelines take regressors that predict distributions. `HGPProbaRegressor` wraps an
`HGPRegressor`, and `ScaleMixture` is its predictive distribution: a location and a scale per row, and one shape for
all rows (`gigagp.model.distribution`).
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import clone

try:
    from skpro.distributions.base import BaseDistribution
    from skpro.regression.base import BaseProbaRegressor
except ImportError as missing:
    raise ImportError('gigagp.skpro needs skpro: python -m pip install "gigagp[skpro]"') from missing

from gigagp.arrays import Array
from gigagp.errors import InvalidParameter
from gigagp.estimators.regressor import HGPRegressor
from gigagp.model.distribution import PredictiveDistribution, Shape


class ScaleMixture(BaseDistribution):  # type: ignore[misc]
    """Mixtures of Gaussians with a common mean: the sum over j of weights[j] N(mu, (sigma widths[j])^2).

    Parameters
    ----------
    mu, sigma : float or array
        Mean and standard deviation of each entry.
    weights, widths : array or None
        The shape that all entries share, which has mean zero and variance one; None for a Gaussian.
    centres : array or None
        The centres of its components; None where all are zero.
    index, columns : pandas.Index
        Labels of the entries.

    Examples
    --------
    >>> from gigagp.skpro import ScaleMixture
    >>> mixture = ScaleMixture(mu=[[0.0], [1.0]], sigma=2.0)
    >>> mixture.shape
    (2, 1)

    """

    _tags: ClassVar[dict[str, Any]] = {
        "capabilities:approx": ["pdfnorm"],
        "capabilities:exact": ["mean", "var", "energy", "pdf", "log_pdf", "cdf", "ppf"],
        "distr:measuretype": "continuous",
        "distr:paramtype": "parametric",
        "broadcast_init": "on",
        "broadcast_params": ["mu", "sigma"],
    }

    def __init__(
        self, mu: Any, sigma: Any, weights: Any = None, widths: Any = None, centres: Any = None, index: Any = None,
        columns: Any = None,
    ) -> None:  # fmt: skip
        self.mu = mu
        self.sigma = sigma
        self.weights = weights
        self.widths = widths
        self.centres = centres
        super().__init__(index=index, columns=columns)

    def _subset_params(self, rowidx: Any, colidx: Any, coerce_scalar: bool = False) -> dict[str, Any]:
        """The parameters of some entries; the shape is that of all."""
        own = {
            name: self._subset_param(
                val=getattr(self, name), rowidx=rowidx, colidx=colidx, coerce_scalar=coerce_scalar
            )
            for name in ("mu", "sigma")
        }  # fmt: skip
        return {**own, "weights": self.weights, "widths": self.widths, "centres": self.centres}

    @property
    def _mixture(self) -> Shape:
        if self.weights is None or self.widths is None:
            return Shape.gaussian()
        centres = np.zeros(len(self.weights)) if self.centres is None else np.asarray(self.centres, float)
        return Shape(np.asarray(self.weights, float), np.asarray(self.widths, float), centres)

    @property
    def _location(self) -> Array:
        return np.asarray(self._bc_params["mu"], float)

    @property
    def _scale(self) -> Array:
        return np.asarray(self._bc_params["sigma"], float)

    def _standardised(self, x: Any) -> Array:
        return np.asarray((np.asarray(x, float) - self._location) / self._scale)

    def _mean(self) -> Array:
        return self._location

    def _var(self) -> Array:
        return self._scale**2

    def _log_pdf(self, x: Any) -> Array:
        return np.asarray(self._mixture.log_density(self._standardised(x)) - np.log(self._scale))

    def _pdf(self, x: Any) -> Array:
        return np.asarray(np.exp(self._log_pdf(x)))

    def _cdf(self, x: Any) -> Array:
        return self._mixture.cdf(self._standardised(x))

    def _ppf(self, p: Any) -> Array:
        levels = np.asarray(p, float)
        inside = np.clip(levels, np.finfo(float).tiny, 1 - np.finfo(float).epsneg)
        z = np.where(levels <= 0, -np.inf, np.where(levels >= 1, np.inf, self._mixture.quantile(inside)))
        return np.asarray(self._location + self._scale * z)

    def _energy_self(self) -> Array:
        """E|Y - Y'|, summed over the columns."""
        return _over_columns(self._scale * 2 * self._mixture.half_spread)

    def _energy_x(self, x: Any) -> Array:
        """E|Y - x|, summed over the columns."""
        return _over_columns(self._scale * self._mixture.distance(self._standardised(x)))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Distributions that skpro's own checks are run on."""
        shape = Shape.of(np.array([0.7, 0.3]), np.array([1.0, 3.0]), np.array([-0.3, 0.7]))
        wide = {"weights": shape.weights, "widths": shape.widths, "centres": shape.centres}
        return [
            {"mu": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], "sigma": 1.0, **wide},
            {"mu": 0.0, "sigma": 2.0, "index": pd.Index([1, 2, 5]), "columns": pd.Index(["a", "b"]), **wide},
            {"mu": 1.0, "sigma": 2.0},
        ]  # fmt: skip


def _over_columns(values: Array) -> Array:
    return np.asarray(values.sum(axis=1) if values.ndim else values)


class HGPProbaRegressor(BaseProbaRegressor):  # type: ignore[misc]
    """An `HGPRegressor` as a probabilistic regressor of skpro.

    Parameters
    ----------
    regressor : HGPRegressor or None
        Its settings; None for the defaults. It is copied, and its likelihood must be Gaussian or Student.

    Attributes
    ----------
    regressor_ : HGPRegressor
        The fitted copy.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from gigagp import HGPRegressor
    >>> from gigagp.skpro import HGPProbaRegressor
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = HGPProbaRegressor(HGPRegressor(random_state=0)).fit(X[:100], y[:100].to_frame())
    >>> model.predict_proba(X[100:103]).shape
    (3, 1)

    """

    _tags: ClassVar[dict[str, Any]] = {
        "capability:multioutput": False,
        "capability:missing": False,
        "capability:update": True,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
        "python_dependencies": "gigagp",
    }

    def __init__(self, regressor: Any = None) -> None:
        self.regressor = regressor
        super().__init__()

    def _fit(self, X: Any, y: Any, C: Any = None) -> Self:
        regressor = HGPRegressor() if self.regressor is None else self.regressor
        if not isinstance(regressor, HGPRegressor):
            raise InvalidParameter(f"regressor must be an HGPRegressor or None; got {type(regressor).__name__}")
        self._columns = y.columns
        self.regressor_ = clone(regressor)
        by_committee = self.regressor_.method == "committee"  # which takes no updates
        first_fit = self.regressor_.fit if by_committee else self.regressor_.partial_fit
        first_fit(_named(X), y.iloc[:, 0].to_numpy(float))
        if self.regressor_.model_.latents is not None:
            raise InvalidParameter(
                "skpro's interface is for targets with Gaussian noise; use predict_distribution of HGPRegressor itself"
            )
        return self

    def _update(self, X: Any, y: Any, C: Any = None) -> Self:
        """Learn more rows by `partial_fit`."""
        self.regressor_.partial_fit(_named(X), y.iloc[:, 0].to_numpy(float))
        return self

    def _predict(self, X: Any) -> pd.DataFrame:
        mean = np.asarray(self.regressor_.predict(_named(X)))
        return pd.DataFrame(mean[:, None], index=X.index, columns=self._columns)

    def _predict_proba(self, X: Any) -> ScaleMixture:
        prediction = self.regressor_.predict_distribution(_named(X))
        assert isinstance(prediction, PredictiveDistribution)
        shape = prediction.shape
        return ScaleMixture(
            prediction.mean[:, None], prediction.std[:, None], shape.weights, shape.widths, shape.centres, X.index,
            self._columns,
        )  # fmt: skip

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Settings that skpro's own checks are run with."""
        return [
            {"regressor": HGPRegressor(kernel="matern52", neighbours=16, random_state=0)},
            {"regressor": HGPRegressor(kernel="matern32", random_state=0)},
        ]


def _named(X: pd.DataFrame) -> pd.DataFrame:
    """The table with names of columns that are text, as scikit-learn requires."""
    return (
        X if all(isinstance(name, str) for name in X.columns) else X.set_axis([str(name) for name in X.columns], axis=1)
    )
