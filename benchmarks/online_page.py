"""Writes the measured parts of docs/online.md and docs/serving.md, from the results of online.py, online_airline.py and
serving.py.

A part whose results are not here stays as it is. With --busy the page says that the machine had other work meanwhile.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from measure import RESULTS
from page_parts import DOCS, origin, table

MODELS = {
    "auto": 'updates with `refine="auto"`',
    "updates": "updates without training",
    "refits": "a fit every day",
    "stays": "the model of the first day",
}


def stamp(result: dict[str, Any]) -> str:
    machine = result["machine"]
    busy = " Other programs were running on the machine at the same time." if "--busy" in sys.argv[1:] else ""
    return f"Measured {machine['date']}, commit {machine['commit']}: {origin(result)}.{busy}"


def bars(result: dict[str, Any]) -> str:
    return "\n".join(
        f"- {b['what']}: {b['measured']:.4g} (bar {b['bar']}): {'met' if b['met'] else '**missed**'}"
        for b in result["bars"]
    )


def online(result: dict[str, Any]) -> str:
    latency, rate, durable = (result[name] for name in ("latency", "rate", "durable"))
    words = (
        "`python benchmarks/online.py --full`. Rows of the robot arm, 8 columns, 64 neighbours, one thread, in chunks "
        f"of 10,000 of which 256 rows are scored. While {latency['rate']:,.0f} rows arrive per second, a prediction of "
        f"one row with its standard deviation takes {latency['p50']:.2f} ms (median), {latency['p99']:.2f} ms (99th "
        f"percentile) and {latency['p999']:.2f} ms (99.9th). A row takes {durable['log_bytes_per_row']:.0f} bytes in "
        f"the log, and {durable['folder_bytes_per_row']:.0f} bytes in the folder after `compact`."
    )
    head = ("rows that have arrived", "rows per second so far", "memory of the process")
    body = [(f"{r['rows']:,}", f"{r['rate']:,.0f}", f"{r['memory'] / 1e9:.2f} GB") for r in rate["trace"]]
    return "\n\n".join(["### Rate and latency", stamp(result), words, table(head, body), bars(result)])


def airline(result: dict[str, Any]) -> str:
    days = result["days"]
    words = (
        f"`python benchmarks/online_airline.py --month {result['month']} --days {days}`. Delays of flights: each of "
        f"{days} days is predicted before it is learnt; the model keeps the last 500,000 flights. The rules of "
        '`refine="auto"` were developed on another month.'
    )
    spent = result["cpu_seconds"]
    body = [
        (MODELS[name], f"{result['nlpd'][name]:.4f}", f"{spent[name]:.0f}" if name in spent else "0") for name in MODELS
    ]
    head = ("model", "NLPD", "seconds of CPU time to learn", *(f"day {day + 1}" for day in range(days)))
    by_day = result["by_day"]
    body = [(*row, *(f"{value:.2f}" for value in by_day[name])) for row, name in zip(body, MODELS, strict=True)]
    differences = np.subtract(by_day["auto"], by_day["refits"])
    error = float(differences.std(ddof=1)) / days**0.5
    caution = (
        f'`refine="auto"` had the lower NLPD on {int((differences < 0).sum())} of {days} days, and a fit every day on '
        f"{int((differences > 0).sum())}. Flights of one day are not independent: over days, the mean difference is "
        f"{float(differences.mean()):.3f} with a standard error of {error:.3f}. The bar below is a mean over flights."
    )
    return "\n\n".join(["### Flights, day by day", stamp(result), words, table(head, body), caution, bars(result)])


def serving(result: dict[str, Any]) -> str:
    latency = result["latency"]
    words = (
        "`python benchmarks/serving.py --full`. A model of 100,000 rows with 8 columns and 64 neighbours; each request "
        f"is one row with its standard deviation, as JSON. Two connections together get {result['rate']:,.0f} answers "
        f"per second. At 100 requests per second an answer takes {latency['p50']:.2f} ms (median) and "
        f"{latency['p99']:.2f} ms (99th percentile)."
    )
    return "\n\n".join([stamp(result), words, bars(result)])


PARTS: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "online": ("online.md", online), "online_airline": ("online.md", airline), "serving": ("serving.md", serving),
}  # fmt: skip


def main() -> None:
    for name, (page, write) in PARTS.items():
        path, results = DOCS / page, RESULTS / f"{name}.json"
        if not results.exists():
            print(f"no results of {name}: its part of {page} stays as it is")
            continue
        content = write(json.loads(results.read_text()))
        marks = f"<!-- {name} -->", f"<!-- /{name} -->"
        pattern = re.compile(rf"{marks[0]}.*?{marks[1]}", re.DOTALL)
        text, count = pattern.subn(lambda _, c=content, m=marks: f"{m[0]}\n{c}\n{m[1]}", path.read_text())  # type: ignore[misc]
        if count != 1:
            raise SystemExit(f"{page} has no place for {name}")
        path.write_text(text)
        print(f"wrote the part {name} of {page}")


if __name__ == "__main__":
    main()
