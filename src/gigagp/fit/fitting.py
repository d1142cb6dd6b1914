"""A fit as a whole: scan, plan, scaling, storage and engine around the stages, and the model that results."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gigagp import memory
from gigagp.data.addresses import is_remote
from gigagp.data.copies import CopySearch, CountedRows, DistinctRows, RowSet, combined
from gigagp.data.folders import TemporaryFolder
from gigagp.data.mirrors import Mirror
from gigagp.data.objects import temporary_parent
from gigagp.data.outliers import NONE, Outliers, find_outliers, without
from gigagp.data.scaled import ScaledRows, StreamedRows, scaled_targets
from gigagp.data.scaling import Scaling
from gigagp.data.scan import Sample, Scan
from gigagp.data.sources import Encoding, Rows
from gigagp.data.sources.times import UNITS
from gigagp.data.sphere import Circle, InputScaling, check_pair, find_pair, is_flat, on_sphere, range_error
from gigagp.data.target_checks import looks_like
from gigagp.data.warping import learnt_warps
from gigagp.engines import Engine, one_blas_thread, open_engine
from gigagp.errors import InvalidInput
from gigagp.fit import settings, stages
from gigagp.fit.checkpoint import Checkpoint
from gigagp.fit.column_scaling import choose_warping, is_open
from gigagp.fit.exact_answers import most_rows
from gigagp.fit.plan import NoLog, Plan, Seeds
from gigagp.fit.planning import circles_of, make_plan, plan_for_latents
from gigagp.fit.record import Record
from gigagp.fit.scanning import scan_rows
from gigagp.fit.settings import FitSettings
from gigagp.fit.store_objects import StoreObjects
from gigagp.fit.store_writer import DiskStorage, MemoryStorage, Storage
from gigagp.fit.training import Trace
from gigagp.fit.unusual_rows import MOST_ROWS
from gigagp.kernels.inputs import InputColumns
from gigagp.likelihoods import Likelihood
from gigagp.linalg.categories import LEVEL_WIDTH
from gigagp.linalg.row_noise import COLUMNS
from gigagp.model.class_model import ClassModel
from gigagp.model.factor_cache import FactorCache
from gigagp.model.fit_report import FitReport
from gigagp.model.fit_warnings import OutlyingRows
from gigagp.model.gap_scales import GapScales, gap_places
from gigagp.model.model import CommitteeDefaults, Model
from gigagp.partition import Partitioner, partitioner
from gigagp.progress import Counter, Listener, silent


def fit_model(
    rows: Rows, options: FitSettings, seed: np.random.SeedSequence, *, store: str | os.PathLike[str] | None,
    checkpoint: Checkpoint | None, encoding: Encoding | None, feature_names: tuple[str, ...] | None, tell: Listener,
    learn_noise: bool = True, classes: ClassModel | None = None,
) -> Model:  # fmt: skip
    """Fit a model to the rows of a source.

    store : folder or address for the sorted rows where they exceed the memory budget; temporary where it is None
    checkpoint : where progress is kept; its seed replaces `seed`
    encoding : how the columns of a table or file become numbers; None for arrays
    learn_noise : False where rows have no noise but the known one
    classes : where targets are the numbers of classes, before calibration
    """
    budget = memory.budget(options.memory)
    storage: Storage = MemoryStorage()
    try:
        with one_blas_thread(), open_engine(options.engine, options.n_jobs) as engine:
            if engine.reads_files:
                storage = on_disk = _disk_storage(checkpoint, store, budget, rows, tell)
                engine.use_folder(on_disk.place)
            fit = _prepared(
                rows, options, Seeds.of(seed), engine, checkpoint, store, feature_names, tell, learn_noise, classes
            )
            scaled: ScaledRows = fit.streamed
            if not engine.reads_files and _bytes_in_memory(scaled) > budget:
                storage = _disk_storage(checkpoint, store, budget, rows, tell)
            elif not engine.reads_files:
                scaled = fit.streamed.in_memory()
            log = NoLog() if checkpoint is None else checkpoint.log
            result = stages.fit(scaled, fit.sample, fit.plan, engine, fit.seeds, storage, log, tell, fit.data.dropped)
    except BaseException:
        storage.discard()  # at once, since the traceback keeps everything that it refers to alive
        raise
    return _model(result, fit, rows, options, budget, encoding, feature_names, classes)


@dataclass(frozen=True, eq=False)
class _Prepared:
    """What a fit knows after the first pass over the data."""

    seeds: Seeds
    data: Scan
    outliers: Outliers
    inputs: InputScaling
    target: Scaling
    plan: Plan
    sample: Sample  # scaled
    streamed: StreamedRows
    local: bool  # whether the rows of a leaf are neighbours
    exact: bool  # whether targets are numbers with Gaussian errors
    record: Record  # of what was chosen before the stages


def _prepared(
    rows: Rows, options: FitSettings, seeds: Seeds, engine: Engine, checkpoint: Checkpoint | None,
    store: str | os.PathLike[str] | None, feature_names: tuple[str, ...] | None, tell: Listener, learn_noise: bool,
    classes: ClassModel | None,
) -> _Prepared:  # fmt: skip
    """Scan, scaling and plan."""
    likelihood = settings.likelihood(options.likelihood)
    exact = classes is None and likelihood is None
    dtype, parts = settings.precision(options.dtype), partitioner(options.partition)
    counted: CountedRows = rows if classes is None else combined(rows)
    search = None
    if parts.local and exact and rows.others == 0 and rows.noise is None:
        search = CopySearch(memory.budget(options.memory) // 8, rows.n_rows)
    data, counted = _scanned(counted, search, seeds, checkpoint, store, tell, likelihood, engine)
    outliers = NONE if not exact or _has_known_noise(rows) else find_outliers(data)
    data = without(data, outliers)
    target = data.target.scaling() if options.standardize and exact else Scaling.identity(1)
    inputs, data = _linear_scaling(data, options, rows, feature_names, classes is not None)
    columns = _input_columns(rows.encoding, feature_names, inputs, target)
    inputs, columns = _with_circles(options, inputs, columns, data.rows, parts)
    plan = _plan(options, data, parts, columns, learn_noise, classes)
    if checkpoint is not None and plan.exact_rows:
        plan = replace(plan, exact_rows=most_rows(checkpoint.budget))
    record = Record(tell, Trace(tell=tell))
    inputs = _warped(inputs, data, target, options, plan, rows, classes is not None, engine, record)
    sample = _scaled_sample(data.sample, inputs, target, dtype)
    streamed = StreamedRows(counted, data.rows, inputs, target, dtype, Counter("store", data.rows, tell), outliers)
    return _Prepared(seeds, data, outliers, inputs, target, plan, sample, streamed, parts.local, exact, record)


def _model(
    result: stages.FitResult, fit: _Prepared, rows: Rows, options: FitSettings, budget: int, encoding: Encoding | None,
    feature_names: tuple[str, ...] | None, classes: ClassModel | None,
) -> Model:  # fmt: skip
    inputs, target, plan = replace(fit.inputs, directions=result.directions), fit.target, fit.plan
    mixture, link = result.mixture, result.link
    unusual = result.unusual.source_rows(rows, inputs, target)
    return Model(
        committee=replace(result.committee, cache=FactorCache(budget // 4)),
        neighbourhood=result.neighbourhood,
        mixture=None if mixture is None else replace(mixture, cache=mixture.cache.within(budget // 4)),
        cells=result.cells,
        local=fit.local,
        defaults=CommitteeDefaults.of(fit.local),
        inputs=inputs,
        target=target,
        report=replace(
            _with_outliers(result.report, fit.outliers, result.unusual.count, unusual),
            seconds={**fit.record.seconds, **result.report.seconds},
            choices=(*fit.record.choices, *result.report.choices),
            copies=fit.data.copies,
            looks_like=looks_like(fit.data) if options.likelihood == "auto" and fit.exact else "",
        ),
        encoding=encoding,
        feature_names=feature_names,
        target_name=rows.target.column if rows.target and not rows.target.beside else None,
        input_noise=result.input_noise,
        classes=replace(classes, calibration=link) if classes and link else classes,
        likelihood=replace(plan.likelihood, calibration=link) if plan.likelihood else None,
        gap_scales=_gap_scales(result, encoding, inputs) if fit.exact else None,
    )


def _scaled_sample(sample: Sample, inputs: InputScaling, target: Scaling, dtype: np.dtype[Any]) -> Sample:
    return Sample(sample.keys, sample.rows, inputs.apply(sample.X, dtype), scaled_targets(sample.y, target, dtype))


def _input_columns(
    encoding: Encoding, feature_names: tuple[str, ...] | None, inputs: InputScaling, target: Scaling
) -> InputColumns:
    """Names, places and scales of the user's columns; of an array without names these are x0, x1, ...

    Lengths along dates are in days, and those on the sphere in degrees.
    """
    together, names = inputs.together, _names(encoding, feature_names)
    places = tuple(together if set(own) & set(together) else own for own in _places(encoding))
    kinds = (feature.kind for feature in encoding.features for _ in feature.names)
    widths, levels = inputs.widths, encoding.category_places
    widths[: inputs.columns] /= [UNITS[kind][1] if kind in UNITS else 1.0 for kind in kinds]
    widths[list(levels)] = LEVEL_WIDTH
    return InputColumns(names, places, tuple(widths.tolist()), float(target.scale[0]), together, levels)


def _has_known_noise(rows: Rows) -> bool:
    return rows.noise is not None and rows.noise.deviations is not None


def _gap_scales(result: stages.FitResult, encoding: Encoding | None, inputs: InputScaling) -> GapScales | None:
    """How much wider the predictions of rows with missing values must be; None where there are none to learn from."""
    places, score = gap_places(encoding), result.held_out
    if not places or score is None or not score.calibration.rows:
        return None
    X = inputs.restore(np.asarray(result.committee.store.gather(score.rows)[0], float))
    z = (score.y - score.prediction.mean) / np.sqrt(score.calibration.variance(score.prediction))
    return GapScales.learnt(places, X, z, score.calibration.shape)


def _plan(
    options: FitSettings, data: Scan, parts: Partitioner, columns: InputColumns, learn_noise: bool,
    classes: ClassModel | None,
) -> Plan:  # fmt: skip
    plan = make_plan(options, data, parts, columns, learn_noise)
    likelihood = settings.likelihood(options.likelihood)
    return plan_for_latents(plan, options, data, None if classes is None else classes.classes, likelihood)


def _with_circles(
    options: FitSettings, inputs: InputScaling, columns: InputColumns, rows: int, parts: Partitioner
) -> tuple[InputScaling, InputColumns]:
    """The scaling and the columns with the circles that the metric of a periodic kernel needs."""
    circles = circles_of(options, columns, rows, parts)
    if not circles:
        return inputs, columns
    scale = inputs.scaling.scale
    wound = inputs.with_circles([Circle(place, float(period * scale[place])) for place, period in circles])
    return wound, replace(columns, circles=circles, widths=(*columns.widths, *[1.0] * (2 * len(circles))))


def _places(encoding: Encoding) -> list[tuple[int, ...]]:
    """The columns of numbers that each of the user's columns has become."""
    ends = np.cumsum([len(feature.names) for feature in encoding.features]).tolist()
    return [tuple(range(start, end)) for start, end in zip([0, *ends], ends, strict=False)]


