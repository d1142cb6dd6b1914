"""Writes a fitted model to a folder: manifest.json and one .npy file per array.

The manifest holds settings, kernel, encoding and report as plain values, and lists the arrays with their checksums. A
folder is written under a temporary name, read back as a check, and then renamed, so that it is complete or absent.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from gigagp.data import folders
from gigagp.data.addresses import is_remote
from gigagp.data.array_files import write_array, write_lists
from gigagp.data.store import write_rows
from gigagp.data.warping import stacked
from gigagp.engines import Engine, SerialEngine, is_client
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.model.calibration_format import describe_calibration
from gigagp.model.class_format import describe_classes
from gigagp.model.fit_warnings import FitWarning
from gigagp.model.input_noise import InputNoise
from gigagp.model.inputs_format import describe_circles, describe_share, describe_sphere
from gigagp.model.likelihood_format import describe_likelihood
from gigagp.model.loading import read_model
from gigagp.model.mixture import Mixture
from gigagp.model.model import Model
from gigagp.model.model_format import (
    BLOCK_CODES,
    BLOCK_TREE,
    BLOCKS_VERSION,
    COLUMNS_VERSION,
    EQUAL_NOISE_VERSION,
    FORMAT,
    MANIFEST,
    ROW_NOISE_VERSION,
    SKEWED_VERSION,
    VERSION,
    WARPED_VERSION,
    check_settings,
    folder_path,
    foreign_names,
)
from gigagp.model.neighbourhood_format import describe_neighbourhood
from gigagp.model.plain_values import Registry, own_classes, to_number, to_plain
from gigagp.model.remote_folders import check_remote
from gigagp.model.routing import Router
from gigagp.model.sharing import Neighbourhoods
from gigagp.model.trend import RegressorTrend
from gigagp.model.trend_format import describe_trend, trend_arrays
from gigagp.partition import IndexLists


def check_destination(folder: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Raise InvalidParameter, before any work, if `save_model` would not or could not put a model in a folder."""
    if isinstance(folder, str) and is_remote(folder):
        check_remote(folder, overwrite)
        return
    final = Path(os.path.realpath(folder_path(folder)))
    check_free(final, overwrite)
    above = next(parent for parent in final.parents if parent.exists())
    try:  # permissions alone do not show whether writing works
        os.rmdir(tempfile.mkdtemp(prefix=f".{final.name[:32]}.", dir=above))
    except OSError as error:
        raise InvalidParameter(
            f"cannot write in {above}: {error.strerror}; choose another folder for the model"
        ) from None


def save_model(
    model: Model, parameters: dict[str, Any], folder: str | os.PathLike[str], overwrite: bool = False
) -> None:
    """Write a model to a folder; with `overwrite` an existing model is replaced.

    parameters : those of the estimator
    """
    final = Path(os.path.realpath(folder_path(folder)))
    with folders.disk_errors("saving the model", final.parent):
        folders.remove_leftovers(final)
        check_free(final, overwrite)
        settings = {name: _setting(name, value) for name, value in parameters.items()}
        check_settings(settings)
        content = _content(model, settings)
        own = own_classes([*settings.values(), model.committee.kernel])
        with folders.writing(final, replace=overwrite) as partial:
            folders.check_space(partial, _size(model), "the model")
            folders.write_manifest(partial / MANIFEST, {**content, "files": _write_arrays(partial, model)})
            try:
                read_model(partial, Registry(own), verify=False, own=_classes_of_mean(model))
            except InvalidInput as error:
                raise InvalidParameter(f"this model could not be loaded again and is not saved: {error}") from None
            check_free(final, overwrite)  # writing takes a while


def _classes_of_mean(model: Model) -> tuple[type, ...]:
    """The class of the regressor that is the mean function, which the user has passed and so trusts."""
    trend = model.trend
    return (type(trend.regressor),) if isinstance(trend, RegressorTrend) else ()


def check_free(final: Path, overwrite: bool) -> None:
    """Raise InvalidParameter if the folder must not be written to: only a model may be replaced."""
    if not final.exists():
        return
    if not final.is_dir():
        raise InvalidParameter(f"{final} is a file; choose another folder for the model")
    if not any(final.iterdir()):
        return
    foreign = foreign_names(final)
    if foreign:
        raise InvalidParameter(
            f"{final} contains something other than a gigagp model ({', '.join(foreign[:3])}); choose another folder"
        )
    if not overwrite:
        raise InvalidParameter(f"{final} contains a model; pass overwrite=True, or choose another folder")


