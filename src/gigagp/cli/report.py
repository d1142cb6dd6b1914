"""`gigagp report`: describe a model and its predictions in one HTML page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from gigagp.cli import options
from gigagp.cli.display import display
from gigagp.cli.predict import loaded
from gigagp.cli.running import emit
from gigagp.errors import InvalidParameter

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
    insecure: options.Insecure = False,
    jobs: options.Jobs = None,
    memory: options.Memory = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Write an HTML page about a model: warnings, figures, calibration, parameters, timing.

    The page is one self-contained file; of several targets each has a page, such as report-height.html. Data of any
    size are scored in bounded memory.
    """
    from gigagp.data.folders import check_output, output_path

    fitted, final = loaded(model, engine, jobs, memory), output_path(output)
    targets, truth = getattr(fitted, "target_names_", None), options.target(target)
    pages = {final: fitted} if targets is None else {_page_of(final, name): fitted.target(name) for name in targets}
    truths = truth if isinstance(truth, list) else [truth] * len(pages)
    if len(truths) != len(pages):
        raise InvalidParameter(f"--target names {len(truths)} columns, but the model has {len(pages)} targets")
    for path in pages:
        check_output(path, "HTML", (".html", ".htm"), overwrite)
    done = []
    with display() as progress:
        for (path, one), column in zip(pages.items(), truths, strict=True):
            reading = {"target": column, "missing": missing, "share": options.held_out_rows(one, held_out)}
            settings = {"overwrite": overwrite, "title": title, "seed": seed, "progress": progress}
            done.append(_written(one, path, data, reading | settings))
    about = [{**content, "model": model, "data": data, "held_out": held_out} for content, _ in done]
    emit(
        as_json,
        about[0] if targets is None else {"targets": dict(zip(targets, about, strict=True))},
        "\n".join(text for _, text in done),
    )


def _page_of(final: Path, name: str) -> Path:
    """The page of one of several targets: report-height.html."""
    return final.with_name(f"{final.stem}-{re.sub(r'[^0-9A-Za-z_.-]+', '_', name)}{final.suffix}")


def _written(fitted: Any, path: Path, data: str | None, arguments: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Write a page; what is on it as plain values, and as text."""
    from gigagp.cli import descriptions
    from gigagp.report import write_report

    done = write_report(fitted, path, data, **arguments)
    content = {
        "output": str(path),
        "rows": done.rows,
        "scores": None if done.evaluation is None else descriptions.scores(done.evaluation),
        "warnings": [{"text": advice.text, "cure": advice.remedy} for advice in done.advice],
        "bytes": Path(done.path).stat().st_size,
        "seconds": done.seconds,
    }
    lines = [f"{path}: {done.rows:,} rows scored, {done.seconds:.1f} s"]
    lines += [f"warning: {advice.text}" for advice in done.advice]
    return content, "\n".join(lines)