def _names(encoding: Encoding, feature_names: tuple[str, ...] | None) -> tuple[str, ...]:
    """Names of the user's columns."""
    names = tuple(feature.column for feature in encoding.features)
    of_frame = feature_names is not None and len(feature_names) == len(names)  # that was checked by scikit-learn
    return feature_names if of_frame and feature_names is not None else names


def _linear_scaling(
    data: Scan, options: FitSettings, rows: Rows, feature_names: tuple[str, ...] | None, two_valued_by_range: bool
) -> tuple[InputScaling, Scan]:
    """The scaling of the inputs, and the scan with the moments of the model's columns.

    Longitude and latitude are those that the user names, or with sphere="auto" those that have such names and values.

    two_valued_by_range : as in `Moments.scaling`
    """
    standardize = settings.switch("standardize", options.standardize)
    inputs = data.inputs.scaling(two_valued_by_range) if standardize else Scaling.identity(rows.n_features)
    inputs = inputs.with_levels(rows.encoding.category_places)
    pair, places = settings.sphere(options.sphere), [own[0] for own in _places(rows.encoding)]
    names, kinds = _names(rows.encoding, feature_names), [feature.kind for feature in rows.encoding.features]
    if isinstance(pair, tuple):
        first, second = check_pair(pair, names, kinds)
        longitude, latitude = places[first], places[second]
        error = range_error((names[first], names[second]), 0, 1, data.inputs.at([longitude, latitude]))
        if error is not None:
            raise InvalidInput(f"sphere={pair!r}: {error}; name the longitude first")
    else:
        numbers = [number for number, kind in enumerate(kinds) if kind == "number"]
        named = pair == "auto" and feature_names is not None
        recognised = find_pair([names[number] for number in numbers]) if named else None
        if recognised is None:
            return InputScaling(inputs), data
        longitude, latitude = (places[numbers[each]] for each in recognised)
        degrees = data.inputs.at([longitude, latitude])
        if range_error(names, 0, 1, degrees) is not None or is_flat(degrees, 0, 1):
            return InputScaling(inputs), data
    scaling, moments = on_sphere(inputs, data.inputs, data.sample.X, longitude, latitude, standardize)
    return scaling, replace(data, inputs=moments)


