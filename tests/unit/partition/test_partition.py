"""Which rows each expert reads: exact counts, balance, regions, cells, and sharing by index."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gigagp import HGPRegressor
from gigagp.data.row_lists import IndexLists, Runs
from gigagp.data.store import ExpertStore
from gigagp.errors import InvalidParameter
from gigagp.model.boxes import BY_CENTRE, extents
from gigagp.model.routing import Router
from gigagp.model.sharing import share_nearest
from gigagp.partition import LocalPartition, RandomPartition, Shape, StratifiedPartition, partitioner
from gigagp.partition.base import run_means
from gigagp.partition.kdtree import cell_starts, kd_order
from gigagp.partition.stratified import region_starts
from gigagp.tree import Node

DEALT = (RandomPartition(), StratifiedPartition())
ALL = (*DEALT, LocalPartition())
dealt = pytest.mark.parametrize("parts", DEALT, ids=["random", "stratified"])
every = pytest.mark.parametrize("parts", ALL, ids=["random", "stratified", "local"])


def split(parts, n, shape, seed=0, columns=3):
    X = np.random.default_rng([seed, 1]).standard_normal((n, columns))
    return X, parts.split(X, shape, np.random.default_rng(seed))


def all_rows(lists):
    """What all lists name, one after the other."""
    return np.concatenate([lists[group] for group in range(len(lists))])


def rows_of(partition, leaf):
    """Rows of the data (not of the store) that a leaf reads."""
    return partition.order[partition.cells[leaf]]


@st.composite
def hierarchies(draw):
    """n, levels, branching, sharing that leave at least two points in a leaf."""
    branching = draw(st.integers(2, 6))
    sharing = draw(st.integers(1, branching))
    levels = draw(st.integers(1, 3))
    least = int(np.ceil(3 * (branching / sharing) ** levels))
    return draw(st.integers(least, least + 300)), levels, branching, sharing


@dealt
@given(hierarchies(), st.integers(0, 5))
def test_each_row_goes_to_sharing_children_at_each_level(parts, given_shape, seed):
    n, levels, branching, sharing = given_shape
    _, partition = split(parts, n, Shape(levels, branching, sharing=sharing), seed)
    assert sorted(partition.order) == list(range(n))
    assert partition.n_leaves == partition.tree.n_leaves == branching**levels
    assert (np.bincount(all_rows(partition.cells), minlength=n) == sharing**levels).all()
    for leaf in range(partition.n_leaves):
        assert len(set(partition.cells[leaf])) == len(partition.cells[leaf])
    for depth in range(levels):  # also at the nodes in between
        for j in range(partition.tree.width(depth)):
            node = Node(partition.tree, depth, j)
            children = [rows_under(partition, child) for child in node.children]
            rows, counts = np.unique(np.concatenate(children), return_counts=True)
            assert set(rows) == set(rows_under(partition, node))
            assert (counts == sharing).all()
            if sharing < branching <= len(rows):  # no expert is another's double
                assert len({child.tobytes() for child in children}) == branching


def rows_under(partition, node):
    return np.unique(np.concatenate([rows_of(partition, leaf) for leaf in node.leaves]))


@dealt
@given(hierarchies())
def test_siblings_are_within_one_point(parts, given_shape):
    n, levels, branching, sharing = given_shape
    _, partition = split(parts, n, Shape(levels, branching, sharing=sharing))
    sizes = partition.cells.sizes
    siblings = sizes.reshape(-1, branching)
    assert (np.ptp(siblings, axis=1) <= 1).all()
    if branching % sharing == 0:
        assert np.ptp(sizes) <= 1


@dealt
@given(st.integers(2, 600), st.integers(2, 100), st.integers(1, 4))
@example(n=7, leaf_size=2, sharing=1)
@example(n=100, leaf_size=500, sharing=2)
def test_leaf_size_gives_leaves_of_about_that_size(parts, n, leaf_size, sharing):
    _, partition = split(parts, n, Shape(leaf_size=leaf_size, sharing=sharing))
    sizes = partition.cells.sizes
    assert sorted(partition.order) == list(range(n))
    assert np.ptp(sizes) <= 1
    assert partition.tree.n_leaves == partition.n_leaves
    copies = np.bincount(all_rows(partition.cells), minlength=n)
    if partition.n_leaves == 1:
        assert (copies == 1).all()
    else:
        assert (copies == sharing).all()
        assert sizes.min() < n, "several leaves, each with all rows, are one leaf many times"
        assert sizes.min() >= 2
        assert sizes.max() <= 1.5 * leaf_size + 1
    for leaf in range(partition.n_leaves):
        assert len(set(partition.cells[leaf])) == sizes[leaf]


@dealt
def test_the_papers_kin40k_table(parts):
    """4^L leaves of 10,000 / 2^L points with branching 4 and sharing 2."""
    for levels, sizes in enumerate([{5000}, {2500}, {1250}, {625}, {312, 313}], start=1):
        _, partition = split(parts, 10_000, Shape(levels, 4, sharing=2), columns=2)
        assert partition.n_leaves == 4**levels
        assert set(partition.cells.sizes) == sizes


def test_default_branching_is_the_papers():
    _, partition = split(RandomPartition(), 400, Shape(levels=2))
    assert partition.n_leaves == 16


@given(st.integers(4, 400), st.integers(2, 6), st.integers(1, 3), st.integers(0, 5))
def test_stratified_experts_hold_one_group_of_every_region(n, branching, sharing, seed):
    sharing = min(sharing, branching)
    if n * sharing // branching < 2:
        return
    X, partition = split(StratifiedPartition(), n, Shape(1, branching, sharing=sharing), seed)
    experts = [rows_of(partition, leaf) for leaf in range(branching)]
    check_one_group_each(X, np.arange(n), experts, sharing)


def check_one_group_each(X, rows, experts, sharing):
    """Each expert has `sharing` of the `children` equal groups of every region of the node's rows."""
    children = len(experts)
    starts = region_starts(len(rows), max(1, len(rows) // (2 * children)), children)
    order = rows[kd_order(X[rows], starts)]
    for region, (start, end) in enumerate(itertools.pairwise(starts)):
        here = order[start:end]
        shares = [np.intersect1d(expert, here) for expert in experts]
        counts = {len(share) for share in shares}
        if region < len(starts) - 2:
            assert len(here) % children == 0
            assert counts == {len(here) // children * sharing}
        else:  # the last region takes what is left over
            assert max(counts) - min(counts) <= 1
        if sharing == 1:
            assert sum(len(share) for share in shares) == len(here)


def test_stratified_deals_regions_at_every_node():
    """So few rows that all of them decide where a KD-tree is cut, in whatever order it gets them."""
    X, partition = split(StratifiedPartition(), 250, Shape(3, 3, sharing=2))
    tree = partition.tree
    for depth in range(3):
        for j in range(tree.width(depth)):
            node = Node(tree, depth, j)
            experts = [rows_under(partition, child) for child in node.children]
            check_one_group_each(X, rows_under(partition, node), experts, 2)


def test_stratified_experts_see_the_whole_space_more_evenly_than_random_ones():
    """How much the share of a box of the space that an expert holds scatters."""
    X = np.random.default_rng(0).uniform(size=(4000, 2))
    box = (X * 4).astype(int) @ [4, 1]

    def scatter(parts):
        partition = parts.split(X, Shape(1, 10), np.random.default_rng(0))
        counts = [np.bincount(box[rows_of(partition, leaf)], minlength=16) for leaf in range(10)]
        return np.std(counts, axis=0).mean()

    assert scatter(StratifiedPartition()) < 0.5 * scatter(RandomPartition())


@given(st.integers(1, 2000), st.integers(1, 50), st.integers(1, 9))
def test_regions_are_multiples_of_the_children(n, regions, children):
    starts = region_starts(n, regions, children)
    assert starts[0] == 0
    assert starts[-1] == n
    assert (np.diff(starts) > 0).all()
    assert (starts[:-1] % children == 0).all()


@given(st.integers(1, 400), st.integers(1, 40), st.integers(1, 4), st.integers(0, 9), st.booleans())
def test_kd_cells_are_separated_by_planes(n, cells, columns, seed, ties):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 4, (n, columns)).astype(float) if ties else rng.standard_normal((n, columns))
    starts = cell_starts(n, min(cells, n))
    order = kd_order(X, starts)
    assert sorted(order) == list(range(n))
    assert np.ptp(np.diff(starts)) <= 1
    check_separated(X, order, starts, 0, len(starts) - 1)


def check_separated(X, order, starts, first, end):
    """The cells of either half lie on either side of a plane across one column, and so on within the halves."""
    if end - first < 2:
        return
    middle = (first + end) // 2
    left, right = X[order[starts[first] : starts[middle]]], X[order[starts[middle] : starts[end]]]
    assert (left.max(axis=0) <= right.min(axis=0)).any()
    check_separated(X, order, starts, first, middle)
    check_separated(X, order, starts, middle, end)


def test_kd_tree_splits_the_widest_column():
    X = np.random.default_rng(0).standard_normal((500, 3)) * [1, 10, 3]
    order = kd_order(X, cell_starts(500, 2))
    left, right = X[order[:250]], X[order[250:]]
    assert left[:, 1].max() <= right[:, 1].min()
    assert left[:, 0].max() > right[:, 0].min()


@given(st.integers(2, 500), st.integers(2, 90), st.integers(0, 3))
@example(n=7, leaf_size=2, seed=0)
def test_local_cells_cover_all_rows_once(n, leaf_size, seed):
    _, partition = split(LocalPartition(), n, Shape(leaf_size=leaf_size), seed)
    assert sorted(partition.order) == list(range(n))
    assert (all_rows(partition.cells) == np.arange(n)).all()
    sizes = partition.cells.sizes
    assert sizes.sum() == n
    assert np.ptp(sizes) <= 1
    assert sizes.min() >= 2
    assert sizes.max() <= 1.5 * leaf_size + 1
    assert partition.tree.n_leaves == partition.n_leaves


@pytest.mark.parametrize(("levels", "branching"), [(1, 2), (1, 7), (2, 4), (3, 3)])
def test_local_levels_give_a_cell_for_every_leaf(levels, branching):
    X, partition = split(LocalPartition(), 301, Shape(levels, branching))
    assert partition.n_leaves == branching**levels
    assert partition.tree.depth == levels
    assert np.ptp(partition.cells.sizes) <= 1
    check_separated(X, partition.order, partition.cells.starts, 0, partition.n_leaves)


def cells_of(n, cells, columns, seed):
    """Rows in storage order, their cells, a router that knows the cells' centres and boxes."""
    rng = np.random.default_rng(seed)
    X, metric = rng.standard_normal((n, columns)), rng.uniform(0.3, 3, columns)
    starts = cell_starts(n, cells)
    X = X[kd_order(X * metric, starts)]
    lows, highs = extents(X, starts)
    return X, Runs(starts), Router(run_means(X, starts) * metric, metric, (lows * metric, highs * metric))


def true_nearest(X, metric, cells, cell, wanted):
    """The `wanted` rows outside a cell nearest to the box around the cell."""
    scaled = X * metric
    own = scaled[cells[cell]]
    beyond = np.maximum(own.min(axis=0) - scaled, scaled - own.max(axis=0))
    off = (scaled - own.mean(axis=0)) / np.ptp(own, axis=0)
    square = (np.clip(beyond, 0, None) ** 2).sum(axis=1) + BY_CENTRE * (off**2).sum(axis=1)
    square[cells[cell]] = np.inf
    return np.argsort(square)[:wanted]


def wanted_outside(cells, sharing):
    sizes = cells.sizes
    return np.minimum(np.round((sharing - 1) * sizes).astype(int), sizes.sum() - sizes)


def test_centres_are_the_means_of_cells():
    X, cells, router = cells_of(101, 7, 3, 0)
    means = [(X[cells[c]] * router.metric).mean(axis=0) for c in range(7)]
    np.testing.assert_allclose(router.centres, means, rtol=1e-12)


@given(st.integers(30, 300), st.integers(2, 8), st.floats(1, 12), st.integers(0, 5))
def test_few_cells_share_exactly_the_nearest_outside_points(n, cells, sharing, seed):
    X, runs, router = cells_of(n, cells, 2, seed)
    shared = share_nearest(ExpertStore(X, X[:, 0]), runs, router, sharing)
    wanted = wanted_outside(runs, sharing)
    for cell in range(cells):
        rows = shared[cell]
        inside, outside = rows[: runs.sizes[cell]], rows[runs.sizes[cell] :]
        assert (inside == runs[cell]).all()
        assert len(set(rows)) == len(rows) == runs.sizes[cell] + wanted[cell] == shared.sizes[cell]
        assert set(outside) == set(true_nearest(X, router.metric, runs, cell, wanted[cell]))


@pytest.mark.parametrize(("columns", "sharing"), [(1, 2.0), (2, 4.0), (3, 4.0), (8, 8.0)])
def test_many_cells_share_nearly_the_nearest_outside_points(columns, sharing):
    X, cells, router = cells_of(6000, 300, columns, 0)
    shared = share_nearest(ExpertStore(X, X[:, 0]), cells, router, sharing)
    wanted = wanted_outside(cells, sharing)
    matches = 0
    for cell in range(300):
        rows = shared[cell]
        assert (rows[: cells.sizes[cell]] == cells[cell]).all()
        assert len(np.unique(rows)) == len(rows) == cells.sizes[cell] + wanted[cell]
        matches += len(np.intersect1d(rows, true_nearest(X, router.metric, cells, cell, wanted[cell])))
    assert matches >= 0.95 * wanted.sum()


def test_sharing_of_one_adds_nothing():
    X, cells, router = cells_of(100, 5, 2, 0)
    assert share_nearest(ExpertStore(X, X[:, 0]), cells, router, 1.0) is cells


@pytest.mark.parametrize(
    "shape",
    [
        {"partition": "random", "levels": 2, "branching": 4, "sharing": 2},
        {"partition": "stratified", "levels": 2, "branching": 4, "sharing": 2},
        {"partition": "local", "leaf_size": 20, "sharing": 5},
    ],
    ids=lambda shape: shape["partition"],
)
def test_sharing_copies_no_row(shape):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    model = HGPRegressor(**shape, random_state=0).fit(X, np.sin(3 * X).sum(axis=1) + 0.1 * rng.standard_normal(300))
    committee = model.model_.committee
    assert committee.store.X.shape == (300, 2)
    assert committee.store.y.shape == (300,)
    assert not committee.store.X.flags.writeable
    assert all_rows(committee.experts).max() < 300
    assert committee.experts.sizes.sum() >= 4 * 300


def test_consecutive_rows_are_read_without_copy():
    X, y = np.arange(20.0).reshape(10, 2), np.arange(10.0)
    store = ExpertStore.in_memory(X, y, np.arange(10)[::-1])
    lists = [[2, 3, 4], [5, 7, 6, 8], [9], [4, 5, 0], [7, 8, 9], [1, 2]]
    groups = IndexLists.of([np.array(rows) for rows in lists])
    for group, rows in enumerate(lists):
        inputs, targets = store.read(groups, group)
        consecutive = rows == list(range(rows[0], rows[0] + len(rows)))
        assert np.shares_memory(inputs, store.X) == consecutive
        assert np.shares_memory(targets, store.y) == consecutive
        assert (targets == y[::-1][rows]).all()
        assert (inputs == X[::-1][rows]).all()


@every
def test_partitions_are_decided_by_the_seed(parts):
    shape = Shape(2, 3)
    _, one = split(parts, 200, shape, 7)
    _, same = split(parts, 200, shape, 7)
    assert (one.order == same.order).all()
    assert (all_rows(one.cells) == all_rows(same.cells)).all()
    if not parts.local:
        X = np.random.default_rng([7, 1]).standard_normal((200, 3))
        other = parts.split(X, shape, np.random.default_rng(8))
        assert (one.order != other.order).any()


def test_partitions_have_names():
    assert type(partitioner("random")) is RandomPartition
    assert type(partitioner("stratified")) is StratifiedPartition
    assert type(partitioner("local")) is LocalPartition
    own = StratifiedPartition(rows_per_group=5)
    assert partitioner(own) is own
    with pytest.raises(InvalidParameter, match="partition must be one of 'local', 'random', 'stratified'; got 'kd'"):
        partitioner("kd")


@dealt
def test_sharing_above_branching_is_refused(parts):
    with pytest.raises(InvalidParameter, match=r"sharing must be at most branching .* got sharing=3, branching=2"):
        split(parts, 100, Shape(1, 2, sharing=3))


@dealt
def test_a_fraction_of_sharing_is_refused(parts):
    with pytest.raises(InvalidParameter, match=r"sharing must be a whole number for this partition; got 1\.5"):
        split(parts, 100, Shape(1, 2, sharing=1.5))


@every
@pytest.mark.parametrize(("n", "levels", "branching"), [(7, 1, 4), (31, 2, 4), (10_000, 7, 4)])
def test_levels_that_leave_less_than_two_points_are_refused(parts, n, levels, branching):
    with pytest.raises(InvalidParameter, match=f"levels={levels}.* of {n} rows in a leaf; a leaf needs at least 2"):
        split(parts, n, Shape(levels, branching))
    split(parts, 2 * branching**levels if levels < 7 else 100, Shape(min(levels, 2), branching))


@dealt
@given(st.integers(2, 60), st.integers(1, 4), st.integers(2, 5), st.integers(1, 5))
@example(n=7, levels=3, branching=3, sharing=2)  # 7 * 8 / 27 > 2, but 7 -> 4 -> 2 -> 1
def test_no_leaf_that_is_made_has_less_than_two_points(parts, n, levels, branching, sharing):
    sharing = min(sharing, branching)
    smallest = n
    for _ in range(levels):
        smallest = smallest * sharing // branching
    if smallest < 2:
        with pytest.raises(InvalidParameter, match="a leaf needs at least 2"):
            split(parts, n, Shape(levels, branching, sharing=sharing))
    else:
        _, partition = split(parts, n, Shape(levels, branching, sharing=sharing))
        assert partition.cells.sizes.min() == smallest


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"levels": 2, "leaf_size": 10}, "give levels and branching, or leaf_size, not both; got levels=2, leaf_size"),
        ({"branching": 4}, "branching=4 needs levels too"),
        ({"levels": 0}, "levels must be a whole number of at least 1, or None; got 0"),
        ({"levels": 1, "branching": 1}, "branching must be a whole number of at least 2, or None; got 1"),
        ({"leaf_size": 1}, "leaf_size must be a whole number of at least 2, or None; got 1"),
        ({"leaf_size": 2.5}, "leaf_size must be a whole number of at least 2, or None; got 2.5"),
        ({"levels": True}, "levels must be a whole number of at least 1, or None; got True"),
        ({"levels": "two"}, "levels must be a whole number of at least 1, or None; got 'two'"),
        ({"leaf_size": float("nan")}, "leaf_size must be a whole number of at least 2, or None; got nan"),
        ({"leaf_size": float("inf")}, "leaf_size must be a whole number of at least 2, or None; got inf"),
        ({"sharing": 0.5}, "sharing must be at least 1"),
        ({"sharing": float("nan")}, "sharing must be at least 1"),
        ({"sharing": "two"}, "sharing must be at least 1"),
    ],
)
def test_shapes_that_make_no_sense_are_refused(settings_, message):
    with pytest.raises(InvalidParameter, match=message):
        Shape(**settings_)


