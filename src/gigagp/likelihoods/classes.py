"""Classes as Bernoulli labels: one latent function for two classes, and one per class, against all others, for more."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gigagp.arrays import Array
from gigagp.likelihoods.bernoulli import Bernoulli
from gigagp.linalg.row_noise import FACTOR

_ADDED = 0.5  # rows per class: the shares of classes with few rows stay away from 0


@dataclass(frozen=True, eq=False)
class Classes:
    """The weight of all rows of each class, and how much one of its rows counts. Rows have the numbers of classes."""

    counts: tuple[float, ...]
    weights: tuple[float, ...]

    likelihood = Bernoulli()
    dispersion_name = None

    @property
    def number(self) -> int:
        return len(self.counts)

    @property
    def latents(self) -> int:
        """The number of latent functions."""
        return 1 if self.number == 2 else self.number

    @cached_property
    def shares(self) -> Array:
        """The share of each class in the weighted rows, which is the prediction far from all rows."""
        weighted = (np.array(self.counts, float) + _ADDED) * np.array(self.weights)
        return np.asarray(weighted / weighted.sum())

    @property
    def weight(self) -> float:
        """The weight of all rows."""
        return float(np.dot(self.counts, self.weights))

    @cached_property
    def means(self) -> Array:
        """Prior means of the latent functions: the logit of the share of the second of two classes.

        With more classes the means are equal, so that classes without a row in a leaf have the same latent function.
        """
        if self.number == 2:
            return np.log(self.shares[1:]) - np.log(self.shares[:1])
        return np.full(self.number, -np.log(self.number - 1.0))

    @cached_property
    def row_weights(self) -> Array:
        return np.array(self.weights, float)

    def constant_loss(self, codes: Array) -> float:
        """The least log loss per row, summed over latent functions, of latent functions that are constant."""
        shares = self.shares[1:] if self.number == 2 else self.shares
        return float(-(shares * np.log(shares) + (1 - shares) * np.log1p(-shares)).sum())

    def weights_of(self, codes: Array, row_noise: Array | None) -> Array:
        """How much each row counts in the likelihood: the weight of its class times its own.

        row_noise : as in `linalg.row_noise`; its factor is one over the weight of a row
        """
        weights = self.row_weights[codes.astype(int)]
        return weights if row_noise is None else np.asarray(weights / row_noise[:, FACTOR])

    def distinct(self, codes: Array) -> list[tuple[int, int]]:
        """Latent functions that differ given the classes of some rows, each with the number of those equal to it."""
        if self.latents == 1:
            return [(0, 1)]
        present = np.unique(codes.astype(int)).tolist()
        absent = sorted(set(range(self.number)) - set(present))
        return [(latent, 1) for latent in present] + [(absent[0], len(absent)) for _ in absent[:1]]

    @property
    def scale(self) -> float:
        """Factor of the number of rows at which all latent functions take as much work as one of all rows."""
        return float(self.latents ** (-1 / 3))

    def labels(self, codes: Array, latent: int) -> Array:
        """The labels, 0 or 1, of rows with these numbers of classes, in the problem of one latent function."""
        return np.asarray(codes == (1 if self.number == 2 else latent), float)
