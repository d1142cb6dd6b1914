"""`gigagp datasets make`: data of any size to try things on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from gigagp.cli import options
from gigagp.cli.display import display
from gigagp.cli.running import emit
from gigagp.errors import InvalidParameter, choose
from gigagp.progress import Counter, Listener

EXAMPLE = options.example("gigagp datasets make robot-arm -n 1e4 -o arm.parquet")

_PARQUET = "Parquet", (".parquet", ".pq")
_BYTES = 72  # of a row, hardly compressible


def command(
    name: Annotated[str, typer.Argument(help="robot-arm: eight joint angles, and the hand's distance to a target.")],
    output: Annotated[str, typer.Option("--output", "-o", help="Parquet file to be written.", show_default=False)],
    rows: Annotated[str, typer.Option("--rows", "-n", help="How many rows, such as 1e6.")] = "10000",
    noise: Annotated[float, typer.Option(help="Standard deviation of the target's noise.")] = 0.01,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Make data, and write them to a Parquet file.

    Of any size in little memory; the file is there when it is whole.
    """
    from gigagp.data.folders import check_output

    choose("the name of the data", name, {"robot-arm": None})
    count = options.row_count(rows)
    if not 0 <= noise < float("inf") or seed < 0:
        raise InvalidParameter(f"--noise and --seed must be at least 0; got {noise} and {seed}")
    final = check_output(output, *_PARQUET, overwrite)
    begun = time.perf_counter()
    with display() as progress:
        _write(final, count, noise, seed, overwrite, progress)
    spent = time.perf_counter() - begun
    emit(as_json, {"output": output, "rows": count, "seconds": spent}, f"{output}: {count:,} rows, {spent:.1f} s")


def _write(final: Path, count: int, noise: float, seed: int, overwrite: bool, progress: Listener) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gigagp.data import folders
    from gigagp.datasets import robot_arm_batches

    names = [*(f"joint{d}" for d in range(8)), "distance"]
    schema = pa.schema([(name, pa.float64()) for name in names])
    folders.make(final.parent)
    folders.check_space(final.parent, _BYTES * count, "writing the data")
    made = Counter("making", count, progress)
    with folders.writing_file(final) as file:
        with pq.ParquetWriter(file, schema, use_dictionary=False) as writer:
            for X, y in robot_arm_batches(count, noise, seed):
                writer.write_table(pa.table([*X.T, y], schema=schema))
                made.add(len(y))
        folders.check_output(final, *_PARQUET, overwrite)  # making takes a while
