"""Cells become larger for a committee as far as the work of all its experts allows, and where users left them open."""

from types import SimpleNamespace

import numpy as np
import pytest

from gigagp.fit import cell_cutting
from gigagp.fit.cell_cutting import CellCutter
from gigagp.fit.plan import Plan
from gigagp.fit.training import Precision
from gigagp.kernels import Matern52
from gigagp.partition import LocalPartition
from gigagp.partition.base import Shape


@pytest.fixture
def cutter(monkeypatch):
    """A cutter that returns the size of the cells that it would cut."""
    monkeypatch.setattr(CellCutter, "_cut", lambda self, plan, groups, theta: plan.shape.leaf_size)
    return CellCutter(None, None, None, None)


def plan(shape, method="auto"):
    return Plan(Matern52().bind(2), 0.1, (1e-6, 1.0), LocalPartition(), shape, "auto", Precision(), method=method)


def groups(rows, size=256):
    sizes = np.full(max(1, rows // size), size)
    return SimpleNamespace(rows=rows, stored=SimpleNamespace(cells=SimpleNamespace(sizes=sizes)))


@pytest.mark.parametrize("rows", [12_000, 36_000, 80_000])
def test_cells_are_as_large_as_the_work_allows(cutter, rows):
    size = cutter.cut_for_committee(plan(Shape()), groups(rows), None)
    assert size > 256
    work = rows / size * (cell_cutting._SHARING * size) ** 3 / 3
    assert 0.99 * cell_cutting._EXPERTS_WORK < work <= cell_cutting._EXPERTS_WORK


def test_no_expert_has_more_than_half_of_the_rows(cutter):
    size = cutter.cut_for_committee(plan(Shape(), "committee"), groups(4_000), None)
    assert cell_cutting._SHARING * size == 2_000


@pytest.mark.parametrize(
    ("shape", "method", "rows"),
    [
        (Shape(leaf_size=256), "auto", 10_000),
        (Shape(levels=2), "auto", 10_000),
        (Shape(sharing=2.0), "auto", 10_000),
        (Shape(), "neighbourhood", 10_000),
        (Shape(), "auto", 1_000_000),
    ],
)
def test_cells_stay_as_they_are_where_the_user_chose_or_rows_are_many(cutter, shape, method, rows):
    present = groups(rows)
    assert cutter.cut_for_committee(plan(shape, method), present, None) is present
