"""Blend: a generalised product of the nearest experts that is continuous in the query."""

from gigagp.arrays import Array
from gigagp.combine.base import Message, Opinion, Prediction, Rule, natural, weighted_average


class Blend(Rule):
    """gPoE with partition-of-unity weights: beta_j ~ 1 - (d_j / d_{k+1})^2, d_j the distance to expert j's centre.

    An expert has weight zero where it becomes or ceases to be one of the k nearest, so mean and variance are
    continuous in the query (from k = 2 on: a single expert has all the weight). Where all experts answer, the rule is
    gPoE.
    """

    name = "blend"
    laws = frozenset({"exact_with_one_leaf", "returns_to_prior", "invariant_to_tree", "continuous"})

    def message(self, opinion: Opinion) -> Message:
        return natural(opinion.closeness, opinion.mean, opinion.variance)

    def finish(self, total: Message, prior: Array, communication: Prediction | None) -> Prediction:
        return weighted_average(total)
