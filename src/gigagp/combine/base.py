"""Interface of the combination rules: from the predictions of several experts to one mean and variance.

Expert k predicts m_k and s_k^2, mean and variance of the latent f at a query; kappa is the prior variance of f there.
A `Rule` turns the prediction of each expert into terms that are added up the tree, and computes mean and variance from
their sum at the root. A `JointRule` needs the experts' means together with the covariances between them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gigagp.arrays import Array


@dataclass(frozen=True)
class Opinion:
    """The prediction of one expert at q queries, and what a rule may weight it by."""

    mean: Array
    variance: Array  # of the latent f
    prior: Array  # kappa
    noise: float
    closeness: Array  # partition-of-unity weight of this expert among those that answer; 1 where all answer
    communication: Prediction | None = None  # prediction of the communication expert (GRBCM)
    first: Array | None = None  # whether this is the first expert of the query (GRBCM)


@dataclass(frozen=True)
class Prediction:
    """Mean and variance at q queries. The variance is None where only means were requested.

    Where each expert has its own scale, variance and noise are to be multiplied by `scale`.
    """

    mean: Array
    variance: Array | None
    scale: Array | None = None


@dataclass(frozen=True)
class Message:
    """Terms that are added, (terms, q). Where `log_scale` (q,) is given, the true terms are terms * exp(log_scale)."""

    terms: Array
    log_scale: Array | None = None

    def __add__(self, other: Message) -> Message:
        if self.log_scale is None or other.log_scale is None:
            return Message(self.terms + other.terms)
        top = np.maximum(self.log_scale, other.log_scale)
        terms = self.terms * np.exp(self.log_scale - top) + other.terms * np.exp(other.log_scale - top)
        return Message(terms, top)


class CombinationRule(ABC):
    """A way to combine the predictions of several experts: a `Rule` or a `JointRule`.

    Laws a rule may declare; the tests check those it declares, and that the others really fail:
    exact_with_one_leaf: with a single expert the prediction is that expert's.
    returns_to_prior: far from all data the variance of f is the prior's.
    invariant_to_tree: the shape of the tree above the experts does not matter.
    continuous: the prediction is a continuous function of the query also when only the nearest experts predict.
    """

    name: ClassVar[str]
    laws: ClassVar[frozenset[str]]
    target: str = "f"  # whose variance the rule returns: that of the latent f, or of the noisy y
    needs_communication: ClassVar[bool] = False  # whether one expert's rows are added to all others (GRBCM)

    @property
    @abstractmethod
    def closed_form_held_out(self) -> bool:
        """Whether the held-out predictions of single experts, which have a closed form, suffice to apply the rule."""

    def __repr__(self) -> str:
        own = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"{type(self).__name__}({own})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self).__name__, *vars(self).items()))


class Rule(CombinationRule):
    """A rule in which every expert sends a message of its own and the messages are added."""

    mean_needs_variance: ClassVar[bool] = True  # whether the combined mean depends on the experts' variances

    @property
    def closed_form_held_out(self) -> bool:
        return not self.needs_communication

    @abstractmethod
    def message(self, opinion: Opinion) -> Message:
        """The terms that one expert contributes to the sum."""

    @abstractmethod
    def finish(self, total: Message, prior: Array, communication: Prediction | None) -> Prediction:
        """Mean and variance from the summed terms."""


class JointRule(CombinationRule):
    """A rule that needs the covariances between the predictions of all experts of a query."""

    @property
    def closed_form_held_out(self) -> bool:
        return False

    @abstractmethod
    def combine(self, means: Array, covariances: Array, prior: Array) -> Prediction:
        """Mean and variance at q queries that ask k experts.

        means: the experts' means, (q, k); covariances: those of the means under the prior, (q, k, k); prior: (q,).
        """


LAWS = frozenset({"exact_with_one_leaf", "returns_to_prior", "invariant_to_tree", "continuous"})


def natural(weight: Array | float, mean: Array, variance: Array, log_scale: Array | None = None) -> Message:
    """The terms weight, weight / variance, weight * mean / variance: weighted natural parameters of a Gaussian."""
    precision = weight / variance
    return Message(np.stack([np.broadcast_to(weight, mean.shape), precision, precision * mean]), log_scale)


def weighted_average(total: Message) -> Prediction:
    """Mean and variance from natural parameters whose weights are to sum to one."""
    weight, precision, precision_mean = total.terms
    return Prediction(precision_mean / precision, weight / precision)
