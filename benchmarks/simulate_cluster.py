"""docs/scaling.md: training steps on clusters we do not have, simulated from what `cluster.py` measured here.

Who sends to whom is the division of compute units that the engine itself uses (`gigagp.tree.divide`, section 3.4).
Three ways to add up: a star and a tree of fan-in 8, in which workers pass plain messages, and the Dask engine, whose
single scheduler handles every task. The network is assumed; all else is measured. Reads results/cluster.json and
results/out_of_core.json; takes seconds.
"""

from __future__ import annotations

import heapq
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import render
from gigagp.engines.dask import _MOST_SHARDS, _SHARDS_PER_THREAD
from gigagp.engines.dask_shards import _assign
from gigagp.tree import Division, Node, Tree, divide
from measure import RESULTS, arguments, machine
from render import COLOURS, Axes, Found, FuncFormatter, table, time_of

PAGE = render.DOCS / "scaling.md"
FAN_IN = 8
BLOCKS = 64  # leaves of the simulated tree a unit: enough that shares are as uneven as in the real one
ROWS = (10**8, 10**9, 10**10, 10**11, 10**12)
WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 10_000)
SHOWN = (1, 16, 128, 1024, 10_000)  # in tables
HOPS = 8  # of a task alone: client, scheduler, worker and back to say so, and the same way to fetch the result


@dataclass(frozen=True)
class Network:
    """Seconds that a message is under way, and bytes a second of each link."""

    latency: float
    bandwidth: float


ETHERNET = Network(latency=100e-6, bandwidth=1.25e9)
SLOW = Network(latency=1e-3, bandwidth=1.25e8)
LOOPBACK = Network(latency=0.0, bandwidth=float("inf"))  # what it costs is in the measured times


@dataclass(frozen=True)
class Costs:
    """Measured, in seconds."""

    leaf: float  # LML + gradient of one expert
    leaf_rows: int
    send: float  # a message, in plain Python
    receive: float
    evidence: int  # bytes
    question: int
    hop: float  # of Dask, between two processes
    here: tuple[float, float]  # Dask's client and scheduler: a step, and each of its tasks
    there: tuple[float, float]  # Dask's worker: the same

    @classmethod
    def of(cls, found: Found) -> Costs:
        empty = sorted(found["empty"], key=lambda r: r["tasks"])
        here, there = (_line(empty, what) for what in ("cpu_here", "cpu_workers"))
        alone = empty[0]["seconds"] - sum(here) - sum(there)
        alone_thread = next(r for r in found["steps"] if (r["engine"], r["workers"]) == ("threads", 1))
        message = found["message"]
        return cls(
            leaf=alone_thread["seconds"] / _experts(found["rows"], found["leaf"]),
            leaf_rows=found["leaf"],
            send=message["send_seconds"],
            receive=message["receive_seconds"],
            evidence=message["evidence_bytes"],
            question=message["question_bytes"],
            hop=max(0.0, alone / HOPS),
            here=here,
            there=there,
        )


def _line(empty: Sequence[Found], what: str) -> tuple[float, float]:
    """A fixed cost and one a task, from the steps with fewest and most tasks."""
    first, last = empty[0], empty[-1]
    slope = (last[what] - first[what]) / (last["tasks"] - first["tasks"])
    return max(0.0, first[what] - slope * first["tasks"]), slope


