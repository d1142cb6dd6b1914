"""Large products divided among threads: the plan may be divided, errors and counts come back, bits stay."""

import subprocess
import sys
import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gigagp import expert
from gigagp.engines import SerialEngine, ThreadsEngine
from gigagp.kernels import Linear, Matern32, RationalQuadratic, SquaredExponential
from gigagp.linalg import cholesky, schedule
from gigagp.linalg.gemm import LEFT_LOWER, LEFT_UPPER, LOWER_ONLY, RIGHT_LOWER, UPPER_ONLY
from gigagp.linalg.schedule import COLUMNS, ROWS
from gigagp.linalg.team import Team
from gigagp.tree import Tree

KINDS = [np.float64, np.float32]


@pytest.fixture
def team():
    team = Team(3)
    yield team
    team.close()


def fail():
    raise ZeroDivisionError("lost")


def nothing():
    pass


# The team


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_every_task_is_run_once_and_the_first_by_the_caller(team, count):
    ran = []
    team.run([lambda i=i: ran.append((i, threading.get_ident())) for i in range(count)])
    assert sorted(i for i, _ in ran) == list(range(count))
    assert (0, threading.get_ident()) in ran


def test_members_work_side_by_side(team):
    """Each task waits until all are running."""
    together = threading.Barrier(3, timeout=10)
    team.run([together.wait] * 3)


def test_who_is_at_work_is_not_spare(team):
    assert team.spare == 3
    with team.at_work():
        assert team.spare == 2
        with team.at_work():
            assert team.spare == 1
        assert team.spare == 2
    assert team.spare == 3


def test_helpers_are_not_spare(team):
    seen = []
    with team.at_work():
        team.run([lambda: seen.append(team.spare), nothing])
        team.run([lambda: seen.append(team.spare), nothing, nothing])
    assert seen == [1, 0]
    assert team.spare == 3


def test_spare_members_are_never_fewer_than_none():
    """Two experts may count on the same member; both are served."""
    team, seen = Team(1), []
    with team.at_work(), team.at_work():
        assert team.spare == 0
        team.run([nothing, lambda: seen.append(team.spare)])
    assert seen == [0]
    assert team.spare == 1
    team.close()


@pytest.mark.parametrize("tasks", [[nothing, fail], [fail, nothing], [nothing, nothing, fail], [fail, fail, fail]])
def test_an_error_reaches_the_caller_and_the_count_returns(team, tasks):
    with team.at_work():
        for _ in range(5):
            with pytest.raises(ZeroDivisionError, match="lost"):
                team.run(tasks)
            assert team.spare == 2
        team.run([nothing] * 3)
    assert team.spare == 3


def test_an_error_of_a_task_in_its_own_right_gives_the_worker_back(team):
    with pytest.raises(ZeroDivisionError), team.at_work():
        fail()
    assert team.spare == 3


def test_an_error_of_a_helper_is_not_lost_behind_the_callers_own_work(team):
    begun = threading.Event()

    def fail_later():
        begun.set()
        fail()

    with pytest.raises(ZeroDivisionError, match="lost"):
        team.run([lambda: begun.wait(10), fail_later])


def test_nothing_is_under_way_after_an_error(team):
    """Who called may use its matrices again."""
    helping, ended = threading.Event(), []

    def help_slowly():
        helping.set()
        threading.Event().wait(0.1)
        ended.append(True)

    def fail_meanwhile():
        helping.wait(10)
        fail()

    with pytest.raises(ZeroDivisionError):
        team.run([fail_meanwhile, help_slowly])
    assert ended == [True]


def test_a_caller_takes_back_what_nobody_has_begun():
    """The one helper is held up until the caller has done all the rest."""
    team, held_up, rest_done, callers = Team(2), threading.Event(), threading.Event(), []

    def hold_up():
        held_up.set()
        assert rest_done.wait(10)

    def note():
        callers.append(threading.get_ident())
        if len(callers) == 3:
            rest_done.set()

    def first():
        assert held_up.wait(10)
        note()

    team.run([first, hold_up, note, note])
    assert callers == [threading.get_ident()] * 3
    assert team.spare == 2
    team.close()


NESTED = """
from gigagp.linalg.team import Team

def deeper(team, depth):
    if depth:
        team.run([lambda: deeper(team, depth - 1) for _ in range(3)])
    else:
        done.append(1)

for workers in (1, 2, 3):
    team, done = Team(workers), []
    with team.at_work():
        deeper(team, 4)
    assert len(done) == 81
    assert team.spare == workers
    team.close()
"""


def test_tasks_may_call_on_the_team_in_their_turn():
    """In a process of its own, which can be ended if it hangs."""
    subprocess.run([sys.executable, "-c", NESTED], check=True, timeout=60)


