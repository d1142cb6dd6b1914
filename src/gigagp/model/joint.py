"""Joint predictions of several queries: their covariance, and joint samples.

Correlations are those of the errors of the predictions (`model.linear_predictions`); deviations are those of `predict`,
calibration included. So the marginal distributions are those that `predict` and `predict_distribution` return.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.linalg import cholesky
from scipy.special import ndtr

from gigagp.arrays import Array
from gigagp.engines import Engine
from gigagp.errors import InvalidParameter
from gigagp.model.distribution import Shape
from gigagp.model.linear_predictions import joint_errors
from gigagp.model.predictor import Predictor

MOST_QUERIES = 10_000  # of one joint prediction: its covariance has the square of this many numbers
_LEAST_VARIANCE = 1e-12  # of an error, as a share of the largest: rounding may leave less, or nothing
_JITTERS = (0.0, 1e-12, 1e-10, 1e-8)  # relative, added to the diagonal of correlations until they have a factor
_TABLE = np.linspace(-12.0, 0.0, 6001)  # deviations of a Gaussian, between which quantiles of a shape are interpolated


@dataclass(frozen=True, eq=False)
class JointPrediction:
    """Mean and covariance of y, or of f, at some queries, in the user's units."""

    mean: Array
    covariance: Array
    shape: Shape  # of the distribution of each y

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Joint draws, one row per query and n columns.

        Where the shape is not Gaussian, Gaussian draws of these correlations are transformed so that each query has
        its own distribution (a Gaussian copula).
        """
        deviation = np.sqrt(np.diagonal(self.covariance))
        L = _root(self.covariance / (deviation[:, None] * deviation))
        z = L @ rng.standard_normal((len(self.mean), n))
        if not self.shape.is_gaussian:
            z = _transformed(self.shape, z)
        return np.asarray(self.mean[:, None] + deviation[:, None] * z)


def predict_jointly(predictor: Predictor, X: Array, engine: Engine, latent: bool = False) -> JointPrediction:
    """Mean and covariance at checked queries in the user's units."""
    if len(X) > MOST_QUERIES:
        raise InvalidParameter(
            f"a joint prediction of {len(X):,} queries needs a covariance of as many rows and columns; at most "
            f"{MOST_QUERIES:,} are allowed: use predict for the marginals, or sample_path for functions"
        )
    mean, of_f = predictor.predict(X, engine, latent=True)
    assert of_f is not None
    if not len(X):
        return JointPrediction(mean, np.empty((0, 0)), Shape.gaussian())
    Z = predictor.scaled(X).astype(float)
    C = joint_errors(predictor, Z, engine).covariance(Z, engine)
    variance = np.diagonal(C)
    scale = of_f / np.sqrt(np.maximum(variance, _LEAST_VARIANCE * variance.max()))
    covariance = C * (scale[:, None] * scale)
    np.fill_diagonal(covariance, of_f**2)
    if latent:
        return JointPrediction(mean, covariance, Shape.gaussian())
    _, of_y = predictor.predict(X, engine)
    assert of_y is not None
    np.fill_diagonal(covariance, of_y**2)  # the noise of different queries is independent
    return JointPrediction(mean, covariance, predictor.calibration.shape)


def _root(correlation: Array) -> Array:
    """A matrix R with R R^T = correlation, which may be singular."""
    for jitter in _JITTERS:
        A = correlation.copy()
        A[np.diag_indices(len(A))] += jitter
        try:
            return np.asarray(cholesky(A, lower=True, overwrite_a=True, check_finite=False))
        except np.linalg.LinAlgError:
            continue
    values, vectors = np.linalg.eigh(correlation)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _transformed(shape: Shape, z: Array) -> Array:
    """Values with the distribution of the shape that have the same ranks as standard Gaussian values."""
    at = np.maximum(-np.abs(z), _TABLE[0])  # probabilities near one would lose their digits
    below, above = (PchipInterpolator(_TABLE, s.quantile(ndtr(_TABLE))) for s in (shape, shape.mirrored))
    return np.asarray(np.where(z < 0, below(at), -above(at)))
