"""Functions drawn from the posterior, which can be evaluated anywhere and again: pathwise conditioning.

A draw of the prior, f~, is a sum of random features. With the weights l(z) of predictions (`model.linear_predictions`)

    f(z) = m(z) + s(z) r(z) / sd r(z),   r(z) = f~(z) - sum_i l_i(z) (f~(x_i) + e_i),

is a draw of the posterior (Wilson et al. 2021), where m and s are the mean and deviation of `predict`, and e_i is noise
that is a function of the number of row i. Everything is a function of z alone, so that the order in which a path is
evaluated does not matter. Given the features r(z) is Gaussian, and it is divided by its own deviation: at every query
the paths have exactly the mean and deviation of `predict`. What is approximate is their correlation between queries:
features stand in for the kernel.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from gigagp.arrays import Array
from gigagp.data.row_digests import digests
from gigagp.engines import Engine
from gigagp.model.linear_predictions import joint_errors
from gigagp.model.predictor import Predictor
from gigagp.model.random_features import COUNT, RandomFeatures

_QUERIES_AT_ONCE = 64  # queries whose neighbours' features are in memory together
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # constants of SplitMix64 (Steele et al. 2014)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


class Paths:
    """Some functions drawn from the posterior of a predictor."""

    def __init__(self, predictor: Predictor, count: int, seed: np.random.SeedSequence) -> None:
        self.predictor, self.count = predictor, count
        model = predictor.model
        near, mixture = predictor.neighbourhood, predictor.mixture
        if near is not None:
            members = [(each.kernel, each.theta) for each in near.members]
        elif mixture is not None:
            members = [(each.kernel, each.theta) for each in mixture.members]
        else:
            members = [(model.committee.kernel, model.committee.theta)]
        rng = np.random.default_rng(seed)
        X = np.asarray(model.store.X, float)
        self._features = [RandomFeatures.of(kernel, theta[:-1], X, rng) for kernel, theta in members]
        self._weights = [rng.standard_normal((COUNT, count)) for _ in members]
        self._shifts = rng.standard_normal((len(members), count))
        self._keys = rng.integers(0, 1 << 63, (len(members), count), dtype=np.uint64)

    def values(self, X: Array, engine: Engine) -> Array:
        """The value of each path at checked queries in the user's units, (queries, paths)."""
        blocks = [self._block(X[i : i + _QUERIES_AT_ONCE], engine) for i in range(0, len(X), _QUERIES_AT_ONCE)]
        return np.concatenate(blocks) if blocks else np.empty((0, self.count))

    def _block(self, X: Array, engine: Engine) -> Array:
        mean, deviation = self.predictor.predict(X, engine, latent=True)
        assert deviation is not None
        Z = self.predictor.scaled(X).astype(float)
        errors = joint_errors(self.predictor, Z, engine)
        total, variance = np.zeros((len(X), self.count)), np.zeros(len(X))
        for part, features, weights, keys in zip(errors.parts, self._features, self._weights, self._keys, strict=True):
            L = part.weights
            apart = features.values(Z) - L @ features.values(part.X)
            noise = np.sqrt(part.noise)[:, None] * normal_of(part.rows, keys)
            total += np.sqrt(part.share)[:, None] * (apart @ weights - L @ noise)
            variance += part.share * ((apart**2).sum(axis=1) + L.multiply(L) @ part.noise)
            if part.common_noise:
                by_inputs, inputs = part.by_inputs(Z)
                common = np.sqrt(part.common_noise) * normal_of(digests(inputs, np.zeros(len(inputs)))[0], ~keys)
                total += np.sqrt(part.share)[:, None] * (by_inputs @ common)
                variance += (
                    part.share * part.common_noise * np.asarray(by_inputs.multiply(by_inputs).sum(axis=1)).ravel()
                )
        for shift, normal in zip(errors.shifts, self._shifts, strict=False):
            total += shift[:, None] * normal
            variance += shift**2
        scale = deviation / np.sqrt(np.maximum(variance, np.finfo(float).tiny))
        return np.asarray(mean[:, None] + scale[:, None] * total)


def normal_of(rows: Array, keys: Array) -> Array:
    """Standard normal numbers that are functions of a row's number and a key, (rows, keys)."""
    with np.errstate(over="ignore"):
        z = (rows.astype(np.uint64)[:, None] + np.uint64(1)) * _GOLDEN + keys
        z = (z ^ (z >> np.uint64(30))) * _FIRST
        z = (z ^ (z >> np.uint64(27))) * _SECOND
        z = z ^ (z >> np.uint64(31))
    return np.asarray(ndtri(((z >> np.uint64(11)).astype(float) + 0.5) * 2.0**-53))
