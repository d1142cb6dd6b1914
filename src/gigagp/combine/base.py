"""What a combination rule is: the message of one expert, and the last step at the root.

Experts say m_k and s_k^2, mean and variance of the latent f at a query. A rule turns them into terms that add up the
tree; at the root it makes mean and variance of the sum. kappa is the prior variance of f at the query.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gigagp.arrays import Array


@dataclass(frozen=True)
class Opinion:
    """What one expert says at q queries, and what a rule may weigh it by."""

    mean: Array
    variance: Array  # of the latent f
    prior: Array  # kappa
    noise: float
    closeness: Array  # partition-of-unity weight of this expert among those asked; 1 where all are asked
    communication: Prediction | None = None  # what the communication expert says (GRBCM)
    first: Array | None = None  # whether this is the first expert asked (GRBCM)


@dataclass(frozen=True)
class Prediction:
    """Mean and variance at q queries. The variance is None where only means were asked.

    Where experts have scales of their own, `scale` is by what variance and noise are to be multiplied.
    """

    mean: Array
    variance: Array | None
    scale: Array | None = None


@dataclass(frozen=True)
class Message:
    """Terms that add, (terms, q). Where `log_scale` (q,) is given, the true terms are terms * exp(log_scale)."""

    terms: Array
    log_scale: Array | None = None

    def __add__(self, other: Message) -> Message:
        if self.log_scale is None or other.log_scale is None:
            return Message(self.terms + other.terms)
        top = np.maximum(self.log_scale, other.log_scale)
        terms = self.terms * np.exp(self.log_scale - top) + other.terms * np.exp(other.log_scale - top)
        return Message(terms, top)


class Rule(ABC):
    """A way to combine experts.

    Laws a rule may declare; the tests check those it declares, and that the others really fail:
    exact_with_one_leaf: with a single expert the prediction is that expert's.
    returns_to_prior: far from all data the variance of f is the prior's.
    invariant_to_tree: the shape of the tree above the experts does not matter.
    continuous: the prediction is a continuous function of the query also when only the nearest experts are asked.
    """

    name: ClassVar[str]
    laws: ClassVar[frozenset[str]]
    target: str = "f"  # whose variance `finish` returns: the latent f, or the noisy y
    needs_communication: ClassVar[bool] = False
    mean_needs_variance: ClassVar[bool] = True

    @abstractmethod
    def message(self, said: Opinion) -> Message:
        """The terms one expert sends up."""

    @abstractmethod
    def finish(self, total: Message, prior: Array, communication: Prediction | None) -> Prediction:
        """Mean and variance from the summed terms."""

    def __repr__(self) -> str:
        own = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"{type(self).__name__}({own})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self).__name__, *vars(self).items()))


LAWS = frozenset({"exact_with_one_leaf", "returns_to_prior", "invariant_to_tree", "continuous"})


def natural(weight: Array | float, mean: Array, variance: Array, log_scale: Array | None = None) -> Message:
    """The terms weight, weight / variance, weight * mean / variance: natural parameters of a Gaussian, weighted."""
    precision = weight / variance
    return Message(np.stack([np.broadcast_to(weight, mean.shape), precision, precision * mean]), log_scale)


def weighted_average(total: Message) -> Prediction:
    """Mean and variance from natural parameters whose weights are to sum to one."""
    weight, precision, precision_mean = total.terms
    return Prediction(precision_mean / precision, weight / precision)
