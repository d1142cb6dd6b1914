"""Options that commands share, and how their texts are read."""

from __future__ import annotations

import csv
from typing import Annotated

import typer

from gigagp.errors import InvalidParameter

Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, and nothing else there.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the output if it is there.")]
Missing = Annotated[str, typer.Option(help="Rows with missing values: error, or drop to leave them out.")]
Data = Annotated[str, typer.Argument(help="Parquet (file, folder, glob), CSV, CSV.gz or .npy.", show_default=False)]
Truth = Annotated[str | None, typer.Option("--target", "-t", help="Column of the truth. [default: as in the fit]")]
Model = Annotated[str, typer.Argument(help="Folder of a model that `gigagp fit` wrote.", show_default=False)]
Engine = Annotated[
    str, typer.Option(help="serial, threads, processes, dask, or the address of a scheduler (tcp://host:8786).")
]
OtherEngine = Annotated[
    str | None, typer.Option("--engine", help="Where to compute, if not where the fit did; see `gigagp fit --help`.")
]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", help="Workers on this machine. [default: every core]")]
Memory = Annotated[str | None, typer.Option(help="Budget for the data, such as 2GB. [default: half of the machine's]")]
Seed = Annotated[int, typer.Option(help="Of all random choices; the same seed gives the same result.")]


def example(*lines: str) -> str:
    """Lines at the end of a help text that work as pasted."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def names(texts: list[str] | None) -> list[str]:
    """Names of columns: separated by commas, an option repeated, or both; "a,b" in quotes is one name."""
    return [name for text in texts or [] for name in next(csv.reader([text], skipinitialspace=True), [])]


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
