"""The paper's timing figure: seconds for the log marginal likelihood and its gradient by the number of rows.

A tree of three levels with leaves of 512 points up to 2^20 rows and of 128 above, as in the paper, compared with
a full GP and with FITC (a tenth of the rows as inducing inputs), as far as the allowed time and memory suffice. The
right axis shows the number of leaves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gigagp import expert
from gigagp.arrays import Array
from gigagp.data.row_lists import Runs
from gigagp.data.store import ExpertStore
from gigagp.engines import one_blas_thread, open_engine
from gigagp.fit.training import summed_evidence
from gigagp.kernels import SquaredExponential
from gigagp.linalg.workspace import Workspace
from gigagp.paper import drawing, page, peers
from gigagp.paper.record import Record, Results
from gigagp.progress import Event, Listener, silent
from gigagp.tree import Tree

D = 8
BLOCK = 1 << 16
THETA = np.concatenate([[0.0], np.full(D, np.log(1.5)), [np.log(0.01)]])
CHANGE = 20  # leaves are large up to 2^CHANGE rows
LARGE = 512  # rows per large leaf
SMALL = 128  # rows per small leaf
PAPER_SECONDS = 230
PAPER_POWERS = {"tree": 24, "full GP": 14, "FITC, 10% inducing": 15}
TREE, EXACT, SPARSE = PAPER_POWERS
OpenEvaluation = Callable[[int], AbstractContextManager[Callable[[], Any]]]  # number of rows -> evaluation to time


@dataclass(frozen=True)
class Settings:
    """Numbers of rows as powers of two; seconds and GB that an evaluation of a peer may take."""

    powers: tuple[int, ...] = tuple(range(10, 25))
    allowed_seconds: float = 60.0
    allowed_gb: float = 12.0
    repeats: int = 5


FULL = Settings()
QUICK = Settings(powers=(10, 12, 14, 16, 18), allowed_seconds=4.0, repeats=3)


def rows(n: int) -> tuple[Array, Array]:
    """n rows of standardised data."""
    rng = np.random.default_rng(0)
    X, y = np.empty((n, D)), np.empty(n)
    for a in range(0, n, BLOCK):
        block = X[a : a + BLOCK]
        rng.standard_normal(out=block)
        y[a : a + BLOCK] = np.sin(block.sum(axis=1)) + 0.1 * rng.standard_normal(len(block))
    return X, y


def leaf_size(power: int) -> int:
    """Points per leaf in the paper's scheme."""
    return LARGE if power <= CHANGE else SMALL


