"""`gigagp reproduce`: the paper's tables and figures, made again."""

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
    quick: Annotated[bool, typer.Option("--quick", help="A part of the data, in less than three minutes.")] = False,
    data: Annotated[str, typer.Option(help="Folder of the data sets.")] = "../shared/data",
    out: Annotated[str, typer.Option(help="Folder for the page and its pictures.")] = "docs/paper",
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, whatever an earlier run has found.")] = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Make a table or figure of the paper again.

    kin40k, airline: the tables, from a data set in the folder. timing, depth, blocks: the figures. million: a million
    rows on a laptop. An interrupted run goes on where it stopped.
    """
    if what not in EXPERIMENTS:
        raise InvalidParameter(f"there is no experiment {what}; choose one of {', '.join(EXPERIMENTS)}")
    from gigagp.paper.page import Paths
    from gigagp.paper.record import Record

    experiment = import_module(f"gigagp.paper.{what}")
    paths = Paths(Path(out), what, quick)
    settings = experiment.QUICK if quick else experiment.FULL
    record = Record(paths.steps, asdict(settings), fresh)
    try:
        with display() as progress:
            found = experiment.run(record, Path(data), settings, progress)
    except BaseException:
        record.tidy()
        raise
    text = experiment.write(record, found, settings, paths)
    emit(as_json, {"page": str(paths.page), "found": found}, f"{text}\n\n{paths.page}")