def _content(model: Model, settings: dict[str, Any]) -> dict[str, Any]:
    """The manifest without the list of files."""
    c, report = model.committee, model.report
    return {
        "format": FORMAT,
        "version": _version(model),
        "written_by": {name: metadata.version(name) for name in ("gigagp", "numpy")},
        "settings": {name: to_plain(name, value) for name, value in settings.items()},
        "rows": len(c.store.y),
        "columns": c.store.X.shape[1],
        "dtype": c.store.X.dtype.name,
        "leaves": len(model.cells),
        "levels": [len(level) for level in c.tree.levels],
        "local": bool(model.local),
        "student": bool(c.student),
        **({} if c.inducing is None else {"inducing": int(c.inducing)}),
        "auto": {"rule": model.defaults.rule, "nearest": model.defaults.experts_per_query or 0},
        "experts": _kind_of_experts(model),
        "neighbourhood": describe_neighbourhood(model.neighbourhood),
        "mixture": _describe_mixture(model.mixture),
        **({} if model.input_noise is None else {"input_noise": _describe_input_noise(model.input_noise)}),
        "classes": describe_classes(model.classes),
        **({} if model.next_arrival is None else {"next_arrival": model.next_arrival}),
        **({} if model.prequential is None else {"prequential": len(model.prequential)}),
        **({} if model.recent is None else {"recent": len(model.recent)}),
        **({} if model.trend is None else {"trend": describe_trend(model.trend)}),
        **({} if model.likelihood is None else {"likelihood": describe_likelihood(model.likelihood)}),
        "communication": 0 if c.communication is None else len(c.communication),
        "kernel": to_plain("kernel", c.kernel),
        **describe_sphere(model.inputs.sphere),
        **describe_circles(model.inputs.circles),
        **({} if model.gap_scales is None else {"gap_factors": model.gap_scales.factors.tolist()}),
        **({"knots": stacked(model.inputs.warps).shape[1]} if model.inputs.warps else {}),
        **({} if model.inputs.directions is None else {"directions": len(model.inputs.directions.combined)}),
        **describe_share(model.share),
        "encoding": None if model.encoding is None else model.encoding.to_dict(),
        "feature_names": None if model.feature_names is None else list(model.feature_names),
        "target_name": model.target_name,
        "report": {
            "stages": [{name: to_number(value) for name, value in asdict(stage).items()} for stage in report.stages],
            "seconds": {name: to_number(value) for name, value in report.seconds.items()},
            "points_per_leaf": [int(n) for n in report.points_per_leaf],
            "points_per_expert": [int(n) for n in report.points_per_expert],
            "evaluations": len(report.evidence_trace),
            "jitter": to_number(report.jitter),
            "jittered_experts": int(report.jittered_experts),
            "warnings": [describe_warning(warning) for warning in report.warnings],
            "dropped": int(report.dropped),
            "outliers": list(report.outliers),
            "outlier_count": int(report.outlier_count),
            "copies": int(report.copies),
            "looks_like": report.looks_like,
            "calibration": describe_calibration(report.calibration),
            "choices": [{**asdict(choice), "score": to_number(choice.score)} for choice in report.choices],
        },
    }


def _version(model: Model) -> int:
    """The oldest version of the format that has everything that this model consists of."""
    levels = model.encoding is not None and bool(model.encoding.category_places)
    averages = model.neighbourhood is not None and bool(model.neighbourhood.others)
    if model.inputs.directions is not None:
        return VERSION
    if model.report.calibration.shape.centres.any():
        return SKEWED_VERSION
    if model.committee.router.blocks is not None:
        return BLOCKS_VERSION
    if model.inputs.warps or model.inputs.circles:
        return WARPED_VERSION
    if levels or averages or model.trend is not None:
        return COLUMNS_VERSION
    return (
        EQUAL_NOISE_VERSION if model.committee.store.row_noise is None and model.latents is None else ROW_NOISE_VERSION
    )


def describe_warning(warning: FitWarning) -> dict[str, Any]:
    values = {name: to_number(value) for name, value in vars(warning).items()}
    return {"kind": type(warning).__name__, **values}


def _describe_mixture(model: Mixture | None) -> list[dict[str, Any]] | None:
    if model is None:
        return None
    return [
        {"kernel": to_plain("kernel", each.kernel), "theta": each.theta.tolist(), "weight": float(each.weight)}
        for each in model.members
    ]


