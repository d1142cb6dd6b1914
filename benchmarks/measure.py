"""What every benchmark shares: medians with spread, GEMM's own rate in the same run, the machine, JSON results."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.folders import writing_file
from gigagp.paper.provenance import machine

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
GEMM_SIZE = 1024


@dataclass(frozen=True)
class Timing:
    """Seconds: the median of repeats, and the quartiles."""

    median: float
    low: float
    high: float
    repeats: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Timing:
        low, median, high = np.percentile(seconds, [25, 50, 75])
        return cls(float(median), float(low), float(high), len(seconds))


class DiskUse(threading.Thread):
    """The largest space that the files of a folder take on the disk, in bytes, measured ten times per second."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.most, self._over = folder, 0, threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.1):
            sizes: dict[int, int] = {}  # a file that has two names counts once
            for parent, _, names in os.walk(self.folder):  # which passes over folders that are gone meanwhile
                for name in names:
                    with suppress(OSError):  # files may be gone as well, and those of a store have holes
                        status = os.stat(os.path.join(parent, name))
                        sizes[status.st_ino] = status.st_blocks * 512
            self.most = max(self.most, sum(sizes.values()))

    def stop(self) -> int:
        self._over.set()
        self.join()
        return self.most


class Resident(threading.Thread):
    """The largest resident memory of this process in each stage, in GB, measured a hundred times per second.

    Anonymous pages (RssAnon) are what the process has allocated; pages of mapped files (RssFile) are what it has read
    of them, which the system could take back at any time, but which counts as memory of the process all the same.
    The largest sum may be less than the sum of the largest: both need not occur together.
    """

    FIELDS = (("RssAnon", "anonymous"), ("RssFile", "files"))
    TOTAL = "total"

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stage, self.peaks, self._over = "", dict[str, dict[str, float]](), threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.01):
            with suppress(OSError):  # where the system does not tell
                self._note(Path("/proc/self/status").read_text())

    def _note(self, status: str) -> None:
        lines = (line.split() for line in status.splitlines() if line.startswith("Rss"))
        sizes = {name.rstrip(":"): int(size) * 1024 / 1e9 for name, size, _ in lines}
        now = {name: sizes[field] for field, name in self.FIELDS} | {self.TOTAL: sum(sizes.values())}
        most = self.peaks.setdefault(self.stage, dict.fromkeys(now, 0.0))
        most.update({name: max(most[name], size) for name, size in now.items()})

    def described(self, stage: str) -> str:
        """The peaks of a stage as text."""
        return ", ".join(f"{name} {size:.2f} GB" for name, size in self.peaks.get(stage, {}).items())

    def stop(self) -> dict[str, dict[str, float]]:
        self._over.set()
        self.join()
        return self.peaks


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def bytes_written() -> int:
    """Bytes that this process has passed to the system to be written so far; 0 where the system does not tell."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return int(next(line.split()[1] for line in lines if line.startswith("wchar")))


def side_by_side(works: Sequence[Callable[[], Any]]) -> float:
    """Seconds until all of the works, one thread each, are done."""
    threads = [threading.Thread(target=work) for work in works]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def _gemms(A: Array, C: Array, times: int) -> None:
    for _ in range(times):
        np.matmul(A, A, out=C)  # NumPy's BLAS; the GIL is free meanwhile


def gemm_rate(dtype: str, workers: int, times: int = 2) -> float:
    """Flops per second of GEMM on matrices of 1024, `workers` threads side by side, one BLAS thread each."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((GEMM_SIZE, GEMM_SIZE)).astype(dtype)
    outs = [np.empty_like(A) for _ in range(workers)]
    _gemms(A, outs[0], 1)
    duration = side_by_side([lambda C=C: _gemms(A, C, times) for C in outs])
    return workers * times * 2 * GEMM_SIZE**3 / duration


def arguments(description: str, *, data: bool = False, quick: bool = True) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    if data:
        parser.add_argument(
            "--data", type=Path, default=HERE.parent.parent / "shared" / "data", help="folder of data sets"
        )
    if quick:
        parser.add_argument("--full", action="store_true", help="all sizes, more repeats")
    return parser


def save(name: str, result: dict[str, Any]) -> None:
    """Write results/<name>.json beside the benchmarks, whole or not at all."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    with writing_file(path) as file:
        file.write((json.dumps({"machine": machine(), **result}, indent=1) + "\n").encode())
    print(f"[{name}] saved results/{name}.json", flush=True)


def data_set(folder: Path, name: str) -> Any | None:
    """An .npz of the data folder, or None after a clear line when it is absent."""
    path = folder / f"{name}.npz"
    if not path.exists():
        print(f"skipped: {name}.npz is not in the data folder (give it with --data)", flush=True)
        return None
    return np.load(path, allow_pickle=False)


def judged(what: str, measured: float, bound: float, *, at_least: bool) -> dict[str, Any]:
    """A measured figure against its bar."""
    met = measured >= bound if at_least else measured <= bound
    return {"what": what, "measured": measured, "bar": f"{'>=' if at_least else '<='} {bound:g}", "met": bool(met)}


def tell_bar(result: dict[str, Any]) -> None:
    met = "met   " if result["met"] else "MISSED"
    print(f"  {met} {result['what']}: {result['measured']:.4g} (bar {result['bar']})", flush=True)


def bar(what: str, measured: float, bound: float, *, at_least: bool) -> dict[str, Any]:
    """A measured figure against its bar, printed and returned."""
    result = judged(what, measured, bound, at_least=at_least)
    tell_bar(result)
    return result


if __name__ == "__main__":
    sys.exit("this module is shared by the benchmarks; run one of them")
