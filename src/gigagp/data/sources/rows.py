"""Rows as the model reads them: numbers, in blocks of one size, whatever they come from."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.sources.base import Batch, Source, digest, listed
from gigagp.data.sources.encoding import Encoding, Feature
from gigagp.data.sources.row_noise import RowNoise, Target, factors_and_variances
from gigagp.data.sources.share import Share
from gigagp.data.sources.times import is_date, per_day
from gigagp.errors import InvalidInput, InvalidParameter

BLOCK = 65_536
_MISSING = -1  # place of a missing category


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows, numbered as if dropped rows had never been."""

    first_row: int
    X: Array  # C-contiguous; float64, or float32 where every feature is
    y: Array | None  # float64
    kept: Any  # pyarrow.Table of the columns that are only carried along, or None
    source_rows: Array | None = None  # numbers of the rows in the source, where some rows are left out
    weights_and_noise: Array | None = None  # weight and known standard deviation per row, where there are any
    others: Array | None = None  # other targets that are carried along, one column each

    @property
    def weights(self) -> Array | None:
        return None if self.weights_and_noise is None else self.weights_and_noise[:, 0]

    @property
    def row_noise(self) -> Array | None:
        """Factor of the noise and added variance per row (`linalg.row_noise`), in the target's units."""
        return None if self.weights_and_noise is None else factors_and_variances(self.weights_and_noise)

    def at(self, places: Array) -> Block:
        """Some of the rows, without the columns that are carried along."""
        y, source_rows, noise = (
            None if each is None else each[places] for each in (self.y, self.source_rows, self.weights_and_noise)
        )
        return Block(self.first_row, self.X[places], y, None, source_rows, noise)


