"""Rows sorted into buckets by two Dask workers: our bucket files beside Dask's own P2P shuffle.

    python benchmarks/shuffle.py --rows 5e6

Both ways read the same Parquet file, assign rows to the same buckets, and hand all rows of a bucket to one task, which
counts them and adds up their numbers: both must give the same. Time, bytes that workers receive from each other, and
bytes that they write to disk are measured; then each way runs again, and one worker is killed halfway.
Needs pandas (`pip install pandas`).
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, LocalCluster

from cluster import received
from gigagp.arrays import Array
from gigagp.data.scaled import StreamedRows
from gigagp.data.scaling import Scaling
from gigagp.data.sources import open_rows
from gigagp.data.sphere import InputScaling
from gigagp.engines.dask import SETTINGS, DaskEngine
from gigagp.fit.bucket_runs import FolderRuns
from gigagp.fit.bucket_sort import FileBuckets
from gigagp.linalg.workspace import Workspace
from gigagp.partition.base import Buckets
from measure import arguments, save

COLUMNS = [f"x{i}" for i in range(8)]
ROW_GROUP = 1 << 18
BUCKETS = 64
MEMORY = 1 << 30  # bytes that our workers may use for sorting
KEPT = {"distributed.deploy.lost-worker-timeout": "1h"}  # the slot of a killed worker is used again

Sums = list[tuple[int, int]]  # rows of each bucket, and the sum of their numbers


def write_rows(path: Path, rows: int) -> None:
    """Standard normal inputs; the target is the number of the row, exact in float32 up to 16 million rows."""
    schema = pa.schema([(name, pa.float32()) for name in [*COLUMNS, "y"]])
    rng = np.random.default_rng(0)
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:
        for first in range(0, rows, ROW_GROUP):
            count = min(ROW_GROUP, rows - first)
            X = rng.standard_normal((len(COLUMNS), count), dtype=np.float32)
            file.write_table(pa.table([*X, np.arange(first, first + count, dtype=np.float32)], schema=schema))


def bucket_of(x: Array) -> Array:
    """About equally many rows per bucket."""
    share = 1 / (1 + np.exp(-1.702 * x))  # nearly the distribution function of the normal distribution
    return np.minimum(BUCKETS * share, BUCKETS - 1).astype(np.int32)


def sums(y: Array) -> tuple[int, int]:
    return len(y), int(y.astype(np.int64).sum())


# Our way


def _assign(first: int, X: Array) -> Array:
    return bucket_of(X[:, 0])


@dataclass(frozen=True, eq=False)
class SumBucket:
    """Reads the rows of a bucket."""

    buckets: Buckets
    name = "bucket"

    def __call__(self, bucket: int, work: Workspace) -> tuple[int, int]:
        return sums(self.buckets.take(bucket)[1])


def bucket_files(client: Client, path: Path, folder: Path) -> Sums:
    """Sorted into files of a folder that all workers see, then read bucket by bucket."""
    rows = open_rows(path, "y")
    assert rows.n_rows is not None
    inputs, target = InputScaling(Scaling.identity(len(COLUMNS))), Scaling.identity(1)
    data = StreamedRows(rows, rows.n_rows, inputs, target, np.dtype(np.float32))
    with DaskEngine(client, folder=folder) as engine:
        engine.use_folder(folder)
        buckets = FileBuckets(data, _assign, BUCKETS, FolderRuns(str(folder / "buckets")), MEMORY, engine)
        return list(engine.map(SumBucket(buckets), range(BUCKETS)))


# Dask's way


def _with_bucket(part: pd.DataFrame) -> pd.DataFrame:
    return part.assign(bucket=bucket_of(part["x0"].to_numpy()))


def _sums_of_buckets(part: pd.DataFrame) -> pd.DataFrame:
    found = [(bucket, *sums(own.to_numpy())) for bucket, own in part.groupby("bucket")["y"]]
    return pd.DataFrame(found, columns=["bucket", "rows", "total"]).astype(np.int64)


def p2p(client: Client, path: Path, folder: Path) -> Sums:
    """Dask's shuffle, whose workers send rows to each other and keep them in files of their own."""
    meta = {"bucket": np.int64, "rows": np.int64, "total": np.int64}
    table = dd.read_parquet(path, split_row_groups=True).map_partitions(_with_bucket)
    shuffled = table.shuffle("bucket", npartitions=BUCKETS, shuffle_method="p2p")
    found = shuffled.map_partitions(_sums_of_buckets, meta=meta).compute(scheduler=client)
    by_bucket = found.set_index("bucket").reindex(range(BUCKETS), fill_value=0)
    return [(int(rows), int(total)) for rows, total in by_bucket.to_numpy()]


