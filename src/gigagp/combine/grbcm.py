"""Generalised robust Bayesian committee machine."""

import numpy as np

from gigagp.arrays import Array
from gigagp.combine.base import Message, Opinion, Prediction, Rule, natural


class GRBCM(Rule):
    """Every expert also has the data of one communication expert c, whose prediction replaces the prior.

    beta_1 = 1, beta_i = (ln s_c^2 - ln s_+i^2)/2; P = sum beta_i/s_+i^2 + (1 - sum beta)/s_c^2;
    mean = (1/P) [sum beta_i m_+i/s_+i^2 + (1 - sum beta) m_c/s_c^2]. Liu et al. 2018. (There the experts are numbered
    from 2, c being the first.)
    """

    name = "grbcm"
    laws = frozenset({"exact_with_one_leaf", "returns_to_prior", "invariant_to_tree"})
    needs_communication = True

    def message(self, opinion: Opinion) -> Message:
        assert opinion.communication is not None
        assert opinion.communication.variance is not None
        assert opinion.first is not None
        # More data can only lower the variance; a ratio below one is due to rounding and gets no weight.
        gain = 0.5 * np.log(np.maximum(opinion.communication.variance / opinion.variance, 1))
        return natural(np.where(opinion.first, 1.0, gain), opinion.mean, opinion.variance)

    def finish(self, total: Message, prior: Array, communication: Prediction | None) -> Prediction:
        assert communication is not None
        assert communication.variance is not None
        weight, precision, precision_mean = total.terms
        rest = (1 - weight) / communication.variance
        corrected = precision + rest
        return Prediction((precision_mean + rest * communication.mean) / corrected, 1 / corrected)
