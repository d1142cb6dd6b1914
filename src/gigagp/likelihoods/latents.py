"""How targets depend on latent functions: one function for numbers, one or several for classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.optimize import minimize_scalar

from gigagp.arrays import Array
from gigagp.likelihoods.base import Likelihood
from gigagp.linalg.row_noise import FACTOR

_DISPERSIONS = (-14.0, 3.0)  # range of ln d in which the dispersion of a constant function is sought
NO_CLASSES = np.empty(0)


class Latents(Protocol):
    """The latent functions behind the targets, all with the same kernel and theta, and their likelihood."""

    @property
    def likelihood(self) -> Likelihood: ...

    @property
    def dispersion_name(self) -> str | None:
        """In reports; None where the likelihood has no dispersion."""

    @property
    def latents(self) -> int:
        """The number of latent functions."""

    @property
    def means(self) -> Array:
        """Their prior means."""

    @property
    def row_weights(self) -> Array:
        """How much a row of each class counts; empty where targets are not classes."""

    @property
    def scale(self) -> float:
        """Factor of the number of rows at which all latent functions take as much work as one of all rows."""

    def weights_of(self, y: Array, row_noise: Array | None) -> Array:
        """How much each row counts in the likelihood; the factor of its `linalg.row_noise` is one over its weight."""

    def distinct(self, y: Array) -> list[tuple[int, int]]:
        """Latent functions that differ given these targets, each with the number of those equal to it."""

    def labels(self, y: Array, latent: int) -> Array:
        """What the likelihood of one latent function is given as targets."""

    def constant_loss(self, y: Array) -> float:
        """The least loss per row, -ln p, of latent functions that are constant."""


@dataclass(frozen=True, eq=False)
class SingleLatent:
    """Targets that are numbers: one latent function, with a constant prior mean."""

    likelihood: Likelihood
    mean: float

    latents = 1
    scale = 1.0
    row_weights = NO_CLASSES

    @cached_property
    def means(self) -> Array:
        return np.array([self.mean])

    @property
    def dispersion_name(self) -> str | None:
        return "dispersion" if self.likelihood.has_dispersion else None

    def weights_of(self, y: Array, row_noise: Array | None) -> Array:
        return np.ones(len(y)) if row_noise is None else 1 / np.asarray(row_noise[:, FACTOR], float)

    def distinct(self, y: Array) -> list[tuple[int, int]]:
        return [(0, 1)]

    def labels(self, y: Array, latent: int) -> Array:
        return np.ascontiguousarray(y, float)

    def constant_loss(self, y: Array) -> float:
        y, own = np.asarray(y, float), self.likelihood
        with np.errstate(divide="ignore"):
            f = np.full(len(y), float(own.latent(np.array(y.mean()))))
        if not np.isfinite(f[0]):  # all counts are zero, or all labels equal
            return 0.0
        if not own.has_dispersion:
            return float(-own.log_density(y, f, 1.0).mean())
        losses = minimize_scalar(
            lambda log_d: float(-own.log_density(y, f, np.exp(log_d)).mean()), bounds=_DISPERSIONS, method="bounded"
        )
        return float(losses.fun)
