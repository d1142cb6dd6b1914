"""Models on disk: a folder with manifest.json and .npy files, whole or not there, and mapped into memory to predict.

The manifest holds settings, kernel, encoding and report as plain values and lists the arrays with their checksums.
Loading runs nothing that it finds, and believes nothing: who can write a folder can also sign it, so what the arrays
say is checked even where all checksums fit.
"""

from __future__ import annotations

import os
import reprlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gigagp import memory
from gigagp.arrays import Array
from gigagp.combine import RULES, CombinationRule
from gigagp.data import folders
from gigagp.data.array_files import ArrayFiles, write_array, write_lists
from gigagp.data.folders import damaged
from gigagp.data.row_lists import RowLists, Runs
from gigagp.data.scaling import Scaling
from gigagp.data.sources.encoding import Encoding
from gigagp.data.store import DTYPES, ExpertStore, read_rows, write_rows
from gigagp.engines import Engine, SerialEngine, is_client
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.kernels import Kernel
from gigagp.model.calibration import Calibration, Setting
from gigagp.model.committee import Committee
from gigagp.model.distribution import Shape
from gigagp.model.factor_cache import FactorCache
from gigagp.model.fit_report import Candidate, FitReport, Stage
from gigagp.model.fit_warnings import WARNINGS, FitWarning
from gigagp.model.mixture import Member, Mixture
from gigagp.model.model import CommitteeDefaults, Model
from gigagp.model.neighbour_search import BlockTree
from gigagp.model.neighbourhood import Neighbourhood
from gigagp.model.plain_values import (
    Registry,
    count,
    field,
    from_plain,
    number,
    own_classes,
    require,
    to_number,
    to_plain,
)
from gigagp.model.routing import Router
from gigagp.model.sharing import Neighbourhoods
from gigagp.partition import IndexLists, Partitioner
from gigagp.partition.kdtree import block_starts
from gigagp.tree import Tree

FORMAT, VERSION = "gigagp-model", 5
_OLDEST = 4  # version that can be read: it differs in having no mixtures
_Plain = TypeVar("_Plain")
_MANIFEST = "manifest.json"
_ARRAYS = (
    "X", "y", "cells_starts", "cells_rows", "experts_starts", "experts_rows", "outside", "tree", "centres", "lows",
    "highs", "block_lows", "block_highs", "metric", "communication", "theta", "inputs", "target", "evidence_trace",
    "theta_trace", "held_out_errors",
)  # fmt: skip
_BLOCKS = ("block_lows", "block_highs")  # of `block_starts`, whose division is part of the format
_NO_DISTANCES = "its numbers are no distances"
_NAMES = {_MANIFEST, *(f"{name}.npy" for name in _ARRAYS)}  # of all files that a model may have
_DEEPEST = 200  # levels of a tree
_FARTHEST = 1e140  # a distance whose square, in any number of columns, is still a number
_ATTEMPTS = 10  # at reading a model that is being replaced


