"""Writes docs/prediction.md from the results of neighbourhood.py, file_to_file.py, prediction_scale.py and accuracy.py.

A section whose results are not here stays as it is.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from measure import HERE, RESULTS
from page_parts import origin, table, time_of

LEVELS = ("0.5", "0.8", "0.95")  # of intervals
PAGE = HERE.parent / "docs" / "prediction.md"
HEAD = """# Prediction from neighbours, measured

Written by `benchmarks/prediction_page.py`; do not edit. Version 0.2, defaults; the comparison with peers has
[its own page](accuracy.md)."""


def read(name: str) -> dict[str, Any] | None:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def stamp(result: dict[str, Any]) -> str:
    machine = result["machine"]
    return f"Measured {machine['date']}, commit {machine['commit']}: {origin(result)}."


def cost(result: dict[str, Any]) -> str:
    head = (
        "training rows", "with variance", "mean only", "exact search", "share of the nearest rows found",
        "shift of the mean in standard deviations", "one row", "share of choosing in a default fit",
    )  # fmt: skip
    body = [
        (
            f"{r['rows']:,}", time_of(r["with_variance"]["median"]), time_of(r["mean_only"]["median"]),
            time_of(r["exact"]), f"{r['recall']:.2%}", f"{r['shift']:.4f}", time_of(r["one_row"]["median"]),
            f"{r['choosing']:.0%} of {time_of(r['default_fit'])}",
        )
        for r in result["rows"]
    ]  # fmt: skip
    lines = [f"- {b['what']}: {b['measured']:.4g} (bar {b['bar']}): {_met(b)}" for b in result["bars"]]
    words = (
        "Robot arm, 8 columns, 64 neighbours, two threads, 20,000 scattered queries; times are per query. The default "
        "search compares 64 rows per neighbour; an exact search continues until no nearer row can exist."
    )
    return "\n\n".join(["## Cost of a query", stamp(result), words, table(head, body), "\n".join(lines)])


def _met(b: dict[str, Any]) -> str:
    return "met" if b["met"] else "**missed**"


def file_to_file(result: dict[str, Any]) -> str:
    words = (
        f"{result['queries']:,} queries against {result['rows']:,} rows of the robot arm, both in Parquet files, "
        f'`dtype="float32"`, `memory="{result["memory"]}"`: the fit takes {time_of(result["fit"])}, the predictions '
        f"(mean and standard deviation) {time_of(result['predict'])}, that is "
        f"{time_of(result['predict'] / result['queries'])} per query. The process occupies at most "
        f"{result['gb']:.2f} GB, with the interpreter and its libraries. RMSE {result['rmse']:.4f} of the target's "
        f"standard deviation; 95% intervals cover {result['coverage']:.1%}."
    )
    lines = [f"- {b['what']}: {b['measured']:.4g} (bar {b['bar']}): {_met(b)}" for b in result["bars"]]
    return "\n\n".join(["## From file to file", stamp(result), words, *(["\n".join(lines)] if lines else [])])


def at_scale(result: dict[str, Any]) -> str:
    """Queries and rows in equal numbers and, where they were measured, one and two workers."""
    per_query = result["seconds"] / result["queries"]
    words = (
        f"{result['queries']:,} queries against {result['rows']:,} rows with three columns in float32, both in Parquet "
        f'files, by a saved model that is mapped, {result["neighbours"]} neighbours, `memory="{result["memory"]}"`, '
        f"{result['workers']} {result['engine']}, on a machine that was busy with other work: "
        f"{time_of(result['seconds'])}, that is {time_of(per_query)} per query (CPU time "
        f"{time_of(result['cpu_seconds'])}, so that two idle cores would take about "
        f"{time_of(result['cpu_seconds'] / 2)}). The disk read "
        f"{result['read_gb']:.2f} GB, and all processes together occupied at most {result['peak_gb']:.2f} GB. 95% "
        f"intervals cover {result['coverage_95']:.1%}. Extrapolated, not measured: 100,000,000 queries at the same "
        f"rate take {1e8 * per_query / 3600:.1f} hours; a query against ten times as many rows costs somewhat more "
        "(see above)."
    )
    compared = read("prediction_scale_compared")
    lines = [
        f"- {b['what']}: {b['measured']:.3g} (bar {b['bar']}): {_met(b)}; CPU time of one over that of two "
        f"{b['cpu_ratio']:.2f}"
        for b in ({} if compared is None else compared["compared"]).values()
    ]
    if lines and compared is not None:
        lines.insert(0, f"Medians with {compared['queries']:,} queries and {compared['rows']:,} rows, in turn:\n")
    return "\n\n".join(["## Queries and rows at scale", stamp(result), words, *(["\n".join(lines)] if lines else [])])


def accuracy(result: dict[str, Any]) -> str:
    """Means over the splits that were measured."""
    head = (
        "data", "rows", "splits", "RMSE", "NLPD", "CRPS", "50, 80, 95% intervals cover", "largest error of coverage",
        "fit", "predict",
    )  # fmt: skip
    body = []
    rows = [row for row in result["rows"] if row["method"] == "ours" and "nlpd" in row]
    for name in dict.fromkeys(row["set"] for row in rows):
        here = [row for row in rows if row["set"] == name]

        def mean(key: str, here: list[dict[str, Any]] = here) -> float:
            return float(sum(row[key] for row in here) / len(here))

        covers = (sum(row["coverage"][level] for row in here) / len(here) for level in LEVELS)
        largest = max(abs(row["coverage"][level] - float(level)) for row in here for level in LEVELS)
        body.append((
            name, f"{here[0]['rows']:,}", str(len(here)), f"{mean('rmse'):.4f}", f"{mean('nlpd'):.3f}",
            f"{mean('crps'):.4f}", ", ".join(f"{100 * share:.1f}" for share in covers), f"{100 * largest:.1f} points",
            time_of(mean("fit_seconds")), time_of(mean("predict_seconds")),
        ))  # fmt: skip
    commits = ", ".join(dict.fromkeys(str(row["commit"]) for row in rows))
    words = (
        f"Commits {commits}, {rows[0]['date']}. Scores are means over splits, in units of the target's standard "
        "deviation; NLPD is that of the predictive distribution. The largest error of coverage is that of any level on "
        "any split. Times were taken on a machine that was busy with other work."
    )
    return "\n\n".join(["## Accuracy with defaults", words, table(head, body)])


def main() -> int:
    before = {text.split("\n")[0]: text for text in PAGE.read_text().rstrip("\n").split("\n\n## ")[1:]}
    parts = {
        "Cost of a query": (cost, read("neighbourhood")),
        "From file to file": (file_to_file, read("file_to_file")),
        "Queries and rows at scale": (at_scale, read("prediction_scale")),
        "Accuracy with defaults": (accuracy, read("accuracy")),
    }
    if not any(result for _, result in parts.values()):
        print("nothing to render: run neighbourhood.py, file_to_file.py or accuracy.py first", flush=True)
        return 1
    text = [HEAD]
    for heading, (section, result) in parts.items():
        if result is not None:
            text.append(section(result))
        elif heading in before:
            text.append(f"## {before[heading]}")
    PAGE.write_text("\n\n".join(text) + "\n")
    print("[prediction_page] docs/prediction.md", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
