"""Which columns are features, target, or only carried along; what they must be; and how they become numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from gigagp.data.sources.base import ENCODABLE, MEANING, Source, is_number, listed
from gigagp.data.sources.encoding import MOST_CATEGORIES, Encoding, Feature
from gigagp.data.sources.gaps import GapMoments, Gaps
from gigagp.data.sources.opening import open_source, open_target
from gigagp.data.sources.row_noise import RowNoise, Target
from gigagp.data.sources.rows import BLOCK, Rows
from gigagp.data.sources.share import Share
from gigagp.data.sources.times import is_date
from gigagp.errors import InvalidInput, InvalidParameter, choose

_INDEX = re.compile(r"|Unnamed: \d+|__index_level_\d+__")  # what pandas calls an index that it writes to a file
_COLUMNS_NAMED = 20  # columns that a message lists with their types
_DISTINCT_ROWS = 20  # rows from which a column without any repeated value cannot be a category
_MOST_CLASSES = 1000  # of a target
_ALL_MISSING = "null"  # type of a column of a table that has no value at all
_TARGETS = {kind for kind, meaning in MEANING.items() if meaning in ("number", "duration")}
_INTEGER = re.compile(r"-?\d{1,18}")


def open_rows(
    data: Any,
    target: Any = None,
    *,
    features: Iterable[str] | None = None,
    drop: Iterable[str] = (),
    categorical: Iterable[str] = (),
    missing: str = "error",
    keep: Iterable[str] = (),
    encoding: Encoding | None = None,
    share: Share | None = None,
    weights: Any = None,
    deviations: Any = None,
    labels: Sequence[str] | None = None,
    typed: bool = False,
    conditional: bool = True,
) -> Rows:
    """The rows of an array, a table (pandas, polars, pyarrow), or a path to .npy, Parquet or CSV, as numbers.

    - `target` is a column, or values beside the data (array, series, .npy file). Features are all other columns but
      `drop` and `keep`; `keep` is carried along as it is (of a CSV as text, or with `typed` in types that fit all of
      its rows, which takes another pass). Columns of arrays are x0, x1, ...
    - Floats stay as they are (X is float32 if every feature is); integers, booleans and decimals become float64; dates
      become days since 1970-01-01; timestamps become seconds since 1970-01-01 UTC; times and durations become seconds.
    - Text, dictionaries and the columns in `categorical` (text, whole numbers, booleans) are categories: each of their
      values is a level, read as its number in the order of the levels. Text of which most are numbers is an error,
      since it is likely a column of numbers with a typing error, as is anything else that is not a number.
    - A missing value (null, NaN) is an error. With missing="drop" its row is left out, with "keep" it remains NaN, and
      with "model" it is filled in as the encoding says (`sources.gaps`), and a row without target is left out. Infinity
      is always an error. `conditional`: whether the value that is filled in depends on the other numbers of the row.
    - `encoding`, of the rows a model was fitted with, selects the same columns by name (by place where either side has
      no names) and reads them in the same way.
    - `share` says which of the rows are wanted; default all.
    - `labels` says that the target is a class: its classes in order, or () to learn them by reading the column.
    - `weights` and `deviations` are given as the target is: see `sources.row_noise`. They are not features.
    """
    choose("missing", missing, dict.fromkeys(("error", "drop", "model", "keep")))
    source = open_source(data)
    if source.n_rows == 0:
        raise InvalidInput(f"{source.name} has no rows")
    if labels is not None and isinstance(target, str):
        source = source.read_as({source.find(target, "target"): "category"})
    target_column = _target(source, target, labels=labels)
    kept, dropped, one_hot = (
        _columns(source, names, role) for names, role in ((keep, "keep"), (drop, "drop"), (categorical, "categorical"))
    )
    noise = _row_noise(source, weights, deviations)
    roles = [each for each in (target_column, noise.weights, noise.deviations) if each and not each.beside]
    own = [each.column for each in roles]
    if len(set(own)) < len(own):
        raise InvalidInput(f"target, weights and noise must be different columns; got {listed(own)}")
    spare = [name for name in source.columns if name not in {*own, *kept, *dropped}]
    of_model = encoding is not None
    if encoding is None:
        columns = spare if features is None else _columns(source, features, "features")
        _check_features(columns, own, dropped, one_hot, default=features is None)
    elif features is None and not one_hot:
        columns = _match(source, encoding, spare)
    else:
        raise InvalidParameter("do not pass features or categorical here: the model uses those it was fitted with")
    if not columns:
        raise InvalidInput(f"no features are left of {source.name}, which has {listed(source.columns)}")
    only_kept = [name for name in kept if name not in {*own, *columns}]
    source = source.with_types(only_kept) if typed else source.read_as(dict.fromkeys(only_kept, "category"))
    if encoding is None:
        levels = [name for name in columns if name in one_hot or _is_text(source, name)]
        numbers = [name for name in columns if name not in levels]
        _check_kinds(
            source, numbers, [Feature(name, MEANING.get(source.columns[name].kind, "number")) for name in numbers]
        )
        source = source.read_as(dict.fromkeys(levels, "category"))
        encoding = _learn(source, columns, levels, missing == "model", conditional)
    else:
        source = source.read_as(dict(zip(columns, (feature.kind for feature in encoding.features), strict=True)))
    present = [name for name in columns if not (of_model and source.columns[name].type == _ALL_MISSING)]
    own_features = [f for name, f in zip(columns, encoding.features, strict=True) if name in present]
    _check_kinds(source, present, own_features, of_model)
    return Rows(source, columns, encoding, target_column, kept, missing, share, noise if noise.targets else None)


def _row_noise(source: Source, weights: Any, deviations: Any) -> RowNoise:
    return RowNoise(
        _target(source, weights, "sample_weight", "the weights"),
        _target(source, deviations, "noise_std", "the known noise"),
    )


def _target(
    source: Source, target: Any, name: str = "y", role: str = "the target", labels: Sequence[str] | None = None
) -> Target | None:
    """Where the numbers of a role are: a column of the data, or values beside them."""
    if target is None:
        return None
    beside = isinstance(target, os.PathLike) or (
        isinstance(target, str) and target not in source.columns and target.lower().endswith(".npy")
    )
    if not beside and isinstance(target, str | int | np.integer):
        in_source = Target(source.find(target, "target" if name == "y" else name))
        if labels is not None:
            column = in_source.column
            return replace(in_source, labels=tuple(labels) or _collect(source, [column], _MOST_CLASSES)[column])
        cure = "convert it, or predict classes with HGPClassifier" if name == "y" else "convert it"
        who = f"{role}, column {in_source.column!r} of {source.name},"
        _check_number(source, in_source.column, who, cure)
        kind = source.columns[in_source.column].kind
        if kind not in _TARGETS:
            raise InvalidInput(
                f"{who} is a {MEANING[kind]}, and predictions are numbers: convert it, for example to days since a date"
            )
        return in_source
    values = open_target(target, name, role)
    beside_data = Target(next(iter(values.columns)), values)
    _check_number(values, beside_data.column, values.name, "convert it")
    if source.n_rows is None:
        raise InvalidInput(
            f"the number of rows of {source.name} is not known before they are read, so {role} must be one of its "
            "columns; give the name of the column"
        )
    if values.n_rows != source.n_rows:
        raise InvalidInput(
            f"{source.name} has {source.n_rows} rows and {values.name} has {values.n_rows}; give one "
            f"{'target' if name == 'y' else 'number'} per row"
        )
    return beside_data


def check_target_columns(source: Source, names: Sequence[str]) -> None:
    """Raise InvalidInput for several targets of which some are not columns of the source, or are not numbers."""
    targets = source.find_all(names, "target")
    others = [
        f"{name!r} ({source.columns[name].type})" for name in targets if source.columns[name].kind not in _TARGETS
    ]
    if others:
        raise InvalidInput(
            f"the {'targets' if len(others) > 1 else 'target'} {', '.join(others)} of {source.name} "
            f"{'are' if len(others) > 1 else 'is'} not numbers; convert such columns, or predict classes with "
            "HGPClassifier, one model per target"
        )


def _columns(source: Source, columns: Iterable[str], role: str) -> list[str]:
    names = source.find_all([columns] if isinstance(columns, str) else columns, role)
    if len(set(names)) < len(names):
        raise InvalidParameter(f"{role} names a column twice: {listed(names)}")
    return names


def _check_features(
    columns: Sequence[str], own: Sequence[str], dropped: Sequence[str], one_hot: Sequence[str], default: bool
) -> None:
    for name in columns:
        if name in own:
            raise InvalidInput(
                f"column {name!r} is both {'the target' if name == own[0] else 'weight or noise'} and a feature; take "
                "it out of features"
            )
        if name in dropped:
            raise InvalidParameter(f"column {name!r} is in both features and drop")
        if default and _INDEX.fullmatch(name):
            raise InvalidInput(
                f"column {name!r} looks like an index that pandas wrote; leave it out with drop=[{name!r}], or list "
                "features="
            )
    for name in one_hot:
        if name not in columns:
            raise InvalidParameter(f"categorical: column {name!r} is not a feature")


def _match(source: Source, encoding: Encoding, spare: list[str]) -> list[str]:
    """Columns of the source for the features of a model."""
    fitted = [feature.column for feature in encoding.features]
    if not (encoding.named and source.named):
        if len(spare) != len(fitted):
            raise InvalidInput(
                f"{source.name} has {len(spare)} features, but the model is expecting {len(fitted)} features as input: "
                f"{listed(fitted)}"
            )
        return spare
    absent = [name for name in fitted if name not in source.columns]
    if absent:
        what = "column" if len(absent) == 1 else "columns"
        raise InvalidInput(
            f"{source.name} has no {what} {listed(absent)}, which the model reads. It has {listed(source.columns)}"
        )
    return fitted


def _is_text(source: Source, name: str) -> bool:
    """Whether a column is text, and half of it or more are not numbers; a dictionary is a category in any case."""
    column = source.columns[name]
    if column.kind != "text" or column.type.startswith("dictionary"):
        return column.kind == "text"
    for batch in islice(source.batches([name], BLOCK), 1):
        codes, texts = batch.categories(name)
        counts = np.bincount(codes[codes >= 0], minlength=len(texts))
        present = [(text, int(count)) for text, count in zip(texts, counts, strict=True) if text is not None]
        whole = all(_INTEGER.fullmatch(text) for text, _ in present)
        numbers = sum(count for text, count in present if is_number(text))
        return whole or 2 * numbers < sum(count for _, count in present)
    return True


def _learn(
    source: Source, columns: Sequence[str], levels: Sequence[str], with_gaps: bool, conditional: bool
) -> Encoding:
    categories = _collect(source, levels) if levels else {}
    numbers = [name for name in columns if name not in categories]
    gaps = _gaps(source, numbers, conditional) if with_gaps else None
    features = (
        Feature(name, "category", categories[name])
        if name in categories
        else Feature(
            name, MEANING.get(source.columns[name].kind, "number"), gaps=gaps is not None and name in gaps.incomplete
        )
        for name in columns
    )
    return Encoding(tuple(features), source.named, gaps)


def _gaps(source: Source, numbers: Sequence[str], conditional: bool) -> Gaps:
    """What stands in the place of missing numbers, by reading all of them."""
    moments = GapMoments(len(numbers))
    for batch in source.batches(numbers, BLOCK) if numbers else ():
        others = [name for name in numbers if source.columns[name].kind not in MEANING]
        if others:
            break  # an error follows, which names them
        moments.add(np.column_stack([np.asarray(batch.numbers(name), float) for name in numbers]))
    empty = [n for n, count in zip(numbers, moments.counts.tolist(), strict=True) if count == 0 and moments.rows]
    if empty:
        raise InvalidInput(f"column {empty[0]!r} of {source.name} is empty; leave it out with drop=[{empty[0]!r}]")
    return Gaps.of(numbers, moments, conditional)


def _collect(source: Source, names: Sequence[str], most: int = MOST_CATEGORIES) -> dict[str, tuple[str, ...]]:
    """The categories of each column, by reading them all; an error where there are more than `most`."""
    for name in names:
        _check_encodable(source, name)
    categories: dict[str, set[str]] = {name: set() for name in names}
    rows = 0
    for batch in source.batches(names, BLOCK):
        rows += batch.n_rows
        for name, texts in categories.items():
            texts.update(text for text in batch.categories(name)[1] if text is not None)
            if len(texts) > most:
                raise InvalidInput(
                    f"column {name!r} of {source.name} has more than {most} categories; "
                    f"leave it out with drop=[{name!r}], or merge rare ones"
                )
    _check_levels(source, {name: len(texts) for name, texts in categories.items()}, rows)
    return {name: _in_order(texts) for name, texts in categories.items()}


def _check_levels(source: Source, counts: dict[str, int], rows: int) -> None:
    """Raise InvalidInput for categories without any value, and for those with another value in every row."""
    empty = [name for name, count in counts.items() if count == 0]
    if empty:
        what = f"column {empty[0]!r} of {source.name} is" if len(empty) == 1 else f"columns {listed(empty)} are"
        raise InvalidInput(f"{what} empty; leave out with drop=[{listed(empty)}]")
    distinct = [name for name, count in counts.items() if count == rows >= _DISTINCT_ROWS]
    if distinct:
        one = len(distinct) == 1
        raise InvalidInput(
            f"{'column' if one else 'columns'} {listed(distinct)} of {source.name} {'has' if one else 'have'} another "
            f"value in every row, so that {'it says' if one else 'they say'} nothing about other rows; leave "
            f"{'it' if one else 'them'} out with drop=[{listed(distinct)}]"
        )


def _in_order(texts: set[str]) -> tuple[str, ...]:
    """Integers by value, also where a source has them as text."""
    integers = all(_INTEGER.fullmatch(text) for text in texts)
    return tuple(sorted(texts, key=lambda text: (int(text) if integers else 0, text)))


def _check_kinds(source: Source, columns: Sequence[str], features: Sequence[Feature], of_model: bool = False) -> None:
    """Raise InvalidInput for columns of a wrong kind; with `of_model`, of another kind than those of the fit."""
    others = [
        name
        for name, feature in zip(columns, features, strict=True)
        if not feature.categories and source.columns[name].kind not in MEANING
    ]
    if len(others) > 1:
        text = [name for name in others if source.columns[name].kind in ENCODABLE]
        cure = f"leave them out with drop=[{listed(others)}]"
        cure += f", or make text a category with categorical=[{listed(text)}]" if text else ""
        cure = "the model was fitted with numbers in them: convert them" if of_model else cure
        types = ", ".join(f"{name!r} ({source.columns[name].type})" for name in others[:_COLUMNS_NAMED])
        more = f" and {len(others) - _COLUMNS_NAMED} more" if len(others) > _COLUMNS_NAMED else ""
        raise InvalidInput(f"columns {types}{more} of {source.name} are not numbers; {cure}")
    for name, feature in zip(columns, features, strict=True):
        if feature.categories:
            _check_encodable(source, name)
            continue
        cure = f"leave it out with drop=[{name!r}]"
        if source.columns[name].kind in ENCODABLE:
            cure += f", or make it a category with categorical=[{name!r}]"
        cure = f"it was a {feature.kind} when the model was fitted: convert it" if of_model else cure
        _check_number(source, name, f"column {name!r} of {source.name}", cure)
        meaning = MEANING[source.columns[name].kind]
        if meaning != feature.kind and not (is_date(meaning) and is_date(feature.kind)):
            raise InvalidInput(
                f"column {name!r} of {source.name} is a {meaning}, and was a {feature.kind} when the model was fitted; "
                "convert it"
            )


def _check_number(source: Source, name: str, who: str, cure: str) -> None:
    column = source.columns[name]
    if column.kind not in MEANING:
        example = _first_word(source, name) if column.kind == "text" else ""
        raise InvalidInput(f"{who} has type {column.type}{example}, which is not a number; {cure}")


def _first_word(source: Source, name: str) -> str:
    """Where the first rows hold something else than a number, which may be a slip of the pen."""
    for batch in islice(source.batches([name], BLOCK), 1):
        codes, texts = batch.categories(name)
        words = np.flatnonzero([not (text is None or is_number(text)) for text in [*texts, None]])
        for row in np.flatnonzero(np.isin(codes, words))[:1]:
            return f" ({texts[codes[row]]!r} at row {batch.first_row + row} of {batch.file})"
    return ""


def _check_encodable(source: Source, name: str) -> None:
    column = source.columns[name]
    if column.kind not in ENCODABLE:
        raise InvalidInput(
            f"column {name!r} of {source.name} has type {column.type}, which cannot be categorical; "
            "text, integers and booleans can"
        )
