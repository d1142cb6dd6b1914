"""`gigagp predict`: a file of predictions from a file of queries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gigagp.cli import options
from gigagp.cli.display import display
from gigagp.cli.running import Interrupted, emit

EXAMPLE = options.example(
    "gigagp datasets make robot-arm -n 2000 -o arm.parquet",
    "gigagp fit arm.parquet --target distance -o model",
    "gigagp predict model arm.parquet -o pred.parquet --quantiles 0.05,0.95 --keep distance",
)


def command(
    context: typer.Context,
    model: options.Model,
    data: options.Data,
    output: Annotated[str, typer.Option("--output", "-o", help="Parquet file to be written.", show_default=False)],
    quantiles: Annotated[str | None, typer.Option(help="Quantiles to add, such as 0.05,0.95.")] = None,
    keep: Annotated[list[str] | None, typer.Option(help="Columns to carry along: a,b or repeated.")] = None,
    latent: Annotated[bool, typer.Option("--latent", help="Uncertainty of the function, without the noise.")] = False,
    missing: options.Missing = "error",
    overwrite: options.Overwrite = False,
    engine: options.OtherEngine = None,
    jobs: options.Jobs = None,
    memory: options.Memory = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Predict a file into a Parquet file.

    It has the columns that are kept, mean, std, and q0.05 for quantile 0.05, say.
    """
    levels = options.numbers("quantiles", quantiles)
    fitted = loaded(model, engine, jobs, memory)
    try:
        with display() as progress:
            done = fitted.predict_file(
                data, output, quantiles=levels, keep=options.names(keep), latent=latent, missing=missing,
                overwrite=overwrite, progress=progress,
            )  # fmt: skip
    except KeyboardInterrupt:
        kept = f"interrupted; what is done is kept beside {output}. To go on:\n  {context.obj}"
        raise Interrupted(kept) from None
    report = {"output": output, "rows": done.rows, "dropped": done.dropped, "seconds": done.seconds}
    report |= {"resumed": done.resumed, "discarded": done.discarded}
    text = f"{output}: {done.rows:,} rows, {done.seconds:.1f} s"
    text += f"; {done.dropped:,} rows with missing values left out" if done.dropped else ""
    text += f"; {done.resumed:,} rows were there from before" if done.resumed else ""
    text += f"; {done.discarded}" if done.discarded else ""
    emit(as_json, report, text)


def loaded(folder: str, engine: str | None, jobs: int | None, memory: str | None) -> Any:
    """The model in a folder, computing where it is told to."""
    from gigagp.estimators.regressor import HGPRegressor

    model = HGPRegressor.load(Path(folder))
    given = {"engine": engine, "n_jobs": jobs, "memory": memory}
    return model.set_params(**{name: value for name, value in given.items() if value is not None})
