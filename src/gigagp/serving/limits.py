"""Limits of a request, and errors as problem details."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LONGEST_TEXT = 10_000  # characters of a category; bytes, in a body of Arrow


@dataclass(frozen=True)
class Limits:
    """Limits of one request."""

    body: int = 8 << 20  # bytes
    rows: int = 10_000
    quantiles: int = 100


class Problem(Exception):
    """An error of a request, as problem details (RFC 9457): what is wrong, in which row and column."""

    def __init__(
        self, status: int, title: str, detail: str, *, row: int | None = None, column: str | None = None
    ) -> None:
        super().__init__(detail)
        self.status, self.title, self.detail, self.row, self.column = status, title, detail, row, column

    @property
    def content(self) -> dict[str, Any]:
        content = {"type": "about:blank", "title": self.title, "status": self.status, "detail": self.detail}
        place = {"row": self.row, "column": self.column}
        return content | {name: value for name, value in place.items() if value is not None}
