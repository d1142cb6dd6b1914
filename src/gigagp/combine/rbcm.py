"""Robust Bayesian committee machine."""

import numpy as np

from gigagp.arrays import Array
from gigagp.combine.base import Message, Opinion, Prediction, Rule, natural


class RBCM(Rule):
    """P = sum beta_k/s_k^2 + (1 - sum beta)/kappa, beta_k = (ln kappa - ln s_k^2)/2. Deisenroth & Ng 2015.

    Not exact with one leaf: beta is a difference of entropies, which is not 1.
    """

    name = "rbcm"
    laws = frozenset({"returns_to_prior", "invariant_to_tree"})

    def message(self, opinion: Opinion) -> Message:
        return natural(0.5 * np.log(opinion.prior / opinion.variance), opinion.mean, opinion.variance)

    def finish(self, total: Message, prior: Array, communication: Prediction | None) -> Prediction:
        weight, precision, precision_mean = total.terms
        corrected = precision + (1 - weight) / prior
        return Prediction(precision_mean / corrected, 1 / corrected)
