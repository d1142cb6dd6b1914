"""A fit as a whole: scan, plan, scaling, storage and engine around the stages, and the model that results."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np

from gigagp import memory
from gigagp.data.copies import DistinctRows, counted_once
from gigagp.data.folders import TemporaryFolder
from gigagp.data.outliers import NONE, Outliers, find_outliers, without
from gigagp.data.scaled import ScaledRows, StreamedRows, scaled_targets
from gigagp.data.scaling import BLOCK, Scaling
from gigagp.data.scan import Sample, Scan, scan
from gigagp.data.sources import Encoding, Rows
from gigagp.data.sources.times import UNITS
from gigagp.engines import one_blas_thread, open_engine
from gigagp.errors import InvalidInput
from gigagp.fit import settings, stages
from gigagp.fit.checkpoint import Checkpoint
from gigagp.fit.plan import NoLog, Seeds
from gigagp.fit.planning import make_plan, plan_for_classes
from gigagp.fit.settings import FitSettings
from gigagp.fit.store_writer import DiskStorage, MemoryStorage, Storage
from gigagp.fit.unusual_rows import MOST_ROWS
from gigagp.kernels.inputs import InputColumns
from gigagp.linalg.categories import LEVEL_WIDTH
from gigagp.linalg.row_noise import COLUMNS
from gigagp.model.class_calibration import ClassCalibration
from gigagp.model.class_model import ClassModel
from gigagp.model.factor_cache import FactorCache
from gigagp.model.fit_report import FitReport
from gigagp.model.fit_warnings import OutlyingRows
from gigagp.model.model import CommitteeDefaults, Model
from gigagp.partition import partitioner
from gigagp.progress import Counter, Listener, silent


def fit_model(
    rows: Rows, options: FitSettings, seed: np.random.SeedSequence, *, store: str | os.PathLike[str] | None,
    checkpoint: Checkpoint | None, encoding: Encoding | None, feature_names: tuple[str, ...] | None, tell: Listener,
    learn_noise: bool = True, classes: ClassModel | None = None,
) -> Model:  # fmt: skip
    """Fit a model to the rows of a source.

    store : folder for the sorted rows where they exceed the memory budget; a temporary one where it is None
    checkpoint : where progress is kept; its seed replaces `seed`
    encoding : how the columns of a table or file become numbers; None for arrays
    learn_noise : False where rows have no noise but the known one
    classes : where targets are the numbers of classes, before calibration
    """
    seeds = Seeds.of(seed)
    dtype, budget = settings.precision(options.dtype), memory.budget(options.memory)
    parts = partitioner(options.partition)
    counted, copies = counted_once(rows) if parts.local and classes is None else (rows, 0)
    data = _scanned(counted, seeds, checkpoint, tell)
    known = rows.noise is not None and rows.noise.deviations is not None
    outliers = NONE if classes is not None or known else find_outliers(data)
    data = without(data, outliers)
    target = data.target.scaling() if options.standardize and classes is None else Scaling.identity(1)
    inputs = data.inputs.scaling() if options.standardize else Scaling.identity(rows.n_features)
    inputs = inputs.with_levels(rows.encoding.category_places)
    columns = _input_columns(rows.encoding, feature_names, inputs, target)
    plan = make_plan(options, data, parts, columns, learn_noise)
    if classes is not None:
        plan = plan_for_classes(plan, options, classes.classes)
    sample = Sample(
        data.sample.keys,
        data.sample.rows,
        inputs.apply(data.sample.X, dtype),
        scaled_targets(data.sample.y, target, dtype),
    )
    streamed = StreamedRows(counted, data.rows, inputs, target, dtype, Counter("store", data.rows, tell), outliers)
    scaled: ScaledRows = streamed
    storage: Storage = MemoryStorage()
    log = NoLog() if checkpoint is None else checkpoint.log
    try:
        with one_blas_thread(), open_engine(options.engine, options.n_jobs) as engine:
            if engine.reads_files or _bytes_in_memory(streamed) > budget:
                storage = on_disk = _disk_storage(checkpoint, store, budget, rows, tell)
                engine.use_folder(on_disk.folder)
            else:
                scaled = streamed.in_memory()
            result = stages.fit(scaled, sample, plan, engine, seeds, storage, log, tell, data.dropped)
    except BaseException:
        storage.discard()  # at once, since the traceback keeps everything that it refers to alive
        raise
    mixture = result.mixture
    unusual = result.unusual.source_rows(rows, inputs, target)
    return Model(
        committee=replace(result.committee, cache=FactorCache(budget // 4)),
        neighbourhood=result.neighbourhood,
        mixture=None if mixture is None else replace(mixture, cache=FactorCache(budget // 4)),
        cells=result.cells,
        local=parts.local,
        defaults=CommitteeDefaults.of(parts.local),
        inputs=inputs,
        target=target,
        report=replace(_with_outliers(result.report, outliers, result.unusual.count, unusual), copies=copies),
        encoding=encoding,
        feature_names=feature_names,
        target_name=rows.target.column if rows.target and not rows.target.beside else None,
        input_noise=result.input_noise,
        classes=_calibrated(classes, result.class_calibration),
    )


def _calibrated(classes: ClassModel | None, calibration: ClassCalibration | None) -> ClassModel | None:
    return classes if classes is None or calibration is None else replace(classes, calibration=calibration)


def _input_columns(
    encoding: Encoding, feature_names: tuple[str, ...] | None, inputs: Scaling, target: Scaling
) -> InputColumns:
    """Names, places and scales of the user's columns; of an array without names these are x0, x1, ...

    Lengths along dates are in days.
    """
    ends = np.cumsum([len(feature.names) for feature in encoding.features]).tolist()
    places = tuple(tuple(range(start, end)) for start, end in zip([0, *ends], ends, strict=False))
    names = tuple(feature.column for feature in encoding.features)
    if feature_names is not None and len(feature_names) == len(names):
        names = feature_names  # of a data frame that was checked by scikit-learn
    kinds = (feature.kind for feature in encoding.features for _ in feature.names)
    units = [UNITS[kind][1] if kind in UNITS else 1.0 for kind in kinds]
    widths, levels = inputs.scale / np.array(units), encoding.category_places
    widths[list(levels)] = LEVEL_WIDTH
    return InputColumns(names, places, tuple(widths.tolist()), float(target.scale[0]), levels)


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


def _scanned(rows: Rows | DistinctRows, seeds: Seeds, checkpoint: Checkpoint | None, tell: Listener) -> Scan:
    """The result of the first pass over the data, from the checkpoint where it is there."""

    def read() -> Scan:
        count = Counter("scan", rows.n_rows, tell)
        return replace(scan(rows.blocks(BLOCK), seeds.keys, count), dropped=rows.n_dropped or 0)

    data = read() if checkpoint is None else checkpoint.scanned(read)
    if data.rows < 2:
        raise InvalidInput(f"{rows.source.name} has {data.rows} row; a fit needs at least 2")
    return data


def _bytes_in_memory(data: ScaledRows) -> int:
    """Bytes that a fit in memory needs: the scaled rows, the same rows sorted, and row numbers."""
    columns = data.columns + (1 + COLUMNS if data.noisy else 1)
    return data.rows * (2 * columns * data.dtype.itemsize + 32)


def _disk_storage(
    checkpoint: Checkpoint | None, store: str | os.PathLike[str] | None, budget: int, rows: Rows,
    tell: Listener = silent,
) -> DiskStorage:  # fmt: skip
    """Where rows that exceed the memory budget are sorted: the checkpoint, the user's folder, or a temporary one."""
    if checkpoint is not None:
        return DiskStorage(checkpoint.store_folder, budget, rows.fingerprint(), tell=tell)
    temporary = TemporaryFolder(store)
    return DiskStorage(temporary.path / "store", budget, rows.fingerprint(), temporary, tell)
