"""The hierarchy: shapes, sums in a fixed order, and the paper's division of compute units."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gigagp.errors import InvalidParameter
from gigagp.tree import Division, Node, Tree, divide

SHAPES = st.lists(
    st.recursive(st.integers(1, 6), lambda inner: st.lists(inner, min_size=1, max_size=4), max_leaves=12),
    min_size=1,
    max_size=6,
)
BALANCED = st.one_of(
    st.builds(Tree.balanced, st.integers(1, 300), st.integers(2, 9)),
    st.builds(Tree.regular, st.integers(1, 3), st.integers(2, 6)),
)
TREES = st.one_of(BALANCED, st.builds(Tree.nested, SHAPES))
UNEVEN = Tree.nested([[100], 1, 1])


@dataclass(frozen=True)
class Written:
    """A term that remembers how it was added."""

    text: str

    def __add__(self, other: Written) -> Written:
        return Written(f"({self.text}+{other.text})")


def nodes_of(tree: Tree) -> list[Node]:
    return [Node(tree, depth, j) for depth in range(tree.depth + 1) for j in range(tree.width(depth))]


def count_leaves(shape) -> int:
    return shape if isinstance(shape, int) else sum(count_leaves(child) for child in shape)


@pytest.mark.parametrize(("levels", "branching"), [(1, 2), (1, 7), (2, 4), (3, 4), (5, 2)])
def test_regular_tree_has_branching_children_everywhere(levels, branching):
    tree = Tree.regular(levels, branching)
    assert tree.depth == levels
    assert [tree.width(d) for d in range(levels + 1)] == [branching**d for d in range(levels + 1)]
    assert tree.n_leaves == branching**levels
    assert all(len(node.children) == branching for node in nodes_of(tree) if not node.is_leaf)


@given(st.integers(1, 5000), st.integers(2, 20))
def test_balanced_tree_keeps_to_its_branching(n_leaves, branching):
    tree = Tree.balanced(n_leaves, branching)
    assert tree.n_leaves == n_leaves
    for level in tree.levels:
        widths = np.diff(level)
        assert 1 <= widths.min() <= widths.max() <= branching
        assert widths.max() - widths.min() <= 1
    assert branching ** (tree.depth - 1) < max(n_leaves, 2)  # no level too many


def test_nested_tree_reads_as_it_is_written():
    tree = Tree.nested([2, [3, 1]])
    assert tree.n_leaves == 6
    assert [tree.width(d) for d in range(tree.depth + 1)] == [1, 3, 6]
    assert [list(node.leaves) for node in tree.root.children] == [[0], [1], [2, 3, 4, 5]]


def test_nested_tree_draws_high_leaves_down():
    tree = Tree.nested([1, [1, [1, [2]]]])
    assert tree.depth == 4
    assert tree.n_leaves == 5
    assert [list(node.leaves) for node in tree.root.children] == [[0], [1, 2, 3, 4]]
    node = tree.root.children[0]
    while not node.is_leaf:
        assert len(node.children) == 1
        (node,) = node.children
    assert node.index == 0


@given(SHAPES)
def test_nested_tree_has_every_leaf(shape):
    assert Tree.nested(shape).n_leaves == count_leaves(shape)


@pytest.mark.parametrize("shape", [[], [1, []], [0], [[0], 2]])
def test_a_node_without_children_is_refused(shape):
    with pytest.raises(InvalidParameter, match="must have children"):
        Tree.nested(shape)


@given(TREES)
def test_leaves_of_nodes_are_consecutive_and_cover_all(tree):
    for depth in range(tree.depth + 1):
        level = [Node(tree, depth, j) for j in range(tree.width(depth))]
        assert [leaf for node in level for leaf in node.leaves] == list(range(tree.n_leaves))
        assert all(len(node.leaves) >= 1 for node in level)
    for node in nodes_of(tree):
        if node.is_leaf:
            assert node.children == ()
            assert node.leaves == range(node.index, node.index + 1)
        else:
            assert [leaf for child in node.children for leaf in child.leaves] == list(node.leaves)


@given(TREES, st.integers(1, 400))
def test_cut_is_the_highest_level_wide_enough(tree, at_least):
    cut = tree.cut(at_least)
    depth = cut[0].depth
    assert [node.index for node in cut] == list(range(tree.width(depth)))
    assert {node.depth for node in cut} == {depth}
    assert len(cut) >= at_least or depth == tree.depth
    assert all(tree.width(d) < at_least for d in range(depth))


@given(TREES)
def test_sum_goes_left_to_right(tree):
    """Addition of strings does not commute."""
    assert tree.root.sum(lambda leaf: f"{leaf};") == "".join(f"{leaf};" for leaf in range(tree.n_leaves))


def test_sum_is_bracketed_by_the_tree():
    tree = Tree.nested([[3], 1, [2, [2]]])
    total = tree.root.sum(lambda leaf: Written(str(leaf)))
    assert total.text == "((((0+1)+2)+3)+((4+5)+(6+7)))"
    assert tree.root.evidence(lambda leaf: Written(str(leaf))) == total
    assert tree.root.message(lambda leaf: Written(str(leaf))) == total


@given(TREES, st.integers(1, 100))
def test_sum_in_two_stages_adds_in_the_same_order(tree, at_least):
    """What engines do: sums below a cut, then above it."""
    cut = tree.cut(at_least)
    below = [node.sum(lambda leaf: Written(str(leaf))) for node in cut]
    assert tree.root.sum(below.__getitem__, cut[0].depth) == tree.root.sum(lambda leaf: Written(str(leaf)))


def test_repr_names_the_widths():
    assert repr(Tree.regular(2, 40)) == "Tree(2 levels: 1 -> 40 -> 1,600 leaves)"


def key(node: Node) -> tuple[int, int]:
    return node.depth, node.index


def where(division: Division) -> dict[tuple[int, int], int]:
    """On which unit the value of a node comes to be."""
    return {key(part.node): part.worker for part in (*division.owned, *division.sums)}


def units_of(division: Division, node: Node) -> set[int]:
    """The units that do any work below a node."""
    return {part.worker for part in division.owned if set(part.node.leaves) & set(node.leaves)}


@given(TREES, st.integers(1, 60))
def test_every_leaf_has_one_owner(tree, workers):
    division = divide(tree, workers)
    assert [leaf for part in division.owned for leaf in part.node.leaves] == list(range(tree.n_leaves))
    assert all(0 <= part.worker < workers for part in (*division.owned, *division.sums))
    shares = [division.leaves_of(worker) for worker in range(workers)]
    assert sorted(leaf for share in shares for leaf in share) == list(range(tree.n_leaves))
    for share in shares:  # neighbours stay together
        assert share == list(range(share[0], share[-1] + 1)) if share else True


@given(TREES, st.integers(1, 60))
@example(UNEVEN, 3)
def test_groups_of_units_are_divided_among_children(tree, workers):
    """Section 3.4: a group per child, in order, each within its parent's; where they suffice, no unit is shared."""
    division = divide(tree, workers)

    def check(node: Node, low: int, high: int) -> None:
        """The units [low, high) are what the siblings leave to this node."""
        units = units_of(division, node)
        assert units <= set(range(low, high))
        groups = [units_of(division, child) for child in node.children]
        if not groups or len(units) == 1:
            return
        assert units == set().union(*groups)
        assert all(max(a) <= min(b) for a, b in itertools.pairwise(groups))
        if len(units) >= len(groups):
            assert sum(len(group) for group in groups) == len(units), "children share a unit while others suffice"
        for child, group in zip(node.children, groups, strict=True):
            check(child, min(group), max(group) + 1)

    check(tree.root, 0, workers)
    if workers >= len(tree.root.children):
        firsts = [min(units_of(division, child)) for child in tree.root.children]
        assert len(set(firsts)) == len(firsts)


