"""Rows into the store: every row once, with its own target, in memory or on disk the same, cells where they belong."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigagp.data import scaled
from gigagp.data.row_keys import RowKeys
from gigagp.data.row_lists import Runs
from gigagp.data.scaled import ArrayRows
from gigagp.data.scan import Sample, row_keys
from gigagp.engines import SerialEngine, ThreadsEngine
from gigagp.errors import DamagedFile, InvalidInput, InvalidParameter
from gigagp.fit import store_writer
from gigagp.fit.store_writer import DataSorter, DiskStorage, MemoryStorage, write_store
from gigagp.partition import LocalPartition, Partitioner, RandomPartition, Shape, StratifiedPartition
from gigagp.partition.base import Partition
from gigagp.partition.coarse import CoarseTree, Routing, bucket_rows
from gigagp.partition.dealing import spatial_order
from gigagp.partition.kdtree import cell_starts, kd_order
from gigagp.tree import Tree

SEED = 77


def inputs(kind, n, columns=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, columns))
    if kind == "equal":
        X[:] = 1.5
    elif kind == "discrete":
        X = np.floor(X)
    elif kind == "one constant":
        X[:, 0] = -4
    elif kind == "mostly zero":
        X *= rng.random((n, columns)) < 0.1
    return X


KINDS = ("continuous", "equal", "discrete", "one constant", "mostly zero")


def sample_of(X, y, rows, seed=SEED):
    """The rows with the smallest keys."""
    keys = row_keys(0, len(X), seed)
    best = np.argsort(keys)[:rows]
    return Sample(keys[best], best, X[best], y[best])


# The coarse tree


def walk(tree, x, key):
    """The bucket of one row, by the rule as it is written: left if (value, tie-breaker) is less than the split's."""
    node = 0 if len(tree) > 1 else -1
    while node >= 0:
        at = (float(tree.values[node]), int(tree.ties[node]))
        own = (float(x[tree.columns[node]]), int.from_bytes(int(key).to_bytes(8, "little"), "big"))
        node = tree.children[node, 0 if own < at else 1]
    return ~node