def _describe_input_noise(noise: InputNoise) -> dict[str, Any]:
    """The numbers that are not in arrays."""
    return {
        "kernel": to_plain("kernel", noise.kernel),
        "points": len(noise.points),
        "numbers": [float(noise.rho), float(noise.target.centre[0]), float(noise.target.scale[0])],
    }


def _setting(name: str, value: Any) -> Any:
    """A setting as it is saved: without engines and random generators, which belong to this process.

    A regressor that is the mean function is saved beside the settings, where the fit has used it.
    """
    if name == "mean" and not isinstance(value, str):
        return "constant"
    if isinstance(value, Engine):
        return "serial" if isinstance(value, SerialEngine) else "threads"
    if name == "engine" and (is_client(value) or "://" in str(value)):
        return "threads"
    if isinstance(value, np.random.Generator | np.random.RandomState | np.random.BitGenerator):
        return None
    if name == "dtype" and value in (np.float32, np.float64):
        return np.dtype(value).name
    return value


def _kind_of_experts(model: Model) -> str:
    experts = model.committee.experts
    if experts is model.cells:
        return "cells"
    return "neighbourhoods" if isinstance(experts, Neighbourhoods) else "lists"


def _write_arrays(folder: Path, model: Model) -> dict[str, Any]:
    c, report = model.committee, model.report
    files = write_rows(folder, c.store) | write_lists(folder, "cells", model.cells)
    if isinstance(c.experts, Neighbourhoods):
        files |= write_array(folder, "outside", np.asarray(c.experts.outside, np.int64))
    elif c.experts is not model.cells:
        files |= write_lists(folder, "experts", c.experts)
    if c.communication is not None:
        files |= write_array(folder, "communication", np.asarray(c.communication, np.int64))
    files |= write_array(folder, "tree", np.concatenate(c.tree.levels).astype(np.int64))
    numbers = {
        "theta": c.theta,
        "inputs": np.stack([model.inputs.scaling.centre, model.inputs.scaling.scale]),
        **({"warps": stacked(model.inputs.warps)} if model.inputs.warps else {}),
        **({} if model.inputs.directions is None else {"directions": model.inputs.directions.matrix}),
        "target": np.stack([model.target.centre, model.target.scale]),
        "evidence_trace": np.array(report.evidence_trace, float),
        "theta_trace": report.theta_trace,
    }
    if model.mixture is not None:
        numbers["held_out_errors"] = np.stack([member.errors for member in model.mixture.members])
    if model.input_noise is not None:
        noise = model.input_noise
        numbers |= {"noise_points": noise.points, "noise_weights": noise.weights, "noise_theta": noise.theta}
    for name, array in numbers.items():
        files |= write_array(folder, name, np.asarray(array, float))
    for name, array in trend_arrays(model.trend).items():
        files |= write_array(folder, name, array)
    if model.arrivals is not None:
        files |= write_array(folder, "arrivals", np.asarray(model.arrivals, np.int64))
    for name, scores in (("prequential", model.prequential), ("recent", model.recent)):
        files |= {} if scores is None else write_array(folder, name, scores)
    return files | _write_router(folder, c.router)


def _write_router(folder: Path, router: Router) -> dict[str, Any]:
    files = write_array(folder, "metric", np.asarray(router.metric, float))
    for name, array in router.places():
        files |= write_array(folder, name, np.asarray(array, float))
    if router.blocks is not None:
        for name, array in zip(BLOCK_TREE, router.blocks.arrays[: len(BLOCK_TREE)], strict=True):
            files |= write_array(folder, name, array)
        if len(router.blocks.codes) > 0:
            files |= write_array(folder, BLOCK_CODES, router.blocks.codes)
    return files


def _size(model: Model) -> int:
    """Approximate size of a model on disk, in bytes."""
    c = model.committee
    lists = {id(each): len(each.indices) for each in (model.cells, c.experts) if isinstance(each, IndexLists)}
    leaves = 24 * len(model.cells) * (c.store.X.shape[1] + 1) + model.report.theta_trace.nbytes
    if c.router.blocks is not None:
        leaves += c.router.blocks.nbytes
    noise = 0 if c.store.row_noise is None else c.store.row_noise.nbytes
    return int(c.store.X.nbytes + c.store.y.nbytes + noise + 8 * sum(lists.values()) + leaves)
