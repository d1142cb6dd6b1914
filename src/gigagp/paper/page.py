"""Pages of docs/paper: Markdown with tables, written atomically."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gigagp.data.folders import writing_file
from gigagp.paper.record import Record


@dataclass(frozen=True)
class Paths:
    """Paths of the page of an experiment and of its pictures. A quick run has its own file names."""

    folder: Path
    name: str
    quick: bool = False

    @property
    def stem(self) -> str:
        return f"{self.name}_quick" if self.quick else self.name

    @property
    def page(self) -> Path:
        return self.folder / f"{self.stem}.md"

    @property
    def steps(self) -> Path:
        """The folder of the recorded steps."""
        return self.folder / ".steps" / self.stem

    def picture(self, which: str = "") -> Path:
        return self.folder / f"{self.stem}{'_' if which else ''}{which}.png"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table: the first column is left-aligned, the others right-aligned."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float | None, digits: int = 3) -> str:
    """A number with `digits` decimals, in exponential notation if very small or large; a dash for None."""
    if value is None:
        return "-"
    if value != 0 and not 10.0**-digits <= abs(value) < 1e6:
        return f"{value:.2g}"
    return f"{value:.{digits}f}"


def write(paths: Paths, title: str, parts: Iterable[str], record: Record, seeds: str) -> None:
    """Write the page, with the origin of its figures; the file appears only when it is complete."""
    form = " --quick" if paths.quick else ""
    origin = (
        f"Made by `gigagp reproduce {paths.name}{form}` ({record.seconds / 60:.1f} minutes in all): {record.origin}; "
        f"{seeds}."
    )
    subset = ["A quick run on part of the data: it shows that the experiment runs, not the results of the paper."]
    text = "\n\n".join([f"# {title}", *(subset if paths.quick else []), *parts, origin]) + "\n"
    with writing_file(paths.page) as file:
        file.write(text.encode())
