"""From columns to numbers: how the columns of the training data were read, so that queries are read in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gigagp.data.sources.base import MEANING
from gigagp.errors import InvalidInput

MOST_CATEGORIES = 1000


@dataclass(frozen=True)
class Feature:
    """A column that the model reads: a number, a date, ..., or one 0/1 column for each of its categories."""

    column: str
    kind: str  # a value of MEANING, or "category"
    categories: tuple[str, ...] | None = None

    @property
    def names(self) -> list[str]:
        if self.categories is None:
            return [self.column]
        return [f"{self.column}={category}" for category in self.categories]


@dataclass(frozen=True)
class Encoding:
    """The features in the model's order. `named` is False where columns were known only by their position."""

    features: tuple[Feature, ...]
    named: bool = True

    @property
    def feature_names(self) -> list[str]:
        return [name for feature in self.features for name in feature.names]

    def to_dict(self) -> dict[str, Any]:
        """Lists, strings and booleans only, fit for JSON."""
        features = [asdict(f) | {"categories": f.categories and list(f.categories)} for f in self.features]
        return {"named": self.named, "features": features}

    @classmethod
    def from_dict(cls, content: object) -> Encoding:
        """The encoding that `to_dict` described; anything else is refused."""
        outer = _fields(content, {"named", "features"}, "the encoding")
        _require(isinstance(outer["named"], bool), "'named' must be true or false")
        _require(isinstance(outer["features"], list) and bool(outer["features"]), "'features' must be a filled list")
        features = tuple(_feature(each) for each in outer["features"])
        _require(len({f.column for f in features}) == len(features), "a column is there twice")
        return cls(features, outer["named"])


def _feature(content: object) -> Feature:
    fields = _fields(content, {"column", "kind", "categories"}, "a feature")
    column, kind, categories = fields["column"], fields["kind"], fields["categories"]
    _require(isinstance(column, str), "'column' must be text")
    _require(isinstance(kind, str) and kind in {*MEANING.values(), "category"}, f"{kind!r} is not a kind of column")
    if kind != "category":
        _require(categories is None, f"column {column!r} is a {kind}, and has no categories")
        return Feature(column, kind)
    _require(
        isinstance(categories, list)
        and 0 < len(categories) <= MOST_CATEGORIES
        and all(isinstance(category, str) for category in categories)
        and len(set(categories)) == len(categories),
        f"the categories of column {column!r} must be 1 to {MOST_CATEGORIES} different texts",
    )
    return Feature(column, kind, tuple(categories))


def _fields(content: object, names: set[str], what: str) -> Mapping[str, Any]:
    if not isinstance(content, Mapping) or set(content) != names:
        raise InvalidInput(f"not an encoding of columns: {what} must have exactly the fields {sorted(names)}")
    return content


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InvalidInput(f"not an encoding of columns: {message}")
