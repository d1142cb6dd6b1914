"""Loads a saved model as the estimator that it was: a regressor or a classifier."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from gigagp.data.folders import is_of_kind, read_manifest
from gigagp.data.scaling import Scaling
from gigagp.engines import SerialEngine
from gigagp.errors import NotPositiveDefinite
from gigagp.estimators.classifier import HGPClassifier
from gigagp.estimators.regressor import HGPRegressor
from gigagp.model import neighbourhood
from gigagp.model.model import Model
from gigagp.model.model_format import FORMAT, MANIFEST, VERSION, folder_path
from gigagp.model.target_folders import load_targets


def load(folder: str | os.PathLike[str], *, kernels: Iterable[type] = (), verify: bool | str = True) -> Any:
    """Load a model that `save` has written, as HGPRegressor or HGPClassifier.

    Parameters
    ----------
    folder : path
        Folder of the model. One at an address such as s3://bucket/model is downloaded to a cache, once.
    kernels : classes
        Classes of kernels, rules and partitioners of the model that are not part of gigagp.
    verify : bool or "nothing"
        False to load faster, without comparing the rows with their checksums. "nothing": cells and boxes are not
        checked either but only mapped into memory, so that a model of any size is opened in tens of milliseconds. Use
        it only for folders that nobody else can write to: a damaged folder may then crash the process.

    """
    model, parameters = load_targets(folder, kernels=kernels, verify=verify)
    kind = HGPClassifier if isinstance(model, Model) and model.classes is not None else HGPRegressor
    if isinstance(model, Model):
        _load_compiled_code(model)
    return kind.of_model(model, parameters, folder)


def open_for_updates(folder: str | os.PathLike[str]) -> Any:
    """Open a saved model for updates that are kept, as HGPRegressor or HGPClassifier (`HGPRegressor.open`).

    Parameters
    ----------
    folder : path
        Folder of the model.

    """
    manifest = folder_path(folder) / MANIFEST
    of_numbers = not is_of_kind(manifest, FORMAT) or read_manifest(manifest, FORMAT, VERSION).get("classes") is None
    return (HGPRegressor if of_numbers else HGPClassifier).open(folder)


def _load_compiled_code(model: Model) -> None:
    """Predict one of the model's rows from its neighbours, so that the first query does not wait for compiled code."""
    near = model.neighbourhood
    if near is not None and model.latents is None:
        Scaling(np.zeros(1), np.ones(1)).apply(np.zeros((1, 1)), near.store.X.dtype)
        with suppress(NotPositiveDefinite):  # queries will report it
            neighbourhood.predict(near, near.store.X[:1], SerialEngine())