@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 300),
    rows=st.integers(1, 80),
    leaves=st.integers(1, 60),
    most=st.integers(1, 20),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_rows_go_where_the_splits_say(kind, n, rows, leaves, most, dtype):
    X = inputs(kind, n).astype(dtype)
    keys = row_keys(0, n, SEED)
    sample = sample_of(X, X[:, 0], rows)
    tree = CoarseTree.of_sample(sample.X, sample.keys, leaves, most)
    buckets = tree.route(X, keys)
    assert buckets.tolist() == [walk(tree, x, key) for x, key in zip(X, keys, strict=True)]
    assert tree.leaves.sum() == leaves
    assert tree.leaves.min() >= 1
    if len(sample.X) >= leaves:
        assert tree.leaves.max() <= most
    if leaves <= most:
        assert len(tree) == 1
    metric = np.array([0.5, 1.0, 4.0], dtype)  # powers of two, so that products are exact
    for first in (0, 7):
        route = Routing(tree, metric, RowKeys(SEED - first))
        assert (route(first, X / metric) == buckets).all()
    again = CoarseTree.of_sample(sample.X.copy(), sample.keys.copy(), leaves, most)
    assert (again.route(X, keys) == buckets).all()
    # the sample itself is divided as the leaves are, to within one row for each split above a bucket
    own = np.bincount(tree.route(sample.X, sample.keys), minlength=len(tree))
    np.testing.assert_allclose(own, len(sample.X) * tree.leaves / leaves, atol=1 + np.log2(leaves + 1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("leaves", "most"), [(64, 4), (37, 5), (7, 1)])
def test_buckets_have_their_share_of_the_rows_whatever_the_ties(kind, leaves, most):
    n, rows = 40_000, 4000
    X = inputs(kind, n, seed=3)
    sample = sample_of(X, X[:, 0], rows)
    tree = CoarseTree.of_sample(sample.X, sample.keys, leaves, most)
    share = tree.leaves / leaves
    got = np.bincount(tree.route(X, row_keys(0, n, SEED)), minlength=len(tree)) / n
    # the sample's rows that fall on one side of a split are a hypergeometric number: about binomial
    error = np.sqrt(share * (1 - share) / rows)
    assert len(tree) >= leaves / most
    assert np.abs((got - share) / error).max() < 5
    assert np.sqrt(np.mean(((got - share) / error) ** 2)) < 2


def test_buckets_are_separated_by_planes():
    X = inputs("continuous", 3000)
    sample = sample_of(X, X[:, 0], 500)
    tree = CoarseTree.of_sample(sample.X, sample.keys, 40, 3)
    buckets = tree.route(X, row_keys(0, 3000, SEED))
    check_apart([X[buckets == bucket] for bucket in range(len(tree))])


def check_apart(groups):
    """Any two groups lie on either side of a plane across one column."""
    lows, highs = (np.array([f(axis=0) for f in fs]) for fs in zip(*((g.min, g.max) for g in groups), strict=True))
    for a, b in itertools.combinations(range(len(groups)), 2):
        assert (highs[a] <= lows[b]).any() or (highs[b] <= lows[a]).any()


def test_the_widest_column_is_split_first():
    X = inputs("continuous", 2000) * [1, 1, 9]
    tree = CoarseTree.of_sample(X, row_keys(0, 2000, 0), 2, 1)
    assert tree.columns.tolist() == [2]
    assert abs(tree.values[0] - np.median(X[:, 2])) < 0.02


def test_bucket_rows_are_bounded_in_bytes():
    assert bucket_rows(1) == bucket_rows(8) == 1 << 18
    assert bucket_rows(127) == (1 << 25) // (8 * 128)
    assert bucket_rows(100_000) == 4096


# Buckets

ENGINES = {"serial": SerialEngine(), "threads": ThreadsEngine(3)}


@pytest.fixture(params=["memory", "disk", "disk, threads"])
def storage(request, tmp_path, monkeypatch):
    """Where rows are put, and an engine; blocks of 64 rows, so that buckets are filled by many."""
    monkeypatch.setattr(scaled, "BLOCK", 64)
    return (
        MemoryStorage() if request.param == "memory" else DiskStorage(tmp_path / "store", 1 << 12, "of a test"),
        ENGINES["threads" if "threads" in request.param else "serial"],
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_buckets_keep_the_order_of_the_data(storage, dtype):
    n, count = 1000, 9
    X, y = inputs("continuous", n).astype(dtype), np.arange(n, dtype=dtype)
    ids = np.random.default_rng(5).integers(0, count - 1, n)  # the last remains empty
    ids[ids == 3] = 4  # and one in between
    buckets = storage[0].buckets(ArrayRows(X, y), lambda first, part: ids[first : first + len(part)], count, storage[1])
    assert buckets.sizes.tolist() == np.bincount(ids, minlength=count).tolist()
    for bucket in (5, *(b for b in range(count) if b != 5)):
        rows = np.flatnonzero(ids == bucket)
        taken, targets = buckets.take(bucket)
        assert taken.dtype == targets.dtype == dtype
        assert taken.shape == (len(rows), 3)
        assert taken.flags.c_contiguous
        assert targets.tolist() == rows.tolist()
        assert taken.tobytes() == X[rows].tobytes()


# The store

CASES = {
    "local": (LocalPartition(), Shape(leaf_size=40, sharing=4.0)),
    "local levels": (LocalPartition(), Shape(2, 5)),
    "local pairs": (LocalPartition(), Shape(leaf_size=2)),
    "random": (RandomPartition(), Shape(leaf_size=40)),
    "random sharing": (RandomPartition(), Shape(leaf_size=40, sharing=3)),
    "random levels": (RandomPartition(), Shape(2, 4, sharing=2)),
    "stratified": (StratifiedPartition(), Shape(leaf_size=40)),
    "stratified sharing": (StratifiedPartition(3), Shape(leaf_size=40, sharing=2)),
    "stratified levels": (StratifiedPartition(), Shape(2, 4, sharing=2)),
    "stratified one level": (StratifiedPartition(), Shape(1, 11)),
}
N = 1301
METRIC = np.array([2.0, 0.5, 1.0])
cases = pytest.mark.parametrize(("parts", "shape"), CASES.values(), ids=CASES)


@pytest.fixture
def buckets(monkeypatch):
    """Buckets of about 300 rows, blocks of 128."""
    monkeypatch.setattr(scaled, "BLOCK", 128)
    monkeypatch.setattr(store_writer, "bucket_rows", lambda columns: 300)


def stored(parts, shape, storage, kind="continuous", dtype=np.float64, engine="serial", data=None):
    X = inputs(kind, N).astype(dtype)
    y = np.arange(N, dtype=dtype)
    sample, rng = sample_of(X, y, 250), np.random.default_rng(4)
    return X, write_store(
        parts, data or ArrayRows(X, y), shape, METRIC, sample, SEED, rng, storage, ENGINES[engine]
    )  # fmt: skip


def disk(path, memory=1 << 20):
    path.mkdir(parents=True, exist_ok=True)
    return DiskStorage(path / "store", memory, "of a test")


def lists(groups):
    return [groups[g].tolist() for g in range(len(groups))]


def check_once(X, result):
    """Every row is stored once, with its own target."""
    numbers = result.store.y.astype(int)
    assert sorted(numbers.tolist()) == list(range(len(X)))
    assert result.store.X.tobytes() == X[numbers].tobytes()
    assert not result.store.X.flags.writeable
    assert not result.store.y.flags.writeable
    assert set(itertools.chain(*lists(result.cells))) == set(range(len(X)))


@cases
@pytest.mark.parametrize("kind", KINDS)
def test_every_row_lands_once_with_its_own_target(parts, shape, kind, buckets):
    X, result = stored(parts, shape, MemoryStorage(), kind)
    check_once(X, result)
    copies = np.bincount(list(itertools.chain(*lists(result.cells))), minlength=N)
    expected = 1 if parts.local else int(shape.sharing or 1) ** (shape.levels or 1)
    assert (copies == expected).all()
    assert len(result.cells) == result.tree.n_leaves
    assert all(len(set(rows)) == len(rows) for rows in lists(result.cells))
    sizes = result.cells.sizes
    assert sizes.min() >= 2
    if shape.levels:
        assert len(result.cells) == (shape.branching or 4) ** shape.levels
        assert result.tree.depth == shape.levels
    else:
        assert sizes.max() <= 1.5 * shape.leaf_size + 1
        assert abs(len(sizes) - N * expected / shape.leaf_size) <= max(3, 0.02 * len(sizes))


@cases
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_memory_and_disk_give_the_same_store(parts, shape, dtype, buckets, tmp_path):
    X, one = stored(parts, shape, MemoryStorage(), dtype=dtype)
    for engine, memory in (("serial", 1 << 20), ("threads", 120_000)):
        _, other = stored(parts, shape, disk(tmp_path / engine, memory), dtype=dtype, engine=engine)
        assert other.store.mapped
        assert not one.store.mapped
        check_once(X, other)
        assert other.store.X.dtype == other.store.y.dtype == dtype
        assert one.store.X.tobytes() == other.store.X.tobytes()
        assert one.store.y.tobytes() == other.store.y.tobytes()
        assert lists(one.cells) == lists(other.cells)
        assert lists(one.experts) == lists(other.experts)
        assert (one.tree.depth, one.tree.n_leaves) == (other.tree.depth, other.tree.n_leaves)
        assert [p.name for p in (tmp_path / engine).iterdir()] == ["store"]


@cases
def test_a_store_that_is_there_is_taken_as_it_is(parts, shape, buckets, tmp_path, monkeypatch):
    _, made = stored(parts, shape, disk(tmp_path))

    class Unread(ArrayRows):
        def blocks(self):
            pytest.fail("the rows were read again")

    X = inputs("continuous", N)
    _, result = stored(parts, shape, disk(tmp_path), data=Unread(X, X[:, 0]))
    assert result.store.X.tobytes() == made.store.X.tobytes()
    assert result.store.y.tobytes() == made.store.y.tobytes()
    assert lists(result.cells) == lists(made.cells)
    assert lists(result.experts) == lists(made.experts)
    assert (result.tree.depth, result.tree.n_leaves) == (made.tree.depth, made.tree.n_leaves)


def test_a_damaged_store_is_refused(buckets, tmp_path):
    stored(*CASES["local"], disk(tmp_path))
    file = tmp_path / "store" / "X.npy"
    raw = bytearray(file.read_bytes())
    raw[1000] ^= 1
    file.write_bytes(raw)
    with pytest.raises(DamagedFile, match=r"X\.npy is damaged"):
        stored(*CASES["local"], disk(tmp_path))


@pytest.mark.parametrize("case", ["local", "local levels"])
def test_local_cells_are_separated_by_planes_in_every_bucket_and_between(case, buckets):
    parts, shape = CASES[case]
    _, result = stored(parts, shape, MemoryStorage())
    scaled_rows = result.store.X * METRIC
    check_apart([scaled_rows[rows] for rows in lists(result.cells)])
    sizes = result.cells.sizes
    wanted = N / len(sizes)
    assert np.abs(sizes / wanted - 1).max() < 0.35
    assert isinstance(result.cells, Runs)


def test_the_metric_decides_where_local_cells_are_cut(buckets):
    """A column that the metric makes nothing of is never cut."""
    X = inputs("continuous", N)
    y = np.arange(N, dtype=float)
    metric = np.array([1.0, 1e-9, 1.0])
    result = write_store(
        LocalPartition(), ArrayRows(X, y), Shape(leaf_size=40), metric, sample_of(X, y, 250), SEED,
        np.random.default_rng(0), MemoryStorage(), ENGINES["serial"],
    )  # fmt: skip
    spread = np.array([np.ptp(result.store.X[rows], axis=0) for rows in lists(result.cells)])
    assert (spread[:, 1] > 2).all()
    assert (np.median(spread, axis=0)[[0, 2]] < 1.5).all()


def test_stratified_experts_see_the_whole_space_more_evenly_than_random_ones(buckets):
    def scatter(parts):
        _, result = stored(parts, Shape(leaf_size=130), MemoryStorage())
        rows = result.store.X > 0
        boxes = [np.bincount(rows[r] @ [4, 2, 1], minlength=8) for r in lists(result.cells)]
        return np.std(boxes, axis=0).mean()

    assert scatter(StratifiedPartition()) < 0.6 * scatter(RandomPartition())


def test_neighbours_follow_each_other_in_the_order_that_strata_are_cut_from(buckets, tmp_path):
    X, y = inputs("continuous", N), np.arange(N, dtype=float)
    sample = sample_of(X, y, 250)
    one, other = (
        spatial_order(DataSorter(ArrayRows(X, y), METRIC, sample, SEED, storage, ENGINES["serial"]))
        for storage in (MemoryStorage(), disk(tmp_path))
    )
    assert one.tolist() == other.tolist()
    assert sorted(one.tolist()) == list(range(N))
    whole = kd_order(X, cell_starts(N, N // 2))
    steps = [np.median(np.linalg.norm(np.diff(X[order], axis=0)[::2], axis=1)) for order in (one, whole, y.astype(int))]
    assert steps[0] < 1.3 * steps[1] < 0.25 * steps[2]


def test_no_leaf_of_pairs_is_a_single_row(buckets):
    """An even number of rows in buckets that have odd numbers of them."""
    X, y = inputs("continuous", N - 1), np.arange(N - 1, dtype=float)
    result = write_store(
        LocalPartition(), ArrayRows(X, y), Shape(leaf_size=2), METRIC, sample_of(X, y, 250), SEED,
        np.random.default_rng(0), MemoryStorage(), ENGINES["serial"],
    )  # fmt: skip
    check_once(X, result)
    assert result.cells.sizes.min() == 2
    assert result.cells.sizes.max() == 3


@cases
def test_few_rows_are_divided_whole(parts, shape, tmp_path):
    """Below the size of a bucket the partition itself decides, in any storage."""
    for storage in (MemoryStorage(), disk(tmp_path)):
        X, result = stored(parts, shape, storage)
        check_once(X, result)
        rng = np.random.default_rng(4)
        expected = parts.split(X * METRIC if parts.local else X, shape, rng)
        assert result.store.y.astype(int).tolist() == expected.order.tolist()
        assert lists(result.cells) == lists(expected.cells)


class Halves(Partitioner):
    """Someone's own."""

    def check(self, n, shape):
        pass

    def split(self, X, shape, rng):
        cells = Runs(np.array([0, len(X) // 2, len(X)]))
        return Partition(np.argsort(X[:, 0]), cells, cells, Tree.balanced(2))


def test_a_partition_of_ones_own_is_given_all_rows_if_they_fit(buckets, tmp_path):
    X, result = stored(Halves(), Shape(), MemoryStorage())
    check_once(X, result)
    assert (np.diff(result.store.X[:, 0]) >= 0).all()

    class Elsewhere:
        rows, columns, dtype = N, 3, np.dtype(float)

    with pytest.raises(InvalidParameter, match=r"all rows at once, and they do not fit .* raise memory="):
        stored(Halves(), Shape(), disk(tmp_path), data=Elsewhere())


@pytest.mark.parametrize("case", ["random", "stratified sharing"])
def test_an_index_that_exceeds_the_budget_is_refused_with_what_it_takes(case, buckets, tmp_path):
    with pytest.raises(InvalidParameter, match=r'more than half of the budget; raise memory= to .* partition="local"'):
        stored(*CASES[case], disk(tmp_path, 80 * N - 2))
    stored(*CASES[case], disk(tmp_path, 80 * N))


def test_levels_that_a_bucket_cannot_fill_are_refused(buckets):
    """Two rows for each of 650 leaves on average are, in some bucket, less than two."""
    with pytest.raises(InvalidInput, match=r"1301 rows cannot be divided into 650 cells .* fewer levels"):
        stored(LocalPartition(), Shape(1, 650), MemoryStorage())
