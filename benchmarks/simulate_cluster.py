"""Training steps on clusters that were not available, simulated from measurements of `cluster.py`.

Messages follow the division of compute units that the engine itself uses (`gigagp.tree.divide`, section 3.4). There are
three ways to add up: a star and a tree with eight children per node, in which workers exchange plain messages, and the
Dask engine, whose single scheduler handles every task. The network is assumed; all other costs are measured.

The measured machine has fewer cores than processes, the assumed clusters have a core for each. To be compared with
measurements, a simulation is given the number of cores that client, scheduler and all workers share: whatever any of
them computes waits for a core. A worker computes part of a task's cost before it sends its result and the rest
afterwards, while others go on; what is left of one step delays the next, so that several steps are simulated.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.optimize import nnls

from gigagp.engines.additions import FAN_IN as TASKS_ADDED
from gigagp.engines.dask import shards_for
from gigagp.engines.dask_shards import MOST_GATHERED, assign_shards
from gigagp.tree import Division, Tree, divide
from page_parts import Result

FAN_IN = 8  # children per node of the simulated tree
BLOCKS = 64  # leaves of the simulated tree per unit: enough that shares are as uneven as in the real one
HOPS = 8  # messages of a single task: client, scheduler, worker, and back; then the same way to fetch the result
THREADS = 16  # cores of a machine, all used by one Dask worker
STEPS = 4  # that are simulated one after the other on a machine whose cores are shared; the last one counts
_BEGIN, _REST, _COMPLETE = range(3)  # of a task: what its worker does before the result, and after it; its result
SHARES = tuple(k / 10 for k in range(0, 11, 2))  # of a task's cost that may come before its result is sent


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
    there: tuple[float, float]  # Dask's workers: per task, and per shard
    before: float = 1.0  # share of a worker's cost per task that comes before the result is sent

    @classmethod
    def of(cls, result: Result, without: int | None = None) -> Costs:
        """Costs that explain a measurement; `without` leaves one of the steps without work out."""
        empty = [r for i, r in enumerate(result["empty"]) if i != without]
        tasks = np.array([r["tasks"] for r in empty], float)
        shards = np.array([r["shards"] for r in empty], float)
        message = result["message"]
        costs = cls(
            leaf=result["leaf_seconds"],
            leaf_rows=result["leaf"],
            send=message["send_seconds"],
            receive=message["receive_seconds"],
            evidence=message["evidence_bytes"],
            question=message["question_bytes"],
            hop=0.0,
            here=_weights(np.column_stack([np.ones(len(empty)), tasks]), [r["cpu_here"] for r in empty]),
            there=_weights(np.column_stack([tasks, shards]), [r["cpu_workers"] for r in empty]),
        )
        cores = result["machine"]["cores"]
        return min((_with_hop(replace(costs, before=share), empty, cores) for share in SHARES), key=lambda c: c[0])[1]


def _with_hop(costs: Costs, empty: Sequence[Result], cores: int) -> tuple[float, Costs]:
    """The mean squared relative error of steps without work, and the costs with the time of a message that fits them.

    The measured time of a step is one of waiting for messages, which they have in common, and of computing.
    """
    seconds = np.array([r["seconds"] for r in empty])
    hops = (seconds - [empty_step(r, costs, cores) for r in empty]) / HOPS
    costs = replace(costs, hop=max(0.0, float(np.median(hops))))
    errors = np.log(np.array([empty_step(r, costs, cores) for r in empty]) / seconds)
    return float(np.mean(errors**2)), costs


def _weights(columns: np.ndarray, seconds: Sequence[float]) -> tuple[float, float]:
    """Two costs that explain measured times, each of which counts relative to its size."""
    weights, _ = nnls(columns / np.array(seconds)[:, None], np.ones(len(seconds)))
    return float(weights[0]), float(weights[1])


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
    """A task of Dask: the sum over a worker's shards, or a sum of sums.

    seconds : of its worker, before the result is sent and afterwards
    """

    def __init__(self, seconds: tuple[float, float], worker: int, below: Sequence[_Task] = ()) -> None:
        self.seconds, self.worker, self.below = seconds, worker, below
        self.above = list[_Task]()
        for task in below:
            task.above.append(self)


def dask_tasks(
    rows: int, workers: int, threads: int, costs: Costs, shards: int | None = None, work: bool = True
) -> list[_Task]:
    """The tasks of a step, as the engine submits them: one per worker, then sums where the workers are many.

    threads : those of each worker
    """
    experts = _experts(rows, costs.leaf_rows)
    units = shards_for(workers * threads, experts) if shards is None else shards
    share = shares(division(experts if shards is None else units, units, False), units)
    places = [int(place) for place in assign_shards(share.tolist(), {str(w): threads for w in range(workers)})]
    own, count = np.zeros(workers), np.zeros(workers)
    np.add.at(own, places, share * experts * costs.leaf * work / threads)
    np.add.at(count, places, 1)
    early, late = costs.before * costs.there[0], (1 - costs.before) * costs.there[0]
    level = [
        _Task((early + costs.there[1] * count[w] + own[w], late), w) for w in np.flatnonzero(count).tolist()
    ]  # fmt: skip
    tasks = level
    while len(level) > MOST_GATHERED:
        runs = [level[first : first + TASKS_ADDED] for first in range(0, len(level), TASKS_ADDED)]
        level = [_Task((early, late), run[0].worker, run) for run in runs]
        tasks = tasks + level
    return tasks


class _Processes:
    """Processes that do one thing at a time, each on a core of its own or all on the cores of one machine."""

    def __init__(self, count: int, cores: int | None) -> None:
        self._free = np.zeros(count)
        self._cores = None if cores is None else np.zeros(cores)

    def use(self, process: int, ready: float, seconds: float) -> float:
        """When something ends that a process may begin at a time."""
        start = max(ready, float(self._free[process]))
        if self._cores is not None:
            core = int(np.argmin(self._cores))
            start = max(start, float(self._cores[core]))
            self._cores[core] = start + seconds
        self._free[process] = start + seconds
        return start + seconds


def dask_step(tasks: Sequence[_Task], workers: int, costs: Costs, network: Network, cores: int | None = None) -> float:
    """Client and scheduler act as one that does one thing at a time: half of its costs before the tasks, half after.

    cores : on which client, scheduler and workers all run; None where each has a machine of its own
    """
    machine, begin, end = _Processes(workers + 1, cores), 0.0, 0.0
    for _ in range(1 if cores is None else STEPS):
        begin, end = end, _end_of_step(machine, tasks, workers, costs, network, end)
    return end - begin


def _end_of_step(
    machine: _Processes, tasks: Sequence[_Task], scheduler: int, costs: Costs, network: Network, begin: float
) -> float:
    hop, half = costs.hop + network.latency, costs.here[1] / 2
    number, missing = {task: i for i, task in enumerate(tasks)}, [len(task.below) for task in tasks]
    events: list[tuple[float, int, int]] = []  # time, task, and what happens: they are handled in the order of time

    def send(task: _Task, now: float) -> None:
        elsewhere = sum(other.worker != task.worker for other in task.below)
        fetched = (2 * hop if elsewhere else 0.0) + elsewhere * (costs.receive + costs.evidence / network.bandwidth)
        heapq.heappush(events, (now + hop + fetched, number[task], _BEGIN))

    first, end = [task for task in tasks if not task.below], begin
    now = machine.use(scheduler, begin + hop, costs.here[0] / 2)
    for task in first:
        now = machine.use(scheduler, now, max(half, costs.question / network.bandwidth))
        send(task, now)
    while events:
        now, i, what = heapq.heappop(events)
        task = tasks[i]
        early, late = task.seconds
        if what == _BEGIN:
            sent = machine.use(task.worker, now, early)
            heapq.heappush(events, (sent, i, _REST))
            heapq.heappush(events, (sent + hop, i, _COMPLETE))
            continue
        if what == _REST:
            machine.use(task.worker, now, late)
            continue
        end = machine.use(scheduler, now, half)
        for above in task.above:
            missing[number[above]] -= 1
            if missing[number[above]] == 0:
                send(above, machine.use(scheduler, end, half))
    return machine.use(scheduler, end, costs.here[0] / 2) + (HOPS - 3) * hop


def empty_step(measured: Result, costs: Costs, cores: int) -> float:
    """A step without work that `cluster.py` has measured on a machine of so many cores."""
    workers, shards = measured["workers"], measured["shards"]
    tasks = dask_tasks(shards * costs.leaf_rows, workers, 1, costs, shards, work=False)
    return dask_step(tasks, workers, costs, LOOPBACK, cores)


def dask(rows: int, cores: int, costs: Costs, network: Network, work: bool = True) -> float:
    """A step on machines of THREADS cores, one worker on each."""
    threads = min(THREADS, cores)
    workers = -(-cores // threads)
    return dask_step(dask_tasks(rows, workers, threads, costs, work=work), workers, costs, network)


WAYS: tuple[tuple[str, Callable[..., float]], ...] = (
    ("star", lambda *a, **k: plain_step(*a, star=True, **k)),
    ("tree", lambda *a, **k: plain_step(*a, star=False, **k)),
    ("Dask engine", dask),
)
