"""From which size on a cluster beats one machine, in time and in money: simulated from measured costs.

A training on all experts is a number of steps. A cluster needs time to start, and its steps have an overhead; one
machine has neither, but only its own cores. Cores are paid for as long as they are in use.
"""

from __future__ import annotations

from dataclasses import dataclass

from page_parts import table, time_of
from simulate_cluster import ETHERNET, THREADS, Costs, dask

MACHINES = (2, 8, 64)  # of a cluster
ROWS = (10**7, 10**8, 10**9, 10**10, 10**11)


@dataclass(frozen=True)
class Prices:
    """What a user pays and waits for."""

    core_hour: float = 0.0425  # USD
    start: float = 180.0  # seconds until the machines of a cluster are ready
    evaluations: int = 60  # of the evidence, in a training on all experts

    def one_machine(self, rows: int, costs: Costs) -> float:
        """Seconds of a training on the threads of one machine, which is there already."""
        return self.evaluations * rows / costs.leaf_rows * costs.leaf / THREADS

    def cluster(self, rows: int, machines: int, costs: Costs) -> float:
        """Seconds of the same training on a cluster."""
        return self.start + self.evaluations * dask(rows, machines * THREADS, costs, ETHERNET)

    def money(self, seconds: float, machines: int) -> str:
        return f"{seconds / 3600 * machines * THREADS * self.core_hour:,.2f} USD"


def break_even(prices: Prices, costs: Costs, machines: int, factor: float) -> int:
    """The smallest number of rows, to one per cent, from which on a cluster is so many times as fast."""
    low, high = 1e4, 1e13
    while high / low > 1.01:
        middle = (low * high) ** 0.5
        rows = int(middle)
        if prices.one_machine(rows, costs) > factor * prices.cluster(rows, machines, costs):
            high = middle
        else:
            low = middle
    return int(high)


def rounded(rows: int) -> str:
    return f"{float(f'{rows:.2g}'):,.0f}"


def duration(seconds: float) -> str:
    return f"{seconds / 3600:,.3g} h" if seconds >= 7200 else time_of(seconds)


def section(costs: Costs, prices: Prices) -> list[str]:
    """The paragraphs and tables of the page."""
    head = ("rows", f"one machine, {THREADS} cores", *(f"{m} such machines" for m in MACHINES))
    body = []
    for rows in ROWS:
        alone = prices.one_machine(rows, costs)
        cells = [f"{duration(alone)}, {prices.money(alone, 1)}"]
        for machines in MACHINES:
            seconds = prices.cluster(rows, machines, costs)
            cells.append(f"{duration(seconds)}, {prices.money(seconds, machines)}")
        body.append((f"{rows:,}", *cells))
    even = table(
        ("a cluster of", "is faster from", "has a parallel efficiency of at least 50% from", "cost there"),
        [
            (f"{m} machines", f"{rounded(break_even(prices, costs, m, 1))} rows", f"{rounded(half)} rows",
             f"{prices.money(prices.cluster(half, m, costs), m)} instead of "
             f"{prices.money(prices.one_machine(half, costs), 1)}")
            for m in MACHINES
            for half in [break_even(prices, costs, m, m / 2)]
        ],
    )  # fmt: skip
    return [
        f'A training on all experts (`training="full"`) with {prices.evaluations} evaluations of the evidence. '
        f"Assumed: {prices.core_hour:g} USD per core and hour (`--price` sets yours), machines of {THREADS} cores as "
        f"fast as those of this machine, and {prices.start:g} s (`--start`) until the machines of a cluster are ready, "
        "which are paid for. The single machine is ready at once. The price is that of a virtual core of a c5.4xlarge "
        "in the [example of Amazon's documentation](https://docs.aws.amazon.com/autoscaling/ec2/userguide/"
        "weights-spot-price-per-unit-hour-example.html): 0.68 USD per hour on demand, half of that as a spot machine.",
        table(head, body),
        even,
        "A cluster never costs less than one machine: the same work takes the same core hours, and the start and the "
        'overhead are added. It only saves time. The default training (`training="auto"`) evaluates few groups of '
        "rows, whose number does not grow with the table; for it, a cluster only helps to read and sort the rows and "
        "to predict.",
    ]
