"""`gigagp evaluate`: score a model on a file."""

from __future__ import annotations

from typing import Any

from gigagp.cli import options
from gigagp.cli.display import display
from gigagp.cli.predict import for_numbers, loaded
from gigagp.cli.running import emit

EXAMPLE = options.example(
    "gigagp datasets make robot-arm -n 2000 -o arm.parquet",
    "gigagp fit arm.parquet --target distance -o model",
    "gigagp datasets make robot-arm -n 500 --seed 1 -o new.parquet",
    "gigagp evaluate model new.parquet",
)


def command(
    model: options.Model,
    data: options.Data,
    target: options.Truth = None,
    weight_column: options.WeightColumn = None,
    noise_column: options.NoiseColumn = None,
    held_out: options.HeldOut = False,
    missing: options.Missing = "error",
    engine: options.OtherEngine = None,
    insecure: options.Insecure = False,
    jobs: options.Jobs = None,
    memory: options.Memory = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Score a model on a file that contains the target.

    Prints RMSE, NLPD, CRPS and the coverage of 50%, 80% and 95% intervals, in the units of the target; for classes log
    loss, accuracy, Brier score and calibration error. Rows that the model was fitted to have better scores than new
    rows: --held-out scores only rows that the fit did not use.
    """
    from gigagp.cli import descriptions

    fitted = loaded(model, engine, jobs, memory)
    with display() as progress:
        noise = for_numbers(fitted, {"sample_weight": weight_column, "noise_std": noise_column})
        share = options.held_out_rows(fitted, held_out)
        truth = options.target(target)
        evaluation = fitted.evaluate(data, truth, **noise, missing=missing, share=share, progress=progress)
    about = {"model": model, "data": data, "held_out": held_out}
    if not isinstance(evaluation, dict):
        emit(as_json, {**about, **descriptions.scores(evaluation)}, _text(evaluation, held_out))
        return
    texts = [f"{name}: {_text(each, held_out)}" for name, each in evaluation.items()]
    targets = {name: descriptions.scores(each) for name, each in evaluation.items()}
    emit(as_json, {**about, "targets": targets}, "\n".join(texts))


def _text(evaluation: Any, held_out: bool) -> str:
    from gigagp.cli import descriptions

    dropped = f", {evaluation.dropped:,} with missing values dropped" if evaluation.dropped else ""
    whose = " that the fit held out" if held_out else ""
    return f"{evaluation.rows:,} rows{whose}{dropped}\n{descriptions.scores_text(evaluation)}"