def _warped(
    inputs: InputScaling, data: Scan, target: Scaling, options: FitSettings, plan: Plan, rows: Rows, classes: bool,
    engine: Engine, record: Record,
) -> InputScaling:  # fmt: skip
    """The scaling, with normal scores where the user or held-out predictions choose them."""
    wanted = settings.warp(options, classes)
    if wanted is None and (rows.others or not is_open(plan, data.rows)):  # several targets have a common scaling
        wanted = False
    warped = inputs if wanted is False else _with_normal_scores(inputs, data.sample, rows.encoding)
    if wanted is not None or not warped.warps:
        return warped
    with record.stage("choice of scaling"):
        plain, scores = (_scaled_sample(data.sample, each, target, np.dtype(float)) for each in (inputs, warped))
        candidates = choose_warping(plan, plain, scores, engine)
        record.choices.extend(candidates)
    return warped if candidates[-1].chosen else inputs


def _with_normal_scores(inputs: InputScaling, sample: Sample, encoding: Encoding) -> InputScaling:
    """The scaling with normal scores of all columns of numbers, except places on a sphere."""
    kinds = [feature.kind for feature in encoding.features for _ in feature.names]
    other = {*inputs.together, *encoding.category_places}
    columns = [column for column, kind in enumerate(kinds) if kind == "number" and column not in other]
    return replace(inputs, warps=learnt_warps(sample.X, inputs.scaling.centre, inputs.scaling.scale, columns))


