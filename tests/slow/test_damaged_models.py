"""Twenty thousand spoilt models and stores: a clear error or the same answers, in bounded time and memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import damage

pytestmark = pytest.mark.slow

CASES = 20_000
WORKERS = 2


def test_spoilt_folders_are_refused_or_answer_the_same(tmp_path):
    damage.build(tmp_path / "whole")
    share = CASES // WORKERS
    running = [
        subprocess.Popen(
            [sys.executable, damage.__file__, str(tmp_path), str(first), str(share)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for first in range(0, CASES, share)
    ]  # fmt: skip
    seen = []
    for worker, first in zip(running, range(0, CASES, share), strict=True):
        out, err = worker.communicate()
        at = (tmp_path / f"case-{first}").read_text()
        assert worker.returncode == 0, f"case {at} ended with {worker.returncode}:\n{err[-3000:]}"
        seen.append(json.loads(out))
    total = {kind: sum(each.get(kind, 0) for each in seen) for kind in ("refused", "same", "another")}
    assert sum(total.values()) == CASES
    assert total["refused"] > 0.5 * CASES  # most damage shows
    assert total["same"] > 0
    assert max(each["peak"] for each in seen) < 1_000_000  # kB
    assert not Path(damage.Bomb.trace).exists()
