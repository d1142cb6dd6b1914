"""Reads a fitted model from a folder; its rows are mapped into memory.

Loading executes nothing from the folder and trusts none of its content. Whoever can write a folder can also write
matching checksums, so the values of the arrays are checked even where all checksums are right.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from sklearn.base import RegressorMixin

from gigagp import memory
from gigagp.arrays import Array
from gigagp.combine import RULES
from gigagp.data import folders
from gigagp.data.array_files import ArrayFiles
from gigagp.data.directions import Directions
from gigagp.data.folders import damaged
from gigagp.data.row_lists import RowLists, Runs
from gigagp.data.scaling import Scaling
from gigagp.data.store import DTYPES, ExpertStore, read_rows
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.kernels import Kernel
from gigagp.model.calibration_format import floats, read_calibration
from gigagp.model.class_format import read_classes
from gigagp.model.committee import Committee
from gigagp.model.factor_cache import FactorCache
from gigagp.model.fit_report import Candidate, FitReport, Stage
from gigagp.model.fit_warnings import WARNINGS, FitWarning
from gigagp.model.input_noise import InputNoise
from gigagp.model.inputs_format import read_gap_scales, read_inputs, read_scaling, read_share, read_user_columns
from gigagp.model.likelihood_format import read_likelihood
from gigagp.model.likelihood_model import LikelihoodModel
from gigagp.model.mixture import Member, Mixture
from gigagp.model.model import CommitteeDefaults, Model
from gigagp.model.model_format import (
    FORMAT,
    MANIFEST,
    OLDEST_VERSION,
    VERSION,
    check_settings,
    folder_path,
)
from gigagp.model.neighbourhood_format import read_neighbourhood
from gigagp.model.plain_values import Registry, count, field, from_plain, number, require
from gigagp.model.router_format import read_router
from gigagp.model.routing import Router
from gigagp.model.sharing import Neighbourhoods
from gigagp.model.trend import RegressorTrend
from gigagp.model.trend_format import read_trend
from gigagp.model.update_replay import identity, read_updates, with_updates
from gigagp.tree import Tree

_Plain = TypeVar("_Plain")
_Read = TypeVar("_Read")
_DEEPEST = 200  # levels of a tree
NOTHING = "nothing"  # value of `verify` for folders that are trusted
_ATTEMPTS = 10  # at reading a model that is being replaced


def load_model(
    folder: str | os.PathLike[str], *, kernels: Iterable[type] = (), verify: bool | str = True
) -> tuple[Model, dict[str, Any]]:
    """The model in a folder, its rows mapped into memory, and the parameters of its estimator.

    kernels : classes of kernels, rules and partitioners that are not part of this package, and of the regressor that is
        the mean function where it is neither scikit-learn's nor NumPy's
    verify : False to read the rows, and lists of rows, without comparing checksums; NOTHING to check neither checksums
        nor values of large arrays, which are only mapped
    """
    if not (isinstance(verify, bool) or verify == NOTHING):
        raise InvalidParameter(f'verify must be True, False or "{NOTHING}"; got {verify!r}')
    path = folder_path(folder)
    classes = tuple(kernels)
    regressors = tuple(each for each in classes if isinstance(each, type) and issubclass(each, RegressorMixin))
    registry = Registry(each for each in classes if each not in regressors)

    def read() -> tuple[Model, dict[str, Any]]:
        model, settings = read_model(path, registry, verify is True, regressors, trusted=verify == NOTHING)
        return with_updates(model, path), settings

    return unchanged(path, read)


def unchanged(path: Path, read: Callable[[], _Read]) -> _Read:
    """What is read from a folder; once more where another process replaces the folder meanwhile."""
    for _ in range(_ATTEMPTS):
        before = _identity(path)
        try:
            content = read()
        except InvalidInput:
            if _identity(path) == before:
                raise
        else:
            if _identity(path) == before:
                return content
        # Another model was put there during the reading. Files of both must not be mixed.
    raise InvalidInput(f"{path} is replaced repeatedly; load it when no process is saving to it")


def _identity(path: Path) -> tuple[int, int, int] | None:
    """What changes when a folder is replaced; None where there is no model."""
    try:
        return identity(path)
    except OSError:
        return None


def read_model(
    folder: Path, registry: Registry, verify: bool, own: Iterable[type] = (), trusted: bool = False
) -> tuple[Model, dict[str, Any]]:
    """The model in a folder that no other process replaces meanwhile, and the parameters of its estimator.

    verify : whether checksums of rows are compared
    trusted : whether cells and boxes are not checked, but only mapped
    """
    manifest = folders.read_manifest(folder / MANIFEST, FORMAT, VERSION)
    if manifest["version"] < OLDEST_VERSION:
        raise InvalidInput(
            f"{folder} was saved by gigagp 0.1, whose predictive distribution this version does not have; fit the "
            "model again on its data, or load it with gigagp 0.1"
        )
    files = ArrayFiles(folder, manifest.get("files"))
    with _as_damage(folder / MANIFEST):
        rows, columns, leaves = (count(manifest, name, 1) for name in ("rows", "columns", "leaves"))
        dtype = field(manifest, "dtype", str)
        require(dtype in DTYPES, "its dtype is neither float32 nor float64")
        settings = {name: from_plain(each, registry) for name, each in field(manifest, "settings", dict).items()}
        check_settings(settings)
        kernel = _kernel(manifest, columns, registry)
        sphere, encoding, names = read_user_columns(manifest, columns)
        theta = _theta(files, kernel)
        store = read_rows(files, rows, columns, dtype, verify)
        cells = files.lists("cells", leaves, rows, verify, trusted)
        kept = _keep_mapped(store, settings, verify)
        router = read_router(files, leaves, store.X, cells, verify, kept, encoding, trusted)
        experts = _experts(files, manifest, cells, store, router, verify)
        trend = read_trend(manifest.get("trend"), files, columns, own)
        if isinstance(trend, RegressorTrend):
            settings["mean"] = trend.regressor
        inputs = read_inputs(files, manifest, sphere, columns)
        likelihood = read_likelihood(manifest.get("likelihood"), registry, store.y)
        near = read_neighbourhood(
            manifest.get("neighbourhood"), kernel, theta, store, cells, router,
            lambda content: _kernel(content, columns, registry),
        )  # fmt: skip
        return Model(
            committee=Committee(
                kernel, theta, store, experts, _tree(files, manifest, leaves, trusted), router,
                _communication(files, manifest, rows), field(manifest, "student", bool),
                None if manifest.get("inducing") is None else count(manifest, "inducing", 1),
                FactorCache(memory.budget(settings.get("memory")) // 4),
            ),
            neighbourhood=near,
            mixture=_mixture(manifest.get("mixture"), files, store, registry, settings),
            cells=cells,
            local=field(manifest, "local", bool),
            inputs=inputs,
            gap_scales=read_gap_scales(manifest, encoding),
            target=read_scaling(files, "target", 1),
            report=_report(
                files, manifest.get("report"), rows, kernel, theta, cells, experts, likelihood, inputs.directions
            ),
            encoding=encoding,
            feature_names=None if names is None else tuple(names),
            target_name=_target_name(manifest),
            defaults=_defaults(field(manifest, "auto", dict)),
            input_noise=None if "input_noise" not in manifest
            else _input_noise(field(manifest, "input_noise", dict), files, store, registry, inputs.directions),
            classes=read_classes(manifest.get("classes"), store.y),
            trend=trend, **read_updates(files, manifest, rows),
            likelihood=likelihood, share=read_share(manifest),
        ), settings  # fmt: skip


def _keep_mapped(store: ExpertStore, settings: dict[str, Any], verify: bool) -> int:
    """Map all rows now if they fit into a quarter of the budget, which is returned; nothing without `verify`."""
    kept = memory.budget(settings.get("memory")) // 4 if verify else 0
    store.keep_mapped(kept)
    return kept


@contextmanager
def _as_damage(manifest: Path) -> Iterator[None]:
    """Report a ValueError about the manifest as damage to that file."""
    try:
        yield
    except InvalidInput:  # its message states the remedy already
        raise
    except ValueError as error:
        raise damaged(manifest, str(error)) from None


def _kernel(manifest: dict[str, Any], columns: int, registry: Registry) -> Kernel:
    kernel = from_plain(manifest.get("kernel"), registry)
    if not isinstance(kernel, Kernel):
        raise ValueError("it does not describe a valid kernel")
    require(kernel.fits(columns), "its kernel does not fit its number of columns")
    return kernel


def _target_name(manifest: dict[str, Any]) -> str | None:
    name = manifest.get("target_name")
    require(name is None or isinstance(name, str), "the name of its target is not text")
    return name


def _defaults(content: dict[str, Any]) -> CommitteeDefaults:
    name = field(content, "rule", str)
    require(name in RULES, "it names an unknown combination rule")
    return CommitteeDefaults(name, count(content, "nearest") or None)


def _mixture(
    content: Any, files: ArrayFiles, store: ExpertStore, registry: Registry, settings: dict[str, Any]
) -> Mixture | None:
    if content is None:
        return None
    rows, columns = store.X.shape
    require(isinstance(content, list) and bool(content), "its mixture has no members")
    errors = files.read("held_out_errors", (len(content), rows), "float64")
    members = []
    for each, own in zip(content, errors, strict=True):
        kernel, theta, weight = _kernel(each, columns, registry), floats(each, "theta"), number(each, "weight")
        require(len(theta) == len(kernel.theta) + 1 and 0 < weight <= 1, "a member of its mixture is not valid")
        members.append(Member(kernel, theta, weight, np.array(own)))
    return Mixture(tuple(members), store, FactorCache(memory.budget(settings.get("memory")) // 4))


def _input_noise(
    content: dict[str, Any], files: ArrayFiles, store: ExpertStore, registry: Registry, directions: Directions | None
) -> InputNoise:
    shape, dtype = (count(content, "points", 1), store.X.shape[1]), store.X.dtype
    kernel, (rho, mean, scale) = _kernel(content, shape[1], registry), floats(content, "numbers")
    require(kernel.metric(kernel.theta) is not None and rho >= 0 and scale > 0, "its noise model is not valid")
    theta = files.read("noise_theta", (len(kernel.theta) + 1,), "float64")
    u, weights = (files.read(f"noise_{n}", s, "float64") for n, s in (("points", shape), ("weights", shape[:1])))
    target = Scaling(mean[None], scale[None])
    return InputNoise(kernel, theta, u.astype(dtype), weights.astype(dtype), target, rho, directions)


def _theta(files: ArrayFiles, kernel: Kernel) -> Array:
    theta = files.read("theta", (len(kernel.theta) + 1,), "float64")
    with np.errstate(over="ignore", under="ignore"):
        values = np.exp(theta)
    if not (np.isfinite(values) & (values > 0)).all():
        raise damaged(files.path("theta"), "its numbers cannot be logarithms of parameters")
    return theta


def _tree(files: ArrayFiles, manifest: dict[str, Any], leaves: int, trusted: bool) -> Tree:
    sizes = field(manifest, "levels", list)
    require(
        0 < len(sizes) <= _DEEPEST and all(type(n) is int and 2 <= n <= leaves + 1 for n in sizes),
        "it does not describe a valid tree",
    )
    whole = np.asarray(files.map("tree", (sum(sizes),), "int64", verify=not trusted))
    levels = tuple(np.split(whole, np.cumsum(sizes)[:-1]))
    if trusted:
        return Tree(levels)
    width = 1
    for level in levels:
        if len(level) != width + 1 or level[0] != 0 or (level[1:] <= level[:-1]).any():
            raise damaged(files.path("tree"), "it is not a valid tree")
        width = int(level[-1])
    if width != leaves:
        raise damaged(files.path("tree"), f"it has {width} leaves, but there are {leaves} experts")
    return Tree(levels)


def _experts(
    files: ArrayFiles, manifest: dict[str, Any], cells: RowLists, store: ExpertStore, router: Router, verify: bool
) -> RowLists:
    """The rows each expert predicts from."""
    kind, rows = field(manifest, "experts", str), len(store.y)
    if kind == "cells":
        return cells
    if kind == "lists":
        return files.lists("experts", len(cells), rows, verify)
    if kind != "neighbourhoods" or not isinstance(cells, Runs):
        raise ValueError("it does not describe valid experts")
    outside = files.read("outside", (len(cells),), "int64")
    if (outside < 0).any() or (outside > rows - cells.sizes).any():
        raise damaged(files.path("outside"), "it asks for more points than exist")
    return Neighbourhoods(store, cells, router, outside)


def _communication(files: ArrayFiles, manifest: dict[str, Any], rows: int) -> Array | None:
    size = count(manifest, "communication")
    if size == 0:
        return None
    common = files.read("communication", (size,), "int64")
    if common[0] < 0 or common[-1] >= rows or (common[1:] <= common[:-1]).any():
        raise damaged(files.path("communication"), "it contains row numbers that do not exist")
    return common


def _report(
    files: ArrayFiles, content: Any, rows: int, kernel: Kernel, theta: Array, cells: RowLists, experts: RowLists,
    likelihood: LikelihoodModel | None, directions: Directions | None,
) -> FitReport:  # fmt: skip
    evaluations = count(content, "evaluations")
    names = (*kernel.names, (likelihood and likelihood.latents.dispersion_name) or "noise_variance")
    names = names if directions is None else directions.named(names)
    return FitReport(
        rows=rows,
        leaves=len(cells),
        points_per_leaf=_range(content, "points_per_leaf", cells),
        points_per_expert=_range(content, "points_per_expert", experts),
        stages=tuple(_plain(Stage, each) for each in field(content, "stages", list)),
        seconds={name: number(content["seconds"], name) for name in field(content, "seconds", dict)},
        evidence_trace=tuple(files.read("evidence_trace", (evaluations,), "float64", finite=False).tolist()),
        theta_trace=files.read("theta_trace", (evaluations, len(theta)), "float64", finite=False),
        names=names,
        theta=theta,
        jitter=number(content, "jitter"),
        jittered_experts=count(content, "jittered_experts"),
        warnings=tuple(read_warning(each, names) for each in field(content, "warnings", list)),
        dropped=count(content, "dropped"),
        outliers=tuple(_counts(content.get("outliers", []))),  # models of earlier versions have none
        outlier_count=count(content, "outlier_count") if "outlier_count" in content else 0,
        copies=count(content, "copies") if "copies" in content else 0,
        looks_like=field(content, "looks_like", str) if "looks_like" in content else "",
        calibration=read_calibration(field(content, "calibration", dict)),
        choices=tuple(_plain(Candidate, each) for each in field(content, "choices", list)),
    )


def _range(content: dict[str, Any], name: str, lists: RowLists) -> tuple[int, int]:
    """The smallest and largest size of lists; models of earlier versions do not contain them."""
    if name not in content:
        sizes = lists.sizes
        return int(sizes.min()), int(sizes.max())
    numbers = _counts(content[name])
    require(len(numbers) == 2, f"{name} is not a pair of numbers")
    return numbers[0], numbers[1]


def read_warning(content: Any, names: tuple[str, ...]) -> FitWarning:
    kind = field(content, "kind", str)
    require(kind in WARNINGS, f"a warning is of the unknown kind {reprlib.repr(kind)}")
    warning = _plain(WARNINGS[kind], content)
    require(getattr(warning, "parameter", names[0]) in names, "a warning names an unknown parameter")
    return warning


def _counts(values: Any) -> list[int]:
    require(isinstance(values, list), "its row numbers are not a list")
    require(all(type(value) is int and value >= 0 for value in values), "its row numbers are not valid")
    return list(values)


def _plain(kind: type[_Plain], content: Any) -> _Plain:
    """An instance of a dataclass whose fields are plain values."""
    return kind(**{f.name: _PLAIN_FIELDS[str(f.type)](content, f.name) for f in fields(kind)})  # type: ignore[arg-type]


_PLAIN_FIELDS: dict[str, Callable[[Any, str], Any]] = {
    "str": lambda content, name: field(content, name, str),
    "bool": lambda content, name: field(content, name, bool),
    "int": count,
    "tuple[int, ...]": lambda content, name: tuple(_counts(field(content, name, list))),
    "float": number,
}
