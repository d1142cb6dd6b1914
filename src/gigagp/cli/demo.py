"""`gigagp demo`: fit generated data and compare with an exact GP on a subset."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gigagp.cli import options
from gigagp.cli.running import emit
from gigagp.errors import InvalidParameter

EXAMPLE = options.example("gigagp demo --rows 1000 --picture demo.png")


def command(
    rows: Annotated[str, typer.Option("--rows", "-n", help="Number of rows to fit.")] = "200000",
    picture: Annotated[str | None, typer.Option(help="PNG file for a picture of the predictions.")] = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Fit generated robot arm data and show the accuracy.

    For comparison, an exact GP is fitted to 2,000 of the rows (or to a tenth of them, if that is less), which is what
    one would do without the hierarchy.
    """
    count = options.row_count(rows, at_least=2)
    if picture is not None:
        _check_picture(Path(picture))
    from gigagp import demo

    comparison = demo.compare(count, lambda line: print(line, file=sys.stderr, flush=True))
    if picture is not None:
        demo.picture(comparison.results, comparison.noise, Path(picture))
    emit(as_json, comparison.scores(), f"{comparison}" + (f"\npicture: {picture}" if picture else ""))


def _check_picture(path: Path) -> None:
    if path.suffix.lower() != ".png":
        raise InvalidParameter(f"the picture is a PNG file, so its name must end in .png; got {path}")
    if path.exists():
        raise InvalidParameter(f"{path} exists; delete it or choose another name")
    try:  # now, not after minutes of work
        path.touch(exist_ok=False)
        path.unlink()
    except OSError as error:
        folder = path.absolute().parent
        raise InvalidParameter(f"cannot write in {folder} ({error.strerror}); choose another folder") from None
