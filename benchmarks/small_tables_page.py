"""docs/small-tables.md, from results/small_tables.json and from nothing else."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from measure import RESULTS
from page_parts import DOCS, Result, origin, table

NAMES = {"ours": "GigaGP", "one_leaf": "one leaf", "scikit_learn": "scikit-learn's GP", "boosting": "boosting"}
WORDS = (
    "Measured by `benchmarks/small_tables.py --full --others`; means over the splits that all methods have. GigaGP "
    "has its defaults; one leaf is its exact GP (Matern 5/2, no calibration); scikit-learn's GP is constant x Matern "
    "5/2 with one length-scale per column + white noise, started three times below 500 rows; boosting is scikit-"
    "learn's HistGradientBoosting with 300 rounds. Entries are RMSE and NLPD in units of the target's deviation; the "
    "last column has the share of test rows inside our 95% intervals. The settings of small tables were developed on "
    "the splits from 1 on of the first six tables; the others are random parts of larger sets and tables of scikit-"
    "learn, by which no setting was chosen. Tables and methods that are not "
    "shown have not been measured."
)


def section(result: Result) -> list[str]:
    """Paragraphs and tables: mean scores, then the bars."""
    stamps = sorted({f"{run['date']}, commit {run['commit']}" for run in result["runs"] if run["method"] == "ours"})
    tables, sizes = result["tables"], {run["table"]: run["rows"] for run in result["runs"]}
    shown = [name for name in NAMES if any(name in means for means in tables.values())]
    body = []
    for name, means in tables.items():
        splits = len(next(iter(means.values()))["splits"])
        ours = f"{100 * means['ours']['coverage']:.1f}%" if "ours" in means else ""
        body.append((name, f"{sizes[name]:,}", str(splits), *(_entry(means, who) for who in shown), ours))
    head = ("table", "training rows", "splits", *(NAMES[name] for name in shown), "coverage")
    text = [f"{WORDS} GigaGP measured {'; '.join(stamps)}.", table(head, body)]
    return [*text, "Against the better of the two exact GPs:", bars_table(result["bars"])]


def _entry(means: Result, who: str) -> str:
    return f"{means[who]['rmse']:.4f}, {means[who]['nlpd']:.3f}" if who in means else ""


def bars_table(bars: Sequence[Result]) -> str:
    """One line per table: RMSE as a factor, NLPD as a difference, and whether the bars are met."""
    by_table: dict[str, list[Result]] = {}
    for bar in bars:
        by_table.setdefault(bar["what"].split(":")[0], []).append(bar)
    head = ("table", *(f"{what} ({bar})" for what, bar in _heads(bars)))
    return table(head, [(name, *map(_measured, these)) for name, these in by_table.items()])


def _heads(bars: Sequence[Result]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((bar["what"].split(": ")[1], bar["bar"]) for bar in bars))


def _measured(bar: Result) -> str:
    return f"{bar['measured']:.3f}{'' if bar['met'] else ' **missed**'}"


def write() -> bool:
    """Write docs/small-tables.md if small tables have been measured."""
    path = RESULTS / "small_tables.json"
    if path.exists():
        result = json.loads(path.read_text())
        head = "Written by `benchmarks/small_tables_page.py`; do not edit."
        text = ["# Small tables", f"{head} {origin(result)}; the machine did other work meanwhile.", *section(result)]
        (DOCS / "small-tables.md").write_text("\n\n".join(text) + "\n")
    return path.exists()


if __name__ == "__main__":
    sys.exit(0 if write() else "nothing to render: run small_tables.py first")
