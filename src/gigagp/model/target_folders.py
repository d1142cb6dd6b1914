"""Models of several targets as folders: a manifest with the names of the targets, and one folder per target.

The folder of a target is a model that can also be loaded on its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from gigagp.data import folders
from gigagp.errors import InvalidInput
from gigagp.model.loading import load_model, unchanged
from gigagp.model.model import Model
from gigagp.model.model_format import MANIFEST, TARGETS_FORMAT, TARGETS_VERSION, folder_path
from gigagp.model.saving import check_free, save_model
from gigagp.model.target_models import TargetModels


def save_targets(
    targets: TargetModels, parameters: dict[str, Any], folder: str | os.PathLike[str], overwrite: bool = False
) -> None:
    """Write the models of several targets to a folder; with `overwrite` an existing model is replaced."""
    final = Path(os.path.realpath(folder_path(folder)))
    content = {
        "format": TARGETS_FORMAT,
        "version": TARGETS_VERSION,
        "written_by": {"gigagp": metadata.version("gigagp")},
        "targets": list(targets.names),
        "named": bool(targets.named),
    }
    with folders.disk_errors("saving the model", final.parent):
        folders.remove_leftovers(final)
        check_free(final, overwrite)
        with folders.writing(final, replace=overwrite) as partial:
            for place, model in enumerate(targets.models):
                save_model(model, parameters, partial / str(place))
            folders.write_manifest(partial / MANIFEST, content)
            check_free(final, overwrite)  # writing takes a while


def load_targets(
    folder: str | os.PathLike[str], *, kernels: Iterable[type] = (), verify: bool = True
) -> tuple[Model | TargetModels, dict[str, Any]]:
    """The model in a folder, of one target or of several, and the parameters of its estimator."""
    path, classes = folder_path(folder), tuple(kernels)
    if not folders.is_of_kind(path / MANIFEST, TARGETS_FORMAT):
        return load_model(folder, kernels=classes, verify=verify)
    return unchanged(path, lambda: _read(path, classes, verify))


def _read(path: Path, kernels: tuple[type, ...], verify: bool) -> tuple[TargetModels, dict[str, Any]]:
    manifest = folders.read_manifest(path / MANIFEST, TARGETS_FORMAT, TARGETS_VERSION)
    names, named = manifest.get("targets"), manifest.get("named")
    texts = isinstance(names, list) and bool(names) and all(isinstance(name, str) for name in names)
    if not texts or len(set(names)) < len(names) or not isinstance(named, bool):  # type: ignore[arg-type]
        raise folders.damaged(path / MANIFEST, "it does not name its targets")
    assert isinstance(names, list)
    models: list[Model] = []
    parameters: dict[str, Any] = {}
    for place, name in enumerate(names):
        model, parameters = load_model(path / str(place), kernels=kernels, verify=verify)
        models.append(model)
        first = models[0]
        if model.columns != first.columns or model.feature_names != first.feature_names or model.classes is not None:
            raise InvalidInput(f"{path}: the model of the target {name!r} has other inputs; make the model anew")
    return TargetModels(tuple(models), tuple(names), named), parameters
