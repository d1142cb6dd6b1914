"""A category is one column in which any two different levels are equally far apart, as with a 0/1 column per level."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.gaussian_process import kernels as sk
from sklearn.preprocessing import OneHotEncoder

from gigagp.errors import InvalidParameter
from gigagp.kernels import Constant, Linear, Matern12, Matern32, Matern52, RationalQuadratic, SquaredExponential
from gigagp.kernels.inputs import InputColumns
from gigagp.linalg.categories import DIFFERENT, LEVELS_APART, limits_of, spreads, variances
from gigagp.model.block_tree import BlockTree
from gigagp.model.boxes import Boxes, extents
from gigagp.model.neighbour_search import NO_ROW, UNLIMITED, nearest, search_scratch
from gigagp.partition.kdtree import cell_starts, kd_order, kd_order_of_blocks

REFERENCES = {
    SquaredExponential: sk.RBF(),
    Matern12: sk.Matern(nu=0.5),
    Matern32: sk.Matern(nu=1.5),
    Matern52: sk.Matern(nu=2.5),
    RationalQuadratic: sk.RationalQuadratic(),
}


def made(rows, levels, seed=0, dtype=float):
    """Two numbers and two categories as the model has them; and the same with a 0/1 column per level."""
    rng = np.random.default_rng(seed)
    codes = np.column_stack([rng.integers(levels, size=rows), rng.integers(3, size=rows)])
    x = rng.standard_normal((rows, 2))
    X = np.column_stack([x[:, 0], LEVELS_APART * codes[:, 0], x[:, 1], LEVELS_APART * codes[:, 1]]).astype(dtype)
    hot = [OneHotEncoder(sparse_output=False).fit_transform(codes[:, [j]]) for j in range(2)]
    return X, x, hot


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("family", REFERENCES)
def test_a_kernel_over_levels_is_the_kernel_of_a_column_per_level(family, dtype):
    X, x, hot = made(70, 5000, dtype=dtype)
    scales = np.array([0.7, 1.3, 2.0, 0.9])
    kernel = family(1.7, scales).bind(4).with_categories([1, 3])
    scaled = np.column_stack([x[:, :1] / 0.7, hot[0] / 1.3, x[:, 1:] / 2.0, hot[1] / 0.9])
    expected = 1.7 * REFERENCES[family](scaled)
    close = 1e-12 if dtype is np.float64 else 1e-5
    np.testing.assert_allclose(np.tril(kernel.gram(kernel.theta, X)), np.tril(expected), rtol=close, atol=close)
    cross = kernel.cross(kernel.theta, X[:9], X[9:])
    np.testing.assert_allclose(cross, expected[:9, 9:], rtol=close, atol=close)


@pytest.mark.parametrize("family", REFERENCES)
def test_the_gradient_is_that_of_finite_differences(family):
    X, _, _ = made(40, 6)
    kernel = family(1.7, [0.7, 1.3, 2.0, 0.9]).bind(4).with_categories([1, 3])
    W = np.random.default_rng(1).standard_normal((40, 40))
    W = W + W.T

    def total(theta):
        K = np.tril(kernel.gram(theta, X))
        return float(np.sum(W * (K + np.tril(K, -1).T)))

    theta = kernel.theta
    pulled = kernel.pullback(theta, X, W, kernel.gram(theta, X))
    steps = 1e-6 * np.eye(len(theta))
    differences = [(total(theta + step) - total(theta - step)) / 2e-6 for step in steps]
    np.testing.assert_allclose(pulled, differences, rtol=1e-5, atol=1e-5)


def squared_distances(X, Z, metric, categories):
    """Reference: by 0/1 columns."""
    numbers = [j for j in range(X.shape[1]) if j not in categories]
    total = cdist(X[:, numbers] * metric[numbers], Z[:, numbers] * metric[numbers], "sqeuclidean")
    for j in categories:
        total += DIFFERENT * metric[j] ** 2 * (X[:, j][:, None] != Z[:, j])
    return total


@pytest.mark.parametrize(("columns", "categories"), [(1, (0,)), (2, (0,)), (4, (1, 3)), (9, (0, 8)), (13, (2, 7, 12))])
def test_the_search_finds_the_nearest_rows(columns, categories):
    rng = np.random.default_rng(columns)
    X = rng.standard_normal((500, columns))
    X[:, list(categories)] = LEVELS_APART * rng.integers(9, size=(500, len(categories)))
    metric = rng.uniform(0.2, 2, columns)
    limits, starts = limits_of(metric, categories), cell_starts(500, 12)
    X = X[kd_order_of_blocks(X * metric, starts, limits)]
    blocks = np.arange(0, 501, 20)
    tree = BlockTree.of_rows(X, blocks)
    Z = np.vstack([X[:20], X[:20] + 0.3])
    Z[20:, list(categories)] = LEVELS_APART * rng.integers(12, size=(20, len(categories)))  # some levels are new
    expected = np.sort(squared_distances(Z, X, metric, categories), axis=1)[:, :30]
    for z, distances in zip(Z, expected, strict=True):
        squares, rows = np.empty(30), np.empty(30, np.int64)
        size = nearest(
            X, tree.arrays, np.stack([metric, limits]), z * metric, NO_ROW, UNLIMITED,
            search_scratch(columns, tree.places), squares, rows,
        )  # fmt: skip
        assert size == 30
        np.testing.assert_allclose(squares, distances, atol=1e-12)
        np.testing.assert_allclose(squared_distances(z[None], X[rows], metric, categories)[0], distances, atol=1e-12)


def test_boxes_of_cells_bound_the_distance_to_their_rows():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal(300), LEVELS_APART * rng.integers(7, size=300)])
    metric = np.array([1.0, 0.8])
    limits, starts = limits_of(metric, (1,)), cell_starts(300, 10)
    X = X[kd_order(X * metric, starts, limits)]
    lows, highs = (side * metric for side in extents(X, starts))
    boxes = Boxes(lows, highs, (lows + highs) / 2, limits)
    distances, cells = boxes.nearest(X[::7] * metric, 10)
    for z, own, order in zip(X[::7], distances, cells, strict=True):
        assert sorted(order) == list(range(10))
        for distance, cell in zip(own, order, strict=True):
            rows = X[starts[cell] : starts[cell + 1]]
            assert distance**2 <= squared_distances(z[None], rows, metric, (1,)).min() + 1e-6
        assert own[-1] ** 2 <= (np.ptp(X[:, 0]) ** 2 + limits[1]) * (1 + 1e-6)


def test_spreads_are_half_the_mean_squared_difference_of_two_rows():
    X, _, _ = made(50, 4)
    pairs = [squared_distances(X[:, [j]], X[:, [j]], np.ones(1), (0,) if j in (1, 3) else ()).mean() for j in range(4)]
    np.testing.assert_allclose(variances(X, (1, 3)), np.array(pairs) / 2)
    metric = np.array([0.5, 2.0, 1.0, 3.0])
    np.testing.assert_allclose(spreads(X * metric, limits_of(metric, (1, 3))), np.array(pairs) / 2 * metric**2)


def test_cells_are_cut_by_a_category_as_far_as_it_matters():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal(512), LEVELS_APART * rng.integers(8, size=512)])
    starts = cell_starts(512, 8)
    for weight, most in ((5.0, 2), (0.0, 8)):
        metric = np.array([1.0, weight])
        cells = np.split(X[kd_order(X * metric, starts, limits_of(metric, (1,)))], starts[1:-1])
        levels = [len(np.unique(cell[:, 1])) for cell in cells]
        assert np.median(levels) == most  # a relevant category is cut into its levels, an irrelevant one is not cut


def test_a_kernel_of_numbers_leaves_categories_out():
    inputs = InputColumns(("a", "kind"), ((0,), (1,)), (1.0, 1.0), categories=(1,))
    assert Linear().bound(inputs).places == (0,)
    assert (Linear() + Matern32(columns="kind")).bound(inputs).right.categories == (1,)
    assert Constant().bound(inputs).sees(2).tolist() == [False, False]
    with pytest.raises(InvalidParameter, match=r"Linear is a kernel of numbers and cannot read .* column 'kind'"):
        Linear(columns="kind").bound(inputs)
    with pytest.raises(InvalidParameter, match="all columns are categories"):
        Linear().bound(InputColumns(("kind",), ((0,),), (1.0,), categories=(0,)))


class OwnPasses(Matern32):
    """A kernel whose gram matrix a user has written."""

    def gram(self, theta, X, out=None):
        return super().gram(theta, X, out)


def test_a_kernel_with_passes_of_its_own_leaves_categories_out():
    inputs = InputColumns(("a", "kind"), ((0,), (1,)), (1.0, 1.0), categories=(1,))
    assert OwnPasses().bound(inputs).places == (0,)