def _with_outliers(report: FitReport, outliers: Outliers, count: int, unusual: list[int]) -> FitReport:
    """The report with the rows that look like outliers, and a warning about those whose influence was reduced.

    unusual : numbers of some of the `count` rows whose held-out errors are unusual
    """
    numbers = outliers.source_rows.tolist()
    rows = tuple((numbers + [row for row in unusual if row not in numbers])[:MOST_ROWS])
    report = replace(report, outliers=rows, outlier_count=max(len(outliers) + count, len(rows)))
    if len(outliers) == 0:
        return report
    return replace(report, warnings=(OutlyingRows(len(outliers), tuple(numbers[:MOST_ROWS])), *report.warnings))


def _scanned(
    rows: CountedRows, search: CopySearch | None, seeds: Seeds, checkpoint: Checkpoint | None,
    store: str | os.PathLike[str] | None, tell: Listener, likelihood: Likelihood | None, engine: Engine,
) -> tuple[Scan, CountedRows]:  # fmt: skip
    """The result of the first pass over the data, from the checkpoint where it is there, and the rows that count.

    search : looks for exact copies of rows, which count once; None where all rows count
    store : folder for temporary files
    likelihood : of the targets; an error for one that it cannot have
    """
    copies: RowSet | None = None

    def scanned_rows(counted: CountedRows, watch: CopySearch | None) -> Scan:
        return scan_rows(counted, seeds.keys, likelihood, engine, Counter("scan", counted.n_rows, tell), watch)

    def read() -> Scan:
        nonlocal copies
        result = scanned_rows(rows, search)
        if search is not None and isinstance(rows, Rows):
            copies = search.copies(rows, temporary_parent(store))
            if copies is not None:
                distinct = DistinctRows(rows, result.rows - copies.count, copies)
                result = replace(scanned_rows(distinct, None), copies=copies.count)
        return replace(result, dropped=rows.n_dropped or 0)

    data = read() if checkpoint is None else checkpoint.scanned(read)
    if data.rows < 2:
        raise InvalidInput(f"{rows.source.name} has {data.rows} row; a fit needs at least 2")
    return data, DistinctRows(rows, data.rows, copies) if data.copies and isinstance(rows, Rows) else rows


def _bytes_in_memory(data: ScaledRows) -> int:
    """Bytes that a fit in memory needs: the scaled rows, the same rows sorted, and row numbers."""
    columns = data.columns + (1 + COLUMNS if data.noisy else 1) + data.others
    return data.rows * (2 * columns * data.dtype.itemsize + 32)


def _disk_storage(
    checkpoint: Checkpoint | None, store: str | os.PathLike[str] | None, budget: int, rows: Rows,
    tell: Listener = silent,
) -> DiskStorage:  # fmt: skip
    """Where rows that exceed the memory budget are sorted: the checkpoint, the user's folder, or a temporary one."""
    source = rows.fingerprint()
    if checkpoint is not None:
        mirror = checkpoint.mirror
        remote = None if mirror is None else StoreObjects(mirror, mirror.home)
        return DiskStorage(checkpoint.store_folder, budget, source, mirror, tell, remote)
    if is_remote(store):
        mirror = Mirror.temporary(str(store))
        return DiskStorage(mirror.folder / "store", budget, source, mirror, tell, StoreObjects(mirror, mirror.home))
    temporary = TemporaryFolder(store)
    return DiskStorage(temporary.path / "store", budget, source, temporary, tell)
