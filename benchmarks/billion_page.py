"""docs/billion.md, from results/billion.json and results/ingestion.json; takes seconds."""

from __future__ import annotations

import json
from typing import Any

from matplotlib.axes import Axes

import page_parts
from billion import COLUMNS, NOISE
from measure import RESULTS
from page_parts import COLOURS, DOCS, Result, origin, table, time_of

PAGE = DOCS / "billion.md"
FIGURES = DOCS / "billion"

HEAD = """# A billion rows on one machine

Written by `benchmarks/billion_page.py` from measurements of `benchmarks/billion.py` and `benchmarks/ingestion.py`; do
not edit.

A known function of {columns} columns in float32, with Gaussian noise of standard deviation {noise:g}, is written to
Parquet files. One process fits it with defaults, `dtype="float32"` and `memory="{memory}"`, answers scattered queries
with standard deviations, saves the model and opens it again: `python benchmarks/billion.py --sizes {sizes}`.

{machine}. Other programs were running at the same time: "load" is the mean number of processes that were running or
waiting for one of the {cores} cores, so that wall times are longer than on an idle machine. CPU time does not include
waiting; the fit would take at least 1/{cores} of it on {cores} idle cores. A bar is a value that we aim at.
"""

ERRORS = """## Errors

The first column of errors compares with the known function, the others with noisy observations. The last column has the
NLPD of the true distribution, which no model can improve on except by chance.
"""

MEMORY = """## Memory and disk

Peak memory is that of the whole process, with Python and its libraries. "Boxes" are the tree of boxes and row numbers
through which neighbours are found (with codes: and one byte per number of the rows). Bytes written are those of the
fit; disk space is the largest that source, store and saved model took together. Both are in multiples of the rows' own
size.
"""

INGESTION = """## Ingestion

{rows:,} rows of 8 columns and a target in float32, budget {memory}: `python benchmarks/ingestion.py --rows {rows}`. The
load was {load:.1f} at the end.
"""


def named(rows: int) -> str:
    return f"{rows:,}"


def seconds_table(sizes: list[Result]) -> str:
    head = ("rows", "fit", "CPU time of the fit", "ingestion", "queries", "time per query", "save",
            "open + first query", "load")  # fmt: skip
    body = [
        (named(r["rows"]), time_of(r["fit"]), time_of(r["fit_cpu"]), f"{r['ingested_per_second'] / 1e6:.2f} million/s",
         f"{r['queries']:,}", time_of(r["predict"] / r["queries"]), time_of(r["save"]),
         time_of(1e-3 * (r["open_ms"] + r["first_query_ms"])), f"{r['load']:.1f}")
        for r in sizes
    ]  # fmt: skip
    return table(head, body)


def errors_table(sizes: list[Result]) -> str:
    head = ("rows", "RMSE to the truth", "RMSE", "NLPD", "95% intervals cover", "neighbours", "NLPD of the truth")
    body = [
        (named(r["rows"]), f"{r['rmse_to_truth']:.5f}", f"{r['rmse']:.5f}", f"{r['nlpd']:.5f}",
         f"{100 * r['coverage_95']:.2f}%", r["neighbours"], f"{r['nlpd_of_truth']:.5f}")
        for r in sizes
    ]  # fmt: skip
    return table(head, body)


def memory_table(sizes: list[Result]) -> str:
    head = ("rows", "rows' own size", "peak of the fit", "peak", "boxes per row", "bytes written", "disk space")
    body = [
        (named(r["rows"]), f"{r['rows_gb']:.3g} GB", f"{r['peak_gb_fit']:.2f} GB", f"{r['peak_gb']:.2f} GB",
         f"{r['tree_bytes_per_row']:.2f} bytes" + ("" if r["mapped"] else " (with codes)"),
         f"{r['written_over_rows']:.2f}", f"{r['disk_over_rows']:.2f}")
        for r in sizes
    ]  # fmt: skip
    return table(head, body)


def curve(axes: Axes, sizes: list[Result]) -> None:
    rows = [r["rows"] for r in sizes]
    for (key, label), colour in zip((("fit", "wall time"), ("fit_cpu", "CPU time")), COLOURS, strict=False):
        axes.plot(rows, [1e6 * r[key] / r["rows"] for r in sizes], "o-", color=colour, label=label)
    axes.set_xscale("log")
    axes.set_xlabel("rows")
    axes.set_ylabel("microseconds per row")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


def bars_table(bars: list[dict[str, Any]]) -> str:
    body = [(b["what"], f"{b['measured']:.3g}", b["bar"], "met" if b["met"] else "**missed**") for b in bars]
    return table(("what", "measured", "bar", ""), body)


def page(billion: Result, ingestion: Result | None) -> str:
    sizes = billion["sizes"]
    head = HEAD.format(
        columns=len(COLUMNS), noise=NOISE, memory=billion["memory"], machine=origin(billion),
        cores=billion["machine"]["cores"], sizes=",".join(f"{r['rows']:.0e}".replace("e+0", "e") for r in sizes),
    )  # fmt: skip
    picture = page_parts.figure(
        "fit", lambda axes: curve(axes, sizes), "Cost of a fit per row", (6.4, 3.6), folder=FIGURES
    )
    parts = [head, seconds_table(sizes), picture, ERRORS, errors_table(sizes), MEMORY, memory_table(sizes)]
    parts += ["## Bars\n", bars_table(billion["bars"])]
    if "note" in billion:
        parts.append(billion["note"])
    if ingestion is not None:
        parts.append(INGESTION.format(**ingestion))
        parts.append(bars_table(ingestion["bars"]))
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def main() -> None:
    billion, ingestion = (RESULTS / f"{name}.json" for name in ("billion", "ingestion"))
    of_ingestion = json.loads(ingestion.read_text()) if ingestion.exists() else None
    PAGE.write_text(page(json.loads(billion.read_text()), of_ingestion))
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
