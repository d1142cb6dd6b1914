"""The tables of docs/classification.md, from results/classification.json.

python benchmarks/classification.py --split 0
python benchmarks/classification_page.py

Results are not part of the repository. Models of the present page that were not measured again stay on it, with their
dates and commits.
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
HEAD = re.compile(r"(\w+): ([\d,]+) training rows, ([\d,]+) test rows\.")
MODEL = re.compile(r"(.*?)(?: \(([\d,]+) rows\))?")
ERRORS = re.compile(r"([\d.]+) \(([\d.]+)\)")
MACHINE = re.compile(r"^- measured on (\S+): (.*)$", re.MULTILINE)
COLUMNS = 8  # of a table
MARKS = re.compile(r"(<!-- measured -->\n).*(<!-- /measured -->)", re.DOTALL)


def section(result: Result, page: str) -> list[str]:
    """Paragraphs: for each data set a table of the models, and the bars.

    page : with the tables of earlier measurements
    """
    runs = result["runs"]
    again = {(run["set"], run["model"]) for run in runs}
    runs = [run for run in earlier_runs(page) if (run["set"], run["model"]) not in again] + runs
    machines = {**dict(MACHINE.findall(page)), **{run["date"]: origin(result) for run in result["runs"]}}
    text = ["Split 0; the machine may have done other work meanwhile."]
    text.append("\n".join(f"- measured on {date}: {machines[date]}" for date in sorted(machines)))
    for name in dict.fromkeys(run["set"] for run in runs):
        own = [run for run in runs if run["set"] == name]
        text += [f"{name}: {own[0]['rows']:,} training rows, {own[0]['test rows']:,} test rows.", _models(own)]
    return [*text, _bars(runs)]


def earlier_runs(page: str) -> list[Result]:
    """The runs that a page shows, rounded as they are there."""
    runs, rows, name = [], (0, 0), ""
    for line in page.splitlines():
        if head := HEAD.fullmatch(line):
            name, rows = head[1], (int(head[2].replace(",", "")), int(head[3].replace(",", "")))
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if name and len(cells) == COLUMNS and (errors := ERRORS.fullmatch(cells[4])):
            model, few = MODEL.fullmatch(cells[0]).groups()  # type: ignore[union-attr]
            date, commit = cells[7].split(", ")
            runs.append({
                "set": name, "rows": rows[0], "test rows": rows[1], "model": model,
                "training rows": int(few.replace(",", "")) if few else rows[0], "log loss": float(cells[1]),
                "AUC": float(cells[2]) if cells[2] else None, "accuracy": float(cells[3]), "ECE": float(errors[1]),
                "chance": float(errors[2]), "fit": _seconds(cells[5]), "predict": _seconds(cells[6]), "date": date,
                "commit": commit,
            })  # fmt: skip
    return runs


def _seconds(text: str) -> float:
    """The inverse of `time_of`."""
    number, unit = text.split()
    return float(number.replace(",", "")) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]


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
        before = page.read_text()
        text = "\n\n".join(section(json.loads(path.read_text()), before))
        page.write_text(MARKS.sub(lambda marks: f"{marks[1]}{text}\n{marks[2]}", before))
    return path.exists()


if __name__ == "__main__":
    sys.exit(0 if write() else "nothing to render: run classification.py --split 0 first")
