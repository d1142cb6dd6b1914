"""`gigagp datasets make`: generate example data of any size."""

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
_BYTES_PER_ROW = 72  # random numbers hardly compress


def command(
    name: Annotated[
        str, typer.Argument(help="robot-arm: eight joint angles and the distance of the hand to a target.")
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="Parquet file to write.", show_default=False)],
    rows: Annotated[str, typer.Option("--rows", "-n", help="Number of rows, such as 1e6.")] = "10000",
    noise: Annotated[float, typer.Option(help="Standard deviation of the noise of the target.")] = 0.01,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Generate data and write them to a Parquet file.

    Data of any size need little memory. The file appears only when it is complete.
    """
    from gigagp.data.folders import check_output

    choose("the name of the data", name, {"robot-arm": None})
    count = options.row_count(rows)
    if not 0 <= noise < float("inf") or seed < 0:
        raise InvalidParameter(f"--noise and --seed must be at least 0; got {noise} and {seed}")
    final = check_output(output, *_PARQUET, overwrite)
    start = time.perf_counter()
    with display() as progress:
        _write(final, count, noise, seed, overwrite, progress)
    seconds = time.perf_counter() - start
    emit(as_json, {"output": output, "rows": count, "seconds": seconds}, f"{output}: {count:,} rows, {seconds:.1f} s")


def _write(final: Path, count: int, noise: float, seed: int, overwrite: bool, progress: Listener) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gigagp.data import folders
    from gigagp.datasets import robot_arm_batches

    names = [*(f"joint{d}" for d in range(8)), "distance"]
    schema = pa.schema([(name, pa.float64()) for name in names])
    folders.make(final.parent)
    folders.check_space(final.parent, _BYTES_PER_ROW * count, "writing the data")
    written = Counter("making", count, progress)
    with folders.writing_file(final) as file:
        with pq.ParquetWriter(file, schema, use_dictionary=False) as writer:
            for X, y in robot_arm_batches(count, noise, seed):
                writer.write_table(pa.table([*X.T, y], schema=schema))
                written.add(len(y))
        folders.check_output(final, *_PARQUET, overwrite)  # once more: generating takes a while
