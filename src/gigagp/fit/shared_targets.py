"""Fits one theta for several targets of the same rows: one partition, one search of neighbours and one factor for all.

If several standardised targets have the same covariance function and the same share of noise, every weighted sum of
them has it too. Theta, the kernel family and the number of neighbours are therefore learnt from one such sum: that of
all targets, with signs by which correlated targets do not cancel. Each target then has a calibration of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.scaling import Scaling
from gigagp.data.sources import Block, Rows
from gigagp.data.sources.base import digest
from gigagp.data.sources.rows import BLOCK
from gigagp.engines import one_blas_thread, open_engine
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.fit import settings
from gigagp.fit.held_out_scores import NumberScoring, Scorer
from gigagp.fit.settings import FitSettings
from gigagp.model.calibration import Calibration
from gigagp.model.model import Model
from gigagp.model.target_neighbourhood import TargetNeighbourhoods

_LEAST_CALIBRATED = 100  # rows from which errors are learnt


@dataclass(frozen=True, eq=False)
class SharedFit:
    """The models of several targets with one theta, and what predicts them together."""

    models: tuple[Model, ...]
    together: TargetNeighbourhoods


class SummedTargets(Rows):
    """Rows whose target is a sum of standardised targets; the standardised targets are carried along."""

    _values: Array
    _scaling: Scaling
    _signs: Array

    @classmethod
    def of(cls, rows: Rows, values: Array) -> SummedTargets:
        """values : the targets of all rows of the source, one column each"""
        summed = object.__new__(cls)
        summed.__dict__.update(copy.copy(rows).__dict__)
        summed._values, summed.others = values, values.shape[1]
        used = values if rows.n_rows == len(values) else values[_used_rows(rows)]
        deviation = used.std(axis=0)
        summed._scaling = Scaling(used.mean(axis=0), np.where(deviation > 0, deviation, 1.0))
        summed._signs = _signs((used - summed._scaling.centre) / summed._scaling.scale)
        return summed

    def scaling(self, target: int) -> Scaling:
        """Of one target."""
        return Scaling(self._scaling.centre[target : target + 1], self._scaling.scale[target : target + 1])

    def fingerprint(self) -> str:
        """Changes with the data, which include all targets."""
        content = np.ascontiguousarray(self._values).view(np.uint8).ravel()
        return digest([super().fingerprint(), [int(part.sum(dtype=np.int64)) for part in np.array_split(content, 64)]])

    @property
    def paths(self) -> list[tuple[str, int]] | None:
        return None  # the targets are in memory

    def blocks(self, size: int = BLOCK, start: int = 0, stop: int | None = None) -> Iterator[Block]:
        for block in super().blocks(size, start, stop):
            here = slice(block.first_row, block.first_row + len(block.X))
            values = self._values[here if block.source_rows is None else block.source_rows]
            standardised = (values - self._scaling.centre) / self._scaling.scale
            yield replace(block, y=standardised @ self._signs, others=standardised)


def _used_rows(rows: Rows) -> Array:
    """The numbers of the rows that a fit reads, where it does not read all rows of the source."""
    parts = []
    for block in rows.blocks():
        own = np.arange(block.first_row, block.first_row + len(block.X))
        parts.append(own if block.source_rows is None else block.source_rows)
    return np.concatenate(parts)


def _signs(standardised: Array) -> Array:
    """Signs of the targets: each is added to the sum of those before it with the sign of their correlation."""
    signs, total = np.ones(standardised.shape[1]), standardised[:, 0].copy()
    for j in range(1, len(signs)):
        signs[j] = -1.0 if float(total @ standardised[:, j]) < 0 else 1.0
        total += signs[j] * standardised[:, j]
    return signs


def why_not_shared(options: FitSettings, weighted: bool) -> str:
    """A setting with which targets cannot share a theta; "" where they can."""
    kernel, open_mean = settings.kernel(options.kernel), isinstance(options.mean, str) and options.mean == "constant"
    reasons = {
        'partition other than "local"': options.partition != "local",
        "a committee (method, sharing, combine, experts_per_query)": options.by_committee
        or options.method == "committee"
        or options.sharing is not None,
        'leaf="sparse"': options.leaf == "sparse",
        "a mean function": not open_mean,
        "noise that depends on the inputs": options.noise != "constant",
        "a likelihood that is not Gaussian": settings.likelihood(options.likelihood) is not None,
        "standardize=False": not options.standardize,
        "sample_weight": weighted,
        "a kernel that is not stationary": kernel is not None and not kernel.stationary,
    }
    return next((reason for reason, true in reasons.items() if true), "")


def check_targets(values: Array, names: tuple[str, ...]) -> None:
    """Raise InvalidInput for targets with missing values, which need a fit of their own."""
    gaps = np.isnan(values)
    if gaps.any():
        row, column = (int(place) for place in np.argwhere(gaps)[0])
        raise InvalidInput(
            f'the target {names[column]!r} has a missing value at row {row}, and targets="shared" needs all targets of '
            'a row; use targets="separate", or take such rows out'
        )


def divided(model: Model, rows: SummedTargets, names: tuple[str, ...], options: FitSettings) -> SharedFit:
    """One model per target, from a model of the sum of the targets."""
    near, store = model.neighbourhood, model.store
    if near is None or store.others is None:
        raise InvalidParameter(f'targets="shared" predicts from neighbouring rows, which {model.kernel!r} cannot')
    together = TargetNeighbourhoods.of(near, np.ascontiguousarray(store.others.T))
    calibrations = _calibrations(together, options, len(store.y))

    def of_target(j: int) -> Model:
        near = together.models[j]
        return replace(
            model, committee=replace(model.committee, store=near.store), neighbourhood=near, target=rows.scaling(j),
            report=replace(model.report, calibration=calibrations[j]), target_name=names[j],
        )  # fmt: skip

    return SharedFit(tuple(of_target(j) for j in range(len(names))), together)


def _calibrations(together: TargetNeighbourhoods, options: FitSettings, rows: int) -> list[Calibration]:
    """The distribution of errors of each target, learnt from held-out predictions."""
    if not options.calibrate or rows < _LEAST_CALIBRATED:
        return [Calibration.none() for _ in together.models]
    scoring = NumberScoring(1.0, gaussian=options.likelihood == "gaussian")
    with one_blas_thread(), open_engine("threads", options.n_jobs) as engine:
        order = Scorer.drawn(rows, scoring, engine, np.random.default_rng(0)).for_calibration(together.models[0])
        X = np.ascontiguousarray(together.models[0].store.gather(order)[0])
        predictions = together.predict(X, engine, held_out=order)
    scores = (
        scoring.score(order, y[order], prediction, model)
        for y, prediction, model in zip(together.targets, predictions, together.models, strict=True)
    )
    return [score.calibration.refined(score.prediction, score.y) for score in scores]


def read_values(source: Any, names: tuple[str, ...]) -> Array:
    """The targets of all rows of a source, one column each."""
    parts = [np.column_stack([batch.numbers(name) for name in names]) for batch in source.batches(names, BLOCK)]
    return np.asarray(np.concatenate(parts), float)
