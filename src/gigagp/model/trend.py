"""The mean function of a model: it is subtracted from the target before the GP sees it, and added to predictions.

Everything is in the user's units, after categories and dates have become numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.scaling import Scaling


class Trend(ABC):
    """A mean function m(x)."""

    @property
    @abstractmethod
    def description(self) -> str:
        """For reports."""

    @abstractmethod
    def values(self, X: Array) -> Array:
        """m(x) of each row."""

    @abstractmethod
    def variances(self, X: Array) -> Array:
        """The variance of m(x), where no observation is near."""


@dataclass(frozen=True, eq=False)
class LinearTrend(Trend):
    """m(x) = h(x)^T b with h(x) = (1, z), where z are the columns of x after a scaling.

    The coefficients b have been solved by least squares, generalised where the rows are few (`fit.trends`).
    """

    columns: Array  # numbers of the columns that have a coefficient
    scaling: Scaling  # of these columns
    coefficients: Array  # of the constant and of each column
    covariance: Array  # of the coefficients

    def basis(self, X: Array) -> Array:
        """h(x) of each row."""
        z = (np.asarray(X, float)[:, self.columns] - self.scaling.centre) / self.scaling.scale
        return np.column_stack([np.ones(len(z)), z])

    @property
    def description(self) -> str:
        return f"linear in {len(self.columns)} column{'s' if len(self.columns) != 1 else ''}"

    @property
    def slopes(self) -> Array:
        """Change of the mean per unit of each column."""
        return np.asarray(self.coefficients[1:] / self.scaling.scale)

    def values(self, X: Array) -> Array:
        # A sum over columns in a fixed order: a product of matrices would round a row differently in another batch.
        total = np.full(len(X), self.coefficients[0])
        for h, b in zip(self.basis(X).T[1:], self.coefficients[1:], strict=True):
            total += b * h
        return total

    def gradients(self, X: Array) -> Array:
        """The derivatives of m(x) by all columns."""
        out = np.zeros(np.shape(X))
        out[:, self.columns] = self.slopes
        return out

    def variance_gradients(self, X: Array) -> Array:
        """The derivatives of the variance of m(x) by all columns: 2 dh^T covariance h."""
        out = np.zeros(np.shape(X))
        out[:, self.columns] = 2 * (self.basis(X) @ self.covariance)[:, 1:] / self.scaling.scale
        return out

    def variances(self, X: Array) -> Array:
        total = np.zeros(len(X))
        root = _root(self.covariance)
        H = self.basis(X).T
        for column in root.T:
            part = np.zeros(len(X))
            for h, r in zip(H, column, strict=True):
                part += r * h
            total += part**2
        return total


@dataclass(frozen=True, eq=False)
class RegressorTrend(Trend):
    """The mean of the predictions of regressors that were each fitted without one part of the rows."""

    regressor: Any  # as the user has passed it, not fitted
    models: tuple[Any, ...]

    @property
    def description(self) -> str:
        return type(self.regressor).__name__

    def values(self, X: Array) -> Array:
        total = np.zeros(len(X))
        for model in self.models:
            total += np.asarray(model.predict(X), float).reshape(len(X))
        return total / len(self.models)

    def variances(self, X: Array) -> Array:
        return np.zeros(len(X))


def _root(covariance: Array) -> Array:
    """A matrix R with R R^T = covariance, which may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
