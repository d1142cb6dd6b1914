"""The expert store: which of its mapped pages stay in memory."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from gigagp.data.array_files import ArrayFiles
from gigagp.data.store import ExpertStore, read_rows, write_rows

ROWS = 50_000


def resident(path):
    """Bytes of a mapped file that are in this process's memory."""
    entries = Path("/proc/self/smaps").read_text().split(str(path))[1:]
    return sum(1024 * int(re.search(r"Rss:\s+(\d+) kB", entry)[1]) for entry in entries)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_rows_within_the_limit_are_mapped_at_once_and_stay(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((ROWS, 4)), rng.standard_normal(ROWS)
    files = ArrayFiles(tmp_path, write_rows(tmp_path, ExpertStore(X, y)))
    size = X.nbytes + y.nbytes
    for limit, kept in ((size // 2, False), (2 * size, True)):
        store = read_rows(files, ROWS, 4, "float64", verify=False)
        assert resident(tmp_path / "X.npy") == 0
        store.keep_mapped(limit)
        assert (resident(tmp_path / "X.npy") >= X.nbytes) == kept
        assert store.X[::100].sum() == X[::100].sum()
        assert resident(tmp_path / "X.npy") > 0
        store.release()
        assert (resident(tmp_path / "X.npy") >= X.nbytes) == kept
        np.testing.assert_array_equal(store.y, y)
        del store