WAYS: dict[str, Callable[[Client, Path, Path], Sums]] = {"bucket files": bucket_files, "P2P": p2p}


# Measurement


def _io() -> dict[str, int]:
    """Bytes that this process has received over TCP, and written to files."""
    with open("/proc/self/io") as file:
        counts = dict(line.split(": ") for line in file.read().splitlines())
    return {"received": received(), "written": int(counts["wchar"])}


def traffic(client: Client) -> dict[str, int]:
    replies = client.run(_io).values()
    return {name: sum(reply[name] for reply in replies) for name in ("received", "written")}


def run(way: str, path: Path, kill_after: float | None = None) -> dict[str, Any]:
    """One way, on a new cluster of two workers; one of them is killed after some seconds."""
    with (
        dask.config.set({**SETTINGS, **KEPT}),
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", local_directory=folder) as cluster,
        Client(cluster) as client,
    ):
        client.run(_warm_up)
        before = traffic(client)
        killer = None
        if kill_after is not None:
            victim = next(iter(client.run(os.getpid).values()))
            killer = threading.Timer(kill_after, os.kill, (victim, signal.SIGKILL))
            killer.start()
        start, error, result = time.perf_counter(), "", None
        try:
            result = WAYS[way](client, path, Path(folder))
        except Exception as caught:  # which is what we want to know
            error = f"{type(caught).__name__}: {caught}".partition("\n")[0]
        seconds = time.perf_counter() - start
        if killer is not None:
            killer.cancel()
        moved = {} if kill_after is not None else traffic(client)
    return {
        "way": way, "seconds": seconds, "error": error, "result": result,
        **{name: moved[name] - before[name] for name in moved},
    }  # fmt: skip


def _warm_up() -> None:
    """Imports and compiled code, of both ways."""
    import dask.dataframe  # noqa: F401, PLC0415
    import distributed.shuffle  # noqa: F401, PLC0415

    import gigagp.fit.store_writer  # noqa: F401, PLC0415


def main() -> None:
    parser = arguments(__doc__ or "", quick=False)
    parser.add_argument("--rows", type=float, default=5e6)
    parser.add_argument("--full", action="store_true", help="no effect")
    rows = int(parser.parse_args().rows)
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write_rows(path, rows)
        size = rows * 4 * (len(COLUMNS) + 1)
        quiet = {way: run(way, path) for way in WAYS}
        assert quiet["P2P"]["result"] == quiet["bucket files"]["result"], "both have sorted the same rows"
        for way, line in quiet.items():
            killed = run(way, path, kill_after=line["seconds"] / 2)
            survived = killed["result"] == line["result"]
            lines.append(
                {
                    "way": way, "seconds": line["seconds"], "received": line["received"] / size,
                    "written": line["written"] / size, "survived": survived, "killed_seconds": killed["seconds"],
                    "error": killed["error"],
                }
            )  # fmt: skip
            print(
                f"  {rows:,} rows, {way}: {line['seconds']:.1f} s; received {line['received'] / size:.2f} and written "
                f"{line['written'] / size:.2f} times the rows; one worker killed: "
                + (f"the same in {killed['seconds']:.1f} s" if survived else f"failed, {killed['error']}"),
                flush=True,
            )
    save("shuffle", {"rows": rows, "columns": len(COLUMNS), "buckets": BUCKETS, "bytes": size, "ways": lines})


if __name__ == "__main__":
    main()
