"""Product of experts: the paper's rule."""

from gigagp.arrays import Array
from gigagp.combine.base import Message, Opinion, Prediction, Rule, natural
from gigagp.errors import InvalidParameter


class PoE(Rule):
    """P = sum 1/s_k^2, mean = (1/P) sum m_k/s_k^2. Ng & Deisenroth 2014, eq. 7-8.

    target="y" multiplies densities of the noisy y, exactly as the paper writes it: s_k^2 includes the noise, and the
    product falls below the noise floor as experts grow in number. target="f" multiplies densities of the latent f and
    adds the noise once. Either is overconfident far from data (kappa / M).
    """

    name = "poe"
    laws = frozenset({"exact_with_one_leaf", "invariant_to_tree"})

    def __init__(self, target: str = "f") -> None:
        if target not in ("f", "y"):
            raise InvalidParameter(
                f"PoE's target must be 'f' (the latent function) or 'y' (as the paper); got {target!r}"
            )
        self.target = target

    def message(self, opinion: Opinion) -> Message:
        variance = opinion.variance + opinion.noise if self.target == "y" else opinion.variance
        return natural(1.0, opinion.mean, variance)

    def finish(self, total: Message, prior: Array, communication: Prediction | None) -> Prediction:
        _, precision, precision_mean = total.terms
        return Prediction(precision_mean / precision, 1 / precision)