def three_levels(leaves: int) -> Tree:
    """A tree of three levels in which all nodes have about the same number of children."""
    first = max(1, round(leaves ** (1 / 3)))
    second = max(first, round(leaves ** (2 / 3)))
    widths = ((1, first), (first, second), (second, leaves))
    return Tree(tuple(np.arange(above + 1) * below // above for above, below in widths))


@contextmanager
def tree_evidence(n: int, leaf: int, workers: int | None = None) -> Iterator[Callable[[], Any]]:
    """The evidence of n rows under a tree of three levels, ready to be timed; with one leaf, of a full GP."""
    X, y = rows(n)
    store = ExpertStore(X, y)
    cells = Runs(np.arange(0, n + 1, leaf))
    kernel, tree = SquaredExponential(1.0, 1.5).bind(D), three_levels(n // leaf)
    with one_blas_thread(), open_engine("threads", workers) as engine:
        evidence = summed_evidence(kernel, store, cells, tree, engine)
        expert.evidence(kernel, THETA, X[:SMALL], y[:SMALL], Workspace())  # loads the compiled code
        yield lambda: evidence(THETA, None)


@contextmanager
def sparse_evidence(n: int) -> Iterator[Callable[[], Any]]:
    """FITC's evidence with as many inducing inputs as a tenth of the rows."""
    fitc = peers.load_peer("fitc")
    fitc.evidence(*rows(256))(THETA)  # the first call of torch is slow
    evidence = fitc.evidence(*rows(n))
    yield lambda: evidence(THETA)


def run(record: Record, data: Path, settings: Settings, tell: Listener = silent) -> Results:
    """All curves; the data folder is not used."""
    start = time.perf_counter()

    def step(curve: str, power: int, work: Callable[[], Results]) -> Results:
        results = record.step(f"{curve}, 2^{power}", work)
        tell(Event(f"timing of {curve}", 1 << power, None, time.perf_counter() - start))
        return results

    def tree(power: int) -> Results:
        with tree_evidence(1 << power, leaf_size(power)) as evidence:
            return {"leaves": (1 << power) // leaf_size(power), **_timed(evidence, settings.repeats)}

    curves: dict[str, list[Results]] = {TREE: []}
    for power in settings.powers:
        curves[TREE].append({"power": power, **step(TREE, power, lambda power=power: tree(power))})  # type: ignore[misc]
    reason = peers.reason_unavailable("fitc", "torch")
    others: dict[str, OpenEvaluation] = {EXACT: lambda n: tree_evidence(n, n)} | (
        {} if reason else {SPARSE: sparse_evidence}
    )
    for curve, open_evaluation in others.items():
        curves[curve] = _up_to_limit(curve, open_evaluation, settings, step)
    return {"curves": curves, "lacking": reason}


def _up_to_limit(
    curve: str, open_evaluation: OpenEvaluation, settings: Settings, step: Callable[..., Results]
) -> list[Results]:
    """Evaluations of doubling size until the next would take more time or memory than allowed."""

    def one(power: int) -> Results:
        with open_evaluation(1 << power) as evidence:
            return _timed(evidence, settings.repeats)

    results: list[Results] = []
    for power in range(settings.powers[0], settings.powers[-1] + 1):
        needed = 3 * 8 * 4.0**power / 1e9 * (1.0 if curve == EXACT else 0.35)
        if results and (results[-1]["seconds"] * 8 > settings.allowed_seconds or needed > settings.allowed_gb):
            break
        results.append({"power": power, **step(curve, power, lambda power=power: one(power))})  # type: ignore[misc]
    return results


def _timed(work: Callable[[], Any], repeats: int) -> Results:
    """Median, smallest and largest seconds of a few repeats; of one if it takes long."""
    times: list[float] = []
    while len(times) < repeats and (sum(times) < 20 or not times):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return {"seconds": float(np.median(times)), "low": min(times), "high": max(times), "repeats": len(times)}


def table(results: Results) -> list[list[str]]:
    """One line per number of rows."""
    by_power = {curve: {p["power"]: p for p in points} for curve, points in results["curves"].items()}
    lines = []
    for power, point in by_power[TREE].items():
        others = [by_power.get(curve, {}).get(power, {}).get("seconds") for curve in (EXACT, SPARSE)]
        lines.append([f"2^{power}", f"{1 << power:,}", f"{point['leaves']:,}", str(leaf_size(power)),
                      page.number(point["seconds"], 4), *(page.number(each, 4) for each in others)])  # fmt: skip
    return lines


HEAD = ["rows", "", "leaves", "points per leaf", "tree, s", "full GP, s", "FITC, s"]


def write(record: Record, results: Results, settings: Settings, paths: page.Paths) -> str:
    draw(results, paths.picture())
    largest = results["curves"][TREE][-1]
    missing = [f"FITC was not run: {results['lacking']}."] if results["lacking"] else []
    text = [
        "Seconds for one evaluation of the log marginal likelihood and its gradient: eight columns, squared "
        f"exponential, float64, medians of up to {settings.repeats} evaluations, all cores. The tree has three levels; "
        f"leaves have {LARGE} points up to 2^{CHANGE} rows and {SMALL} above, as in the paper. The full GP is our own "
        "expert with all rows; FITC has as many inducing inputs as a tenth of the rows.",
        *missing,
        f"![Seconds by rows, and the number of leaves]({paths.picture().name})",
        page.table(HEAD, table(results)),
        f"The paper (64 nodes of 4 cores) took about {PAPER_SECONDS} s for 2^{PAPER_POWERS[TREE]} rows, and as long "
        f"for a full GP of 2^{PAPER_POWERS[EXACT]} and a sparse GP of 2^{PAPER_POWERS[SPARSE]} rows. Here "
        f"2^{largest['power']} rows take {largest['seconds']:.3g} s.",
    ]
    page.write(paths, "The timing figure", text, record, "data of seed 0")
    return page.table(HEAD, table(results))


def draw(results: Results, path: Path) -> None:
    """Seconds on the left axis, leaves on the right, both logarithmic."""
    figure, axes = drawing.grid(1, 1, (7.5, 4.6))
    ax = axes[0, 0]
    colours = {TREE: drawing.OURS, EXACT: drawing.EXACT, SPARSE: "#3a8f4c"}
    names = {TREE: "hierarchy of experts"}
    for curve, points in results["curves"].items():
        sizes = [2.0 ** p["power"] for p in points]
        label = names.get(curve, curve)
        ax.plot(sizes, [p["seconds"] for p in points], "o--", color=colours[curve], markersize=4, label=label)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xlabel("rows", fontsize=9)
    ax.set_ylabel("seconds, evidence and gradient", fontsize=9)
    right = ax.twinx()
    tree = results["curves"][TREE]
    right.plot([2.0 ** p["power"] for p in tree], [p["leaves"] for p in tree], "k-", linewidth=1.2, label="leaves")
    right.set_yscale("log")
    right.set_ylabel("leaves", fontsize=9)
    handles = [*ax.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
    ax.legend(handles=handles, frameon=False, fontsize=9, loc="upper left")
    for each in (ax, right):
        each.spines["top"].set_visible(False)
    drawing.save(figure, path)