def _experts(rows: int, leaf: int) -> int:
    return -(-rows // leaf)


@cache
def division(experts: int, units: int, star: bool) -> Division:
    """Units divided among subtrees; a leaf of this tree stands for equally many experts."""
    if star:
        return divide(Tree.regular(1, min(experts, units)), min(experts, units))
    blocks = min(experts, BLOCKS * units)
    return divide(Tree.balanced(blocks, FAN_IN), min(blocks, units))


def shares(divided: Division, units: int) -> np.ndarray:
    """What each unit has of all leaves."""
    found = np.zeros(units)
    for owned in divided.owned:
        found[owned.worker] += len(owned.node.leaves)
    return found / found.sum()


# Plain messages


def plain_step(rows: int, workers: int, costs: Costs, network: Network, *, star: bool, work: bool = True) -> float:
    """Theta goes down the edges of the division, evidence comes up them; each unit does one thing at a time."""
    experts = _experts(rows, costs.leaf_rows)
    divided = division(min(experts, BLOCKS * workers), workers, star)
    clock = np.zeros(workers)
    for inner in reversed(divided.sums):
        for other in inner.receives_from:
            clock[inner.worker] += costs.send + costs.question / network.bandwidth
            clock[other] = clock[inner.worker] + network.latency + costs.receive
    if work:
        clock += shares(divided, workers) * experts * costs.leaf
    for inner in divided.sums:
        for other in inner.receives_from:
            clock[other] += costs.send
            arrives = clock[other] + network.latency + costs.evidence / network.bandwidth
            clock[inner.worker] = max(clock[inner.worker], arrives) + costs.receive
    return float(clock[divided.sums[-1].worker] if divided.sums else clock[0])


# Dask


class _Task:
    """A shard's sum, or a sum of sums."""

    def __init__(self, seconds: float, worker: int, below: Sequence[_Task] = ()) -> None:
        self.seconds, self.worker, self.below = seconds, worker, below
        self.missing, self.above = len(below), list[_Task]()
        for task in below:
            task.above.append(self)


def dask_tasks(rows: int, threads: int, costs: Costs, shards: int | None = None, work: bool = True) -> list[_Task]:
    """The tasks of a step, as the engine submits them: shards, then sums from the bottom up."""
    experts = _experts(rows, costs.leaf_rows)
    units = min(_SHARDS_PER_THREAD * threads, _MOST_SHARDS, experts) if shards is None else shards
    divided = division(experts if shards is None else units, units, False)
    share = shares(divided, units)
    places = _assign(share.tolist(), {str(worker): 1 for worker in range(threads)})
    tasks = [_Task(share[unit] * experts * costs.leaf * work, int(places[unit])) for unit in range(units)]
    at: dict[tuple[int, int], _Task] = {_name(o.node): tasks[o.worker] for o in divided.owned}
    for inner in divided.sums:
        below = list(dict.fromkeys(at[_name(child)] for child in inner.node.children))
        tasks.append(_Task(0.0, below[0].worker, below))
        at[_name(inner.node)] = tasks[-1]
    return tasks


def _name(node: Node) -> tuple[int, int]:
    return node.depth, node.index


def dask_step(tasks: Sequence[_Task], threads: int, costs: Costs, network: Network) -> float:
    """Client and scheduler are one that does one thing at a time, half of a task's cost before it and half after."""
    hop, half = costs.hop + network.latency, costs.here[1] / 2
    scheduler = costs.here[0] + costs.there[0] + hop
    free = np.zeros(threads)
    done: list[tuple[float, int]] = []  # when the scheduler hears of it
    number = {task: i for i, task in enumerate(tasks)}

    def begin(task: _Task) -> None:
        nonlocal scheduler
        scheduler += half + costs.question / network.bandwidth
        elsewhere = sum(other.worker != task.worker for other in task.below)
        fetched = (2 * hop if elsewhere else 0.0) + elsewhere * (costs.receive + costs.evidence / network.bandwidth)
        start = max(free[task.worker], scheduler + hop + fetched)
        free[task.worker] = start + costs.there[1] + task.seconds
        heapq.heappush(done, (free[task.worker] + hop, number[task]))

    for task in tasks:
        if not task.below:
            begin(task)
    while done:
        heard, i = heapq.heappop(done)
        scheduler = max(scheduler, heard) + half
        for above in tasks[i].above:
            above.missing -= 1
            if above.missing == 0:
                begin(above)
    return scheduler + (HOPS - 3) * hop


def dask(rows: int, threads: int, costs: Costs, network: Network, work: bool = True) -> float:
    return dask_step(dask_tasks(rows, threads, costs, work=work), threads, costs, network)


# The page

WAYS: tuple[tuple[str, Callable[..., float]], ...] = (
    ("star", lambda *a, **k: plain_step(*a, star=True, **k)),
    ("tree", lambda *a, **k: plain_step(*a, star=False, **k)),
    ("Dask engine", dask),
)


def power(n: float, _: Any = None) -> str:
    return f"10^{round(np.log10(n))}" if n >= 1e5 else f"{n:,.0f}"


def counted(workers: int) -> str:
    return "1 worker" if workers == 1 else f"{workers:,} workers"


def checks(found: Found, costs: Costs) -> str:
    head = ("step", "measured (quartiles)", "simulated", "simulated / measured")
    lines = []
    for r in found["steps"]:
        if r["engine"] == "dask":
            said = dask(found["rows"], r["workers"], costs, LOOPBACK)
            lines.append((f"{found['rows']:,} rows, {counted(r['workers'])}", r, said))
    for r in found["empty"]:
        tasks = dask_tasks(r["shards"] * costs.leaf_rows, 2, costs, r["shards"], work=False)
        lines.append((f"no work, tasks: {r['tasks']}, 2 workers", r, dask_step(tasks, 2, costs, LOOPBACK)))
    body = [
        (what, f"{time_of(r['seconds'])} ({time_of(r['low'])} to {time_of(r['high'])})", time_of(said),
         f"{said / r['seconds']:.2f}")
        for what, r, said in lines
    ]  # fmt: skip
    return table(head, body)


def quietness(found: Found) -> str:
    """Whether the machine gave what the simulation takes for granted."""
    one, two = (
        next(r for r in found["steps"] if (r["engine"], r["workers"]) == ("threads", workers))["seconds"]
        for workers in (1, 2)
    )
    return (
        f"In that run two threads, without any cluster, were {one / two:.2f} times as fast as one. The simulation "
        "gives every worker a core of its own; a machine that others use meanwhile cannot, and measures longer steps."
    )


def long_time(seconds: float) -> str:
    for unit, size in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.3g} {unit}"
    return time_of(seconds)


