"""Models that take updates: rows are added and taken away, while theta, scalings and calibration stay as they are.

A neighbourhood has no state but its rows, so that added rows only have to be found by the search
(`model.row_segments`). A mixture of exact GPs is factored again, and the held-out errors for its misfit are recomputed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.data.store import ExpertStore
from gigagp.engines import Engine
from gigagp.errors import InvalidParameter
from gigagp.linalg.row_noise import FACTOR
from gigagp.model.factor_cache import FactorCache
from gigagp.model.mixture import Mixture, leave_one_out
from gigagp.model.model import Model
from gigagp.model.neighbourhood import Neighbourhood
from gigagp.model.row_segments import ArrivingRows, RowSegments, is_among

_SEED = 0  # of the order of arrival that rows of a fit are given, which is not known


@dataclass(frozen=True, eq=False)
class Online:
    """The rows of a model that takes updates, and the number that the next row will have.

    segments : the rows of a neighbourhood; None for a mixture
    arrivals : numbers of the rows of a mixture, in the order of its store
    """

    segments: RowSegments | None
    arrivals: Array | None
    following: int

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.segments.size if self.segments is not None else len(self.numbers)

    @property
    def numbers(self) -> Array:
        """The arrival numbers of all rows."""
        if self.segments is not None:
            return np.concatenate([self.segments.content(each).arrivals for each in self.segments.segments])
        assert self.arrivals is not None
        return self.arrivals


def check_updates(model: Model) -> None:
    """Raise InvalidParameter for a model that cannot take updates."""
    if model.neighbourhood is None and model.mixture is None:
        raise InvalidParameter(
            "this model predicts by a committee, whose experts cannot take updates; fit it with "
            'method="neighbourhood", or call partial_fit instead of fit for the first rows as well'
        )


def online(model: Model) -> Online:
    """The rows of a model as they can be updated; a model that was fitted gives its rows numbers in random order."""
    if isinstance(model.online, Online):
        return model.online
    count = len(model.store.y)
    arrivals = model.arrivals
    if arrivals is None:
        arrivals = np.random.default_rng(_SEED).permutation(count)
    following_number = following(model)
    near = model.neighbourhood
    if near is None:
        return Online(None, arrivals, following_number)
    segments = RowSegments.of(
        near.store, near.tree, [each.router.metric for each in near.members], near.router.categories, arrivals
    )
    return Online(segments, None, following_number)


def following(model: Model) -> int:
    """The arrival number of the next row."""
    if isinstance(model.online, Online):
        return model.online.following
    if model.next_arrival is not None:
        return model.next_arrival
    return len(model.store.y) if model.arrivals is None else int(model.arrivals.max()) + 1


def with_row_noise(model: Model, rows: ArrivingRows) -> ArrivingRows:
    """Rows whose noise depends on their inputs have it as their row noise, as in the fit."""
    noise, answering = model.input_noise, model.neighbourhood or model.mixture
    if noise is None or answering is None or answering.store.row_noise is None:
        return rows
    factors = noise.factors(rows.X).astype(rows.X.dtype)
    own = rows.noise_of_all.copy()
    own[:, FACTOR] *= factors
    return replace(rows, row_noise=own)


def added(model: Model, rows: ArrivingRows, engine: Engine) -> Model:
    """The model with more rows. Their arrival numbers follow those of all others."""
    state = online(model)
    rows = with_row_noise(model, rows)
    last = max(state.following, int(rows.arrivals.max()) + 1) if len(rows) else state.following
    if state.segments is not None:
        return _with_segments(model, replace(state, segments=state.segments.appended(rows), following=last))
    mixture = model.mixture
    assert mixture is not None
    assert state.arrivals is not None
    together = ArrivingRows.joined([_stored(mixture.store, state.arrivals), rows])
    return _with_mixture(model, mixture, together, last, engine)


def without(model: Model, arrivals: Array, engine: Engine) -> Model:
    """The model without the rows of these arrival numbers."""
    state, gone = online(model), np.unique(arrivals)
    left = int((~is_among(state.numbers, gone)).sum())
    if left < 2:
        raise InvalidParameter(f"forget would leave {left} rows; a model needs at least 2")
    if state.segments is not None:
        return _with_segments(model, replace(state, segments=state.segments.without(gone)))
    mixture = model.mixture
    assert mixture is not None
    assert state.arrivals is not None
    stay = ~is_among(state.arrivals, gone)
    return _with_mixture(model, mixture, _stored(mixture.store, state.arrivals).at(stay), state.following, engine)


def all_rows(model: Model) -> ArrivingRows:
    """All rows of a model, scaled, in the order in which it stores them."""
    state = online(model)
    if state.segments is not None:
        return state.segments.all_rows()
    assert model.mixture is not None
    assert state.arrivals is not None
    return _stored(model.mixture.store, state.arrivals)


def _stored(store: ExpertStore, arrivals: Array) -> ArrivingRows:
    noise = None if store.row_noise is None else np.asarray(store.row_noise)
    return ArrivingRows(np.asarray(store.X), np.asarray(store.y), noise, arrivals)


def _with_segments(model: Model, state: Online) -> Model:
    near, segments = model.neighbourhood, state.segments
    assert near is not None
    assert segments is not None
    store, tree = segments.store, segments.tree
    members = [
        replace(each, store=store, router=each.router.with_blocks(tree), segments=len(segments.segments))
        for each in near.members
    ]
    changed: Neighbourhood = replace(members[0], others=tuple(members[1:]))
    return replace(model, neighbourhood=changed, online=state, arrivals=None)


def _with_mixture(model: Model, mixture: Mixture, rows: ArrivingRows, following: int, engine: Engine) -> Model:
    store = ExpertStore(rows.X, rows.y, rows.row_noise)
    changed = Mixture(mixture.members, store, FactorCache(mixture.cache.budget))
    each = leave_one_out(changed, engine)
    members = tuple(replace(member, errors=own.errors) for member, own in zip(mixture.members, each, strict=True))
    changed = replace(changed, members=members)
    return replace(model, mixture=changed, online=Online(None, rows.arrivals, following), arrivals=None)
