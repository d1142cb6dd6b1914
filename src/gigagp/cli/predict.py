"""`gigagp predict`: predict the rows of a file."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gigagp.cli import options
from gigagp.cli.display import display
from gigagp.cli.running import Interrupted, emit
from gigagp.data.addresses import is_remote
from gigagp.errors import InvalidParameter

EXAMPLE = options.example(
    "gigagp datasets make robot-arm -n 2000 -o arm.parquet",
    "gigagp fit arm.parquet --target distance -o model",
    "gigagp predict model arm.parquet -o pred.parquet --quantiles 0.05,0.95 --keep distance",
)


def command(
    context: typer.Context,
    model: options.Model,
    data: options.Data,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="File to write: .parquet or .csv; also at an address such as s3://bucket/key.",
            show_default=False,
        ),
    ],
    quantiles: Annotated[str | None, typer.Option(help="Quantiles to predict, such as 0.05,0.95.")] = None,
    keep: Annotated[list[str] | None, typer.Option(help="Columns to copy to the output: a,b or repeated.")] = None,
    latent: Annotated[bool, typer.Option("--latent", help="Uncertainty of the function, without noise.")] = False,
    missing: options.MissingOfQueries = "error",
    overwrite: options.Overwrite = False,
    engine: options.OtherEngine = None,
    insecure: options.Insecure = False,
    jobs: options.Jobs = None,
    memory: options.Memory = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Predict the rows of a file, and write the predictions to a Parquet or CSV file.

    The output has the columns of --keep, then mean and std, and one column per quantile, such as q0.05. Of several
    targets these begin with the name of the target, such as height_mean. For classes it has the most probable label
    and one probability per class, such as p_yes.
    """
    levels = options.numbers("quantiles", quantiles)
    fitted = loaded(model, engine, jobs, memory)
    try:
        with display() as progress:
            uncertainty = for_numbers(fitted, {"quantiles": levels, "latent": latent})
            done = fitted.predict_file(
                data, output, **uncertainty, keep=options.names(keep), missing=missing, overwrite=overwrite,
                progress=progress,
            )  # fmt: skip
    except KeyboardInterrupt:
        where = f"in the cache, for {output}" if is_remote(output) else f"beside {output}"
        message = f"interrupted; progress is kept {where}. To continue:\n  {context.obj}"
        raise Interrupted(message) from None
    report = {"output": output, "rows": done.rows, "dropped": done.dropped, "seconds": done.seconds}
    report |= {"resumed": done.resumed, "discarded": done.discarded}
    text = f"{output}: {done.rows:,} rows, {done.seconds:.1f} s"
    text += f"; {done.dropped:,} rows without a prediction: values are missing" if done.dropped else ""
    text += f"; {done.resumed:,} rows were already there" if done.resumed else ""
    text += f"; {done.discarded}" if done.discarded else ""
    emit(as_json, report, text)


def for_numbers(model: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Options that only models of numbers have; an error if one is given for a model of classes."""
    from gigagp.estimators.regressor import HGPRegressor

    if isinstance(model, HGPRegressor):
        return given
    for name, value in given.items():
        if value:
            raise InvalidParameter(f"{name}={value!r} is for numbers; this model predicts classes")
    return {}


def loaded(folder: str, engine: str | None, jobs: int | None, memory: str | None) -> Any:
    """The model in a folder, with other settings of where to compute."""
    from gigagp.estimators.loading import load

    model = load(folder)
    settings = {"engine": engine, "n_jobs": jobs, "memory": memory}
    return model.set_params(**{name: value for name, value in settings.items() if value is not None})
