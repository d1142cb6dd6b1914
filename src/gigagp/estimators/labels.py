"""Labels of classes as users give them, the numbers of classes as the model has them, and class weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from gigagp.arrays import Array
from gigagp.data.sources import Rows
from gigagp.data.sources.base import listed
from gigagp.data.validation import check_finite
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.likelihoods import Classes
from gigagp.model.class_model import ClassModel, Label


def encode(y: Any) -> tuple[tuple[Label, ...], Array]:
    """The labels of an array of targets, in order, and the number of each row's label."""
    if y is None:
        raise InvalidInput("y is missing: a classifier requires y to be passed, but the target y is None")
    values = column_or_1d(np.asarray(y), warn=True)
    if values.dtype.kind == "O" and any(each is None or each != each for each in values):  # noqa: PLR0124 NaN
        row = next(i for i, each in enumerate(values) if each is None or each != each)  # noqa: PLR0124
        raise InvalidInput(f"y contains a missing label (None or NaN) at row {row}; drop such rows")
    check_finite(values, "y")
    check_classification_targets(values)
    try:
        labels, codes = np.unique(values, return_inverse=True)
    except TypeError as error:
        raise InvalidInput(f"the labels of y cannot be put in order ({error}); give them one type") from error
    return tuple(_plain(label) for label in labels), codes.astype(float)


def known_codes(y: Any, labels: tuple[Label, ...]) -> Array:
    """The number of each row's label among those of a fitted model; an error for a label it has not seen."""
    values = column_or_1d(np.asarray(y), warn=True)
    known = {label: code for code, label in enumerate(labels)}
    codes = [known.get(_plain(value), -1) for value in values]
    if -1 in codes:
        row = codes.index(-1)
        raise InvalidInput(
            f"y has the class {_plain(values[row])!r} at row {row}, which the training data did not have (they had "
            f"{listed(map(str, labels))}); take such rows out, or fit again with such rows"
        )
    return np.array(codes, float)


def _plain(label: Any) -> Label:
    value = label.item() if isinstance(label, np.generic) else label
    return value if isinstance(value, bool | int | float | str) else str(value)


def labels_of_column(rows: Rows) -> tuple[Label, ...]:
    """The labels of a target that is a column of a table or file, in the type of the column."""
    assert rows.target is not None
    assert rows.target.labels is not None
    texts = rows.target.labels
    kind = rows.source.columns[rows.target.column].kind
    if kind == "boolean":
        return tuple(text == "true" for text in texts)
    if kind == "integer":
        return tuple(int(text) for text in texts)
    return texts


def class_model(rows: Rows, labels: tuple[Label, ...], class_weight: Any) -> ClassModel:
    """The classes of rows, counted by one pass over them; an error unless there are at least two."""
    counts = np.zeros(len(labels))
    for block in rows.blocks():
        assert block.y is not None
        counts += np.bincount(block.y.astype(int), block.weights, minlength=len(labels))
    present = np.flatnonzero(counts > 0)
    if len(present) < 2:
        one = f"only one class, {labels[int(present[0])]!r}" if len(present) else "no classes"
        raise InvalidInput(f"the target has {one}; a classifier needs rows of at least two classes")
    if len(present) < len(labels):
        gone = labels[int(np.flatnonzero(counts == 0)[0])]
        raise InvalidInput(f"the class {gone!r} has no rows; fit again without it, or learn rows of it first")
    return ClassModel(labels, Classes(tuple(counts.tolist()), tuple(_weights(labels, counts, class_weight))))


def _weights(labels: tuple[Label, ...], counts: Array, class_weight: Any) -> list[float]:
    """The weight of one row of each class, as scikit-learn defines it."""
    if class_weight is None:
        return [1.0] * len(labels)
    if isinstance(class_weight, str) and class_weight == "balanced":
        return (counts.sum() / (len(counts) * np.maximum(counts, 1e-300))).tolist()  # type: ignore[no-any-return]
    if not isinstance(class_weight, Mapping):
        raise InvalidParameter(f'class_weight must be None, "balanced" or a dict of labels; got {class_weight!r}')
    unknown = [label for label in class_weight if label not in labels]
    if unknown:
        raise InvalidParameter(f"class_weight names the class {unknown[0]!r}, which y does not have")
    weights = [class_weight.get(label, 1.0) for label in labels]
    if not all(isinstance(w, int | float) and 0 < w < np.inf for w in weights):
        raise InvalidParameter(f"class_weight must be positive numbers; got {class_weight!r}")
    return [float(w) for w in weights]
