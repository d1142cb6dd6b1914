"""The tables of docs/choosing.md, from results/choices.json and from nothing else."""

from __future__ import annotations

import json
import re
import sys

from measure import RESULTS
from page_parts import DOCS, Result, origin, table, time_of

QUIET_LOAD = 0.5  # load average up to which times are shown: other work makes them meaningless


def write_tables(result: Result) -> None:
    """Fill in what stands between `<!-- choices: name -->` and `<!-- /choices -->` in docs/choosing.md."""
    page = DOCS / "choosing.md"
    tables = {name: section_table(result, name) for name in dict.fromkeys(r["section"] for r in result["rows"])}
    tables["machine"] = origin_of(result)

    def filled(match: re.Match[str]) -> str:
        if match[1] not in tables:  # a section that was not measured stays as it is
            return match[0]
        return f"<!-- choices: {match[1]} -->\n\n{tables[match[1]]}\n\n<!-- /choices -->"

    page.write_text(re.sub(r"<!-- choices: ([a-z ]+) -->\n.*?<!-- /choices -->", filled, page.read_text(), flags=re.S))


def origin_of(result: Result) -> str:
    """What an entry of a table is, data sets, date and machine."""
    sizes = {row["data"]: row["rows"] for row in result["rows"]}
    rows = ", ".join(f"{name} ({n:,})" for name, n in sizes.items())
    commits = ", ".join(dict.fromkeys(row["commit"] for row in result["rows"]))
    text = (
        "An entry of a table consists of RMSE, NLPD (both in units of the target's standard deviation; smaller is "
        "better), the coverage of 95% intervals and, if the machine did no other work, the times of fit and "
        "prediction. A section without a table was not measured. "
    )
    text += f"Training rows: {rows}. Measured {result['machine']['date']}, commit {commits}: {origin(result)}."
    if result["load"] > QUIET_LOAD:
        text += f" The machine was busy with other work (load {result['load']:.1f}), so no times are shown."
    return text


def section_table(result: Result, section: str) -> str:
    """One row per setting, one column per data set."""
    rows = [row for row in result["rows"] if row["section"] == section]
    names = list(dict.fromkeys(row["data"] for row in rows))
    quiet = result["load"] <= QUIET_LOAD
    body = []
    for choice in dict.fromkeys(row["choice"] for row in rows):
        by_name = {row["data"]: row for row in rows if row["choice"] == choice}
        body.append((choice, *(scores(by_name[name], quiet) if name in by_name else "" for name in names)))
    return table(("setting", *names), body)


def scores(row: Result, with_times: bool) -> str:
    """RMSE, NLPD, coverage of 95% intervals and, if wanted, the times of fit and prediction."""
    values = [f"{row['rmse']:.4f}", f"{row['nlpd']:.3f}", f"{row['coverage95']:.1%}"]
    if with_times:
        values.append(f"{time_of(row['fit'])} + {time_of(row['predict'])}")
    return ", ".join(values)


def write() -> bool:
    """Write the tables if the choices have been measured."""
    path = RESULTS / "choices.json"
    if path.exists():
        write_tables(json.loads(path.read_text()))
    return path.exists()


if __name__ == "__main__":
    sys.exit(0 if write() else "nothing to render: run choices.py first")
