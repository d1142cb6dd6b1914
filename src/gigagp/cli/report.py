"""`gigagp report`: describe a model and its predictions in one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gigagp.cli import options
from gigagp.cli.display import display
from gigagp.cli.predict import loaded
from gigagp.cli.running import emit

EXAMPLE = options.example(
    "gigagp datasets make robot-arm -n 2000 -o arm.parquet",
    "gigagp fit arm.parquet --target distance -o model",
    "gigagp datasets make robot-arm -n 500 --seed 1 -o new.parquet",
    "gigagp report model new.parquet -o report.html",
)


def command(
    model: options.Model,
    data: Annotated[
        str | None,
        typer.Argument(help="Rows with the target, as for `gigagp evaluate`. [default: held-out training rows]"),
    ] = None,
    output: Annotated[str, typer.Option("--output", "-o", help="HTML file to write.")] = "report.html",
    target: options.Truth = None,
    held_out: options.HeldOut = False,
    missing: options.Missing = "error",
    title: Annotated[str | None, typer.Option(help="Title of the page. [default: the name of the target]")] = None,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    engine: options.OtherEngine = None,
    jobs: options.Jobs = None,
    memory: options.Memory = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Write an HTML page about a model: warnings, figures, calibration, parameters, timing.

    The page is one self-contained file. Data of any size are scored in bounded memory.
    """
    from gigagp.cli import descriptions
    from gigagp.data.folders import check_output
    from gigagp.report import write_report

    check_output(output, "HTML", (".html", ".htm"), overwrite)
    fitted = loaded(model, engine, jobs, memory)
    with display() as progress:
        done = write_report(
            fitted, output, data, target=target, missing=missing, overwrite=overwrite, title=title, seed=seed,
            share=options.held_out_rows(fitted, held_out), progress=progress,
        )  # fmt: skip
    output_data = {
        "output": output,
        "model": model,
        "data": data,
        "held_out": held_out,
        "rows": done.rows,
        "scores": None if done.evaluation is None else descriptions.scores(done.evaluation),
        "warnings": [{"text": advice.text, "cure": advice.remedy} for advice in done.advice],
        "bytes": Path(done.path).stat().st_size,
        "seconds": done.seconds,
    }
    lines = [f"{output}: {done.rows:,} rows scored, {done.seconds:.1f} s"]
    lines += [f"warning: {advice.text}" for advice in done.advice]
    emit(as_json, output_data, "\n".join(lines))
