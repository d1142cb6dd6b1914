"""docs/scaling.md, from results/cluster.json and results/out_of_core.json; takes seconds."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

import cluster_cost
import page_parts
from cluster_cost import Prices
from gigagp.engines.dask_shards import MOST_GATHERED
from measure import RESULTS, arguments, bar, machine
from page_parts import COLOURS, DOCS, Result, origin, table, time_of
from simulate_cluster import (
    BLOCKS,
    ETHERNET,
    FAN_IN,
    LOOPBACK,
    SLOW,
    THREADS,
    WAYS,
    Costs,
    dask,
    dask_step,
    dask_tasks,
    division,
    empty_step,
)  # fmt: skip

PAGE = DOCS / "scaling.md"
FIGURES = DOCS / "scaling"
ROWS = (10**8, 10**9, 10**10, 10**11, 10**12)
WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 10_000)  # in figures
ALLOWED = 0.15  # error of simulated steps without work
TABLE_WORKERS = (1, 16, 128, 1024, 10_000)


def power(n: float, _: Any = None) -> str:
    return f"10^{round(np.log10(n))}" if n >= 1e5 else f"{n:,.0f}"


def counted(number: int, what: str = "worker") -> str:
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"


def compared(result: Result, costs: Costs) -> list[tuple[str, Result, float]]:
    """Steps that were measured on this machine: their names, measurements and simulated seconds.

    A step without work is simulated with costs that were learnt from the other ones.
    """
    cores, lines = result["machine"]["cores"], []
    for r in result["steps"]:
        if r["engine"] == "dask":
            tasks = dask_tasks(result["rows"], r["workers"], 1, costs)
            seconds = dask_step(tasks, r["workers"], costs, LOOPBACK, cores)
            lines.append((f"{result['rows']:,} rows, {counted(r['workers'])}", r, seconds))
    for i, r in enumerate(result["empty"]):
        seconds = empty_step(r, Costs.of(result, without=i), cores)
        lines.append((f"no work, {counted(r['workers'])}, shards: {r['shards']}", r, seconds))
    return lines


def checks(lines: list[tuple[str, Result, float]]) -> str:
    head = ("step", "measured (quartiles)", "simulated", "simulated / measured")
    body = [
        (what, f"{time_of(r['seconds'])} ({time_of(r['low'])} to {time_of(r['high'])})", time_of(seconds),
         f"{seconds / r['seconds']:.2f}")
        for what, r, seconds in lines
    ]  # fmt: skip
    return table(head, body)


def worst_error(lines: list[tuple[str, Result, float]]) -> float:
    """The largest relative error of a simulated step without work."""
    return max(abs(seconds / r["seconds"] - 1) for what, r, seconds in lines if what.startswith("no work"))


def quietness(result: Result) -> str:
    """Whether two cores were really available, as the simulation assumes."""
    one, two = (
        next(r for r in result["steps"] if (r["engine"], r["workers"]) == ("threads", workers))["seconds"]
        for workers in (1, 2)
    )
    return f"In the same run two threads, without a cluster, were {one / two:.2f} times as fast as one."


def long_time(seconds: float) -> str:
    for unit, size in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.3g} {unit}"
    return time_of(seconds)


def step_times(costs: Costs) -> str:
    head = ("rows", "method", *(counted(w, "core") for w in TABLE_WORKERS))
    body = [
        (power(rows), name, *(long_time(way(rows, w, costs, ETHERNET)) for w in TABLE_WORKERS))
        for rows in ROWS
        for name, way in WAYS
    ]
    return table(head, body)


def dominated(costs: Costs) -> str:
    """The smallest number of cores with which more than half of a step is not work."""

    def first(way: Callable[..., float], rows: int) -> str:
        for w in WORKERS:
            alone = rows / costs.leaf_rows * costs.leaf / w
            if way(rows, w, costs, ETHERNET) > 2 * alone:
                return f"{w:,}"
        return f"above {WORKERS[-1]:,}"

    head = ("rows", *(name for name, _ in WAYS))
    return table(head, [(power(rows), *(first(way, rows) for _, way in WAYS)) for rows in ROWS])


def slower(costs: Costs) -> str:
    rows, workers = 10**9, 128
    times = [long_time(dask(rows, workers, costs, network)) for network in (ETHERNET, SLOW)]
    return (
        f"The network hardly matters to the Dask engine: {power(rows)} rows on {workers} cores take {times[0]} "
        f"per step, and {times[1]} if latency and bandwidth are ten times worse."
    )


def root_messages() -> str:
    def most(workers: int, star: bool) -> int:
        divided = division(BLOCKS * workers, workers, star)
        counts = np.zeros(workers, dtype=int)
        for inner in divided.sums:
            counts[inner.worker] += len(inner.receives_from)
        return int(counts.max())

    several = [w for w in TABLE_WORKERS if w > 1]
    head = ("messages per step received by", *(counted(w) for w in several))
    body = [
        ("the root of a star", *(f"{most(w, True):,}" for w in several)),
        ("the busiest unit of a tree", *(f"{most(w, False):,}" for w in several)),
    ]
    return table(head, body)


def memory(columns: int) -> str:
    head = ("rows", "precision", *(counted(w) for w in TABLE_WORKERS))
    body = [
        (power(rows), dtype, *(size(rows / w * (columns + 1) * width) for w in TABLE_WORKERS))
        for rows in ROWS
        for dtype, width in (("float64", 8), ("float32", 4))
    ]
    return table(head, body)


def size(n: float) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if n >= scale:
            return f"{n / scale:.3g} {unit}"
    return f"{n / 1e3:.3g} kB"


def figure(name: str, draw: Callable[[Axes], None], title: str) -> str:
    return page_parts.figure(name, draw, title, (7.2, 4.6), FIGURES)


def _log_axes(axes: Axes, what: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda w, _: f"{w:,.0f}"))
    axes.set_xlabel("cores")
    axes.set_ylabel(what)


def draw_steps(costs: Costs) -> str:
    def draw(axes: Axes) -> None:
        for colour, rows in zip(COLOURS, ROWS, strict=True):
            alone = [rows / costs.leaf_rows * costs.leaf / w for w in WORKERS]
            axes.plot(WORKERS, alone, ":", color=colour)
            axes.plot(WORKERS, [WAYS[1][1](rows, w, costs, ETHERNET) for w in WORKERS], "--", color=colour)
            axes.plot(WORKERS, [dask(rows, w, costs, ETHERNET) for w in WORKERS], "-o", color=colour, markersize=4,
                      label=f"{power(rows)} rows")  # fmt: skip
        for style, label in (("-", "Dask engine"), ("--", "tree of plain messages"), (":", "work alone")):
            axes.plot([], [], style, color="black", label=label)
        _log_axes(axes, "seconds per step")
        axes.legend(frameon=False, fontsize=9, ncols=2)

    return figure("steps", draw, "A training step, simulated")


def draw_overhead(costs: Costs) -> str:
    several = [w for w in WORKERS if w > 1]

    def draw(axes: Axes) -> None:
        for colour, (name, way) in zip(COLOURS, WAYS, strict=False):
            axes.plot(several, [way(10**9, w, costs, ETHERNET, work=False) for w in several], "-o", color=colour,
                      markersize=4, label=f"communication, {name}")  # fmt: skip
        for rows in (10**8, 10**10):
            alone = [rows / costs.leaf_rows * costs.leaf / w for w in several]
            axes.plot(several, alone, ":", color="#555555")
            axes.annotate(f"work, {power(rows)} rows", (several[1], alone[1]), xytext=(4, 4), fontsize=9,
                          textcoords="offset points", color="#555555")  # fmt: skip
        _log_axes(axes, "seconds")
        axes.legend(frameon=False, fontsize=9)

    return figure("communication", draw, "Overhead of a step, simulated")


def draw_memory(columns: int) -> str:
    def draw(axes: Axes) -> None:
        for colour, rows in zip(COLOURS, ROWS, strict=True):
            for style, width in (("-", 8), ("--", 4)):
                axes.plot(WORKERS, [rows / w * (columns + 1) * width for w in WORKERS], style, color=colour,
                          label=f"{power(rows)} rows" if width == 8 else None)  # fmt: skip
        axes.plot([], [], "-", color="black", label="float64")
        axes.plot([], [], "--", color="black", label="float32")
        _log_axes(axes, "memory for rows, per worker")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda n, _: size(n)))
        axes.legend(frameon=False, fontsize=9, ncols=2)

    return figure("memory", draw, f"Memory for the rows of a worker, {columns} columns and the target")


def before_the_first_step(result: Result | None) -> str:
    """The time of what the client does alone."""
    if result is None:
        return "[Benchmarks](benchmarks.md#files-larger-than-memory) has times measured on one machine."
    last = result["rows"][-1]
    seconds = last["fit_seconds"] - last["stages"]["training"]
    rate = last["rows"] / seconds
    times = ", ".join(f"{long_time(rows / rate)} for {power(rows)}" for rows in ROWS)
    return (
        f"Measured on one machine, with the threads of one process ({result['machine']['date']}, commit "
        f"{result['machine']['commit']}): {last['rows']:,} rows from Parquet in {time_of(seconds)}, without training. "
        f"At that rate it takes {times} rows."
    )


def shuffles(result: Result | None) -> str:
    """Two ways of sorting rows into buckets."""
    if result is None:
        return "`benchmarks/shuffle.py` compares them, and was not run."
    body = [
        (r["way"], time_of(r["seconds"]), f"{r['received']:.2f}", f"{r['written']:.2f}",
         f"the same result in {time_of(r['killed_seconds'])}" if r["survived"] else f"failed: {r['error']}")
        for r in result["ways"]
    ]  # fmt: skip
    head = ("method", "time", "received / size of the rows", "written / size of the rows", "one worker killed halfway")
    return (
        f"Measured ({result['machine']['date']}, commit {result['machine']['commit']}, `benchmarks/shuffle.py`): "
        f"{result['rows']:,} rows of {result['columns']} columns in float32 from Parquet into {result['buckets']} "
        f"buckets, on two Dask workers of one machine, on which other programs were running.\n\n{table(head, body)}\n\n"
        "P2P (Dask's shuffle) sends rows over the network; bucket files are read again from the shared file system "
        "instead. Both survive the loss of a worker, but P2P then starts from the beginning. GigaGP uses bucket files: "
        "they are faster, only the tasks of a lost worker are repeated, and threads and processes sort rows in the "
        "same way."
    )


def measured_inputs(costs: Costs) -> str:
    return table(
        ("measured on this machine", ""),
        [
            (f"LML + gradient of an expert of {costs.leaf_rows} points, one thread, float64", time_of(costs.leaf)),
            ("Dask's client and scheduler: CPU time per step + per task",
             " + ".join(time_of(t) for t in costs.here)),
            ("Dask's workers: CPU time per task + per shard", " + ".join(time_of(t) for t in costs.there)),
            ("share of the time per task that a worker takes before it sends its result", f"{costs.before:.0%}"),
            ("a message between two processes of Dask", time_of(costs.hop)),
            (f"a plain message with one evidence ({costs.evidence:,} bytes): to send; to receive and add",
             "; ".join(time_of(t) for t in (costs.send, costs.receive))),
        ],
    )  # fmt: skip


def assumed_inputs() -> str:
    return table(
        ("assumed", ""),
        [
            ("latency of a message between any two machines", time_of(ETHERNET.latency)),
            ("bandwidth of a link", f"{ETHERNET.bandwidth * 8 / 1e9:g} Gbit/s"),
            ("star and tree", "one worker per core, as fast as one of this machine; no worker is lost or slow"),
            ("Dask engine", f"one worker per machine of {THREADS} cores, whose threads share its task"),
            ("a Dask task", "half of its cost at the scheduler before it runs, half afterwards"),
        ],
    )


def page(result: Result, disk: Result | None, shuffled: Result | None, prices: Prices) -> str:
    costs, here = Costs.of(result), result["machine"]
    columns, lines = result["columns"], compared(result, costs)
    parts = [
        "# Scaling",
        "Written by `benchmarks/scaling_page.py` from measurements of `benchmarks/cluster.py`; do not edit.",
        f"Measured {here['date']}, commit {here['commit']}: {origin(result)}. "
        f"Simulated {machine()['date']}, commit {machine()['commit']}.",
        "**No cluster was used.** Steps on a few workers were measured on one machine. All other figures are simulated "
        "from these and from an assumed network. A step computes the log marginal likelihood (LML) and its gradient "
        "over all experts.",
        "## Measured and simulated steps",
        "The simulation is computed from the CPU time of an expert, and from CPU times and durations of steps without "
        "work. To check it, each step without work is simulated with costs that were estimated from the others. All "
        f"processes share the {here['cores']} cores of one machine, in this table also in the simulation; other "
        "programs may have used them at the same time.",
        checks(lines),
        f"Steps without work are simulated with errors of up to {worst_error(lines):.0%}"
        + (
            "."
            if worst_error(lines) <= ALLOWED
            else f", more than the {ALLOWED:.0%} that we aim at. The cause is not known for certain."
        ),
        quietness(result),
        "## Inputs of the simulation",
        measured_inputs(costs),
        assumed_inputs(),
        "## Star and tree",
        "The paper (section 3.4) divides compute units among subtrees because the master of a star receives a message "
        f"from every worker. `gigagp.tree.divide`, with {FAN_IN} children per node, determines the messages:",
        root_messages(),
        draw_overhead(costs),
        "In a star and in a tree, workers exchange plain messages with theta and evidence, without a scheduler, and "
        "the loss of a worker ends the step. The Dask engine adds along the same tree, but its scheduler handles "
        "every task. A step has one task per worker, for any number of shards and threads, because a worker adds up "
        f"its shards itself. The client adds the sums of up to {MOST_GATHERED} workers; with more workers, further "
        "tasks add some of them.",
        "## Time of a step",
        draw_steps(costs),
        step_times(costs),
        "The smallest number of cores with which overhead takes more than half of a step, among "
        f"{', '.join(f'{w:,}' for w in WORKERS)}:",
        dominated(costs),
        "Overhead includes uneven shares of work: a subtree gets a whole number of compute units.",
        slower(costs),
        "## When a cluster pays",
        *cluster_cost.section(costs, prices),
        "## Memory",
        f"A worker holds its shards: rows / workers x {columns + 1} numbers, for {columns} columns and the target. In "
        "addition it needs some 250 MB for Python and its libraries, and memory for the expert being computed.",
        draw_memory(columns),
        memory(columns),
        "## Before the first step",
        "All workers read the source and sort its rows into the expert store, each some row groups, so that the time "
        f"falls with their number until the shared file system limits it. {before_the_first_step(disk)}",
        "### Bucket files and Dask's shuffle",
        shuffles(shuffled),
    ]
    return "\n\n".join(parts) + "\n"


def read(name: str) -> Result | None:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def main() -> int:
    parser, default = arguments(__doc__ or "", quick=False), Prices()
    parser.add_argument("--full", action="store_true", help="no effect: the page is always whole")
    parser.add_argument("--price", type=float, default=default.core_hour, help="USD per core and hour")
    parser.add_argument("--start", type=float, default=default.start, help="seconds until a cluster is ready")
    options = parser.parse_args()
    result = read("cluster")
    if result is None:
        print("nothing to simulate from: run benchmarks/cluster.py first", flush=True)
        return 1
    worst = worst_error(compared(result, Costs.of(result)))
    bar("error of simulated steps without work, share", worst, ALLOWED, at_least=False)
    PAGE.write_text(page(result, read("out_of_core"), read("shuffle"), Prices(options.price, options.start)))
    print("[scaling_page] docs/scaling.md", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
