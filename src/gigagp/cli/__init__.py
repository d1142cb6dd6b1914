"""The command `gigagp`. A command imports what it needs when it runs, so that `gigagp --help` is fast."""

from __future__ import annotations

from typing import Annotated

import typer

from gigagp.cli import (
    benchmark,
    datasets,
    demo,
    evaluate,
    fit,
    grid,
    inspect,
    predict,
    report,
    reproduce,
    serve,
    update,
)
from gigagp.cli.running import Group
from gigagp.version import __version__

__all__ = ["app", "main"]

app = typer.Typer(
    name="gigagp",
    cls=Group,
    help="Gaussian process regression for millions of rows: fit a model, predict and evaluate files of any size.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"gigagp {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


for module in (fit, update, predict, grid, evaluate, inspect, report, serve):
    app.command(module.__name__.rpartition(".")[2], epilog=module.EXAMPLE)(module.command)
app.command("demo", epilog=demo.EXAMPLE)(demo.command)
app.command("benchmark", epilog=benchmark.EXAMPLE)(benchmark.command)
app.command("reproduce", epilog=reproduce.EXAMPLE)(reproduce.command)
sets = typer.Typer(help="Generate example data.", rich_markup_mode=None)
sets.command("make", epilog=datasets.EXAMPLE)(datasets.command)
sets.callback()(lambda: None)
app.add_typer(sets, name="datasets")


def main() -> None:
    app()
