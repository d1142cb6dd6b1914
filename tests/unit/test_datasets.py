"""Data made here: the robot arm against an independent kinematics, and streams that do not depend on the batch."""

import inspect
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigagp import datasets
from gigagp.datasets import distance_to_target, robot_arm, robot_arm_batches

BLOCK = inspect.signature(robot_arm_batches).parameters["batch"].default


def link(angle, offset, length, twist):
    """The Denavit-Hartenberg transform of one link as a 4 x 4 homogeneous matrix."""
    c, s, ct, st_ = np.cos(angle), np.sin(angle), np.cos(twist), np.sin(twist)
    return np.array(
        [
            [c, -s * ct, s * st_, length * c],
            [s, c * ct, -c * st_, length * s],
            [0, st_, ct, offset],
            [0, 0, 0, 1],
        ]
    )


def distance_by_matrices(angles):
    pose = np.eye(4)
    for angle, *constants in zip(angles, datasets._OFFSET, datasets._LENGTH, datasets._TWIST, strict=True):
        pose = pose @ link(angle, *constants)
    hand = pose @ [0, 0, 0, 1]
    return np.linalg.norm(hand[:3] - datasets._TARGET)


@given(st.lists(st.floats(-np.pi, np.pi), min_size=8, max_size=8))
def test_forward_kinematics(angles):
    assert distance_to_target(np.array([angles]))[0] == pytest.approx(distance_by_matrices(angles), rel=1e-12)


def test_rows_are_joint_angles_and_a_distance_with_noise():
    X, y = robot_arm(5000, noise=0.02, seed=3)
    assert X.shape == (5000, 8)
    assert y.shape == (5000,)
    assert np.all(np.abs(X) <= datasets._RANGE)
    assert np.all(np.abs(X).max(axis=0) > 0.99 * datasets._RANGE)
    residual = y - distance_to_target(X)
    assert residual.std() == pytest.approx(0.02, rel=0.05)
    assert abs(residual.mean()) < 5 * 0.02 / np.sqrt(5000)


def test_without_noise_the_distance_is_exact():
    X, y = robot_arm(100, noise=0.0)
    np.testing.assert_array_equal(y, distance_to_target(X))


def test_every_joint_matters():
    X, _ = robot_arm(200, noise=0.0)
    for joint in range(8):
        moved = X.copy()
        moved[:, joint] += 0.1
        assert np.abs(distance_to_target(moved) - distance_to_target(X)).max() > 1e-3


def test_deviation_of_the_distance_is_what_the_docstring_says():
    documented = float(re.search(r"distance itself is about (\d\.\d+)", robot_arm.__doc__)[1])
    assert robot_arm(50_000, noise=0.0)[1].std() == pytest.approx(documented, rel=0.03)


@given(n=st.integers(0, 3000), batch=st.integers(1, 4000), seed=st.integers(0, 2**40))
def test_rows_do_not_depend_on_the_batch(n, batch, seed):
    X, y = robot_arm(n, seed=seed)
    parts = list(robot_arm_batches(n, seed=seed, batch=batch))
    assert all(len(part) == batch for part, _ in parts[:-1])
    assert sum(len(part) for part, _ in parts) == n
    if parts:
        np.testing.assert_array_equal(np.concatenate([part for part, _ in parts]), X)
        np.testing.assert_array_equal(np.concatenate([part for _, part in parts]), y)


@pytest.mark.parametrize("batch", [1000, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_rows_do_not_depend_on_the_batch_across_blocks(batch):
    n = 2 * BLOCK + 17
    X, y = robot_arm(n)
    parts = list(robot_arm_batches(n, batch=batch))
    assert [len(part) for part, _ in parts] == [batch] * (n // batch) + [n % batch] * (n % batch > 0)
    np.testing.assert_array_equal(np.concatenate([part for part, _ in parts]), X)
    np.testing.assert_array_equal(np.concatenate([part for _, part in parts]), y)


def test_fewer_rows_are_the_first_of_more():
    X, y = robot_arm(BLOCK + 500, seed=9)
    for n in (10, BLOCK, BLOCK + 1):
        fewer_X, fewer_y = robot_arm(n, seed=9)
        np.testing.assert_array_equal(fewer_X, X[:n])
        np.testing.assert_array_equal(fewer_y, y[:n])


def test_seeds_and_blocks_differ():
    X, _ = robot_arm(BLOCK + 100, seed=0)
    other, _ = robot_arm(100, seed=1)
    assert not np.any(X[:100] == other)
    assert not np.any(X[BLOCK:] == X[:100])
    assert not np.any(X[BLOCK:] == other)  # block 1 of seed 0 is not block 0 of seed 1


def test_a_seed_gives_the_same_rows_again():
    for a, b in zip(robot_arm(1000, seed=5), robot_arm(1000, seed=5), strict=True):
        np.testing.assert_array_equal(a, b)


def test_no_rows():
    X, y = robot_arm(0)
    assert X.shape == (0, 8)
    assert y.shape == (0,)
    assert list(robot_arm_batches(0)) == []


def test_rows_are_streamed_one_block_at_a_time(monkeypatch):
    made = []
    monkeypatch.setattr(datasets, "distance_to_target", lambda X: (made.append(len(X)), distance_to_target(X))[1])
    stream = robot_arm_batches(5 * BLOCK, batch=1000)
    next(stream)
    assert made == [BLOCK]
