"""Running a command: results on stdout, an error as one line on stderr, and the exit code.

0: success. 1: an error that the user can correct; the message says how. 2: a bug in gigagp. 130: Ctrl-C.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from gigagp.errors import GigaGPError

OK = 0
USER_ERROR = 1
INTERNAL_ERROR = 2
INTERRUPTED = 130

# Messages of the library name arguments of Python, which are options here.
_OPTIONS = (
    (re.compile(r"\b(drop|categorical|keep|features)=\[['\"](.*?)['\"]\]"), r"--\1 '\2'"),
    (re.compile(r"\b(missing|partition|dtype|combine|training|engine)=['\"](\w+)['\"]"), r"--\1 \2"),
    (re.compile(r"\boverwrite=True"), "--overwrite"),
    (re.compile(r"\bgive a value, values or a range of\b"), "give --at or --range for"),
    (re.compile(r"\bn_jobs\b"), "--jobs"),
    (re.compile(r"\brandom_state\b"), "--seed"),
    (re.compile(r"\bleaf_size\b"), "--leaf-size"),
    (re.compile(r"\bexperts_per_query\b"), "--experts-per-query"),
    (re.compile(r"\bnoise_bounds\b"), "--noise"),
    (re.compile(r"\bn_restarts\b"), "--restarts"),
    (re.compile(r"\blearn_noise=False"), "--no-learn-noise"),
    (re.compile(r"\bsample_weight\b=?"), "--weight-column"),
    (re.compile(r"\bnoise_std=?"), "--noise-column"),
    (re.compile(r"\b(levels|branching)(?=[= ])"), r"--\1"),
    (re.compile(r"\b(memory|features|target|store|checkpoint|categorical)="), r"--\1"),
)


class Interrupted(Exception):
    """Ctrl-C, with a message that says what is kept."""


@dataclass(frozen=True)
class Call:
    """The command as it was typed."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        as_module = Path(sys.argv[0]).parts[-2:] == ("gigagp", "__main__.py")
        return shlex.join([*([sys.executable, "-m", "gigagp"] if as_module else ["gigagp"]), *self.words])


class Group(TyperGroup):
    """The group of all commands, which turns errors into messages and exit codes."""

    def main(self, args: Any = None, *rest: Any, **named: Any) -> Any:
        words = list(sys.argv[1:] if args is None else args) or ["--help"]
        named |= {"standalone_mode": False, "obj": Call(tuple(words))}
        named.setdefault("prog_name", "gigagp")
        sys.exit(run_command(lambda: super(Group, self).main(words, *rest, **named), words))


def run_command(work: Callable[[], Any], words: Iterable[str]) -> int:
    """Do the work and print warnings and errors; returns the exit code."""
    debug, as_json = "--debug" in words, "--json" in words
    messages: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for category in (UserWarning, RuntimeWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = lambda message, *_, **__: messages.append(str(message))
        try:
            result = work()
            sys.stdout.flush()
            code, message = (result if isinstance(result, int) else OK), ""
        except BrokenPipeError:  # the reader of the output has closed it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return USER_ERROR
        except (Exception, KeyboardInterrupt) as error:
            if debug:
                traceback.print_exc()
            code, message = _explained(error)
    for line in messages:
        typer.echo(f"warning: {in_options(_one_line(line))}", err=True)
    if message:
        typer.echo(message if code == INTERRUPTED else f"error: {message}", err=True)
        if as_json:
            typer.echo(json.dumps({"error": message, "exit_code": code}))
    return code


def _explained(error: BaseException) -> tuple[int, str]:
    if isinstance(error, Interrupted | KeyboardInterrupt | typer.Abort):
        return INTERRUPTED, str(error) or "interrupted"
    if hasattr(error, "format_message"):  # an error in the options
        path = getattr(getattr(error, "ctx", None), "command_path", "gigagp")
        return USER_ERROR, f"{_one_line(error.format_message()).rstrip('.')}; see {path} --help"
    if isinstance(error, GigaGPError):
        return USER_ERROR, in_options(_one_line("; ".join([str(error), *getattr(error, "__notes__", ())])))
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return USER_ERROR, f"{where}{error.strerror}; choose another path, or change its permissions"
    if isinstance(error, MemoryError):
        return USER_ERROR, "out of memory; use a smaller --memory budget or a smaller --leaf-size"
    kind = type(error).__name__
    return (
        INTERNAL_ERROR,
        f"internal error, a bug in gigagp: {kind}: {_one_line(str(error))}; --debug shows the traceback",
    )


def in_options(message: str) -> str:
    """A message of the library with options of the command line instead of arguments."""
    for pattern, option in _OPTIONS:
        message = pattern.sub(option, message)
    return message


def _one_line(text: str) -> str:
    return " ".join(text.split())


def emit(as_json: bool, data: dict[str, Any], text: str) -> None:
    """Print the result as text or as one JSON object."""
    typer.echo(json.dumps(_plain(data), allow_nan=False) if as_json else text)


def _plain(value: Any) -> Any:
    """The value with types of JSON; numbers that are not finite become null."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    return float(value) if hasattr(value, "__float__") else str(value)


def table(head: list[str], rows: list[list[str]]) -> str:
    """A text table: the first column is left-aligned, the others right-aligned."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = []
    for row in [head, *rows]:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)