def check_destination(folder: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Refuse, before any work, a folder in which `save_model` would not or could not put a model."""
    final = Path(os.path.realpath(_path(folder)))
    _check_free(final, overwrite)
    above = next(parent for parent in final.parents if parent.exists())
    try:
        os.rmdir(tempfile.mkdtemp(prefix=f".{final.name[:32]}.", dir=above))  # permissions do not tell all
    except OSError as error:
        raise InvalidParameter(
            f"cannot write in {above}: {error.strerror}; choose another folder for the model"
        ) from None


def save_model(model: Model, given: dict[str, Any], folder: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write a model beside `folder`, read it back, then rename it; with `overwrite` an existing model is replaced.

    given : the parameters of the estimator
    """
    final = Path(os.path.realpath(_path(folder)))
    with folders.disk_errors("saving the model", final.parent):
        folders.remove_leftovers(final)
        _check_free(final, overwrite)
        settings = {name: _setting(name, value) for name, value in given.items()}
        _check_settings(settings)
        content = _content(model, settings)
        own = own_classes([*settings.values(), model.committee.kernel])
        with folders.writing(final, replace=overwrite) as partial:
            folders.check_space(partial, _size(model), "the model")
            folders.write_manifest(partial / _MANIFEST, {**content, "files": _write_arrays(partial, model)})
            try:
                _read(partial, Registry(own), verify=False)
            except InvalidInput as error:
                raise InvalidParameter(f"this model could not be loaded again, and is not saved: {error}") from None
            _check_free(final, overwrite)  # writing takes a while


def load_model(
    folder: str | os.PathLike[str], *, kernels: Iterable[type] = (), verify: bool = True
) -> tuple[Model, dict[str, Any]]:
    """The model in a folder, its rows mapped into memory, and the parameters of its estimator.

    kernels : classes of kernels, rules and partitioners that are not this package's
    verify : False to take the rows, and lists of rows, without comparing checksums
    """
    path, registry = _path(folder), Registry(kernels)
    for _ in range(_ATTEMPTS):
        before = _identity(path)
        try:
            model = _read(path, registry, verify)
        except InvalidInput:
            if _identity(path) == before:
                raise
        else:
            if _identity(path) == before:
                return model
        # Another model was put there while we read: files of both must not be mixed.
    raise InvalidInput(f"{path} is being replaced again and again; wait until it is at rest, and load it then")


def _path(folder: str | os.PathLike[str]) -> Path:
    name = os.fspath(folder) if isinstance(folder, str | os.PathLike) else None
    if not isinstance(name, str) or not name or "\0" in name:
        raise InvalidParameter(f"folder must be a path; got {folder!r}")
    return Path(name)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _check_free(final: Path, overwrite: bool) -> None:
    """Whether a model may be put there: nothing but a model is ever replaced."""
    if not final.exists():
        return
    if not final.is_dir():
        raise InvalidParameter(f"{final} is a file; choose another folder for the model")
    names = {path.name for path in final.iterdir()}
    if not names:
        return
    if not (names <= _NAMES and folders.is_of_kind(final / _MANIFEST, FORMAT)):
        foreign = ", ".join(sorted(names - _NAMES)[:3]) or _MANIFEST
        raise InvalidParameter(f"{final} holds what is no model of gigagp ({foreign}); choose another folder")
    if not overwrite:
        raise InvalidParameter(f"{final} holds a model; give overwrite=True to replace it, or choose another folder")


# Writing


def _content(model: Model, settings: dict[str, Any]) -> dict[str, Any]:
    """The manifest, but for the list of files."""
    c, report = model.committee, model.report
    return {
        "format": FORMAT,
        "version": VERSION,
        "written_by": {name: metadata.version(name) for name in ("gigagp", "numpy")},
        "settings": {name: to_plain(name, value) for name, value in settings.items()},
        "rows": len(c.store.y),
        "columns": c.store.X.shape[1],
        "dtype": c.store.X.dtype.name,
        "leaves": len(model.cells),
        "levels": [len(level) for level in c.tree.levels],
        "local": bool(model.local),
        "student": bool(c.student),
        "auto": {"rule": model.defaults.rule, "nearest": model.defaults.experts_per_query or 0},
        "experts": _kind_of_experts(model),
        "neighbourhood": _described_neighbourhood(model.neighbourhood),
        "mixture": _described_mixture(model.mixture),
        "communication": 0 if c.communication is None else len(c.communication),
        "kernel": to_plain("kernel", c.kernel),
        "encoding": None if model.encoding is None else model.encoding.to_dict(),
        "feature_names": None if model.feature_names is None else list(model.feature_names),
        "target_name": model.target_name,
        "report": {
            "stages": [{name: to_number(value) for name, value in asdict(stage).items()} for stage in report.stages],
            "seconds": {name: to_number(value) for name, value in report.seconds.items()},
            "evaluations": len(report.evidence_trace),
            "jitter": to_number(report.jitter),
            "jittered_experts": int(report.jittered_experts),
            "warnings": [_described_warning(warning) for warning in report.warnings],
            "dropped": int(report.dropped),
            "calibration": _described_calibration(report.calibration),
            "choices": [{**asdict(choice), "score": to_number(choice.score)} for choice in report.choices],
        },
    }


def _described_warning(warning: FitWarning) -> dict[str, Any]:
    values = {name: to_number(value) for name, value in vars(warning).items()}
    return {"kind": type(warning).__name__, **values}


def _described_calibration(calibration: Calibration) -> dict[str, Any]:
    known = calibration.setting
    return {
        "rows": int(calibration.rows),
        "score": to_number(calibration.score),
        "floor": to_number(calibration.floor),
        "coefficients": calibration.coefficients.tolist(),
        "weights": calibration.shape.weights.tolist(),
        "widths": calibration.shape.widths.tolist(),
        "setting": None if known is None else [known.noise, known.prior, known.target],
    }


def _described_neighbourhood(model: Neighbourhood | None) -> dict[str, Any] | None:
    if model is None:
        return None
    return {"neighbours": int(model.neighbours), "exact": bool(model.exact), "inner": int(model.inner)}


def _described_mixture(model: Mixture | None) -> list[dict[str, Any]] | None:
    if model is None:
        return None
    return [
        {"kernel": to_plain("kernel", each.kernel), "theta": each.theta.tolist(), "weight": float(each.weight)}
        for each in model.members
    ]


def _setting(name: str, value: Any) -> Any:
    """A setting as it is to be remembered: places to compute and states of generators belong to this process."""
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
    boxes, blocks = c.router.boxes, c.router.blocks
    numbers = {
        "centres": c.router.centres,
        **({"lows": boxes.lows, "highs": boxes.highs} if c.router.by_cells else {}),
        **(dict(zip(_BLOCKS, blocks.boxes(), strict=True)) if blocks is not None else {}),
        "metric": c.router.metric,
        "theta": c.theta,
        "inputs": np.stack([model.inputs.centre, model.inputs.scale]),
        "target": np.stack([model.target.centre, model.target.scale]),
        "evidence_trace": np.array(report.evidence_trace, float),
        "theta_trace": report.theta_trace,
    }
    if model.mixture is not None:
        numbers["held_out_errors"] = np.stack([member.errors for member in model.mixture.members])
    for name, array in numbers.items():
        files |= write_array(folder, name, np.asarray(array, float))
    return files


def _size(model: Model) -> int:
    """About how many bytes a model takes on disk."""
    c = model.committee
    lists = {id(each): len(each.indices) for each in (model.cells, c.experts) if isinstance(each, IndexLists)}
    leaves = (3 * c.router.centres.nbytes + 24 * len(model.cells)) + model.report.theta_trace.nbytes
    if c.router.blocks is not None:
        leaves += c.router.blocks.sides.nbytes
    return int(c.store.X.nbytes + c.store.y.nbytes + 8 * sum(lists.values()) + leaves)


# Reading


def _read(folder: Path, registry: Registry, verify: bool) -> tuple[Model, dict[str, Any]]:
    manifest = folders.read_manifest(folder / _MANIFEST, FORMAT, VERSION)
    if manifest["version"] < _OLDEST:
        raise InvalidInput(
            f"{folder} was saved by gigagp 0.1, whose predictive distribution this version does not have; fit the "
            "model again on its data, or load it with gigagp 0.1"
        )
    files = ArrayFiles(folder, manifest.get("files"))
    with _blaming(folder / _MANIFEST):
        rows, columns, leaves = (count(manifest, name, 1) for name in ("rows", "columns", "leaves"))
        dtype = field(manifest, "dtype", str)
        require(dtype in DTYPES, "its type of numbers is not float32 or float64")
        settings = {name: from_plain(each, registry) for name, each in field(manifest, "settings", dict).items()}
        _check_settings(settings)
        kernel = _kernel(manifest, columns, registry)
        encoding, names = _columns(manifest, columns)
        theta = _theta(files, kernel)
        store = read_rows(files, rows, columns, dtype, verify)
        cells = files.lists("cells", leaves, rows, verify)
        router = _router(files, leaves, columns, cells)
        experts = _experts(files, manifest, cells, store, router, verify)
        near = _neighbourhood(manifest.get("neighbourhood"), kernel, theta, store, cells, router)
        return Model(
            committee=Committee(
                kernel, theta, store, experts, _tree(files, manifest, leaves), router,
                _communication(files, manifest, rows), field(manifest, "student", bool),
                FactorCache(memory.budget(settings.get("memory")) // 4),
            ),
            neighbourhood=near,
            mixture=_mixture(manifest.get("mixture"), files, store, registry, settings),
            cells=cells,
            local=field(manifest, "local", bool),
            inputs=_scaling(files, "inputs", columns),
            target=_scaling(files, "target", 1),
            report=_report(files, manifest.get("report"), rows, kernel, theta, cells, experts),
            encoding=encoding,
            feature_names=None if names is None else tuple(names),
            target_name=_target_name(manifest),
            defaults=_defaults(field(manifest, "auto", dict)),
        ), settings  # fmt: skip


@contextmanager
def _blaming(manifest: Path) -> Iterator[None]:
    """What makes no sense in the manifest is damage to it."""
    try:
        yield
    except InvalidInput:  # its cure is in it
        raise
    except ValueError as error:
        raise damaged(manifest, str(error)) from None


def _check_settings(settings: dict[str, Any]) -> None:
    """Those that are used without a fit, or made of objects; `fit` checks the others."""
    for name, kind in (("kernel", Kernel), ("partition", Partitioner), ("combine", CombinationRule)):
        value = settings.get(name)
        if not (value is None or isinstance(value, str | kind)):
            raise InvalidParameter(f"{name} must be a name or a {kind.__name__}; got {reprlib.repr(value)}")
    others = [each for name, each in settings.items() if name not in ("kernel", "partition", "combine")]
    if any(isinstance(each, Kernel | CombinationRule | Partitioner) for each in others):
        raise InvalidParameter("a setting that is to be a plain value is an object")
    memory.budget(settings.get("memory"))


def _kernel(manifest: dict[str, Any], columns: int, registry: Registry) -> Kernel:
    kernel = from_plain(manifest.get("kernel"), registry)
    if not isinstance(kernel, Kernel):
        raise ValueError("it does not describe a valid kernel")
    sizes = {len(p.values) for p in kernel.parameters if p.per_feature}
    require(sizes <= {columns}, "its kernel does not fit its number of columns")
    return kernel


def _columns(manifest: dict[str, Any], columns: int) -> tuple[Encoding | None, list[str] | None]:
    """How columns of tables are read, and their names."""
    names, given = manifest.get("feature_names"), manifest.get("encoding")
    if names is not None:
        require(isinstance(names, list) and len(names) == columns, "it does not have one name per column")
        require(all(isinstance(name, str) for name in names), "a name of its columns is not text")
    if given is None:
        return None, names
    try:
        encoding = Encoding.from_dict(given)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    require(len(encoding.feature_names) == columns, "its encoding does not fit its number of columns")
    require(names in (None, encoding.feature_names), "its names are not those of its encoding")
    return encoding, names


def _target_name(manifest: dict[str, Any]) -> str | None:
    name = manifest.get("target_name")
    require(name is None or isinstance(name, str), "the name of its target is not text")
    return name


def _defaults(content: dict[str, Any]) -> CommitteeDefaults:
    name = field(content, "rule", str)
    require(name in RULES, "it names no known combination rule")
    return CommitteeDefaults(name, count(content, "nearest") or None)


def _neighbourhood(
    content: Any, kernel: Kernel, theta: Array, store: ExpertStore, cells: RowLists, router: Router
) -> Neighbourhood | None:
    if content is None:
        return None
    count_, exact = count(content, "neighbours", 1), field(content, "exact", bool)
    require(isinstance(cells, Runs) and router.by_cells, "it predicts from neighbours, but its rows are not in cells")
    assert isinstance(cells, Runs)
    inner = count(content, "inner", 0) if "inner" in content else 0  # earlier models have none
    return Neighbourhood(kernel, theta, store, cells, router, count_, exact, inner)


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
        kernel, theta, weight = _kernel(each, columns, registry), _floats(each, "theta"), number(each, "weight")
        require(len(theta) == len(kernel.theta) + 1 and 0 < weight <= 1, "a member of its mixture is not valid")
        members.append(Member(kernel, theta, weight, np.array(own)))
    return Mixture(tuple(members), store, FactorCache(memory.budget(settings.get("memory")) // 4))


def _floats(content: dict[str, Any], name: str) -> Array:
    values = field(content, name, list)
    require(bool(values) and all(isinstance(v, float | int) for v in values), f"its {name} are not numbers")
    array = np.array(values, float)
    require(bool(np.isfinite(array).all()), f"its {name} are not finite")
    return array


def _calibration(content: dict[str, Any]) -> Calibration:
    coefficients, weights, widths = (_floats(content, name) for name in ("coefficients", "weights", "widths"))
    floor = number(content, "floor")
    require(len(coefficients) == len(Calibration.none().coefficients), "its calibration has other coefficients")
    require(len(weights) == len(widths) and 0 <= floor < np.inf, "its calibration is not valid")
    require(bool((weights > 0).all() and (widths > 0).all()), "its calibration is not valid")
    known = content.get("setting")
    setting = None
    if known is not None:
        require(isinstance(known, list) and len(known) == 3, "its calibration is not valid")
        noise, prior, target = known
        for value in (noise, target, 1.0 if prior is None else prior):
            require(isinstance(value, float | int) and 0 < value < np.inf, "its calibration is not valid")
        setting = Setting(float(noise), None if prior is None else float(prior), float(target))
    rows = count(content, "rows")
    require((rows == 0) == (setting is None), "its calibration is not valid")
    return Calibration(coefficients, floor, Shape(weights, widths), setting, rows, number(content, "score"))


def _theta(files: ArrayFiles, kernel: Kernel) -> Array:
    theta = files.read("theta", (len(kernel.theta) + 1,), "float64")
    with np.errstate(over="ignore", under="ignore"):
        values = np.exp(theta)
    if not (np.isfinite(values) & (values > 0)).all():
        raise damaged(files.path("theta"), "its numbers are no logarithms of parameters")
    return theta


def _tree(files: ArrayFiles, manifest: dict[str, Any], leaves: int) -> Tree:
    sizes = field(manifest, "levels", list)
    require(
        0 < len(sizes) <= _DEEPEST and all(type(n) is int and 2 <= n <= leaves + 1 for n in sizes), "it has no tree"
    )
    whole = files.read("tree", (sum(sizes),), "int64")
    levels = tuple(np.split(whole, np.cumsum(sizes)[:-1]))
    width = 1
    for level in levels:
        if len(level) != width + 1 or level[0] != 0 or (level[1:] <= level[:-1]).any():
            raise damaged(files.path("tree"), "it is not a tree")
        width = int(level[-1])
    if width != leaves:
        raise damaged(files.path("tree"), f"it has {width} leaves, where {leaves} experts are")
    return Tree(levels)


def _router(files: ArrayFiles, leaves: int, columns: int, cells: RowLists) -> Router:
    """By boxes where there are cells; models of earlier versions have none, and go on by centres as they did."""
    metric = files.read("metric", (columns,), "float64")
    if not (metric.min() >= 0 and metric.max() <= _FARTHEST):
        raise damaged(files.path("metric"), _NO_DISTANCES)
    (centres,) = _places(files, ("centres",), (leaves, columns))
    if "lows" not in files:
        return Router(centres, metric)
    boxes = _boxes(files, ("lows", "highs"), (leaves, columns))
    if not ("block_lows" in files and isinstance(cells, Runs)):
        return Router(centres, metric, boxes)
    starts = block_starts(cells.starts)
    return Router(centres, metric, boxes, BlockTree.of(starts, *_boxes(files, _BLOCKS, (len(starts) - 1, columns))))


def _places(files: ArrayFiles, names: tuple[str, ...], shape: tuple[int, int]) -> list[Array]:
    arrays = [files.read(name, shape, "float64") for name in names]
    for name, array in zip(names, arrays, strict=True):
        if not (np.isfinite(array).all() and np.abs(array).max() <= _FARTHEST):
            raise damaged(files.path(name), _NO_DISTANCES)
    return arrays


def _boxes(files: ArrayFiles, names: tuple[str, str], shape: tuple[int, int]) -> tuple[Array, Array]:
    lows, highs = _places(files, names, shape)
    if (lows > highs).any():
        raise damaged(files.path(names[0]), "a cell ends before it begins")
    return lows, highs


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
        raise damaged(files.path("outside"), "it asks for more points than there are")
    return Neighbourhoods(store, cells, router, outside)


def _communication(files: ArrayFiles, manifest: dict[str, Any], rows: int) -> Array | None:
    size = count(manifest, "communication")
    if size == 0:
        return None
    common = files.read("communication", (size,), "int64")
    if common[0] < 0 or common[-1] >= rows or (common[1:] <= common[:-1]).any():
        raise damaged(files.path("communication"), "it contains row numbers that do not exist")
    return common


def _scaling(files: ArrayFiles, name: str, columns: int) -> Scaling:
    centre, scale = files.read(name, (2, columns), "float64")
    if (scale <= 0).any():
        raise damaged(files.path(name), "its scales are not positive")
    return Scaling(centre, scale)


def _report(
    files: ArrayFiles, said: Any, rows: int, kernel: Kernel, theta: Array, cells: RowLists, experts: RowLists
) -> FitReport:
    evaluations, names = count(said, "evaluations"), (*kernel.names, "noise_variance")
    return FitReport(
        rows=rows,
        leaves=len(cells),
        points_per_leaf=(int(cells.sizes.min()), int(cells.sizes.max())),
        points_per_expert=(int(experts.sizes.min()), int(experts.sizes.max())),
        stages=tuple(_plain(Stage, each) for each in field(said, "stages", list)),
        seconds={name: number(said["seconds"], name) for name in field(said, "seconds", dict)},
        evidence_trace=tuple(files.read("evidence_trace", (evaluations,), "float64", finite=False).tolist()),
        theta_trace=files.read("theta_trace", (evaluations, len(theta)), "float64", finite=False),
        names=names,
        theta=theta,
        jitter=number(said, "jitter"),
        jittered_experts=count(said, "jittered_experts"),
        warnings=tuple(_warning(each, names) for each in field(said, "warnings", list)),
        dropped=count(said, "dropped"),
        calibration=_calibration(field(said, "calibration", dict)),
        choices=tuple(_plain(Candidate, each) for each in field(said, "choices", list)),
    )


def _warning(content: Any, names: tuple[str, ...]) -> FitWarning:
    kind = field(content, "kind", str)
    require(kind in WARNINGS, f"a warning is of the unknown kind {reprlib.repr(kind)}")
    warning = _plain(WARNINGS[kind], content)
    require(getattr(warning, "parameter", names[0]) in names, "a warning names an unknown parameter")
    return warning


def _plain(kind: type[_Plain], said: Any) -> _Plain:
    """A dataclass of plain values."""
    return kind(**{f.name: _PLAIN_FIELDS[str(f.type)](said, f.name) for f in fields(kind)})  # type: ignore[arg-type]


_PLAIN_FIELDS: dict[str, Callable[[Any, str], Any]] = {
    "str": lambda content, name: field(content, name, str),
    "bool": lambda content, name: field(content, name, bool),
    "int": count,
    "float": number,
}
