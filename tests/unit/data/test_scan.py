"""The first pass: moments that neither overflow nor cancel, and a sample that only seed and row numbers decide."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from gigagp.data import scan as scanning
from gigagp.data.scaling import BLOCK, Moments
from gigagp.data.scan import row_keys, scan
from gigagp.data.sources import open_rows

EPS = np.finfo(float).eps


@st.composite
def columns(draw, most=300):
    """Rows whose columns have very different sizes, offsets and spreads."""
    n, d = draw(st.integers(1, most)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(hnp.arrays(float, d, elements=st.sampled_from([1e-300, 1e-9, 1.0, 1e9, 1e300])))
    offset = draw(hnp.arrays(float, d, elements=st.sampled_from([0.0, 1.0, -1e6])))
    return (rng.standard_normal((n, d)) + offset) * scale


@given(columns())
def test_moments_are_numpys(X):
    """Of the columns brought to the size of one, where NumPy neither overflows nor vanishes."""
    moments = Moments.of(X)
    size = np.abs(X).max(axis=0)
    assert moments.count == len(X)
    np.testing.assert_array_equal(moments.low, X.min(axis=0))
    np.testing.assert_array_equal(moments.high, X.max(axis=0))
    np.testing.assert_allclose(moments.mean / size, (X / size).mean(axis=0), rtol=1e-13, atol=1e-14)
    # NumPy's own deviation has lost digits to the offset: as many as there are in size / deviation
    np.testing.assert_allclose(moments.deviation / size, (X / size).std(axis=0), rtol=1e-9, atol=4 * EPS)


@given(columns(40), st.data())
def test_moments_of_blocks_are_those_of_the_whole(X, data):
    whole = Moments.of(X)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(X)), max_size=6)))
    parts = Moments(X[0])
    for start, end in zip([0, *cuts], [*cuts, len(X)], strict=True):
        if end > start:
            parts.add(X[start:end])
    size = np.abs(X).max(axis=0)
    np.testing.assert_allclose(parts.mean / size, whole.mean / size, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(parts.deviation, whole.deviation, rtol=1e-12)
    assert (parts.constant == whole.constant).all()


def test_moments_of_more_rows_than_a_block():
    X = np.random.default_rng(0).standard_normal((3 * BLOCK + 17, 2)) * [1, 1e5] + [1e8, 0]
    moments = Moments.of(X)
    wide = X.astype(np.longdouble)
    np.testing.assert_allclose(
        moments.mean / [1e8, 1e5], wide.mean(axis=0).astype(float) / [1e8, 1e5], rtol=0, atol=1e-15
    )
    np.testing.assert_allclose(moments.deviation, wide.std(axis=0).astype(float), rtol=1e-13)


@pytest.mark.parametrize(
    ("values", "mean", "deviation"),
    [
        ([5.0], 5.0, 0.0),
        ([-3.0, -3.0, -3.0], -3.0, 0.0),
        ([1.7e308, -1.7e308], 0.0, 1.7e308),
        ([1.7e308, -1.7e308, -1.7e308], -1.7e308 / 3, 1.7e308 * (8**0.5 / 3)),
        ([-1.7e308, 1.7e308, 1.7e308, 1.7e308], 0.85e308, 1.7e308 * 0.75**0.5),
        ([1e-300, 3e-300], 2e-300, 1e-300),
        ([1e300, 1e300, 1e-300], 2e300 / 3, 1e300 * 2**0.5 / 3),
        ([1e16, 1e16 + 2], 1e16 + 1, 1.0),
        ([0.0, 0.0, 0.0, 4.0], 1.0, 3**0.5),
    ],
)
def test_moments_known_by_hand(values, mean, deviation):
    with np.errstate(all="raise", under="ignore"):
        moments = Moments.of(np.array(values)[:, None])
        np.testing.assert_allclose(moments.mean, [mean], rtol=1e-15, atol=1e-300 * abs(mean))
        np.testing.assert_allclose(moments.deviation, [deviation], rtol=1e-15)


@given(columns(), st.floats(-1e300, 1e300))
def test_a_constant_column_is_centred_on_its_value_and_not_scaled(X, value):
    X = np.column_stack([X, np.full(len(X), value)])
    moments = Moments.of(X)
    scaling = moments.scaling()
    assert moments.constant[-1]
    assert scaling.scale[-1] == 1
    assert (scaling.apply(X, np.dtype(float))[:, -1] == 0).all()


@given(columns())
def test_scaled_rows_have_mean_zero_and_deviation_one(X):
    moments = Moments.of(X)
    scaled = moments.scaling().apply(X, np.dtype(float))[:, ~moments.constant]
    # The centre is a double: where a column varies in its last digits only, the mean is off by a unit of these.
    size = (np.abs(X).max(axis=0) / moments.scaling().scale)[~moments.constant]
    assert (np.abs(scaled.mean(axis=0)) <= 1e-9 + 2 * EPS * size).all()
    np.testing.assert_allclose(scaled.std(axis=0), 1, rtol=1e-9)


@given(columns(), st.integers(1, 40))
def test_moments_survive_a_checkpoint(X, at):
    moments = Moments(X[0])
    moments.add(X[:at])
    again = Moments.from_state(moments.state())
    for m in (moments, again):
        if at < len(X):
            m.add(X[at:])
    assert again.count == moments.count == len(X)
    assert again.state().tobytes() == moments.state().tobytes()


def splitmix64(state):
    """The published generator, one number at a time, in Python's whole numbers."""
    mask = 2**64 - 1
    z = (state * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


@given(st.integers(0, 2**40), st.integers(0, 200), st.integers(0, 2**64 - 1))
@example(first=2**40, count=3, seed=2**64 - 1)
def test_keys_are_splitmix64_of_the_rows_numbers(first, count, seed):
    keys = row_keys(first, count, seed)
    assert keys.dtype == np.uint64
    assert keys.tolist() == [splitmix64((row + seed + 1) % 2**64) for row in range(first, first + count)]


def test_the_published_values():
    """The first numbers of splitmix64 seeded with 1234567, as Java's SplittableRandom and Vigna's C code give them."""
    state = 1234567
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    mask = 2**64 - 1
    got = []
    for _ in expected:
        state = (state + 0x9E3779B97F4A7C15) & mask
        inverse = pow(0x9E3779B97F4A7C15, -1, 2**64)
        got.append(splitmix64(state * inverse & mask))
    assert got == expected


@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 5])
def test_keys_are_uniform_and_never_the_same(seed):
    keys = row_keys(10**9, 20_000, seed)
    assert len(np.unique(keys)) == 20_000
    assert stats.kstest(keys / 2**64, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(keys[:-1] / 2**64, keys[1:] / 2**64)[0, 1]) < 0.03


