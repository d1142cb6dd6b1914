"""docs/benchmarks.md, docs/accuracy.md, the tables of docs/choosing.md and figures, from results/*.json alone.

--only writes anew the parts named of a page that has been written before, and leaves the others as they are.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import accuracy_page
import choices_page
from comparison import OURS
from figure_sections import end_to_end, exact_gp, leaf_floor, prediction, scale
from measure import RESULTS
from page_parts import DOCS, Result, origin, table, time_of


def startup(result: Result) -> str:
    imported, fit = result["import"], result["fit"]
    return table(
        ("what", "measured"),
        [
            ("import gigagp", time_of(imported["gigagp"])),
            ("import sklearn.gaussian_process", time_of(imported["sklearn"])),
            ("ratio (quartiles)", f"{imported['ratio']:.2f} ({imported['low']:.2f} to {imported['high']:.2f})"),
            ("first fit and predict, 2,000 rows, empty compile cache", time_of(fit["cold"])),
            ("the same in a fresh process, warm cache", time_of(fit["warm"])),
            ("the same again in that process", time_of(fit["again"])),
            ("functions compiled by the first process", str(fit["compiled_by_first"])),
            ("functions compiled by the second", str(fit["compiled_by_second"])),
        ],
    )


def evidence_rate(result: Result) -> str:
    return f"65,536 points, leaves of 512, two workers: {time_of(result['seconds'])}."


def out_of_core(result: Result) -> str:
    head = ("rows", "fit", "predict to a file", "queries", "peak GB", "disk space / size of the rows", "RMSE", "NLPD")
    body = [
        (f"{r['rows']:,}", time_of(r["fit_seconds"]), time_of(r["predict_seconds"]), f"{r['queries']:,}",
         f"{r['peak_gb']:.2f}", f"{r['disk_gb'] / r['rows_gb']:.2f}", f"{r['rmse']:.4f}", f"{r['nlpd']:.3f}")
        for r in result["rows"]
    ]  # fmt: skip
    words = (
        f"From Parquet to Parquet, float32, with memory={result['memory']!r}. Where the disk space is 0, all rows were "
        "kept in memory."
    )
    return f"{words}\n\n{table(head, body)}"


def cluster(result: Result) -> str:
    steps = table(
        ("engine", "workers", "step (quartiles)", "leaves alone", "overhead (quartiles)", "first step"),
        [
            (r["engine"], str(r["workers"]), f"{time_of(r['seconds'])} ({time_of(r['low'])} to {time_of(r['high'])})",
             time_of(r["own_seconds"] / r["workers"]),
             f"{r['overhead']:.1%} ({r['overhead_low']:.1%} to {r['overhead_high']:.1%})", time_of(r["first_step"]))
            for r in result["steps"]
        ],
    )  # fmt: skip
    empty = table(
        ("workers", "shards", "tasks", "step (quartiles)", "processor: client and scheduler", "processor: workers"),
        [
            (str(r["workers"]), str(r["shards"]), str(r["tasks"]),
             f"{time_of(r['seconds'])} ({time_of(r['low'])} to {time_of(r['high'])})", time_of(r["cpu_here"]),
             time_of(r["cpu_workers"]))
            for r in result["empty"]
        ],
    )  # fmt: skip
    bytes_sent = result["traffic"]
    words = (
        f"Training steps of {result['rows']:,} rows, leaves of {result['leaf']}, one thread per worker. Leaves alone: "
        "the time of the leaves inside the workers, divided by the number of workers. The first step starts workers "
        "and loads shards."
    )
    traffic = (
        f"Bytes over TCP per step, {bytes_sent['rows']:,} rows, two Dask workers: {bytes_sent['net_bytes']:,.0f}, and "
        f"{bytes_sent['idle_bytes']:,.0f} that an idle cluster sends in the same time; with the first "
        f"step, which loads the shards, {bytes_sent['first_bytes']:,}. Rows are read from files, not sent."
    )
    more = "Steps with nothing to do on Dask workers, all on this machine. [Scaling](scaling.md) builds on them."
    return "\n\n".join([words, steps, traffic, more, empty])


def leaf_size(result: Result) -> str:
    head = ("data", "leaf size", "sharing", "fit", "predict", "RMSE", "NLPD", "time / time of the defaults")
    body = [
        (r["data"], str(r["leaf"] or "default"), str(r["sharing"] or "default"), time_of(r["fit"]),
         time_of(r["predict"]), f"{r['rmse']:.4f}", f"{r['nlpd']:.3f}", f"{r['times']:.2f}")
        for r in result["rows"]
    ]  # fmt: skip
    return "Scores on held-out training rows, from which the defaults were chosen.\n\n" + table(head, body)


def choices(result: Result) -> str:
    """The tables are part of the page that gives the advice; this section only refers to it."""
    choices_page.write_tables(result)
    return "What each setting costs and gains: [how to choose](choosing.md)."


def progress(result: Result) -> str:
    ratio = result["ratio"]
    return (
        f"A fit of {result['rows']:,} rows, all experts at every step: {time_of(result['shown'])} with progress shown "
        f"on a terminal, {time_of(result['silent'])} without; {ratio['median']:.3f} times as long (quartiles "
        f"{ratio['low']:.3f} to {ratio['high']:.3f} of {ratio['repeats']} pairs)."
    )


def plain(rows: list[Result]) -> str:
    return table(list(rows[0]), [[f"{v:.4g}" for v in r.values()] for r in rows])


def accuracy(result: Result) -> str:
    """How many data sets GigaGP wins, ties and loses; the tables have their own page."""
    words = (
        "GigaGP against each peer, split 0: the numbers of data sets on which it wins, ties and loses. "
        "[All results](accuracy.md)."
    )
    return f"{words}\n\n{accuracy_page.tally_table(result['versus'])}"


def ideas(result: Result) -> str:
    """One table per data set: the variants of each idea, and their gains over the first variant."""
    head = ("idea", "variant", "RMSE", "NLPD", "NLPD, scaled", "gain", "inside 95%", "fit", "predict", "queries")
    text = ["Development rows, never those of split 0; `benchmarks/ideas.py`."]
    for name in dict.fromkeys(row["set"] for row in result["rows"]):
        here = [row for row in result["rows"] if row["set"] == name]
        body = [
            (
                row["idea"], row["variant"], f"{row['rmse']:.4f}", f"{row['nlpd']:.3f}", f"{row['nlpd_scaled']:.3f}",
                "{:+.3f} ± {:.3f}".format(*row["gain"]), f"{100 * row['inside']:.1f}", time_of(row["fit_seconds"]),
                time_of(row["predict_seconds"]), f"{row['asked']:,}",
            )
            for row in here
        ]  # fmt: skip
        text.append(f"**{name}**, {here[0]['rows']:,} rows\n\n{table(head, body)}")
    return "\n\n".join(text)


def experiments(result: Result) -> str:
    """One table per data set: settings that were compared with the defaults."""
    head = ("settings", "RMSE", "NLPD", "inside 50, 80, 95%", "fit", "of that choosing", "predict")
    text = ["Development rows, never those of split 0; `benchmarks/experiments.py`."]
    for name in dict.fromkeys(row["set"] for row in result["rows"]):
        here = [row for row in result["rows"] if row["set"] == name]
        body = [
            (
                row["variant"], f"{row['rmse']:.4f}", f"{row['nlpd']:.3f}",
                ", ".join(f"{100 * share:.1f}" for share in row["coverage"]), time_of(row["fit_seconds"]),
                f"{row['share_of_choosing']:.0%}", time_of(row["predict_seconds"]),
            )
            for row in here
        ]  # fmt: skip
        text.append(f"**{name}**, {here[0]['rows']:,} rows\n\n{table(head, body)}")
    return "\n\n".join(text)


PARTS: tuple[tuple[str, str, Callable[[Result], str]], ...] = (
    ("leaf_floor", "Leaf floor", leaf_floor),
    ("evidence_rate", "Evidence through the engine", evidence_rate),
    ("exact_gp", "Exact GP", exact_gp),
    ("scale", "Scale: the paper's timing figure", scale),
    ("end_to_end", "End to end", end_to_end),
    ("prediction", "Prediction", prediction),
    ("startup", "Start-up", startup),
    ("kin40k", "kin40k, 10,000 rows, defaults", lambda result: plain(result["rows"])),
    ("million", "A million robot arm rows, defaults", lambda result: plain([result["row"]])),
    ("out_of_core", "Files larger than memory", out_of_core),
    ("cluster", "Processes and clusters", cluster),
    ("leaf_size", "Leaf size and sharing", leaf_size),
    ("accuracy", "Accuracy against peers, defaults", accuracy),
    ("experiments", "Better experts: what was tried", experiments),
    ("ideas", "Shared inducing points, conditional evidence, Student-t rows", ideas),
    ("choices", "Choices", choices),
    ("progress", "Progress on a terminal", progress),
)


BARS = ("part", "what", "measured", "bar", "")


def bars_table(results: dict[str, Result]) -> str:
    return table(BARS, [line for name, *_ in PARTS if name in results for line in bar_lines(name, results[name])])


def bar_lines(name: str, result: Result) -> list[tuple[str, ...]]:
    title = next(title for part, title, _ in PARTS if part == name)
    return [
        (title, b["what"], f"{b['measured']:.4g}", b["bar"], "met" if b["met"] else "**missed**")
        for b in result.get("bars", [])
    ]


def page(results: dict[str, Result]) -> str:
    text = [
        "# Benchmarks",
        "Written by `benchmarks/render.py` from measurements of `make bench` or `make bench-full`; do not edit. "
        "Times are medians of repeats; every speed is a ratio to something measured in the same run.",
    ]
    origins = list(dict.fromkeys(origin(r) for r in results.values()))
    text += ["## Machine", "\n".join(f"- {line}" for line in origins), "## Bars", bars_table(results)]
    for name, title, section in PARTS:
        text.append(f"## {title}")
        if name not in results:
            text.append(f"Not run (`python benchmarks/{name}.py`).")
            continue
        text += [measured(results[name]), section(results[name])]
    return "\n\n".join(text) + "\n"


def measured(result: Result) -> str:
    """Date and commit; where peers were measured at other commits, those of ours."""
    rows = result.get("rows", [])
    ours = [row for row in rows if row.get("who") == OURS] if isinstance(rows, list) else []
    stamps = dict.fromkeys(f"{each['date']}, commit {each['commit']}" for each in ours or [result["machine"]])
    return f"Measured {'; '.join(stamps)}."


def with_part(text: str, name: str, result: Result) -> str:
    """The page with one section, and its lines among the bars, written anew."""
    title, section = next((title, section) for part, title, section in PARTS if part == name)
    content = f"## {title}\n\n{measured(result)} {origin(result)}.\n\n{section(result)}\n\n"
    text = re.sub(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", lambda _: content, text, flags=re.S | re.M)
    new = "".join(f"| {' | '.join(line)} |\n" for line in bar_lines(name, result))
    old = rf"(?:^\| {re.escape(title)} \|.*\n)+"
    return re.sub(old, lambda _: new, text, flags=re.M).rstrip("\n") + "\n"


def read(folder: Path) -> dict[str, Result]:
    files = {name: folder / f"{name}.json" for name, *_ in PARTS}
    return {name: json.loads(path.read_text()) for name, path in files.items() if path.exists()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--only", nargs="*", choices=[name for name, *_ in PARTS], help="parts to write anew")
    only, results = parser.parse_args().only, read(RESULTS)
    if not results or not set(only or ()) <= set(results):
        print("nothing to render: run a benchmark first", flush=True)
        return 1
    DOCS.mkdir(exist_ok=True)
    path = DOCS / "benchmarks.md"
    if only:
        text = path.read_text()
        for name in only:
            text = with_part(text, name, results[name])
        path.write_text(text)
    else:
        path.write_text(page(results))
    if (not only or "accuracy" in only) and accuracy_page.write():
        print("[render] docs/accuracy.md", flush=True)
    if only:
        return 0
    missing = [name for name, *_ in PARTS if name not in results]
    print(f"[render] docs/benchmarks.md; not run: {', '.join(missing) or 'none'}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