def test_closing_leaves_no_threads():
    before = threading.active_count()
    team = Team(4)
    team.run([nothing] * 4)
    team.close()
    assert threading.active_count() == before


# The plan

PLANS = {"factoring": schedule.factoring, "inverting": schedule.inverting}
each_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
# Places in a product's operation.
LEFT = slice(2, 5)
RIGHT = slice(6, 9)
OUT = slice(10, 13)


def blocks(o):
    """(matrix, rows, columns) of the block that a product writes, and of those it reads left and right."""
    m, n, k = o[13:16]
    left = (k, m) if o[5] else (m, k)
    for (matrix, row, column), (height, width) in ((o[OUT], (m, n)), (o[LEFT], left), (o[RIGHT], (k, n))):
        yield matrix, (row, row + height), (column, column + width)


def meet(one, other):
    apart = (max(a, c) >= min(b, d) for (a, b), (c, d) in zip(one[1:], other[1:], strict=True))
    return one[0] == other[0] and not any(apart)


@each_plan
@given(p=st.integers(1, 2500))
@example(p=4096)
def test_groups_follow_each_other_and_hold_products_that_can_be_divided(plan, p):
    operations, groups = plan(p, cholesky.WIDTH)
    listed = operations.tolist()
    for group, following in pairwise(groups):
        assert group.end <= following.start, "groups are in order, none within another"
    for start, end, axis in groups:
        assert 0 <= start < end <= len(operations)
        group = listed[start:end]
        assert {o[0] for o in group} == {schedule.MULTIPLY}
        assert len({o[axis] for o in group}) == 1, "all have as many columns, or rows"
        assert len({o[OUT][axis - ROWS + 1] for o in group}) == 1, "and the same ones"
        assert group[0][axis] > 0
        bound = RIGHT_LOWER if axis == COLUMNS else LEFT_LOWER | LEFT_UPPER
        assert not any(o[16] & (bound | LOWER_ONLY | UPPER_ONLY) for o in group), "no triangle along the axis"
        assert axis == COLUMNS or all(o[5] for o in group), "rows of C are columns of A"
        read_and_written = [tuple(blocks(o)) for o in group]
        for written, _, _ in read_and_written:
            for _, left, right in read_and_written:
                assert not meet(written, left), "what all threads read none of them writes"
                own_columns = axis == COLUMNS and right[2] == written[2]
                assert own_columns or not meet(written, right), "nor what one reads another"


@each_plan
def test_large_matrices_have_products_to_divide_and_small_ones_have_none(plan):
    assert not any(plan(p, cholesky.WIDTH).groups for p in range(1, 400, 7))
    assert all(plan(p, cholesky.WIDTH).groups for p in range(768, 2000, 7))


@each_plan
@pytest.mark.parametrize("p", [1500, 2100])
def test_most_of_a_large_matrix_is_divided(plan, p):
    operations, groups = plan(p, cholesky.WIDTH)
    work = np.where(operations[:, 0] == schedule.MULTIPLY, operations[:, 13:16].prod(axis=1), 0)
    assert sum(work[start:end].sum() for start, end, _ in groups) > work.sum() / 2


@each_plan
@pytest.mark.parametrize("p", [700, 1500, 2100])
@pytest.mark.parametrize("parts", [1, 2, 3, 7, 100])
def test_parts_together_are_the_whole(plan, p, parts):
    operations, groups = plan(p, cholesky.WIDTH)
    for start, end, axis in groups:
        whole = operations[start:end]
        pieces = schedule.split(whole, axis, parts)
        assert 1 <= len(pieces) <= parts
        moving = list(schedule._OFFSETS[axis])
        fixed = [i for i in range(whole.shape[1]) if i not in (axis, *moving)]
        reached = 0
        for piece in pieces:
            assert not piece.flags.writeable  # the same compiled code serves whole and parts
            np.testing.assert_array_equal(piece[:, fixed], whole[:, fixed])
            np.testing.assert_array_equal(piece[:, moving] - whole[:, moving], reached)
            assert reached % 48 == 0, "a border at whole vectors, of either precision"
            assert len(set(piece[:, axis])) == 1
            assert piece[0, axis] > 0
            reached += piece[0, axis]
        assert reached == whole[0, axis]


# The bits


def matrix(p, kind):
    """A well-conditioned matrix above a diagonal."""
    x = np.random.default_rng(p).standard_normal((p, 3))
    K = np.exp(-0.5 * ((x[:, None] - x) ** 2).sum(axis=2)) + 0.1 * np.eye(p)
    A = np.full((p, cholesky.stride(p)), np.nan, kind)
    A[:, :p] = np.where(np.tri(p, k=-1), np.nan, K)
    return A


