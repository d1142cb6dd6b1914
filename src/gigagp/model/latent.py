"""Predictions of the latent function f, before calibration turns them into distributions of y."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gigagp.arrays import Array


@dataclass(frozen=True, eq=False)
class LatentPrediction:
    """Mean and variance of f per query, and how large the errors near it are, in predicted deviations.

    noise : the noise variance of y at each query; None where it is the model's own at all of them
    """

    mean: Array
    variance: Array | None
    misfit: Array | None
    noise: Array | None = None

    def reliability(self, typical: float) -> Array | None:
        """How much the target of each row says about f: typical / noise, at most one; None where all noise is equal."""
        return None if self.noise is None else typical / np.maximum(self.noise, typical)

    def at(self, rows: Array | slice) -> LatentPrediction:
        """The predictions at some queries."""
        variance, misfit, noise = (None if a is None else a[rows] for a in (self.variance, self.misfit, self.noise))
        return LatentPrediction(self.mean[rows], variance, misfit, noise)

    @classmethod
    def joined(cls, parts: list[LatentPrediction]) -> LatentPrediction:
        """The predictions of several sets of queries as one."""
        mean = np.concatenate([p.mean for p in parts])
        if parts[0].variance is None:
            return cls(mean, None, None)
        return cls(
            mean,
            np.concatenate([p.variance for p in parts if p.variance is not None]),
            np.concatenate([p.misfit for p in parts if p.misfit is not None]),
            None if parts[0].noise is None else np.concatenate([p.noise for p in parts if p.noise is not None]),
        )
