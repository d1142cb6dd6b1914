"""Healed product of experts: experts with small variances have more weight."""

import numpy as np

from gigagp.arrays import Array
from gigagp.combine.base import Message, Opinion, Prediction, Rule, natural, weighted_average
from gigagp.errors import InvalidParameter


class Healed(Rule):
    """gPoE with beta_k = softmax(T (ln kappa - ln s_k^2)/2). Cohen et al. 2020.

    The larger the temperature T (their term), the more weight the most certain expert has; 10 was best of 1 to 100 on
    held-out kin40k training rows (benchmarks/temperature.py). The denominator of the softmax is a sum over experts like
    the other terms; a common scale keeps it from overflowing.
    """

    name = "healed"
    laws = frozenset({"exact_with_one_leaf", "returns_to_prior", "invariant_to_tree"})

    def __init__(self, temperature: float = 10.0) -> None:
        if not (np.isfinite(temperature) and temperature >= 0):
            raise InvalidParameter(f"Healed's temperature must be finite and at least 0; got {temperature!r}")
        self.temperature = float(temperature)

    def message(self, opinion: Opinion) -> Message:
        return natural(1.0, opinion.mean, opinion.variance, confidence(opinion, self.temperature))

    def finish(self, total: Message, prior: Array, communication: Prediction | None) -> Prediction:
        return weighted_average(total)


def confidence(opinion: Opinion, temperature: float) -> Array:
    """The logarithm of an expert's weight: its reduction of entropy relative to the prior, times the temperature."""
    logarithm: Array = 0.5 * temperature * np.log(opinion.prior / opinion.variance).astype(float)
    return logarithm
