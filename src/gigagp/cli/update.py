"""`gigagp update`: learn the rows of a file, or forget rows, without training."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from gigagp.cli import options
from gigagp.cli.display import display
from gigagp.cli.running import emit
from gigagp.errors import InvalidParameter

EXAMPLE = options.example(
    "gigagp datasets make robot-arm -n 5000 -o arm.parquet",
    "gigagp fit arm.parquet --target distance --method neighbourhood -o model",
    "gigagp datasets make robot-arm -n 500 --seed 1 -o new.parquet",
    "gigagp update model new.parquet --max-rows 5200",
)


def command(
    model: options.Model,
    data: Annotated[str | None, typer.Argument(help="New rows; none to only forget or refine.")] = None,
    target: options.Truth = None,
    weight_column: options.WeightColumn = None,
    noise_column: options.NoiseColumn = None,
    missing: options.MissingOfUpdates = None,
    max_rows: Annotated[int | None, typer.Option(help="Forget all but so many of the most recent rows.")] = None,
    older_than: Annotated[str | None, typer.Option(help="Forget rows with a smaller value in --column.")] = None,
    column: Annotated[str | None, typer.Option(help="Column of --older-than, such as a date.")] = None,
    refine: Annotated[bool, typer.Option("--refine", help="Train the model again on the rows it has then.")] = False,
    auto: Annotated[
        bool, typer.Option("--auto", help="Recalibrate by the new rows; train again if they drift.")
    ] = False,
    compact: Annotated[bool, typer.Option("--compact", help="Sort the updates into the model; end the log.")] = False,
    engine: options.OtherEngine = None,
    insecure: options.Insecure = False,
    jobs: options.Jobs = None,
    memory: options.Memory = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Learn the rows of a file in place, without training; theta and scalings stay, unless --auto or --refine is given.

    The rows are written to a log in the model's folder before the command ends: after an interruption, each call of up
    to a million rows is either complete or absent. Other commands see the updates.
    """
    from gigagp.estimators.loading import open_for_updates

    if data is None and max_rows is None and older_than is None and not (refine or compact):
        raise InvalidParameter("there is nothing to do: give new rows, --max-rows, --older-than, --refine or --compact")
    with open_for_updates(model) as fitted, display() as progress:
        given = {"engine": engine, "n_jobs": jobs, "memory": memory}
        fitted.set_params(**{name: value for name, value in given.items() if value is not None})
        before = fitted.n_rows_
        if data is not None:
            own = {"noise_std": noise_column, "refine": "auto" if auto else None}
            given = {name: value for name, value in own.items() if value is not None}
            if given and hasattr(fitted, "classes_"):
                raise InvalidParameter("--noise-column and --auto are for models of numbers; this one has classes")
            fitted.partial_fit(data, target, weight_column, missing=missing, progress=progress, **given)
        learnt = fitted.n_rows_ - before
        if max_rows is not None:
            fitted.forget(max_rows=max_rows)
        if older_than is not None:
            fitted.forget(older_than=older_than, column=column)
        forgotten = before + learnt - fitted.n_rows_
        record = fitted.prequential_
        if refine:
            fitted.refine(progress=progress)
        elif compact:
            fitted.compact()
        rows = fitted.n_rows_
    _tell(as_json, model, {"rows": rows, "learnt": learnt, "forgotten": forgotten}, record, refine)


def _tell(as_json: bool, model: str, counts: dict[str, int], record: Any, refined: bool) -> None:
    content: dict[str, Any] = {"model": model, **counts, "refined": refined}
    text = f"{model}: {counts['rows']:,} rows, {counts['learnt']:,} learnt, {counts['forgotten']:,} forgotten"
    if record.scored:
        drift = record.drift
        drifts = drift is not None and drift.detected
        content |= {"scored": record.scored, "nlpd": record.nlpd, "drift": drifts}
        scores = f"log loss {record.nlpd:.4g}"
        if math.isfinite(record.rmse):  # not known of classes
            content["rmse"], scores = record.rmse, f"NLPD {record.nlpd:.4g}, RMSE {record.rmse:.4g}"
        text += f"\n{record.scored:,} rows scored before they were learnt: {scores}"
        text += "; recent rows are predicted worse: consider --refine" if drifts and not refined else ""
    emit(as_json, content, text)
