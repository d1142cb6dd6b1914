"""Bayesian committee machine."""

from gigagp.arrays import Array
from gigagp.combine.base import Message, Opinion, Prediction, Rule, natural


class BCM(Rule):
    """P = sum 1/s_k^2 + (1 - M)/kappa, mean = (1/P) sum m_k/s_k^2. Tresp 2000."""

    name = "bcm"
    laws = frozenset({"exact_with_one_leaf", "returns_to_prior", "invariant_to_tree"})

    def message(self, opinion: Opinion) -> Message:
        return natural(1.0, opinion.mean, opinion.variance)

    def finish(self, total: Message, prior: Array, communication: Prediction | None) -> Prediction:
        experts, precision, precision_mean = total.terms
        corrected = precision + (1 - experts) / prior
        return Prediction(precision_mean / corrected, 1 / corrected)
