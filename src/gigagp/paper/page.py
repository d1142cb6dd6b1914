"""Pages of docs/paper: Markdown with tables, made whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gigagp.data.folders import writing_file
from gigagp.paper.record import Record


@dataclass(frozen=True)
class Paths:
    """Where the page of an experiment and its pictures go. A quick form has names of its own, and no page is lost."""

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
        """The folder of what has been found so far."""
        return self.folder / ".steps" / self.stem

    def picture(self, which: str = "") -> Path:
        return self.folder / f"{self.stem}{'_' if which else ''}{which}.png"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The first column to the left, all others to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float | None, digits: int = 3) -> str:
    """With so many digits after the point; a dash for what is not known; very small and very large ones with an e."""
    if value is None:
        return "-"
    if value != 0 and not 10.0**-digits <= abs(value) < 1e6:
        return f"{value:.2g}"
    return f"{value:.{digits}f}"


def write(paths: Paths, title: str, parts: Iterable[str], record: Record, seeds: str) -> None:
    """The page, with where its figures come from; it is there when it is whole."""
    form = " --quick" if paths.quick else ""
    origin = (
        f"Made by `gigagp reproduce {paths.name}{form}` ({record.seconds / 60:.1f} minutes in all): {record.origin}; "
        f"{seeds}."
    )
    subset = ["The quick form, on a part of the data: it shows that everything runs, not the results."]
    text = "\n\n".join([f"# {title}", *(subset if paths.quick else []), *parts, origin]) + "\n"
    with writing_file(paths.page) as file:
        file.write(text.encode())