def check_splits(rows, starts, first, end):
    """Each split of a KD-tree, recursively: in some column no row on the left is beyond one on the right."""
    if end - first < 2:
        return
    middle = (first + end) // 2
    left, right = rows[starts[first] : starts[middle]], rows[starts[middle] : starts[end]]
    if len(left) and len(right):
        assert (left.max(axis=0) <= right.min(axis=0)).any()
    check_splits(rows, starts, first, middle)
    check_splits(rows, starts, middle, end)


@given(st.integers(1, 600), st.integers(1, 6), st.integers(1, 700), st.sampled_from([1, 2, 5, 1 << 20]),
       st.sampled_from([np.float32, np.float64]), st.sampled_from(["any", "rising", "falling"]), st.integers(0, 1000),
)  # fmt: skip
@example(1, 1, 3, 1, np.float64, "any", 0)  # more cells than rows
@example(5000, 2, 3, 2, np.float32, "any", 0)  # pivots from a whole sample
def test_cells_of_a_kd_tree_are_divided_at_their_borders(n, columns, cells, levels, dtype, order, seed):
    X = np.random.default_rng(seed).integers(0, levels, (n, columns)).astype(dtype)
    if order != "any":
        X = np.sort(X if order == "rising" else -X, axis=0) * (1 if order == "rising" else -1)
    starts = cell_starts(n, cells)
    result = kd_order(X, starts)
    np.testing.assert_array_equal(np.sort(result), np.arange(n))
    check_splits(X[result], starts, 0, cells)
    if columns == 1 and cells == 2:
        np.testing.assert_array_equal(np.sort(X[result][: starts[1], 0]), np.sort(X[:, 0])[: starts[1]])
