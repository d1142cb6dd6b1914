"""docs/benchmarks.md, docs/accuracy.md, the tables of docs/choosing.md and figures, from results/*.json alone."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from measure import HERE, RESULTS

DOCS = HERE.parent / "docs"
FIGURES = DOCS / "benchmarks"
COLOURS = ("#1f5fa8", "#d1602a", "#3a8f4c", "#8450a0", "#7d7d7d")
QUIET = 0.5  # load of a machine that does nothing else
Found = dict[str, Any]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def figure(name: str, draw: Callable[[Axes], None], title: str, size: tuple[float, float] = (6.4, 4.2)) -> str:
    """Draws and saves a figure; returns the line that shows it on the page."""
    with plt.rc_context({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10}):
        shown, axes = plt.subplots(figsize=size, layout="constrained")
        axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        draw(axes)
        axes.set_title(title, fontsize=11, loc="left")
        FIGURES.mkdir(parents=True, exist_ok=True)
        shown.savefig(FIGURES / f"{name}.png", dpi=140)
        plt.close(shown)
    return f"![{title}](benchmarks/{name}.png)"


def powers_of_two(axes: Axes, sizes: Iterable[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(set(sizes)), minor=False)
    axes.minorticks_off()


def time_of(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{1e6 * seconds:.0f} us"
    if seconds < 1:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:,.0f} s"


def leaf_floor(found: Found) -> str:
    rows = found["rows"]

    def draw(axes: Axes) -> None:
        for colour, dtype in zip(COLOURS, ("float64", "float32"), strict=False):
            for style, workers in (("-o", 2), ("--s", 1)):
                line = [r for r in rows if r["dtype"] == dtype and r["workers"] == workers]
                label = f"{dtype}, {'two workers' if workers == 2 else 'one worker'}"
                axes.plot([r["p"] for r in line], [100 * r["share"] for r in line], style, color=colour, label=label,
                          markersize=5)  # fmt: skip
        wanted = ((128, 30), (256, 45), (512, 60), (1024, 75))
        axes.plot(*zip(*wanted, strict=True), "k_", markersize=16, markeredgewidth=2, label="bar, float64, two workers")
        powers_of_two(axes, [r["p"] for r in rows])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda p, _: f"{p:.0f}"))
        axes.set_ylim(0, 100)
        axes.set_xlabel("points in a leaf, p")
        axes.set_ylabel("% of GEMM's rate (floor: p³ flops)")
        axes.legend(frameon=False, fontsize=9)

    drawn = figure("leaf_floor", draw, "Evidence + gradient of a leaf, as a share of GEMM's rate")
    head = ("p", "precision", "workers", "time a leaf", "share of GEMM")
    body = [
        (str(r["p"]), r["dtype"], str(r["workers"]), time_of(r["seconds"]), f"{r['share']:.0%}") for r in rows
    ]  # fmt: skip
    return f"{drawn}\n\n{table(head, body)}"


def exact_gp(found: Found) -> str:
    rows = found["rows"]
    who = list(dict.fromkeys(r["who"] for r in rows if r["who"] != "GigaGP"))

    def draw(axes: Axes) -> None:
        for colour, name in zip(COLOURS[1:], who, strict=False):
            line = [r for r in rows if r["who"] == name]
            spread = [[r["ratio"] - r["ratio_low"] for r in line], [r["ratio_high"] - r["ratio"] for r in line]]
            axes.errorbar([r["n"] for r in line], [r["ratio"] for r in line], spread, fmt="-o", color=colour, capsize=3,
                          label=name, markersize=5)  # fmt: skip
        axes.axhline(1, color="black", linewidth=1)
        axes.annotate("GigaGP", (1, 1), xycoords=("axes fraction", "data"), xytext=(-4, 4),
                      textcoords="offset points", ha="right", fontsize=9)  # fmt: skip
        powers_of_two(axes, [r["n"] for r in rows])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("points, n")
        axes.set_ylabel("times the time of one expert")
        axes.legend(frameon=False, fontsize=9)

    drawn = figure("exact_gp", draw, "LML + gradient of an exact GP, D = 8: time over ours")
    head = ("n", "who", "time", "times ours (quartiles)")
    body = [
        (f"{r['n']:,}", r["who"], time_of(r["seconds"]),
         "1" if r["who"] == "GigaGP" else f"{r['ratio']:.1f} ({r['ratio_low']:.1f} to {r['ratio_high']:.1f})")
        for r in rows
    ]  # fmt: skip
    return f"Everyone on every core, but where it says one thread.\n\n{drawn}\n\n{table(head, body)}"


SERIES = (
    ("scheme", "GigaGP, the paper's leaves (512, then 128)", "-o"),
    ("leaves_of_128", "GigaGP, leaves of 128", "--s"),
    ("full", "full GP", "-^"),
    ("fitc", "FITC, 10% inducing", "-v"),
)


def scale(found: Found) -> str:
    def draw_of(key: str, what: str) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            for colour, (series, label, style) in zip(COLOURS, SERIES, strict=False):
                line = found[series]
                if line:
                    axes.plot([r["n"] for r in line], [r[key] for r in line], style, color=colour, label=label,
                              markersize=5)  # fmt: skip
            axes.set_yscale("log")
            axes.set_xscale("log", base=2)
            axes.set_xlabel("points, N")
            axes.set_ylabel(what)
            if key == "seconds":
                axes.yaxis.set_major_formatter(FuncFormatter(lambda s, _: f"{s:g}"))
            else:
                highest = max(r[key] for series, *_ in SERIES for r in found[series])
                ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if t < 2.5 * highest]
                axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
                axes.minorticks_off()
            right = axes.twinx()
            right.spines["right"].set_visible(True)
            line = found["scheme"]
            right.plot(
                [r["n"] for r in line], [r["leaves"] for r in line], ":", color="#999999", label="leaves (right)"
            )
            right.set_yscale("log", base=2)
            right.set_ylabel("leaves in the paper's scheme", color="#777777")
            right.tick_params(colors="#777777")
            handles, labels = axes.get_legend_handles_labels()
            more, named = right.get_legend_handles_labels()
            axes.legend(handles + more, labels + named, frameon=False, fontsize=9, ncols=2, loc="upper center",
                        bbox_to_anchor=(0.5, -0.14))  # fmt: skip

        return draw

    times = figure("scale_time", draw_of("seconds", "seconds"), "LML + gradient, three-level tree, D = 8: time")
    memory = figure("scale_memory", draw_of("gb", "GB at the peak"), "LML + gradient, D = 8: memory of the process")
    head = ("N", "who", "leaves", "time (quartiles)", "peak GB", "share of DGEMM")
    body = [
        (f"2^{r['n'].bit_length() - 1}", label, f"{r['leaves']:,}" if r["what"] == "tree" else "",
         f"{time_of(r['seconds'])} ({time_of(r['low'])} to {time_of(r['high'])})", f"{r['gb']:.2f}",
         "" if r["share"] is None else f"{r['share']:.0%}")
        for series, label, _ in SERIES
        for r in found[series]
    ]  # fmt: skip
    words = (
        f"Exponent of time in N over {found['exponent_span']}: {found['exponent']:.3f} with leaves of 128 throughout, "
        f"{found['exponent_of_scheme']:.3f} in the paper's scheme, whose leaves shrink above 2^20."
    )
    return f"{words}\n\n{times}\n\n{memory}\n\n{table(head, body)}"


def end_to_end(found: Found) -> str:
    sizes = list(dict.fromkeys(r["n"] for r in found["rows"]))
    shown = []
    names = list(dict.fromkeys(r["who"] for r in found["rows"]))
    for n in sizes:
        here = [r for r in found["rows"] if r["n"] == n]

        def draw(axes: Axes, here: list[Found] = here) -> None:
            for row in here:
                colour = COLOURS[names.index(row["who"])]
                if row["trace"]:
                    axes.plot([t["seconds"] for t in row["trace"]], [t["nlpd"] for t in row["trace"]], color=colour,
                              label=f"{row['who']}, as it trains")  # fmt: skip
                elif "nlpd" in row:
                    axes.plot(row["seconds"], row["nlpd"], "o", color=colour, markersize=8, label=row["who"])
            axes.set_xscale("log")
            low, high = axes.get_xlim()
            ticks = [t * 10**e for e in range(-2, 4) for t in (1, 2, 5) if low <= t * 10**e <= high]
            axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
            axes.minorticks_off()
            axes.set_xlabel("seconds (fit and predict; of SVGP, fit)")
            axes.set_ylabel("NLPD on held-out rows")
            axes.legend(frameon=False, fontsize=9)

        title = f"Robot arm, {n:,} rows: NLPD against time"
        shown.append(figure(f"end_to_end_{n}", draw, title))
    head = ("rows", "who", "fit", "predict", "RMSE", "NLPD", "95% coverage", "peak GB")
    body = [
        (f"{r['n']:,}", r["who"], time_of(r["fit_seconds"]), time_of(r["predict_seconds"]), f"{r['rmse']:.4f}",
         f"{r['nlpd']:.3f}", f"{r['coverage95']:.1%}", f"{r['gb']:.1f}")
        if "nlpd" in r
        else (f"{r['n']:,}", r["who"], str(r["error"]), "", "", "", "", "")
        for r in found["rows"]
    ]  # fmt: skip
    versus = table(
        ("rows", "SVGP's NLPD when our time is up", "reaches our NLPD", "times our time", "its best NLPD"),
        [
            (f"{v['n']:,}", "nothing yet" if v["nlpd_at_our_time"] is None else f"{v['nlpd_at_our_time']:.3f}",
             f"after {v['seconds']:.0f} s" if v["reached"] else f"not in {v['seconds']:.0f} s",
             f"{v['ratio']:.1f}" if v["reached"] else f"more than {v['ratio']:.1f}", f"{v['best_nlpd']:.3f}")
            for v in found["against_svgp"]
        ],
    )  # fmt: skip
    words = "RMSE and NLPD are in units of the target's deviation, on 10,000 held-out rows."
    return "\n\n".join([words, *shown, table(head, body), versus])


def prediction(found: Found) -> str:
    rows = found["rows"]
    kinds = [q["what"] for q in rows[0]["queries"]]

    def of(row: Found, what: str) -> Found:
        return next(q for q in row["queries"] if q["what"] == what)

    def draw(axes: Axes) -> None:
        for i, what in enumerate(kinds):
            line = [of(r, what) for r in rows]
            axes.plot([r["n"] for r in rows], [1e3 * q["seconds"] for q in line], "-o" if i % 2 == 0 else "--s",
                      color=COLOURS[i // 2], label=what, markersize=5)  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda s, _: f"{s:g}"))
        axes.set_xlabel("training rows, N")
        axes.set_ylabel("milliseconds a query")
        axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))

    drawn = figure("prediction", draw, "Cost of a query, local experts, defaults", (7.6, 4.2))
    head = ("N", "queries", "time a query (quartiles)", "queries a second")
    body = [
        (f"{r['n']:,}", q["what"], f"{time_of(q['seconds'])} ({time_of(q['low'])} to {time_of(q['high'])})",
         f"{1 / q['seconds']:,.0f}")
        for r in rows
        for q in r["queries"]
    ]  # fmt: skip
    memory = table(
        ("N", "experts", "fit", "peak GB after the fit", "peak GB after many queries"),
        [
            (f"{r['n']:,}", f"{r['leaves']:,}", time_of(r["fit_seconds"]), f"{r['gb_fit']:.2f}", f"{r['gb']:.2f}")
            for r in rows
        ],
    )
    ratios = table(
        (f"cost in flops of DGEMM, {found['span']}", "ratio"),
        [(what, f"{r:.2f}") for what, r in found["ratios"].items()],
    )
    words = (
        "Few: at most 64 queries, eight at a time, no two answered by the same expert; warm: the same again at once. "
        "Many: 20,000 in one call (2,000 of 1e7 rows); they share factors, the more the fewer experts there are."
    )
    return "\n\n".join([words, drawn, table(head, body), ratios, memory])


def startup(found: Found) -> str:
    imported, fit = found["import"], found["fit"]
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


def evidence_rate(found: Found) -> str:
    return f"65,536 points, leaves of 512, two workers: {time_of(found['seconds'])}."


def out_of_core(found: Found) -> str:
    head = ("rows", "fit", "predict to a file", "queries", "peak GB", "disk over the rows' size", "RMSE", "NLPD")
    body = [
        (f"{r['rows']:,}", time_of(r["fit_seconds"]), time_of(r["predict_seconds"]), f"{r['queries']:,}",
         f"{r['peak_gb']:.2f}", f"{r['disk_gb'] / r['rows_gb']:.2f}", f"{r['rmse']:.4f}", f"{r['nlpd']:.3f}")
        for r in found["rows"]
    ]  # fmt: skip
    words = f"Parquet in, Parquet out, float32, with memory={found['memory']!r}. A disk share of 0: it all fitted."
    return f"{words}\n\n{table(head, body)}"


def cluster(found: Found) -> str:
    steps = table(
        ("engine", "workers", "step (quartiles)", "leaves alone", "overhead (quartiles)", "first step"),
        [
            (r["engine"], str(r["workers"]), f"{time_of(r['seconds'])} ({time_of(r['low'])} to {time_of(r['high'])})",
             time_of(r["own_seconds"] / r["workers"]),
             f"{r['overhead']:.1%} ({r['overhead_low']:.1%} to {r['overhead_high']:.1%})", time_of(r["first_step"]))
            for r in found["steps"]
        ],
    )  # fmt: skip
    empty = table(
        ("shards", "tasks", "step (quartiles)", "processor: client and scheduler", "processor: workers"),
        [
            (str(r["shards"]), str(r["tasks"]),
             f"{time_of(r['seconds'])} ({time_of(r['low'])} to {time_of(r['high'])})", time_of(r["cpu_here"]),
             time_of(r["cpu_workers"]))
            for r in found["empty"]
        ],
    )  # fmt: skip
    sent = found["traffic"]
    words = (
        f"Training steps of {found['rows']:,} rows, leaves of {found['leaf']}, one thread a worker. Leaves alone: what "
        "they took inside the workers, divided by the workers. The first step starts workers and loads shards."
    )
    traffic = (
        f"Bytes over TCP a step, {sent['rows']:,} rows, two Dask workers: {sent['net_bytes']:,.0f}, and "
        f"{sent['idle_bytes']:,.0f} that an idle cluster sends in that time; with the first step, which loads the "
        f"shards, {sent['first_bytes']:,}. Rows are read from files, not sent."
    )
    more = "Steps with nothing to do, two Dask workers. [Scaling](scaling.md) builds on them."
    return "\n\n".join([words, steps, traffic, more, empty])


def leaf_size(found: Found) -> str:
    head = ("data", "leaf size", "sharing", "fit", "predict", "RMSE", "NLPD", "time over the default's")
    body = [
        (r["data"], str(r["leaf"] or "default"), str(r["sharing"] or "default"), time_of(r["fit"]),
         time_of(r["predict"]), f"{r['rmse']:.4f}", f"{r['nlpd']:.3f}", f"{r['times']:.2f}")
        for r in found["rows"]
    ]  # fmt: skip
    return "On held-out training rows: what the defaults were chosen from.\n\n" + table(head, body)


def choices(found: Found) -> str:
    """The tables go into the page that gives the advice; here is only where they are."""
    write_choices(found)
    return "What each choice costs and brings: [how to choose](choosing.md)."


def write_choices(found: Found) -> None:
    """Fill in what stands between `<!-- choices: name -->` and `<!-- /choices -->` in docs/choosing.md."""
    page = DOCS / "choosing.md"
    tables = {section: choices_table(found, section) for section in dict.fromkeys(r["section"] for r in found["rows"])}
    tables["machine"] = f"Measured {found['machine']['date']}, commit {found['machine']['commit']}: {origin(found)}."
    if found["load"] > QUIET:
        tables["machine"] += (
            f" **The machine was busy then (load {found['load']:.1f}). RMSE, NLPD and coverage do not depend "
            "on that; seconds are not to be relied on.**"
        )

    def filled(match: re.Match[str]) -> str:
        return f"<!-- choices: {match[1]} -->\n\n{tables[match[1]]}\n\n<!-- /choices -->"

    page.write_text(re.sub(r"<!-- choices: ([a-z ]+) -->\n.*?<!-- /choices -->", filled, page.read_text(), flags=re.S))


def choices_table(found: Found, section: str) -> str:
    head = ("data", "choice", "fit", "predict", "RMSE", "NLPD", "95% intervals cover")
    body = [
        (f"{r['data']}, {r['rows']:,} rows", r["choice"], time_of(r["fit"]), time_of(r["predict"]), f"{r['rmse']:.4f}",
         f"{r['nlpd']:.3f}", f"{r['coverage95']:.1%}")
        for r in found["rows"]
        if r["section"] == section
    ]  # fmt: skip
    return table(head, body)


def progress(found: Found) -> str:
    ratio = found["ratio"]
    return (
        f"A fit of {found['rows']:,} rows, all experts at every step: {time_of(found['shown'])} with its progress on a "
        f"terminal, {time_of(found['silent'])} without; {ratio['median']:.3f} times as long (quartiles "
        f"{ratio['low']:.3f} to {ratio['high']:.3f} of {ratio['repeats']} pairs)."
    )


def plain(rows: list[Found]) -> str:
    return table(list(rows[0]), [[f"{v:.4g}" for v in r.values()] for r in rows])


def accuracy(found: Found) -> str:
    """Who wins how often; the tables are a page of their own."""
    from accuracy_page import tally_table  # noqa: PLC0415 it uses what is defined here

    words = "Ours against each peer, split 0: on how many data sets it wins, ties and loses. [All of it](accuracy.md)."
    return f"{words}\n\n{tally_table(found['versus'])}"


def ideas(found: Found) -> str:
    """A table a data set: what was tried, and what it gains on the first row of its idea."""
    head = ("idea", "variant", "RMSE", "NLPD", "NLPD, scaled", "gain", "inside 95%", "fit", "predict", "queries")
    text = ["Development rows, never those of split 0; `benchmarks/ideas.py`."]
    for name in dict.fromkeys(row["set"] for row in found["rows"]):
        here = [row for row in found["rows"] if row["set"] == name]
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


def experiments(found: Found) -> str:
    """A table a data set: what was tried against the defaults."""
    head = ("settings", "RMSE", "NLPD", "inside 50, 80, 95%", "fit", "of that choosing", "predict")
    text = ["Development rows, never those of split 0; `benchmarks/experiments.py`."]
    for name in dict.fromkeys(row["set"] for row in found["rows"]):
        here = [row for row in found["rows"] if row["set"] == name]
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


PARTS: tuple[tuple[str, str, Callable[[Found], str]], ...] = (
    ("leaf_floor", "Leaf floor", leaf_floor),
    ("evidence_rate", "Evidence through the engine", evidence_rate),
    ("exact_gp", "Exact GP", exact_gp),
    ("scale", "Scale: the paper's timing figure", scale),
    ("end_to_end", "End to end", end_to_end),
    ("prediction", "Prediction", prediction),
    ("startup", "Start-up", startup),
    ("kin40k", "kin40k, 10,000 rows, defaults", lambda found: plain(found["rows"])),
    ("million", "A million robot arm rows, defaults", lambda found: plain([found["row"]])),
    ("out_of_core", "Files larger than memory", out_of_core),
    ("cluster", "Processes and clusters", cluster),
    ("leaf_size", "Leaf size and sharing", leaf_size),
    ("accuracy", "Accuracy against peers, defaults", accuracy),
    ("experiments", "Better experts: what was tried", experiments),
    ("ideas", "Shared inducing points, conditional evidence, Student-t rows", ideas),
    ("choices", "Choices", choices),
    ("progress", "Progress on a terminal", progress),
)


def bars_table(results: dict[str, Found]) -> str:
    head = ("part", "what", "measured", "bar", "")
    body = [
        (title, b["what"], f"{b['measured']:.4g}", b["bar"], "met" if b["met"] else "**missed**")
        for name, title, _ in PARTS
        for b in results.get(name, {}).get("bars", [])
    ]
    return table(head, body)


def origin(result: Found) -> str:
    m = result["machine"]
    return f"{m['cpu']}, {m['cores']} cores, {m['memory_gb']:g} GB; Python {m['python']}, NumPy {m['numpy']}"


def page(results: dict[str, Found]) -> str:
    text = [
        "# Benchmarks",
        "Written by `benchmarks/render.py` from what `make bench` or `make bench-full` measured; do not edit. "
        "Times are medians of repeats; every speed is a ratio to something measured in the same run.",
    ]
    origins = list(dict.fromkeys(origin(r) for r in results.values()))
    text += ["## Machine", "\n".join(f"- {line}" for line in origins), "## Bars", bars_table(results)]
    for name, title, section in PARTS:
        text.append(f"## {title}")
        if name not in results:
            text.append(f"Not run (`python benchmarks/{name}.py`).")
            continue
        machine = results[name]["machine"]
        text.append(f"Measured {machine['date']}, commit {machine['commit']}.")
        text.append(section(results[name]))
    return "\n\n".join(text) + "\n"


def read(folder: Path) -> dict[str, Found]:
    files = {name: folder / f"{name}.json" for name, *_ in PARTS}
    return {name: json.loads(path.read_text()) for name, path in files.items() if path.exists()}


def main() -> int:
    import accuracy_page  # noqa: PLC0415 it draws with what is defined here

    results = read(RESULTS)
    if not results:
        print("nothing to render: run a benchmark first", flush=True)
        return 1
    DOCS.mkdir(exist_ok=True)
    (DOCS / "benchmarks.md").write_text(page(results))
    if accuracy_page.write():
        print("[render] docs/accuracy.md", flush=True)
    missing = [name for name, *_ in PARTS if name not in results]
    print(f"[render] docs/benchmarks.md; not run: {', '.join(missing) or 'none'}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
