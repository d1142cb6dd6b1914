"""Sums in few steps: the additions of the tree, in its order, however its subtrees are divided among senders."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gigagp.engines.additions import FAN_IN, additions, ascent, key_of
from gigagp.tree import Tree, divide


@dataclass(frozen=True)
class Expression:
    """A value that remembers how it was added."""

    text: str

    def __add__(self, other):
        return Expression(f"({self.text}+{other.text})")


def nodes_of_units(division):
    units = {}
    for owned in division.owned:
        units.setdefault(owned.worker, []).append(owned.node)
    return [units[unit] for unit in sorted(units)]


@given(
    leaves=st.integers(1, 90),
    shards=st.integers(1, 50),
    groups=st.integers(1, 40),
    gathered=st.integers(1, 40),
    scattered=st.booleans(),
    seed=st.integers(0, 99),
)
def test_every_division_adds_as_the_tree_does(leaves, shards, groups, gathered, scattered, seed):
    tree, rng = Tree.balanced(leaves), np.random.default_rng(seed)
    division = divide(tree, shards)
    parts = nodes_of_units(division)
    order = rng.permutation(len(parts)) if scattered else np.arange(len(parts))
    members = [own.tolist() for own in np.array_split(order, min(groups, len(parts)))]

    def value(leaf):
        return Expression(str(leaf))

    values, keys = [], []
    for own in members:
        step, tops = additions(division, [[key_of(node) for node in parts[shard]] for shard in own])
        values.append(step.apply([[node.sum(value) for node in parts[shard]] for shard in own]))
        keys.append(tops)
    above = ascent(division, keys, gathered)
    for level in above.levels:
        assert max(level.senders) <= FAN_IN
        taken = np.cumsum([0, *level.senders])
        values = [step.apply(values[a:b]) for step, a, b in zip(level.steps, taken, taken[1:], strict=False)]
    assert len(values) <= gathered
    assert [each.text for each in above.last.apply(values)] == [tree.root.sum(value).text]


def test_neighbours_hand_on_few_sums():
    """The messages of a worker do not grow with its shards."""
    tree = Tree.balanced(4**6)
    division = divide(tree, 512)
    parts = nodes_of_units(division)
    for own in np.array_split(np.arange(len(parts)), 7):
        _, tops = additions(division, [[key_of(node) for node in parts[shard]] for shard in own])
        assert len(tops) <= 3 * 2 * tree.depth < len(own)
