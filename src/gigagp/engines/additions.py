"""Sums up a tree in few steps: each step adds all that can be added of what its senders have.

The order of additions is that of the tree, wherever they are done, so that no bit depends on the division.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gigagp.tree import Division, Node

FAN_IN = 32  # senders whose sums are added in one task

Key = tuple[int, int]  # of a node: depth and number
Pick = tuple[int, int]  # of a value: its sender, or OWN, and its number there
OWN = -1  # sender of what was added in the same step


@dataclass(frozen=True)
class Additions:
    """One step: the sums of inner nodes, each from values of senders or from earlier sums, and what is handed on."""

    sums: tuple[tuple[Pick, ...], ...]
    results: tuple[Pick, ...]

    def apply(self, values: Sequence[Sequence[Any]]) -> list[Any]:
        """values : those of each sender"""
        own: list[Any] = []

        def at(pick: Pick) -> Any:
            return own[pick[1]] if pick[0] == OWN else values[pick[0]][pick[1]]

        for first, *others in self.sums:
            total = at(first)
            for other in others:
                total = total + at(other)
            own.append(total)
        return [at(pick) for pick in self.results]


def additions(division: Division, senders: Sequence[Sequence[Key]]) -> tuple[Additions, list[Key]]:
    """The step that adds the values of these senders, and the nodes whose sums it passes on."""
    places: dict[Key, Pick] = {key: (sender, i) for sender, keys in enumerate(senders) for i, key in enumerate(keys)}
    sums: list[tuple[Pick, ...]] = []
    for inner in division.sums:  # children come before their parents
        children = [key_of(child) for child in inner.node.children]
        if all(child in places for child in children):
            sums.append(tuple(places.pop(child) for child in children))
            places[key_of(inner.node)] = OWN, len(sums) - 1
    keys = sorted(places)
    return Additions(tuple(sums), tuple(places[key] for key in keys)), keys


def key_of(node: Node) -> Key:
    return node.depth, node.index


@dataclass(frozen=True)
class Level:
    """Steps that run side by side: how many senders each has, and what it does with them."""

    senders: tuple[int, ...]
    steps: tuple[Additions, ...]


@dataclass(frozen=True)
class Ascent:
    """The way from the senders' sums to that of the root: levels of steps on workers, and the last, at the client."""

    levels: tuple[Level, ...]
    last: Additions


def ascent(division: Division, senders: Sequence[Sequence[Key]], gathered: int = FAN_IN) -> Ascent:
    """The steps from the senders' sums to that of the root.

    gathered : how many values the client gathers itself, at most
    """
    levels: list[Level] = []
    while len(senders) > gathered:
        runs = [senders[first : first + FAN_IN] for first in range(0, len(senders), FAN_IN)]
        steps = [additions(division, run) for run in runs]
        levels.append(Level(tuple(len(run) for run in runs), tuple(step for step, _ in steps)))
        senders = [keys for _, keys in steps]
    return Ascent(tuple(levels), additions(division, senders)[0])
