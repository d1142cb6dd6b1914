"""Training steps on clusters that were not available, simulated from measurements of `cluster.py`.

Messages follow the division of compute units that the engine itself uses (`gigagp.tree.divide`, section 3.4). There are
three ways to add up: a star and a tree with eight children per node, in which workers exchange plain messages, and the
Dask engine, whose single scheduler handles every task. The network is assumed; all other costs are measured.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from gigagp.engines.additions import FAN_IN as TASKS_ADDED
from gigagp.engines.dask import MOST_SHARDS, SHARDS_PER_THREAD
from gigagp.engines.dask_shards import assign_shards
from gigagp.tree import Division, Tree, divide
from page_parts import Result

FAN_IN = 8  # children per node of the simulated tree
BLOCKS = 64  # leaves of the simulated tree per unit: enough that shares are as uneven as in the real one
HOPS = 8  # messages of a single task: client, scheduler, worker, and back; then the same way to fetch the result


@dataclass(frozen=True)
class Network:
    """The assumed speed of a network."""

    latency: float  # seconds that a message is under way
    bandwidth: float  # bytes per second of each link


ETHERNET = Network(latency=100e-6, bandwidth=1.25e9)
SLOW = Network(latency=1e-3, bandwidth=1.25e8)
LOOPBACK = Network(latency=0.0, bandwidth=float("inf"))  # its cost is part of the measured times


@dataclass(frozen=True)
class Costs:
    """Measured costs, in seconds unless a comment says otherwise."""

    leaf: float  # LML + gradient of one expert
    leaf_rows: int
    send: float  # a message, in plain Python
    receive: float
    evidence: int  # bytes
    question: int  # bytes of a message with theta
    hop: float  # of Dask, between two processes
    here: tuple[float, float]  # Dask's client and scheduler: per step, and per task
    there: tuple[float, float]  # Dask's worker: the same

    @classmethod
    def of(cls, result: Result) -> Costs:
        empty = sorted(result["empty"], key=lambda r: r["tasks"])
        here, there = (_line(empty, what) for what in ("cpu_here", "cpu_workers"))
        alone = empty[0]["seconds"] - sum(here) - sum(there)
        alone_thread = next(r for r in result["steps"] if (r["engine"], r["workers"]) == ("threads", 1))
        message = result["message"]
        return cls(
            leaf=alone_thread["seconds"] / _experts(result["rows"], result["leaf"]),
            leaf_rows=result["leaf"],
            send=message["send_seconds"],
            receive=message["receive_seconds"],
            evidence=message["evidence_bytes"],
            question=message["question_bytes"],
            hop=max(0.0, alone / HOPS),
            here=here,
            there=there,
        )


def _line(empty: Sequence[Result], what: str) -> tuple[float, float]:
    """A fixed cost and a cost per task, from the steps with fewest and most tasks."""
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
    """The share of all leaves that each unit has."""
    leaves = np.zeros(units)
    for owned in divided.owned:
        leaves[owned.worker] += len(owned.node.leaves)
    return leaves / leaves.sum()


# Plain messages


def plain_step(rows: int, workers: int, costs: Costs, network: Network, *, star: bool, work: bool = True) -> float:
    """Theta is sent down the edges of the division and evidence up; each unit does one thing at a time."""
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
            arrival = clock[other] + network.latency + costs.evidence / network.bandwidth
            clock[inner.worker] = max(clock[inner.worker], arrival) + costs.receive
    return float(clock[divided.sums[-1].worker] if divided.sums else clock[0])


# Dask


class _Task:
    """A task of Dask: the sum of a shard, or a sum of sums."""

    def __init__(self, seconds: float, worker: int, below: Sequence[_Task] = ()) -> None:
        self.seconds, self.worker, self.below = seconds, worker, below
        self.missing, self.above = len(below), list[_Task]()
        for task in below:
            task.above.append(self)


def dask_tasks(rows: int, threads: int, costs: Costs, shards: int | None = None, work: bool = True) -> list[_Task]:
    """The tasks of a step, as the engine submits them: one per thread, then sums of TASKS_ADDED tasks each."""
    experts = _experts(rows, costs.leaf_rows)
    units = min(SHARDS_PER_THREAD * threads, MOST_SHARDS, experts) if shards is None else shards
    divided = division(experts if shards is None else units, units, False)
    share = shares(divided, units)
    places = assign_shards(share.tolist(), {str(worker): 1 for worker in range(threads)})
    own = np.zeros(threads)
    np.add.at(own, [int(place) for place in places], share * experts * costs.leaf * work)
    tasks = level = [_Task(own[thread], thread) for thread in sorted({int(place) for place in places})]
    while len(level) > 1:
        runs = [level[first : first + TASKS_ADDED] for first in range(0, len(level), TASKS_ADDED)]
        level = [_Task(0.0, run[0].worker, run) for run in runs]
        tasks = tasks + level
    return tasks


def dask_step(tasks: Sequence[_Task], threads: int, costs: Costs, network: Network) -> float:
    """Client and scheduler act as one that does one thing at a time: half of a task's cost before it, half after."""
    hop, half = costs.hop + network.latency, costs.here[1] / 2
    scheduler = costs.here[0] + costs.there[0] + hop
    free = np.zeros(threads)
    completions: list[tuple[float, int]] = []  # when the scheduler learns that a task is complete, and which
    number = {task: i for i, task in enumerate(tasks)}

    def begin(task: _Task) -> None:
        nonlocal scheduler
        scheduler += half + costs.question / network.bandwidth
        elsewhere = sum(other.worker != task.worker for other in task.below)
        fetched = (2 * hop if elsewhere else 0.0) + elsewhere * (costs.receive + costs.evidence / network.bandwidth)
        start = max(free[task.worker], scheduler + hop + fetched)
        free[task.worker] = start + costs.there[1] + task.seconds
        heapq.heappush(completions, (free[task.worker] + hop, number[task]))

    for task in tasks:
        if not task.below:
            begin(task)
    while completions:
        time, i = heapq.heappop(completions)
        scheduler = max(scheduler, time) + half
        for above in tasks[i].above:
            above.missing -= 1
            if above.missing == 0:
                begin(above)
    return scheduler + (HOPS - 3) * hop


def dask(rows: int, threads: int, costs: Costs, network: Network, work: bool = True) -> float:
    return dask_step(dask_tasks(rows, threads, costs, work=work), threads, costs, network)


WAYS: tuple[tuple[str, Callable[..., float]], ...] = (
    ("star", lambda *a, **k: plain_step(*a, star=True, **k)),
    ("tree", lambda *a, **k: plain_step(*a, star=False, **k)),
    ("Dask engine", dask),
)
