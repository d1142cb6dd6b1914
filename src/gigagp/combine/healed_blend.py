"""Healed blend: of the nearest experts the confident speak louder, and none enters or leaves with a jump."""

from gigagp.combine.base import Message, Opinion, natural
from gigagp.combine.healed import Healed, confidence


class HealedBlend(Healed):
    """gPoE with the product of healed and blend weights: beta_j ~ closeness_j exp(T (ln kappa - ln s_j^2)/2).

    Closeness falls to zero at the edge of the circle of the k nearest, so the prediction is continuous as blend's is.
    """

    name = "healed_blend"
    laws = frozenset({"exact_with_one_leaf", "returns_to_prior", "invariant_to_tree", "continuous"})

    def __init__(self, temperature: float = 5.0) -> None:
        super().__init__(temperature)

    def message(self, said: Opinion) -> Message:
        return natural(said.closeness, said.mean, said.variance, confidence(said, self.temperature))
