"""The sections of docs/benchmarks.md that have figures."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from page_parts import COLOURS, Result, figure, powers_of_two, table, time_of


def leaf_floor(result: Result) -> str:
    rows = result["rows"]

    def draw(axes: Axes) -> None:
        for colour, dtype in zip(COLOURS, ("float64", "float32"), strict=False):
            for style, workers in (("-o", 2), ("--s", 1)):
                line = [r for r in rows if r["dtype"] == dtype and r["workers"] == workers]
                label = f"{dtype}, {'two workers' if workers == 2 else 'one worker'}"
                axes.plot([r["p"] for r in line], [100 * r["share"] for r in line], style, color=colour, label=label,
                          markersize=5)  # fmt: skip
        bars = ((128, 30), (256, 45), (512, 60), (1024, 75))
        axes.plot(*zip(*bars, strict=True), "k_", markersize=16, markeredgewidth=2, label="bar, float64, two workers")
        powers_of_two(axes, [r["p"] for r in rows])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda p, _: f"{p:.0f}"))
        axes.set_ylim(0, 100)
        axes.set_xlabel("points in a leaf, p")
        axes.set_ylabel("% of GEMM's rate (floor: p³ flops)")
        axes.legend(frameon=False, fontsize=9)

    picture = figure("leaf_floor", draw, "Evidence + gradient of a leaf, as a share of GEMM's rate")
    head = ("p", "precision", "workers", "time per leaf", "share of GEMM")
    body = [
        (str(r["p"]), r["dtype"], str(r["workers"]), time_of(r["seconds"]), f"{r['share']:.0%}") for r in rows
    ]  # fmt: skip
    return f"{picture}\n\n{table(head, body)}"


def exact_gp(result: Result) -> str:
    rows = result["rows"]
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
        axes.set_ylabel("time, as a multiple of GigaGP's")
        axes.legend(frameon=False, fontsize=9)

    picture = figure("exact_gp", draw, "LML + gradient of an exact GP, D = 8: time relative to GigaGP")
    head = ("n", "who", "time", "multiple of GigaGP's time (quartiles)")
    body = [
        (f"{r['n']:,}", r["who"], time_of(r["seconds"]),
         "1" if r["who"] == "GigaGP" else f"{r['ratio']:.1f} ({r['ratio_low']:.1f} to {r['ratio_high']:.1f})")
        for r in rows
    ]  # fmt: skip
    return f"Every method uses all cores unless the table says one thread.\n\n{picture}\n\n{table(head, body)}"


SERIES = (
    ("scheme", "GigaGP, the paper's leaves (512, then 128)", "-o"),
    ("leaves_of_128", "GigaGP, leaves of 128", "--s"),
    ("full", "full GP", "-^"),
    ("fitc", "FITC, 10% inducing", "-v"),
)


def scale(result: Result) -> str:
    def draw_of(key: str, what: str) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            for colour, (series, label, style) in zip(COLOURS, SERIES, strict=False):
                line = result[series]
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
                highest = max(r[key] for series, *_ in SERIES for r in result[series])
                ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if t < 2.5 * highest]
                axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
                axes.minorticks_off()
            right = axes.twinx()
            right.spines["right"].set_visible(True)
            line = result["scheme"]
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
        for r in result[series]
    ]  # fmt: skip
    words = (
        f"Exponent of time in N over {result['exponent_span']}: {result['exponent']:.3f} with leaves of 128, "
        f"{result['exponent_of_scheme']:.3f} in the paper's scheme, whose leaves shrink above 2^20."
    )
    return f"{words}\n\n{times}\n\n{memory}\n\n{table(head, body)}"


def end_to_end(result: Result) -> str:
    sizes = list(dict.fromkeys(r["n"] for r in result["rows"]))
    pictures = []
    names = list(dict.fromkeys(r["who"] for r in result["rows"]))
    for n in sizes:
        here = [r for r in result["rows"] if r["n"] == n]

        def draw(axes: Axes, here: list[Result] = here) -> None:
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
        pictures.append(figure(f"end_to_end_{n}", draw, title))
    head = ("rows", "who", "fit", "predict", "RMSE", "NLPD", "95% coverage", "peak GB")
    body = [
        (f"{r['n']:,}", r["who"], time_of(r["fit_seconds"]), time_of(r["predict_seconds"]), f"{r['rmse']:.4f}",
         f"{r['nlpd']:.3f}", f"{r['coverage95']:.1%}", f"{r['gb']:.1f}")
        if "nlpd" in r
        else (f"{r['n']:,}", r["who"], str(r["error"]), "", "", "", "", "")
        for r in result["rows"]
    ]  # fmt: skip
    versus = table(
        ("rows", "SVGP's NLPD when our time is up", "reaches our NLPD", "times our time", "its best NLPD"),
        [
            (f"{v['n']:,}", "nothing yet" if v["nlpd_at_our_time"] is None else f"{v['nlpd_at_our_time']:.3f}",
             f"after {v['seconds']:.0f} s" if v["reached"] else f"not in {v['seconds']:.0f} s",
             f"{v['ratio']:.1f}" if v["reached"] else f"more than {v['ratio']:.1f}", f"{v['best_nlpd']:.3f}")
            for v in result["against_svgp"]
        ],
    )  # fmt: skip
    words = "RMSE and NLPD are in units of the target's standard deviation, on 10,000 held-out rows."
    return "\n\n".join([words, *pictures, table(head, body), versus])


def prediction(result: Result) -> str:
    rows = result["rows"]
    kinds = [q["what"] for q in rows[0]["queries"]]

    def of(row: Result, what: str) -> Result:
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
        axes.set_ylabel("milliseconds per query")
        axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))

    picture = figure("prediction", draw, "Cost of a query, local experts, defaults", (7.6, 4.2))
    head = ("N", "queries", "time per query (quartiles)", "queries per second")
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
        (f"cost in flops of DGEMM, {result['span']}", "ratio"),
        [(what, f"{r:.2f}") for what, r in result["ratios"].items()],
    )
    words = (
        "Few: at most 64 queries, eight at a time, no two answered by the same expert. Cold: the first time; warm: the "
        "same queries again. Many: 20,000 queries in one call (2,000 for 1e7 rows), which share the factors of the "
        "experts."
    )
    return "\n\n".join([words, picture, table(head, body), ratios, memory])
