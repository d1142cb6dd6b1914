"""Wasserstein barycentre of the experts."""

import numpy as np

from gigagp.arrays import Array
from gigagp.combine.base import Message, Opinion, Prediction, Rule


class Barycentre(Rule):
    """mean = sum beta_k m_k, sd = sum beta_k s_k, beta_k = 1/M. Cohen et al. 2020."""

    name = "barycentre"
    laws = frozenset({"exact_with_one_leaf", "returns_to_prior", "invariant_to_tree"})
    mean_needs_variance = False

    def message(self, opinion: Opinion) -> Message:
        return Message(np.stack([np.ones_like(opinion.mean), np.sqrt(opinion.variance), opinion.mean]))

    def finish(self, total: Message, prior: Array, communication: Prediction | None) -> Prediction:
        experts, deviation, mean = total.terms
        return Prediction(mean / experts, (deviation / experts) ** 2)
