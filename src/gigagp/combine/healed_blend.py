"""Healed blend: the weights of `Healed` among the nearest experts, made continuous in the query as in `Blend`."""

from gigagp.combine.base import Message, Opinion, natural
from gigagp.combine.healed import Healed, confidence


class HealedBlend(Healed):
    """gPoE with the product of healed and blend weights: beta_j ~ closeness_j exp(T (ln kappa - ln s_j^2)/2).

    Closeness is zero where an expert becomes or ceases to be one of the k nearest, so the prediction is continuous.
    """

    name = "healed_blend"
    laws = frozenset({"exact_with_one_leaf", "returns_to_prior", "invariant_to_tree", "continuous"})

    def __init__(self, temperature: float = 5.0) -> None:
        super().__init__(temperature)

    def message(self, opinion: Opinion) -> Message:
        return natural(opinion.closeness, opinion.mean, opinion.variance, confidence(opinion, self.temperature))