def step_times(costs: Costs) -> str:
    head = ("rows", "way", *(counted(w) for w in SHOWN))
    body = [
        (power(rows), name, *(long_time(way(rows, w, costs, ETHERNET)) for w in SHOWN))
        for rows in ROWS
        for name, way in WAYS
    ]
    return table(head, body)


def dominated(costs: Costs) -> str:
    """The first number of workers of which more than half of the time is not work."""

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
        f"The network hardly matters to the Dask engine: {power(rows)} rows on {workers} workers take {times[0]} "
        f"per step, and {times[1]} if latency and bandwidth are ten times worse."
    )


def root_messages() -> str:
    def most(workers: int, star: bool) -> int:
        divided = division(BLOCKS * workers, workers, star)
        counts = np.zeros(workers, dtype=int)
        for inner in divided.sums:
            counts[inner.worker] += len(inner.receives_from)
        return int(counts.max())

    shown = [w for w in SHOWN if w > 1]
    head = ("messages per step received by", *(counted(w) for w in shown))
    body = [
        ("the root of a star", *(f"{most(w, True):,}" for w in shown)),
        ("the busiest unit of a tree", *(f"{most(w, False):,}" for w in shown)),
    ]
    return table(head, body)


def memory(columns: int) -> str:
    head = ("rows", "precision", *(counted(w) for w in SHOWN))
    body = [
        (power(rows), dtype, *(size(rows / w * (columns + 1) * width) for w in SHOWN))
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
    kept, render.FIGURES = render.FIGURES, render.DOCS / "scaling"
    try:
        return render.figure(name, draw, title, (7.2, 4.6)).replace("(benchmarks/", "(scaling/")
    finally:
        render.FIGURES = kept


def _log_axes(axes: Axes, what: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda w, _: f"{w:,.0f}"))
    axes.set_xlabel("workers, one thread each")
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
        _log_axes(axes, "seconds a step")
        axes.legend(frameon=False, fontsize=9, ncols=2)

    return figure("steps", draw, "A training step, simulated")


def draw_overhead(costs: Costs) -> str:
    shown = [w for w in WORKERS if w > 1]

    def draw(axes: Axes) -> None:
        for colour, (name, way) in zip(COLOURS, WAYS, strict=False):
            axes.plot(shown, [way(10**9, w, costs, ETHERNET, work=False) for w in shown], "-o", color=colour,
                      markersize=4, label=f"communication, {name}")  # fmt: skip
        for rows in (10**8, 10**10):
            alone = [rows / costs.leaf_rows * costs.leaf / w for w in shown]
            axes.plot(shown, alone, ":", color="#555555")
            axes.annotate(f"work, {power(rows)} rows", (shown[1], alone[1]), xytext=(4, 4), fontsize=9,
                          textcoords="offset points", color="#555555")  # fmt: skip
        _log_axes(axes, "seconds")
        axes.legend(frameon=False, fontsize=9)

    return figure("communication", draw, "What a step costs apart from its work, simulated")


def draw_memory(columns: int) -> str:
    def draw(axes: Axes) -> None:
        for colour, rows in zip(COLOURS, ROWS, strict=True):
            for style, width in (("-", 8), ("--", 4)):
                axes.plot(WORKERS, [rows / w * (columns + 1) * width for w in WORKERS], style, color=colour,
                          label=f"{power(rows)} rows" if width == 8 else None)  # fmt: skip
        axes.plot([], [], "-", color="black", label="float64")
        axes.plot([], [], "--", color="black", label="float32")
        _log_axes(axes, "rows in memory, a worker")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda n, _: size(n)))
        axes.legend(frameon=False, fontsize=9, ncols=2)

    return figure("memory", draw, f"Rows a worker holds, {columns} columns and the target")


