"""Warnings of a report on a model of classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gigagp.report.advice import Advice
from gigagp.report.class_scoring import ClassScoreCollector

_USELESS_LOSS = 0.98  # share of the log loss of the class shares from which a model explains next to nothing
_SIGNIFICANCE = 0.005  # probability below which miscalibration is not explained by chance
_RELEVANT_ERROR = 0.02  # expected calibration error that matters in practice
_RELEVANT_FAR_SHARE = 0.01  # share of the rows that lie far from the training rows
_FEW_ROWS = 20  # rows of a class below which it is not missed among the predictions


def advice_on_classes(scores: ClassScoreCollector, labels: Sequence[str], dropped: int) -> list[Advice]:
    """What predictions of rows with known classes show.

    dropped : number of rows without a score because values are missing
    """
    advice, whole, base = [], scores.all_rows(), scores.base_log_loss
    if base > 0 and whole.log_loss >= _USELESS_LOSS * base:
        advice.append(
            Advice(
                f"The model predicts hardly better than the shares of the classes would: log loss {whole.log_loss:.4g}"
                f" against {base:.4g}.",
                "The columns may contain no information about the class. Check table joins, or add columns.",
            )
        )
    if scores.bins.error > _RELEVANT_ERROR and scores.miscalibration < _SIGNIFICANCE:
        advice.append(
            Advice(
                f"Probabilities are not calibrated: they differ from frequencies by {scores.bins.error:.1%} on average,"
                " more than chance explains.",
                "If these are new rows that differ from the training rows permanently, fit the model to such rows. "
                "class_weight and sample_weight also change probabilities. Otherwise treat the probabilities as "
                "approximate: the first figure shows where they are too high or too low.",
            )
        )
    absent = (scores.counts >= _FEW_ROWS) & (scores.confusion.sum(axis=0) == 0)
    if absent.any():
        names = ", ".join(labels[place] for place in np.flatnonzero(absent).tolist())
        advice.append(
            Advice(
                f"No row is assigned to these classes, although there are rows of them: {names}.",
                "Probabilities may be right nevertheless. Use predict_proba with a threshold of your own, or "
                'class_weight="balanced", if these classes matter more than others.',
            )
        )
    far = scores.rows_far_from_data()
    if far > _RELEVANT_FAR_SHARE * scores.rows:
        advice.append(
            Advice(
                f"{far / scores.rows:.1%} of the rows lie far from all training rows. There the model predicts the "
                "shares of the classes.",
                "Add training rows in these regions.",
            )
        )
    if dropped:
        advice.append(
            Advice(
                f"{dropped:,} rows were not scored because values are missing.",
                "Check whether these rows have something in common.",
            )
        )
    return advice
