"""The tables of docs/classification.md, from results/classification.json and from nothing else.

python benchmarks/classification.py --split 0
python benchmarks/classification_page.py
"""

from __future__ import annotations

import json
import re
import sys

from measure import RESULTS, judged
from page_parts import DOCS, Result, origin, table, time_of

LOSS_BARS = {"magic": 0.292, "digits": 0.060, "adult": 0.288, "airline": 0.450}
ECE_BARS = {"magic": 0.01, "adult": 0.01, "airline": 0.01}
AIRLINE_SECONDS = 60.0
OURS = "HGPClassifier"
MARKS = re.compile(r"(<!-- measured -->\n).*(<!-- /measured -->)", re.DOTALL)


def section(result: Result) -> list[str]:
    """Paragraphs: for each data set a table of the models, and the bars."""
    runs = result["runs"]
    text = [f"Split 0, {origin(result)}; the machine may have done other work meanwhile."]
    for name in dict.fromkeys(run["set"] for run in runs):
        own = [run for run in runs if run["set"] == name]
        text += [f"{name}: {own[0]['rows']:,} training rows, {own[0]['test rows']:,} test rows.", _models(own)]
    return [*text, _bars(runs)]


def _models(runs: list[Result]) -> str:
    head = ("model", "log loss", "AUC", "accuracy", "ECE (by chance)", "fit", "predict", "measured")
    body = []
    for run in sorted(runs, key=lambda run: run["model"] != OURS):
        few = "" if run["training rows"] == run["rows"] else f" ({run['training rows']:,} rows)"
        auc = "" if run["AUC"] is None else f"{run['AUC']:.4f}"
        body.append((
            run["model"] + few, f"{run['log loss']:.4f}", auc, f"{run['accuracy']:.4f}",
            f"{run['ECE']:.4f} ({run['chance']:.4f})", time_of(run["fit"]), time_of(run["predict"]),
            f"{run['date']}, {run['commit']}",
        ))  # fmt: skip
    return table(head, body)


def _bars(runs: list[Result]) -> str:
    """What the project has set itself as a goal, and whether it is met."""
    lines = []
    for run in (run for run in runs if run["model"] == OURS):
        name = run["set"]
        bars = [
            (f"{name}, log loss", run["log loss"], LOSS_BARS.get(name)),
            (f"{name}, ECE", run["ECE"], ECE_BARS.get(name)),
        ]
        if name == "airline":
            bars.append(("airline, seconds of fit and prediction", run["fit"] + run["predict"], AIRLINE_SECONDS))
        for what, value, bound in bars:
            if bound is not None:
                bar = judged(what, value, bound, at_least=False)
                lines.append(f"- {what}: {value:.4g} (bar {bar['bar']}): {'met' if bar['met'] else '**missed**'}")
    return "\n".join(lines)


def write() -> bool:
    """Write the tables into docs/classification.md if split 0 has been measured."""
    path, page = RESULTS / "classification.json", DOCS / "classification.md"
    if path.exists():
        text = "\n\n".join(section(json.loads(path.read_text())))
        page.write_text(MARKS.sub(lambda marks: f"{marks[1]}{text}\n{marks[2]}", page.read_text()))
    return path.exists()


if __name__ == "__main__":
    sys.exit(0 if write() else "nothing to render: run classification.py --split 0 first")
