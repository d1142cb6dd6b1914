"""Healed product of experts: the confident speak louder."""

import numpy as np

from gigagp.arrays import Array
from gigagp.combine.base import Message, Opinion, Prediction, Rule, natural, weighted_average
from gigagp.errors import InvalidParameter


class Healed(Rule):
    """gPoE with beta_k = softmax(T (ln kappa - ln s_k^2)/2). Cohen et al. 2020.

    The larger the temperature T (as they write it), the more the most certain expert decides alone; 10 was best of
    1 to 100 on held-out kin40k training rows (benchmarks/temperature.py). The softmax's
    denominator is a sum over experts like the others, carried with a common scale so that it cannot overflow.
    """

    name = "healed"
    laws = frozenset({"exact_with_one_leaf", "returns_to_prior", "invariant_to_tree"})

    def __init__(self, temperature: float = 10.0) -> None:
        if not (np.isfinite(temperature) and temperature >= 0):
            raise InvalidParameter(f"Healed's temperature must be finite and at least 0; got {temperature!r}")
        self.temperature = float(temperature)

    def message(self, said: Opinion) -> Message:
        return natural(1.0, said.mean, said.variance, confidence(said, self.temperature))

    def finish(self, total: Message, prior: Array, communication: Prediction | None) -> Prediction:
        return weighted_average(total)


def confidence(said: Opinion, temperature: float) -> Array:
    """The log of an expert's weight: how much it knows beyond the prior, times the temperature."""
    return np.asarray(0.5 * temperature * np.log(said.prior / said.variance).astype(float))
