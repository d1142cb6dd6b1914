"""`gigagp evaluate`: how good a model is on a file."""

from __future__ import annotations

from gigagp.cli import options
from gigagp.cli.display import display
from gigagp.cli.predict import loaded
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
    missing: options.Missing = "error",
    engine: options.OtherEngine = None,
    jobs: options.Jobs = None,
    memory: options.Memory = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Score a model on a file that has the target.

    RMSE, NLPD, CRPS and the coverage of 50%, 80% and 95% intervals, in the target's units and in bounded memory.
    """
    from gigagp.cli import describing

    fitted = loaded(model, engine, jobs, memory)
    with display() as progress:
        found = fitted.evaluate(data, target, missing=missing, progress=progress)
    dropped = f", {found.dropped:,} with missing values left out" if found.dropped else ""
    text = f"{found.rows:,} rows{dropped}\n{describing.scores_text(found)}"
    emit(as_json, {"model": model, "data": data, **describing.scores(found)}, text)
