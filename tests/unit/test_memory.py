"""The memory budget: sizes as people write them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigagp import HGPRegressor, memory
from gigagp.errors import InvalidParameter

UNITS = {
    "": 1, "B": 1, "KB": 10**3, "k": 10**3, "MB": 10**6, "M": 10**6, "GB": 10**9, "gb": 10**9, "TB": 10**12,
    "MiB": 2**20, "GiB": 2**30, "gib": 2**30, "Gi": 2**30, "TiB": 2**40,
}  # fmt: skip


@given(st.integers(1, 10**6), st.sampled_from(list(UNITS)), st.sampled_from(["", " ", "  "]))
def test_sizes_are_read_as_written(number, unit, space):
    size = number * UNITS[unit]
    text = f"{space}{number}{space}{unit}{space}"
    if memory.LEAST <= size < 2**62:
        assert memory.budget(text) == size
        assert memory.budget(size) == memory.budget(float(size)) == memory.budget(np.int64(size)) == size
    else:
        with pytest.raises(InvalidParameter, match="at least 64MiB"):
            memory.budget(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"), (1023, "1023 bytes"), (1024, "1 KiB"), (25_000, "24.4 KiB"), (64 << 20, "64 MiB"),
        (2**20 - 1, "1 MiB"), (1000 << 20, "1 GiB"), (3 << 39, "1.5 TiB"), (5000 << 40, "5000 TiB"),
    ],
)  # fmt: skip
def test_sizes_are_written_in_units_that_fit(size, text):
    assert memory.size_text(size) == text


def test_fractions_and_powers():
    assert memory.budget("1.5GB") == 1_500_000_000
    assert memory.budget(".5 GiB") == 2**29
    assert memory.budget("2e9") == memory.budget("2E3MB") == memory.budget(2e9) == 2_000_000_000
    assert memory.budget(Fraction(2**31, 2)) == 2**30
    assert memory.budget("64MiB") == memory.budget(64 << 20) == memory.LEAST


@pytest.mark.parametrize(
    "wrong",
    ["", "GB", "two GB", "2 G B", "2PB", "2IB", "-2GB", "1,5GB", "2.GB", "nan", "inf", "63MiB", 0, -1, (64 << 20) - 1,
     True, np.nan, np.inf, 2**62, 2e9j, b"2GB", [2e9]],
)  # fmt: skip
def test_what_is_no_size_is_refused_before_any_work(wrong):
    with pytest.raises(InvalidParameter, match=r'memory must be a size such as "2GB" of at least 64MiB, or None; got'):
        HGPRegressor(memory=wrong).fit(None, None)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, 8 << 30),
        ({"/sys/fs/cgroup/memory.max": "max\n"}, 8 << 30),
        ({"/sys/fs/cgroup/memory.max": f"{6 << 30}\n"}, 3 << 30),
        ({"/sys/fs/cgroup/memory/memory.limit_in_bytes": f"{4 << 30}\n"}, 2 << 30),
        ({"/sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2**63 - 4096}\n"}, 8 << 30),
    ],
)
def test_without_a_size_it_is_half_of_the_machine_or_of_its_container(monkeypatch, limits, expected):
    def read(path):
        if str(path) in limits:
            return limits[str(path)]
        raise FileNotFoundError(path)

    monkeypatch.setattr(memory.Path, "read_text", read)
    monkeypatch.setattr(memory.os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": (16 << 30) // 4096}.get)
    assert memory.budget(None) == expected