def factor_and_inverse(A, team):
    """U and D, and the inverse."""
    A, p = A.copy(), len(A)
    D = np.full((p, cholesky.WIDTH), np.nan, A.dtype)
    T = np.full_like(A, np.nan)
    assert cholesky.factor(A, D, p, team) == 0
    U = np.triu(A[:, :p])
    cholesky.inverse(A, D, T, p, team)
    return U, D, np.tril(A[:, :p])


def same(result, right):
    for one, other in zip(result, right, strict=True):
        np.testing.assert_array_equal(one, other)


class OneByOne:
    """Stands for a team: each part in turn, so that one which needs another is always found out."""

    def __init__(self, spare, step):
        self.spare, self.step, self.divided = spare, step, 0

    def run(self, tasks):
        self.divided += len(tasks) > 1
        for task in tasks[:: self.step]:
            task()


@pytest.mark.parametrize(("p", "kind"), [(700, np.float64), (1027, np.float32), (1500, np.float64), (2100, np.float32)])
def test_a_team_changes_no_bit(p, kind):
    A = matrix(p, kind)
    right = factor_and_inverse(A, None)
    assert np.isfinite(right[2]).all()
    for workers in (2, 3):
        team = Team(workers)
        with team.at_work():
            same(factor_and_inverse(A, team), right)
            assert team.spare == workers - 1
        team.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [700, 1027])
@pytest.mark.parametrize("spare", [1, 2, 6])
def test_parts_need_nothing_from_each_other(p, kind, spare):
    A = matrix(p, kind)
    right = factor_and_inverse(A, None)
    for step in (1, -1):
        team = OneByOne(spare, step)
        same(factor_and_inverse(A, team), right)
        assert team.divided > 1


@pytest.mark.parametrize("row", [3, 500, 999])
def test_a_failure_is_found_at_the_same_row(row):
    A = matrix(1000, np.float64)
    A[row, row] = -1.0
    D = np.empty((1000, cholesky.WIDTH))
    assert cholesky.factor(A.copy(), D, 1000) == row + 1
    team = Team(2)
    with team.at_work():
        assert cholesky.factor(A, D, 1000, team) == row + 1
    team.close()


def leaves(sizes, kind, columns=3):
    rng = np.random.default_rng(sizes)
    Xs = [rng.standard_normal((p, columns)).astype(kind) for p in sizes]
    return Xs, [np.sin(X.sum(axis=1)).astype(kind) for X in Xs]


def total(engine, kernel, sizes, kind, log_noise=-2.0):
    Xs, ys = leaves(sizes, kind)
    kernel = kernel.bind(3)
    theta = np.append(kernel.theta, log_noise)
    result = engine.sum(
        Tree.regular(1, len(sizes)), lambda leaf, work: expert.evidence(kernel, theta, Xs[leaf], ys[leaf], work)
    )
    return np.append(result.sums, result.jitter)


@pytest.fixture
def divided(monkeypatch):
    """Notes into how many parts products were divided."""
    seen, run = [], Team.run

    def noting(team, tasks):
        seen.append(len(tasks))
        run(team, tasks)

    monkeypatch.setattr(Team, "run", noting)
    return seen


BIG = {
    "one of 768": (SquaredExponential(), [768], np.float64),
    "one of 768, single precision": (RationalQuadratic(), [768], np.float32),
    "one of 1500": (Matern32(), [1500], np.float64),
    "one of 1500, single precision": (SquaredExponential(), [1500], np.float32),
    "a kernel without a compiled leaf": (Matern32() + Linear(), [900], np.float64),
    "one among small ones": (SquaredExponential(), [50, 900, 50, 50], np.float64),
    "several": (SquaredExponential(), [800, 900, 1000], np.float64),
}


@pytest.mark.parametrize(("kernel", "sizes", "kind"), BIG.values(), ids=BIG)
def test_workers_who_help_with_a_large_expert_change_no_bit(kernel, sizes, kind, divided):
    right = total(SerialEngine(), kernel, sizes, kind)
    assert divided == []
    for workers in (1, 2, 3):
        divided.clear()
        with ThreadsEngine(workers) as engine:
            np.testing.assert_array_equal(total(engine, kernel, sizes, kind), right)
            assert engine._team.spare == workers
        if len(sizes) == 1:
            groups = sum(len(plan(sizes[0], cholesky.WIDTH).groups) for plan in PLANS.values())
            expected = [workers] * groups if workers > 1 else []
            assert divided == expected, "all workers take part in all of them; one works alone"


def test_a_large_expert_that_needs_jitter_is_the_same():
    """Its first factorisation fails, with products still to be divided."""
    near = SquaredExponential(1.0, 30.0)
    right = total(SerialEngine(), near, [800], np.float64, log_noise=-60.0)
    assert right[-1] > 0
    with ThreadsEngine(2) as engine:
        np.testing.assert_array_equal(total(engine, near, [800], np.float64, log_noise=-60.0), right)