def before_the_first_step(found: Found | None) -> str:
    """What the client does alone."""
    if found is None:
        return "How long that takes is measured by `benchmarks/out_of_core.py`, which was not run."
    last = found["rows"][-1]
    done = last["fit_seconds"] - last["stages"]["training"]
    rate = last["rows"] / done
    times = ", ".join(f"{long_time(rows / rate)} for {power(rows)}" for rows in ROWS)
    return (
        f"Measured ({found['machine']['date']}, commit {found['machine']['commit']}): {last['rows']:,} rows from "
        f"Parquet in {time_of(done)}, without training. At that rate it takes {times} rows."
    )


def page(found: Found, disk: Found | None) -> str:
    costs, here = Costs.of(found), found["machine"]
    columns = found["columns"]
    measured = table(
        ("measured on this machine", ""),
        [
            (f"LML + gradient of an expert of {costs.leaf_rows} points, one thread, float64", time_of(costs.leaf)),
            ("Dask's client and scheduler: processor time per step + per task",
             " + ".join(time_of(t) for t in costs.here)),
            ("Dask's worker: the same", " + ".join(time_of(t) for t in costs.there)),
            ("a message between two processes of Dask", time_of(costs.hop)),
            (f"a plain message with one evidence ({costs.evidence:,} bytes): to send; to receive and add",
             "; ".join(time_of(t) for t in (costs.send, costs.receive))),
        ],
    )  # fmt: skip
    assumed = table(
        ("assumed", ""),
        [
            ("latency of a message between any two machines", time_of(ETHERNET.latency)),
            ("bandwidth of a link", f"{ETHERNET.bandwidth * 8 / 1e9:g} Gbit/s"),
            ("workers", "one thread each, as fast as a core of this machine; no worker is lost or slow"),
            ("a Dask task", "half of its cost at the scheduler before it runs, half afterwards"),
        ],
    )
    parts = [
        "# Scaling",
        "Written by `benchmarks/simulate_cluster.py` from measurements of `benchmarks/cluster.py --full`; do not edit.",
        f"Measured {here['date']}, commit {here['commit']}: {render.origin(found)}. "
        f"Simulated {machine()['date']}, commit {machine()['commit']}.",
        "**No cluster was used.** Times on one and two workers were measured on one machine. All other figures are "
        "simulated from these and from an assumed network. A step is LML + gradient over all experts.",
        "## Measured beside simulated",
        "The inputs of the simulation are the time of a step of one thread without a cluster, and the processor times "
        "of empty steps with 1 and 512 shards. All other values in this table are predicted by it.",
        checks(found, costs),
        quietness(found),
        "## What goes in",
        measured,
        assumed,
        "## Star and tree",
        "The paper (section 3.4) divides compute units among subtrees because the master of a star receives a message "
        f"from every worker. `gigagp.tree.divide`, with {FAN_IN} children per node, determines the messages:",
        root_messages(),
        draw_overhead(costs),
        "In a star and in a tree, workers exchange plain messages with theta and evidence; there is no coordinator, "
        "and the loss of a worker ends the step. The Dask engine adds along the same tree, but its scheduler handles "
        f"every task: {_SHARDS_PER_THREAD} shards per thread, one sum per {FAN_IN} of them, and at most "
        f"{_MOST_SHARDS:,} shards. The tasks, not the messages, dominate the cost of its steps. With more "
        "threads than shards, some workers have nothing to do.",
        "## Time of a step",
        draw_steps(costs),
        step_times(costs),
        "The smallest number of workers with which overhead takes more than half of a step, among "
        f"{', '.join(f'{w:,}' for w in WORKERS)}:",
        dominated(costs),
        "Overhead includes uneven shares: a subtree gets a whole number of units, so some have more work than others.",
        slower(costs),
        "## Memory",
        f"A worker holds its shards: rows / workers x {columns + 1} numbers, for {columns} columns and the target. In "
        "addition it needs some 250 MB for Python and its libraries, and memory for the expert being computed.",
        draw_memory(columns),
        memory(columns),
        "## Before the first step",
        "One process, the client, reads the source and writes the expert store; workers do not help. "
        f"{before_the_first_step(disk)} For the largest sizes the table above therefore shows the cost of a step, but "
        "preparing the data takes much longer.",
    ]
    return "\n\n".join(parts) + "\n"


def read(name: str) -> Found | None:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def main() -> int:
    arguments(__doc__ or "").parse_args()
    found = read("cluster")
    if found is None:
        print("nothing to simulate from: run benchmarks/cluster.py first", flush=True)
        return 1
    PAGE.write_text(page(found, read("out_of_core")))
    print("[simulate_cluster] docs/scaling.md", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
