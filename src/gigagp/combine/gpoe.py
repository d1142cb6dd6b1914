"""Generalised product of experts."""

from gigagp.arrays import Array
from gigagp.combine.base import Message, Opinion, Prediction, Rule, natural, weighted_average


class GPoE(Rule):
    """P = sum beta_k/s_k^2, mean = (1/P) sum beta_k m_k/s_k^2, beta_k = 1/M. Cao & Fleet 2014."""

    name = "gpoe"
    laws = frozenset({"exact_with_one_leaf", "returns_to_prior", "invariant_to_tree"})

    def message(self, opinion: Opinion) -> Message:
        return natural(1.0, opinion.mean, opinion.variance)

    def finish(self, total: Message, prior: Array, communication: Prediction | None) -> Prediction:
        return weighted_average(total)