class Rows:
    """Features, and target if there is one, of a source. Made by `open_rows`."""

    others = 0  # number of other targets that blocks have

    def __init__(
        self,
        source: Source,
        columns: Sequence[str],
        encoding: Encoding,
        target: Target | None = None,
        keep: Sequence[str] = (),
        missing: str = "error",
        share: Share | None = None,
        noise: RowNoise | None = None,
    ) -> None:
        self.source, self.encoding, self.target = source, encoding, target
        self.keep, self.missing, self.share, self.noise = tuple(keep), missing, share, noise
        # Whether every row of the source is one of ours.
        self._all = missing in ("error", "model") and share is None and (noise is None or noise.weights is None)
        self._all = self._all and not (missing == "model" and target is not None)  # rows without target are left out
        self._unanswered = 0  # rows seen that keep missing values
        self._others = 0  # rows seen that are not in the share
        self._weightless = 0  # rows seen, of the share, that have the weight zero
        self.n_rows = source.n_rows if self._all else None  # None until all have been read once
        self.n_dropped = 0 if self._all else None
        self.may_be_empty = False  # whether it is no error that no row of the source is one of ours
        self._columns = tuple(columns)  # of the source, one for each of the encoding's features
        self._levels = {f.column: {text: k for k, text in enumerate(f.categories or ())} for f in encoding.features}
        single = all(
            source.columns[name].kind == "float32" and feature.categories is None
            for name, feature in zip(columns, encoding.features, strict=True)
        )
        self.dtype = np.dtype(np.float32 if single else np.float64)
        self._subtracted: Callable[[int, Array], Array] | None = None  # from the targets

    @property
    def feature_names(self) -> list[str]:
        return self.encoding.feature_names

    @property
    def n_features(self) -> int:
        return len(self.feature_names)

    def minus(self, values: Callable[[int, Array], Array]) -> Rows:
        """The same rows, with values subtracted from their targets.

        values : called with the number of the first row and the inputs of consecutive rows
        """
        rows = copy.copy(self)
        rows._subtracted = values
        return rows

    def part(self, share: Share) -> Rows:
        """A share of the rows, where all of them are read."""
        rows = copy.copy(self)
        rows.share, rows._all, rows.n_rows = share, False, None
        return rows

    def fingerprint(self) -> str:
        """Changes with the data and with what is read of them."""
        target = self.target and [self.target.column, self.target.beside and self.target.beside.fingerprint()]
        selection: list[Any] = [self._columns, self.encoding.to_dict(), self.keep, self.missing]
        if self.share is not None:
            selection.append([self.share.fraction, self.share.seed, self.share.rest])
        if self.noise is not None:
            for each in (self.noise.weights, self.noise.deviations):
                selection.append(each and [each.column, each.beside and each.beside.fingerprint()])
        return digest([self.source.fingerprint(), target, selection])

    def ranges(self, about: int, size: int = BLOCK) -> list[tuple[int, int]] | None:
        """Consecutive ranges (first row, end) of about so many rows that can be read independently of each other.

        They begin at multiples of `size`, and where the source can be read from. None where only all rows can be read,
        one after the other: of CSV files, and where rows may be left out, so that their numbers are not known before.
        """
        places = self.source.places_to_start()
        if not self._all or places is None or self.n_rows is None:
            return None
        borders = [0]
        for border in np.unique(-(-places // size) * size).tolist():
            if border - borders[-1] >= about and border < self.n_rows:
                borders.append(border)
        return list(zip(borders, [*borders[1:], self.n_rows], strict=True))

    @property
    def paths(self) -> list[tuple[str, int]] | None:
        """Local files, with their sizes, that another process must see to read the rows; None where it cannot."""
        every = [self.source.paths, *(each.beside.paths for each in self._beside_inputs() if each.beside is not None)]
        if self._subtracted is not None or any(paths is None for paths in every):
            return None
        return [path for paths in every for path in paths or []]

    def blocks(self, size: int = BLOCK, start: int = 0, stop: int | None = None) -> Iterator[Block]:
        """All rows from `start` (a multiple of `size`) on; every block has `size` rows but the last.

        Rows before `start` are skipped unread where the source allows it and no rows are dropped. Nothing is read after
        `stop`, which is the end of one of the `ranges`.
        """
        if stop is not None:
            yield from self._blocks_of_range(size, start, stop)
            return
        if size < 1 or start % size:
            raise InvalidParameter(f"start must be a multiple of size; got start={start} and size={size}")
        self._check_unchanged()
        skipped = rows_read = start if self._all else 0
        self._others = self._weightless = self._unanswered = 0
        space = _Space(self, size, skipped)
        for batch in self.source.batches(self.columns_read, size, skipped):
            rest = batch
            while rest.n_rows:
                piece = rest.slice(0, min(rest.n_rows, size - space.filled))
                rest = rest.slice(piece.n_rows, rest.n_rows)
                self._add(piece, rows_read, space)
                rows_read += piece.n_rows
                if space.filled == size:
                    if space.first_row >= start:
                        yield self._detrended(space.block())
                    space = _Space(self, size, space.first_row + size)
        self._check_unchanged()
        if rows_read > skipped or not skipped:
            self._finish(rows_read, space.first_row + space.filled)
        if space.filled and space.first_row >= start:
            yield self._detrended(space.block())

    def _blocks_of_range(self, size: int, start: int, stop: int) -> Iterator[Block]:
        self._check_unchanged()
        at, space = start, _Space(self, min(size, stop - start), start)
        for batch in self.source.batches(self.columns_read, size, start):
            rest = batch.slice(0, min(batch.n_rows, stop - at))
            while rest.n_rows:
                piece = rest.slice(0, min(rest.n_rows, space.size - space.filled))
                rest = rest.slice(piece.n_rows, rest.n_rows)
                self._add(piece, at, space)
                at += piece.n_rows
                if space.filled == space.size:
                    yield self._detrended(space.block())
                    space = _Space(self, min(size, stop - at), at)
            if at == stop:
                break
        self._check_unchanged()
        if at < stop:
            raise InvalidInput(f"{self.source.name} should have {self.n_rows} rows, and has {at}; write it again")

    def _detrended(self, block: Block) -> Block:
        if self._subtracted is None or block.y is None:
            return block
        return replace(block, y=block.y - self._subtracted(block.first_row, block.X))

    def _check_unchanged(self) -> None:
        self.source.check_unchanged()
        for each in self._beside_inputs():
            if each.beside is not None:
                each.beside.check_unchanged()

    def _beside_inputs(self) -> list[Target]:
        """The target, and the columns of weights and noise."""
        targets = [self.target] if self.target else []
        return targets + (self.noise.targets if self.noise else [])

    def _finish(self, rows_read: int, n_rows: int) -> None:
        if self.source.n_rows not in (None, rows_read):
            raise InvalidInput(
                f"{self.source.name} should have {self.source.n_rows} rows, and has {rows_read}; write it again"
            )
        if not n_rows and not (rows_read and self.may_be_empty):
            why = f": all {rows_read} have missing values" if rows_read else ""
            if self._others:
                why = f" in this share: {self._others} of {rows_read} are in the other; take another fraction, or seed"
            if self._weightless:
                why = f" left: {self._weightless} have the weight zero, which leaves a row out; give positive weights"
            raise InvalidInput(f"{self.source.name} has no rows{why}")
        self.n_rows = n_rows
        self.n_dropped = rows_read - n_rows - self._others - self._weightless + self._unanswered

    @property
    def columns_read(self) -> list[str]:
        """Names of the columns of the source that are read."""
        own = [each.column for each in self._beside_inputs() if not each.beside]
        return list(dict.fromkeys([*self._columns, *own, *self.keep]))

    def _add(self, piece: Batch, at: int, space: _Space) -> None:
        """Convert a piece, row `at` of the source and following, into the space that is left."""
        X, y = space.rest(piece.n_rows)
        begin = 0
        for name, feature in zip(self._columns, self.encoding.features, strict=True):
            end = begin + len(feature.names)
            X[:, begin:end] = self._numbers(piece, name, feature)
            begin = end
        if self.encoding.gaps is not None:
            places = list(self.encoding.number_places)
            X[:, places] = self.encoding.gaps.fill(np.asarray(X[:, places], float))
        beside = piece
        if self.target and y is not None:
            beside = self.target.read(piece, at)
            y[:] = beside.numbers(self.target.column) if self.target.labels is None else _codes(beside, self.target)
        good = self._good_rows(X, y, piece, beside)
        noise = None if self.noise is None else self.noise.read(piece, at, self.missing == "drop")
        if noise is not None and np.isnan(noise).any():
            complete = np.asarray(~np.isnan(noise).any(axis=1))
            good = complete if good is None else np.asarray(good & complete)
        if self.share is not None:
            ours = self.share.mask(at, piece.n_rows)
            self._others += int((~ours).sum())
            good = ours if good is None else good & ours
        if noise is not None and not noise[:, 0].all():
            present = np.ones(piece.n_rows, bool) if good is None else good
            self._weightless += int((present & (noise[:, 0] == 0)).sum())
            good = present & (noise[:, 0] != 0)
        kept = piece.table(self.keep) if self.keep else None
        if good is None:
            space.take(piece.n_rows, kept, noise, None if self._all else at + np.arange(piece.n_rows))
            return
        n_good = int(good.sum())
        X[:n_good] = X[good]
        if y is not None:
            y[:n_good] = y[good]
        chosen = np.flatnonzero(good)
        space.take(n_good, kept and kept.take(chosen), None if noise is None else noise[good], at + chosen)

    def _numbers(self, piece: Batch, name: str, feature: Feature) -> Array:
        """The columns of X that a feature has; NaN where its value is missing."""
        if feature.categories is None:
            numbers = piece.numbers(name)
            kind = self.source.columns[name].kind
            if kind != feature.kind and is_date(kind) and is_date(feature.kind):  # a date is its midnight
                numbers = numbers * (per_day(feature.kind) / per_day(kind))
            return np.column_stack([numbers, np.isnan(numbers)]) if feature.gaps else numbers[:, None]
        level = _places(piece, name, self._levels[feature.column], feature.unseen).astype(float)
        level[level == _MISSING] = np.nan if self.encoding.gaps is None else len(feature.categories)
        if not feature.one_hot:
            return level[:, None]
        hot: Array = (level[:, None] == np.arange(len(feature.categories))).astype(float)
        hot[np.isnan(level)] = np.nan
        return hot

    def _good_rows(self, X: Array, y: Array | None, piece: Batch, beside: Batch) -> Array | None:
        """Which rows to keep (None: all); an error if a value is infinite, or missing and not to be dropped."""
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(X.sum()) and (y is None or np.isfinite(y.sum())):  # cheap, nearly always enough
                return None
        values = X if y is None else np.column_stack([X, y])
        bad = np.isinf(values) if self.missing in ("drop", "keep") else ~np.isfinite(values)
        if self.missing == "model" and y is not None:
            bad[:, -1] = np.isinf(y)
        if bad.any():
            row = int(np.argmax(bad.any(axis=1)))
            column = int(np.argmax(bad[row]))
            others = np.flatnonzero(bad.any(axis=0) & (np.arange(bad.shape[1]) != column)).tolist()
            raise self._bad_value(row, column, others, bool(np.isnan(values[row, column])), piece, beside)
        gaps = np.isnan(values).any(axis=1)
        if self.missing == "keep":
            self._unanswered += int(gaps.sum())
            return None
        return np.asarray(~gaps)

    def _bad_value(
        self, row: int, column: int, others: list[int], missing: bool, piece: Batch, beside: Batch
    ) -> InvalidInput:
        """The error of the first bad value, and the names of other columns with such values in the rows just read."""
        owners = [
            name for name, feature in zip(self._columns, self.encoding.features, strict=True) for _ in feature.names
        ]
        if column < len(owners):
            who, where = f"column {owners[column]!r} of {piece.file}", piece
        else:
            assert self.target is not None
            who = f"the target, column {self.target.column!r} of {piece.file}," if beside is piece else beside.file
            where = beside
        what = "a missing value (null or NaN)" if missing else "infinity"
        dropped = "predicts NaN for such rows" if self.target is None else "leaves such rows out"
        cure = f'missing="drop" {dropped}; or fill them in'
        if not missing:
            cure = "take such rows out, or clip it"
        elif column < len(owners) and self.encoding.gaps is not None:
            cure = f"the training data had no gaps in this column, so that the model cannot answer them; {cure}"
        elif column < len(owners):
            use = "predict" if self.target is None else "learn from"
            cure = f'fit with missing="model" to {use} such rows; {cure}'
        names = dict.fromkeys(owners[other] for other in others if other < len(owners))
        also = f"; such values are also in {listed(names)}" if names else ""
        return InvalidInput(f"{who} has {what} at row {where.first_row + row}{also}; {cure}")


class _Space:
    """A block that is being filled."""

    def __init__(self, rows: Rows, size: int, first_row: int) -> None:
        self.first_row, self.filled, self.size = first_row, 0, size
        self._X = np.empty((size, rows.n_features), rows.dtype)
        self._y = np.empty(size) if rows.target else None
        self._kept: list[Any] = []
        self._noise: list[Array] = []
        self._source_rows: list[Array] = []

    def rest(self, n_rows: int) -> tuple[Array, Array | None]:
        """The next rows, to be written to."""
        part = slice(self.filled, self.filled + n_rows)
        return self._X[part], None if self._y is None else self._y[part]

    def take(self, n_rows: int, kept: Any, noise: Array | None, source_rows: Array | None) -> None:
        """The next rows have been written."""
        self.filled += n_rows
        if noise is not None:
            self._noise.append(noise)
        if source_rows is not None:
            self._source_rows.append(source_rows)
        if kept is not None:
            self._kept.append(kept)

    def block(self) -> Block:
        y = None if self._y is None else self._y[: self.filled]
        kept = _join(self._kept) if self._kept else None
        source_rows, noise = (np.concatenate(parts) if parts else None for parts in (self._source_rows, self._noise))
        return Block(self.first_row, self._X[: self.filled], y, kept, source_rows, noise)


def _join(tables: list[Any]) -> Any:
    import pyarrow as pa  # noqa: PLC0415 only where columns are kept

    return pa.concat_tables(tables)


def _codes(piece: Batch, target: Target) -> Array:
    """The number of each row's class; NaN where it is missing."""
    assert target.labels is not None
    unseen = len(target.labels)
    known = {label: k for k, label in enumerate(target.labels)}
    place = _places(piece, target.column, known, unseen)
    if (place == unseen).any():
        row = int(np.argmax(place == unseen))
        codes, texts = piece.categories(target.column)
        raise InvalidInput(
            f"column {target.column!r} of {piece.file} has the class {texts[codes[row]]!r} at row "
            f"{piece.first_row + row}, which the training data did not have (they had {listed(target.labels)}); take "
            "such rows out, or fit again with such rows"
        )
    return np.where(place == _MISSING, np.nan, place)


def _places(piece: Batch, name: str, known: Mapping[str, int], unseen: int) -> Array:
    """The number of each row's level among those of the training data, `unseen` for others, _MISSING for none."""
    codes, texts = piece.categories(name)
    return np.array([*(_MISSING if text is None else known.get(text, unseen) for text in texts), _MISSING])[codes]
