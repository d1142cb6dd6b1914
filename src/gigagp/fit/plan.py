"""The plan of a fit: what it does, its random numbers, and the log of its evaluations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gigagp import expert
from gigagp.arrays import Array
from gigagp.combine import CombinationRule
from gigagp.fit.theta_prior import ThetaPrior
from gigagp.fit.training import Objective, Precision, with_prior
from gigagp.kernels.base import Kernel
from gigagp.likelihoods import Classes, Latents
from gigagp.model.likelihood_model import LikelihoodModel
from gigagp.partition import Partitioner, Shape


@dataclass(frozen=True, eq=False)
class Family:
    """A candidate kernel family. Its length-scales are about `stretch` times those of the squared exponential.

    A kernel with one length-scale for all columns starts from the geometric mean of those of the columns.
    """

    kernel: Kernel
    stretch: float = 1.0

    @property
    def name(self) -> str:
        """For reports."""
        equal = any(p.name == "lengthscale" and not p.per_feature for p in self.kernel.parameters)
        return type(self.kernel).__name__ + (" with one length-scale" if equal else "")

    def start(self, theta: Array) -> Array:
        """Where training starts, from a theta of the squared exponential with the same columns."""
        parameters, noise = theta[:-1], theta[-1]
        own = self.kernel.theta.copy()
        if len(own) < len(parameters):
            parameters = np.append(parameters[0], parameters[1:].mean())
        own[: len(parameters)] = parameters
        own[1 : len(parameters)] += np.log(self.stretch)
        return np.append(own, noise)

    def plain(self, theta: Array) -> Array:
        """The theta of the squared exponential from which `start` gives this theta."""
        plain = theta.copy()
        plain[1:-1] -= np.log(self.stretch)
        return plain


@dataclass(frozen=True, eq=False)
class Plan:
    """What a fit does: the user's settings, with all names resolved to objects."""

    kernel: Kernel  # bound to the number of columns; its values are where training starts
    noise_start: float
    noise_bounds: tuple[float, float]
    partitioner: Partitioner
    shape: Shape
    training: str
    precision: Precision
    restarts: int = 0
    student: bool = False  # whether each expert has its own scale
    inducing: int | None = None  # inducing points of a sparse leaf; None for exact leaves
    rule: CombinationRule | None = None  # None: to be chosen
    nearest: int | str | None = "auto"
    calibrate: bool = True
    families: tuple[Family, ...] = ()  # kernels to choose from; () where the user chose
    method: str = "auto"  # how queries are answered: "neighbourhood", "committee" or whichever predicts better
    neighbours: int | None = None  # None: to be chosen
    directions: bool = False  # whether combinations of columns may take their places
    exact_search: bool = False
    exact_rows: int = 0  # rows up to which exact GPs on all of them may answer queries
    target_variance: float = 1.0  # in the units of the model
    noise_unit: float = 1.0  # weight of a typical row: its noise variance is that of a row of weight one, divided by it
    noise: str = "constant"  # "inputs" where it may depend on them, "auto" where held-out rows decide
    gaussian_errors: bool = False  # whether the predictive distribution must be Gaussian
    train: bool = True  # False where the target is constant: there is nothing to learn
    likelihood: LikelihoodModel | None = None  # where it is not Gaussian, and targets are not classes
    latents: Latents | None = None  # where targets are classes, or have a likelihood that is not Gaussian
    categories: tuple[int, ...] = ()  # columns that are categories

    @property
    def start(self) -> Array:
        return np.append(self.kernel.theta, np.log(self.noise_start))

    @property
    def dof(self) -> float:
        """Degrees of freedom of the scale of one expert; infinite where all experts have the same scale."""
        return expert.STUDENT_DOF if self.student else np.inf

    @property
    def bounds(self) -> Array:
        return np.vstack([self.kernel.bounds, np.log(self.noise_bounds)])

    @property
    def trainable(self) -> bool:
        """Whether the bounds leave any part of theta to be learnt."""
        return bool((self.bounds[:, 0] < self.bounds[:, 1]).any())

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.kernel.names, (self.latents and self.latents.dispersion_name) or "noise_variance")

    def with_prior(self, evidence: Objective) -> Objective:
        """The objective of training: for classes with a weak prior of theta, unless the user has chosen the kernel.

        A label carries little information, so that many length-scales (those of indicator columns, for example) would
        fit the labels by chance.
        """
        if not isinstance(self.latents, Classes) or not self.families:
            return evidence
        prior = ThetaPrior.of_latent_functions(self.names, self.start)
        return with_prior(evidence, prior, self.latents.weight)

    def metric(self, theta: Array, n_features: int) -> Array:
        """The kernel's metric at theta, or ones where it has none."""
        metric = self.kernel.metric(theta[:-1])
        return (
            np.ones(n_features)
            if metric is None or not metric.any()
            else np.broadcast_to(metric, (n_features,)).astype(float)
        )


@dataclass(frozen=True, eq=False)
class Seeds:
    """The random numbers of a fit: one independent stream per use."""

    keys: int
    partition: np.random.Generator
    batches: np.random.Generator
    restarts: np.random.Generator
    choice: np.random.Generator

    @classmethod
    def of(cls, seed: np.random.SeedSequence) -> Seeds:
        keys, *others = seed.spawn(5)
        return cls(int(keys.generate_state(1, np.uint64)[0]), *(np.random.default_rng(s) for s in others))


class Log(Protocol):
    """Records evaluations, so that an interrupted fit can be resumed."""

    def recorded(self, evidence: Objective) -> Objective: ...


class NoLog:
    """Records nothing."""

    def recorded(self, evidence: Objective) -> Objective:
        return evidence
