"""From columns to numbers: how the columns of the training data were read, so that queries are read in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gigagp.data.sources.base import MEANING
from gigagp.data.sources.gaps import Gaps
from gigagp.errors import InvalidInput

MOST_CATEGORIES = 1_000_000  # of a feature


@dataclass(frozen=True)
class Feature:
    """A column that the model reads: a number, a date, ..., or a category, as the number of its level."""

    column: str
    kind: str  # a value of MEANING, or "category"
    categories: tuple[str, ...] | None = None  # the levels in the order of their numbers
    one_hot: bool = False  # whether it is read as one 0/1 column for each level, as in models of earlier versions
    gaps: bool = False  # whether it is a number with a second column that says where the number is missing

    @property
    def names(self) -> list[str]:
        if self.gaps:
            return [self.column, f"{self.column} is missing"]
        if self.categories is None or not self.one_hot:
            return [self.column]
        return [f"{self.column}={category}" for category in self.categories]

    @property
    def unseen(self) -> int:
        """The number that stands for all levels that the training data did not have."""
        return len(self.categories or ()) + 1


@dataclass(frozen=True)
class Encoding:
    """The features in the model's order. `named` is False where columns were known only by their position."""

    features: tuple[Feature, ...]
    named: bool = True
    gaps: Gaps | None = None  # what stands in the place of missing values; None where the model cannot answer them

    @property
    def feature_names(self) -> list[str]:
        return [name for feature in self.features for name in feature.names]

    @property
    def category_places(self) -> tuple[int, ...]:
        """The columns of X that have the numbers of levels."""
        kinds = [
            (feature.categories is not None and not feature.one_hot) or (feature.gaps and name != feature.column)
            for feature in self.features
            for name in feature.names
        ]
        return tuple(place for place, is_category in enumerate(kinds) if is_category)

    @property
    def kinds(self) -> list[str]:
        """What the numbers of each column of X mean: "category" for numbers of levels, which 0/1 columns are not."""
        kinds = ["number" if feature.one_hot else feature.kind for feature in self.features for _ in feature.names]
        return ["category" if place in self.category_places else kind for place, kind in enumerate(kinds)]

    @property
    def levels(self) -> list[tuple[str, ...]]:
        """The levels of each column of X that is a category, () for others."""
        return [
            () if feature.one_hot else feature.categories or (("present", "missing") if name != feature.column else ())
            for feature in self.features
            for name in feature.names
        ]

    @property
    def number_places(self) -> tuple[int, ...]:
        """The columns of X that have the numbers of `gaps`."""
        known = set(self.gaps.columns if self.gaps else ())
        names = [(feature.column, name) for feature in self.features for name in feature.names]
        return tuple(i for i, (column, name) in enumerate(names) if column in known and name == column)

    def to_dict(self) -> dict[str, Any]:
        """Lists, strings and booleans only, fit for JSON."""
        features = [asdict(f) | {"categories": f.categories and list(f.categories)} for f in self.features]
        return {"named": self.named, "features": features, "gaps": self.gaps and self.gaps.to_dict()}

    @classmethod
    def from_dict(cls, content: object) -> Encoding:
        """The encoding that `to_dict` described; anything else is refused."""
        if isinstance(content, Mapping) and "gaps" not in content:  # as earlier versions wrote it
            content = {**content, "gaps": None}
        outer = _fields(content, {"named", "features", "gaps"}, "the encoding")
        _require(isinstance(outer["named"], bool), "'named' must be true or false")
        _require(isinstance(outer["features"], list) and bool(outer["features"]), "'features' must be a filled list")
        features = tuple(_feature(each) for each in outer["features"])
        _require(len({f.column for f in features}) == len(features), "a column is there twice")
        gaps = None if outer["gaps"] is None else Gaps.from_dict(outer["gaps"])
        numbers = {f.column for f in features if f.categories is None}
        incomplete = {f.column for f in features if f.gaps}
        _require(incomplete == set(gaps.incomplete if gaps else ()), "'gaps' and the features do not agree")
        _require(gaps is None or set(gaps.columns) == numbers, "'gaps' and the features do not agree")
        return cls(features, outer["named"], gaps)


def _feature(content: object) -> Feature:
    if isinstance(content, Mapping) and "one_hot" not in content:  # as earlier versions wrote it
        content = {**content, "one_hot": content.get("categories") is not None, "gaps": False}
    names = ("column", "kind", "categories", "one_hot", "gaps")
    fields = _fields(content, set(names), "a feature")
    column, kind, categories, one_hot, gaps = (fields[name] for name in names)
    _require(isinstance(one_hot, bool) and isinstance(gaps, bool), "'one_hot' and 'gaps' must be true or false")
    _require(isinstance(column, str), "'column' must be text")
    _require(isinstance(kind, str) and kind in {*MEANING.values(), "category"}, f"{kind!r} is not a kind of column")
    if kind != "category":
        _require(categories is None and not one_hot, f"column {column!r} is a {kind}, and has no categories")
        return Feature(column, kind, gaps=gaps)
    _require(not gaps, f"column {column!r} is a category, and only numbers have gaps")
    _require(
        isinstance(categories, list)
        and 0 < len(categories) <= MOST_CATEGORIES
        and all(isinstance(category, str) for category in categories)
        and len(set(categories)) == len(categories),
        f"the categories of column {column!r} must be 1 to {MOST_CATEGORIES} different texts",
    )
    return Feature(column, kind, tuple(categories), one_hot)


def _fields(content: object, names: set[str], what: str) -> Mapping[str, Any]:
    if not isinstance(content, Mapping) or set(content) != names:
        raise InvalidInput(f"not an encoding of columns: {what} must have exactly the fields {sorted(names)}")
    return content


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InvalidInput(f"not an encoding of columns: {message}")