@pytest.fixture
def small(monkeypatch):
    """A sample of 50 rows."""
    monkeypatch.setattr(scanning, "_SAMPLE_ROWS", 50)
    monkeypatch.setattr(scanning, "_LEAST_SAMPLE", 50)
    return 50


@given(n=st.integers(1, 2000), block=st.integers(1, 300), seed=st.integers(0, 2**64 - 1))
@example(n=2000, block=7, seed=0)
@example(n=51, block=1, seed=3)
def test_the_sample_is_the_rows_with_the_smallest_keys(n, block, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "_SAMPLE_ROWS", 50)
        patch.setattr(scanning, "_LEAST_SAMPLE", 50)
        numbers = np.arange(n, dtype=float)
        heard = []
        result = scan(open_rows(np.column_stack([numbers, -numbers]), numbers).blocks(block), seed, heard.append)
    keys = row_keys(0, n, seed)
    expected = np.argsort(keys)[:50]
    sample = result.sample
    assert result.rows == n == heard[-1]
    assert sample.rows.tolist() == expected.tolist()
    assert sample.keys.tolist() == keys[expected].tolist()
    assert sample.y.tolist() == expected.tolist()
    assert sample.X.tolist() == np.column_stack([expected, -expected]).tolist()
    for count in (0, 1, 20, 50, 99):
        X, y = sample.first(count)
        assert y.tolist() == sorted(expected[:count])
        assert X[:, 0].tolist() == sorted(expected[:count])


def test_a_wide_table_has_a_smaller_sample(monkeypatch):
    """As many rows as bytes allow, but enough for the partition."""
    monkeypatch.setattr(scanning, "_LEAST_SAMPLE", 10)
    monkeypatch.setattr(scanning, "_SAMPLE_ROWS", 60)
    monkeypatch.setattr(scanning, "_SAMPLE_BYTES", 8 * 100)
    for width, expected in ((1, 50), (3, 25), (99, 10)):
        result = scan(open_rows(np.ones((200, width)), np.arange(200.0)).blocks(64), 0)
        assert len(result.sample.rows) == expected
    monkeypatch.setattr(scanning, "_SAMPLE_BYTES", 1 << 30)
    assert len(scan(open_rows(np.ones((200, 2)), np.arange(200.0)).blocks(64), 0).sample.rows) == 60


def test_the_target_and_the_inputs_have_their_own_moments(small):
    X, y = np.random.default_rng(0).uniform(1, 2, (300, 3)), np.arange(300.0)
    result = scan(open_rows(X, y).blocks(128), 5)
    np.testing.assert_allclose(result.inputs.mean, X.mean(axis=0))
    np.testing.assert_allclose(result.inputs.deviation, X.std(axis=0))
    np.testing.assert_allclose(result.target.mean, [y.mean()])
    np.testing.assert_allclose(result.target.deviation, [y.std()])
    assert (result.target.low, result.target.high) == (0, 299)


def test_columns_with_two_values_are_recognised():
    rng = np.random.default_rng(0)
    X = np.column_stack([
        rng.random(5000) < 0.001, np.where(rng.random(5000) < 0.5, -3.0, 7e8), rng.integers(0, 3, 5000),
        rng.normal(size=5000), np.full(5000, 2.0), np.where(np.arange(5000) == 7, 0.5, np.arange(5000) % 2),
    ]).astype(float)  # fmt: skip
    moments = Moments.of(X)
    assert moments.two_valued.tolist() == [True, True, False, False, False, False]
    scaling = moments.scaling(two_valued_by_range=True)
    np.testing.assert_allclose(scaling.scale[:2], [0.5, (7e8 + 3) / 2])
    np.testing.assert_array_equal(scaling.scale[2:], moments.scaling().scale[2:])
