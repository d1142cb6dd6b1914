"""Options that several commands share, and functions that parse their values."""

from __future__ import annotations

import csv
from typing import Annotated, Any

import typer

from gigagp.errors import InvalidParameter

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing output.")]
Missing = Annotated[str, typer.Option(help="Rows with missing values: error, or drop.")]
MissingOfUpdates = Annotated[
    str | None,
    typer.Option(
        "--missing",
        help="Rows with missing values that the model cannot answer: error or drop. [default: as in the fit]",
    ),
]
MissingOfQueries = Annotated[
    str, typer.Option("--missing", help="Rows with missing values: error, or drop, which predicts NaN for them.")
]
MissingOfFit = Annotated[
    str, typer.Option("--missing", help="Rows with missing values: error, drop, or model, which learns from them.")
]
Data = Annotated[str, typer.Argument(help="Parquet (file, folder, glob), CSV, CSV.gz or .npy.", show_default=False)]
Truth = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        "-t",
        help="Column with the true targets; several columns: a,b or repeated. [default: as in the fit]",
    ),
]
WeightColumn = Annotated[
    str | None,
    typer.Option(help="Column of weights: a row's noise variance is divided by its weight; zero leaves the row out."),
]
NoiseColumn = Annotated[
    str | None, typer.Option(help="Column of known standard deviations of the target's noise, in the target's units.")
]
HeldOut = Annotated[
    bool,
    typer.Option("--held-out", help="Score only the rows that `gigagp fit --test-fraction` held out of the same file."),
]
Model = Annotated[
    str, typer.Argument(help="Folder of a model written by `gigagp fit`, or s3://bucket/folder.", show_default=False)
]


def _authenticated(context: typer.Context, engine: str | None) -> str | None:
    """The engine; an error if it is a Dask scheduler without TLS and --insecure is not given."""
    address = engine is not None and "://" in engine
    if address and not str(engine).startswith("tls://") and not context.params.get("insecure"):
        raise InvalidParameter(
            f"the connection to {engine} is neither encrypted nor authenticated: whoever reaches this scheduler can "
            "run code on its workers. Start it with TLS and give tls://..., or accept this with --insecure "
            "(docs/clusters.md)"
        )
    return engine


Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure", is_eager=True, help="Also use a Dask scheduler without TLS (tcp://host:8786), which is not safe."
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        help="Where to compute: serial, threads, processes, dask, or the address of a Dask scheduler "
        "(tls://host:8786).",
        callback=_authenticated,
    ),
]
OtherEngine = Annotated[
    str | None,
    typer.Option(
        "--engine", help="Where to compute; see `gigagp fit --help`. [default: as in the fit]", callback=_authenticated
    ),
]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", help="Workers on this machine. [default: every core]")]
Memory = Annotated[
    str | None, typer.Option(help="Memory budget for the data, such as 2GB. [default: half of the machine's memory]")
]
Seed = Annotated[int, typer.Option(help="Seed of all random choices; the same seed gives the same result.")]


def held_out_rows(model: Any, wanted: bool) -> Any:
    """The share of the rows that a model's fit held out; None for all rows. An error if the fit held out none."""
    if wanted and model.held_out_ is None:
        raise InvalidParameter(
            "--held-out: this model was fitted to all rows; fit with --test-fraction to hold some out"
        )
    return model.held_out_ if wanted else None


def example(*lines: str) -> str:
    """Example commands at the end of a help text, which can be pasted."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def names(texts: list[str] | None) -> list[str]:
    """Column names, separated by commas or in repeated options; a name in quotes may contain a comma."""
    return [name for text in texts or [] for name in next(csv.reader([text], skipinitialspace=True), [])]


def target(texts: list[str] | None) -> str | list[str] | None:
    """The name of one target, or the names of several; None where none is given."""
    columns = names(texts)
    return None if not columns else columns[0] if len(columns) == 1 else columns


def numbers(name: str, text: str | None) -> list[float]:
    """Numbers separated by commas."""
    try:
        return [float(part) for part in (text or "").split(",") if part.strip()]
    except ValueError:
        raise InvalidParameter(f"--{name} takes numbers separated by commas, such as 0.05,0.95; got {text}") from None


def row_count(text: str, at_least: int = 1) -> int:
    """A number of rows: 5000, 1e6, 1_000_000."""
    try:
        count = float(text)
    except ValueError:
        count = 0.0
    if not (at_least <= count < 2**53 and count.is_integer()):
        raise InvalidParameter(f"-n takes a whole number of rows, at least {at_least}, such as 5000 or 1e6; got {text}")
    return int(count)
