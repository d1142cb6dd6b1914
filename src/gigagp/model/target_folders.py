"""Models of several targets as folders: a manifest with the names of the targets, and one folder per target.

The folder of a target is a model that can also be loaded on its own. Where targets share a theta, files that are equal
are the same file on the disk, by hard links, so that the inputs take up room, and memory, once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from gigagp.data import folders
from gigagp.data.addresses import is_remote
from gigagp.errors import InvalidInput
from gigagp.model.loading import load_model, unchanged
from gigagp.model.model import Model
from gigagp.model.model_format import FORMAT, MANIFEST, TARGETS_FORMAT, TARGETS_VERSION, VERSION, folder_path
from gigagp.model.remote_folders import local_copy
from gigagp.model.saving import check_free, save_model
from gigagp.model.target_models import TargetModels
from gigagp.model.target_neighbourhood import TargetNeighbourhoods


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
        "shared": targets.shared is not None,
    }
    with folders.disk_errors("saving the model", final.parent):
        folders.remove_leftovers(final)
        check_free(final, overwrite)
        with folders.writing(final, replace=overwrite) as partial:
            for place, model in enumerate(targets.models):
                save_model(model, parameters, partial / str(place))
                if targets.shared is not None and place > 0:
                    _link_equal_files(partial / "0", partial / str(place))
            folders.write_manifest(partial / MANIFEST, content)
            check_free(final, overwrite)  # writing takes a while


def _link_equal_files(first: Path, second: Path) -> None:
    """Replace files of the second model by links to those of the first that have the same content."""
    files, others = (folders.read_manifest(folder / MANIFEST, FORMAT, VERSION)["files"] for folder in (first, second))
    for name, entry in others.items():
        if files.get(name) == entry:
            with suppress(OSError):  # on disks without links both copies remain
                (second / f"{name}.link").hardlink_to(first / name)
                (second / f"{name}.link").replace(second / name)


def load_targets(
    folder: str | os.PathLike[str], *, kernels: Iterable[type] = (), verify: bool | str = True
) -> tuple[Model | TargetModels, dict[str, Any]]:
    """The model in a folder, of one target or of several, and the parameters of its estimator."""
    folder = local_copy(folder) if isinstance(folder, str) and is_remote(folder) else folder
    path, classes = folder_path(folder), tuple(kernels)
    if not folders.is_of_kind(path / MANIFEST, TARGETS_FORMAT):
        return load_model(folder, kernels=classes, verify=verify)
    return unchanged(path, lambda: _read(path, classes, verify))


def _read(path: Path, kernels: tuple[type, ...], verify: bool | str) -> tuple[TargetModels, dict[str, Any]]:
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
            raise InvalidInput(f"{path}: the model of the target {name!r} has other inputs; fit and save it again")
    return TargetModels(tuple(models), tuple(names), named, _shared(manifest, models, path)), parameters


def _shared(manifest: dict[str, Any], models: list[Model], path: Path) -> TargetNeighbourhoods | None:
    """What predicts the targets together, where they share a theta."""
    if not manifest.get("shared", False):
        return None
    near = [model.neighbourhood for model in models if model.neighbourhood is not None]
    first = models[0]
    same = all(np.array_equal(m.theta, first.theta) and m.store.X.shape == first.store.X.shape for m in models)
    if len(near) < len(models) or not same:
        raise folders.damaged(path / MANIFEST, "its targets do not share a theta")
    return TargetNeighbourhoods(tuple(near), np.stack([np.asarray(model.store.y) for model in models]))
