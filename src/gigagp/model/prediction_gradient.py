"""Gradients of predictions with respect to the inputs, in the user's units.

Each method returns its latent prediction as duals (`model.duals`). Noise, calibration, mean function and units are then
those of `Predictor`, applied to duals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.engines import Engine
from gigagp.errors import InvalidParameter
from gigagp.model import committee_gradient, mixture_gradient, neighbourhood_gradient
from gigagp.model.duals import Dual
from gigagp.model.latent import LatentPrediction
from gigagp.model.predictor import Predictor
from gigagp.model.trend import LinearTrend


@dataclass(frozen=True, eq=False)
class PredictionGradient:
    """Predictions and their derivatives by the inputs, all in the user's units.

    Attributes
    ----------
    mean, std : array
        As `predict` returns them, one number per query.
    mean_gradient, std_gradient : array
        Their derivatives, one row per query and one column per input column.

    """

    mean: Array
    std: Array
    mean_gradient: Array
    std_gradient: Array

    @classmethod
    def joined(cls, parts: list[PredictionGradient]) -> PredictionGradient:
        """The gradients of several sets of queries as one."""
        names = ("mean", "std", "mean_gradient", "std_gradient")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def predict_gradient(predictor: Predictor, X: Array, engine: Engine, latent: bool = False) -> PredictionGradient:
    """Mean and standard deviation of y, or with `latent` of f, at checked queries, and their gradients."""
    model = predictor.model
    if model.likelihood is not None:
        raise InvalidParameter("gradients are those of Gaussian targets; this model has another likelihood")
    Z = predictor.scaled(X)
    prediction = _latent(predictor, Z, engine)
    mean, variance = _in_model_units(predictor, prediction, latent)
    scale = float(model.target.scale[0])
    mean = _by_inputs(predictor, X, scale * mean + float(model.target.centre[0]))
    deviation = _by_inputs(predictor, X, scale * np.sqrt(variance))
    deviation = deviation * predictor.gap_factors(X)
    if model.trend is not None:
        of_f = _by_inputs(predictor, X, prediction.variance)
        mean, deviation = _with_trend(predictor, X, Z, of_f, mean, deviation)
    return PredictionGradient(mean.value, deviation.value, mean.tangent, deviation.tangent)


def _latent(predictor: Predictor, Z: Array, engine: Engine) -> LatentPrediction:
    """Mean, variance, misfit and noise as duals by the scaled query."""
    if predictor.neighbourhood is not None:
        return _with_noise(predictor, neighbourhood_gradient.predict(predictor.neighbourhood, Z, engine), Z)
    if predictor.mixture is not None:
        return _with_noise(predictor, mixture_gradient.predict(predictor.mixture, Z, engine), Z)
    experts = predictor.model.committee
    predictor.check_communication()
    combined: Any = committee_gradient.predict(experts, Z, predictor.rule, predictor.experts_per_query, engine)
    variance = combined.variance.astype(float)
    if predictor.rule.target == "y":
        variance = variance - experts.noise
    misfit: Any = np.ones(len(Z)) if combined.scale is None else np.sqrt(combined.scale)
    return _with_noise(predictor, LatentPrediction(combined.mean, variance, misfit), Z)


def _with_noise(predictor: Predictor, prediction: LatentPrediction, Z: Array) -> LatentPrediction:
    """The prediction with the noise at its queries, as `Predictor.with_noise` computes it."""
    input_noise, setting = predictor.model.input_noise, predictor.calibration.setting
    if input_noise is None:
        return prediction
    noise: Any = predictor.noise * Dual(*input_noise.with_gradient(Z))
    if setting is not None:
        assert prediction.variance is not None
        _, rho = setting.remoteness(prediction.variance)
        noise = noise + rho**2 * (setting.average - noise)
    return LatentPrediction(prediction.mean, prediction.variance, prediction.misfit, noise)


def _in_model_units(predictor: Predictor, prediction: LatentPrediction, latent: bool) -> tuple[Any, Any]:
    """Mean, and variance of y or f, in the model's units, as in `Predictor.in_units`."""
    variance: Any = predictor.variance(prediction, latent)
    if not isinstance(variance, Dual):  # it is the same everywhere
        variance = Dual(variance, np.zeros((len(variance), _columns(prediction))))
    return prediction.mean, variance


def _columns(prediction: Any) -> int:
    return int(prediction.mean.tangent.shape[-1])


def _by_inputs(predictor: Predictor, X: Array, dual: Any) -> Dual:
    """A dual by the scaled query as one by the user's columns."""
    return Dual(dual.value, predictor.model.inputs.pulled(X, dual.tangent))


def _with_trend(
    predictor: Predictor, X: Array, Z: Array, variance: Dual, mean: Dual, deviation: Dual
) -> tuple[Dual, Dual]:
    """With the mean function, as `Predictor` adds it."""
    trend, model = predictor.model.trend, predictor.model
    if not isinstance(trend, LinearTrend):
        raise InvalidParameter(
            'the mean function of this model is a regressor, which has no gradient; fit with mean="linear" or without'
        )
    mean = mean + Dual(trend.values(X), trend.gradients(X))
    prior: Any = np.maximum(np.asarray(model.kernel.diagonal(model.theta[:-1], Z), float), np.finfo(float).tiny)
    if not model.kernel.stationary:
        prior = _by_inputs(predictor, X, Dual(prior, model.kernel.diagonal_gradient(model.theta[:-1], Z)))
    left = np.clip(variance / prior, 0.0, 1.0)
    added = left**2 * Dual(trend.variances(X), trend.variance_gradients(X))
    return mean, np.sqrt(deviation**2 + added)
