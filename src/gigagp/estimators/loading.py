"""Loads a saved model as the estimator that it was: a regressor or a classifier."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from gigagp.estimators.classifier import HGPClassifier
from gigagp.estimators.regressor import HGPRegressor
from gigagp.model.model import Model
from gigagp.model.target_folders import load_targets


def load(folder: str | os.PathLike[str], *, kernels: Iterable[type] = (), verify: bool = True) -> Any:
    """Load a model that `save` has written, as HGPRegressor or HGPClassifier.

    Parameters
    ----------
    folder : path
        Folder of the model.
    kernels : classes
        Classes of kernels, rules and partitioners of the model that are not part of gigagp.
    verify : bool
        False to load faster, without comparing the rows with their checksums.

    """
    model, parameters = load_targets(folder, kernels=kernels, verify=verify)
    kind = HGPClassifier if isinstance(model, Model) and model.classes is not None else HGPRegressor
    return kind.of_model(model, parameters, folder)