@given(TREES, st.integers(1, 60))
@example(UNEVEN, 3)
def test_no_unit_idles_while_there_are_leaves_for_it(tree, workers):
    busy = {part.worker for part in divide(tree, workers).owned}
    assert len(busy) == min(workers, tree.n_leaves)


def test_one_unit_for_each_of_uneven_children():
    division = divide(UNEVEN, 3)
    assert [len(division.leaves_of(worker)) for worker in range(3)] == [100, 1, 1]


@given(TREES, st.integers(1, 60))
@example(UNEVEN, 3)
def test_sums_receive_from_where_the_parts_are(tree, workers):
    division = divide(tree, workers)
    place = where(division)
    formed = {key(part.node) for part in division.owned}
    for at in division.sums:
        children = [key(child) for child in at.node.children]
        assert all(child in formed for child in children)  # parts exist before their sum
        sources = [place[child] for child in children]
        assert at.worker == sources[0]  # the first unit of the group
        assert at.receives_from == tuple(dict.fromkeys(s for s in sources if s != at.worker))
        assert key(at.node) not in formed
        formed.add(key(at.node))
    assert key(tree.root) in formed
    assert place[key(tree.root)] == 0


@given(BALANCED, st.integers(1, 60))
def test_balanced_trees_give_balanced_loads(tree, workers):
    division = divide(tree, workers)
    most = max(len(division.leaves_of(worker)) for worker in range(workers))
    assert most <= 2 * -(-tree.n_leaves // workers)


@given(TREES)
def test_one_worker_owns_everything(tree):
    division = divide(tree, 1)
    assert [(key(part.node), part.worker) for part in division.owned] == [((0, 0), 0)]
    assert division.sums == ()


@given(TREES, st.integers(0, 30))
def test_with_more_units_than_leaves_each_leaf_has_its_own(tree, more):
    division = divide(tree, tree.n_leaves + more)
    assert all(len(part.node.leaves) == 1 for part in division.owned)
    assert len({part.worker for part in division.owned}) == tree.n_leaves


def test_figure_arch_four_units_over_two_levels():
    """Two children over two leaves each: two units per child, one per leaf; sums on the first unit of each group."""
    division = divide(Tree.regular(2, 2), 4)
    assert [(list(o.node.leaves), o.worker) for o in division.owned] == [([0], 0), ([1], 1), ([2], 2), ([3], 3)]
    assert [(key(s.node), s.worker, s.receives_from) for s in division.sums] == [
        ((1, 0), 0, (1,)),
        ((1, 1), 2, (3,)),
        ((0, 0), 0, (2,)),
    ]


@pytest.mark.parametrize("workers", [0, -1])
def test_divide_needs_a_worker(workers):
    with pytest.raises(InvalidParameter, match=f"workers must be at least 1; got {workers}"):
        divide(Tree.regular(1, 2), workers)
