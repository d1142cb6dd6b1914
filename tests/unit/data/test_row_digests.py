"""Digests of rows tell different rows apart, and those of equal rows are equal."""

import numpy as np

from gigagp.data.row_digests import DigestFiles, digests, is_in, repeated


def test_digests_tell_rows_apart():
    Z = np.array([[0.0, 1.0], [1.0, 0.0], [-0.0, 1.0], [0.0, 1.0 + 1e-16], [0.0, 1.0 + 1e-15]])
    inputs, both = digests(Z, np.array([0.0, 0.0, 0.0, 1.0, 0.0]))
    assert inputs[0] == inputs[2] == inputs[3]
    assert len(set(inputs.tolist())) == 3
    assert both[0] == both[2] != both[3]
    grid = np.array([[a, b] for a in range(300) for b in range(300)], float)
    assert len(np.unique(digests(grid, np.zeros(len(grid)))[0])) == len(grid)


def test_repeated_values():
    values = np.array([5, 1, 5, 2, 1, 5, 9], np.uint64)
    assert repeated(values).tolist() == [1, 5]
    assert is_in(values, repeated(values)).tolist() == [True, True, True, False, True, True, False]


def test_files_have_each_row_once_and_equal_digests_together(tmp_path):
    rng = np.random.default_rng(0)
    inputs, both = rng.integers(0, 40, (2, 500)).astype(np.uint64)
    files = DigestFiles(tmp_path, 3)
    files.add(0, inputs[:200], both[:200])
    files.add(200, inputs[200:], both[200:])
    rows = []
    for i, b, numbers in files.parts():
        np.testing.assert_array_equal((inputs[numbers], both[numbers]), (i, b))
        assert not set(i.tolist()) & set(np.delete(inputs, numbers).tolist())
        rows += numbers.tolist()
    assert sorted(rows) == list(range(500))
    assert not list(tmp_path.iterdir())
