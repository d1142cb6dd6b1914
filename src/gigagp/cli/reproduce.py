"""`gigagp reproduce`: repeat the experiments of the paper."""

from __future__ import annotations

from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from gigagp.cli import options
from gigagp.cli.display import display
from gigagp.cli.running import emit
from gigagp.errors import InvalidParameter

EXAMPLE = options.example("gigagp reproduce blocks --quick")

EXPERIMENTS = ("kin40k", "airline", "timing", "depth", "blocks", "million")


def command(
    what: Annotated[str, typer.Argument(help=", ".join(EXPERIMENTS) + ".", show_default=False)],
    quick: Annotated[
        bool, typer.Option("--quick", help="Use part of the data; takes less than three minutes.")
    ] = False,
    data: Annotated[str, typer.Option(help="Folder of the data sets.")] = "../shared/data",
    out: Annotated[str, typer.Option(help="Folder for the page and its figures.")] = "docs/paper",
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start again instead of using the results of an earlier run.")
    ] = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Reproduce a table or figure of the paper.

    kin40k and airline are tables and need their data sets in the folder. timing, depth and blocks are figures. million
    is a fit to a million rows. An interrupted run continues where it stopped.
    """
    if what not in EXPERIMENTS:
        raise InvalidParameter(f"unknown experiment {what}; choose one of {', '.join(EXPERIMENTS)}")
    from gigagp.paper.page import Paths
    from gigagp.paper.record import Record

    experiment = import_module(f"gigagp.paper.{what}")
    paths = Paths(Path(out), what, quick)
    settings = experiment.QUICK if quick else experiment.FULL
    record = Record(paths.steps, asdict(settings), fresh)
    try:
        with display() as progress:
            results = experiment.run(record, Path(data), settings, progress)
    except BaseException:
        record.tidy()
        raise
    text = experiment.write(record, results, settings, paths)
    emit(as_json, {"page": str(paths.page), "found": results}, f"{text}\n\n{paths.page}")
