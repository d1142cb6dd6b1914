"""Generated data sets of any size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gigagp.arrays import Array

_BLOCK = 65_536  # rows generated from one seed, so that rows do not depend on the batch size
_LINKS = 8
_RANGE = 0.65 * np.pi  # largest joint angle in either direction; about as hard to learn as kin40k
# Denavit-Hartenberg constants of the arm: link lengths, offsets along the joint axes, twists between them.
_LENGTH = np.array([0.30, 0.28, 0.25, 0.22, 0.20, 0.16, 0.12, 0.08])
_OFFSET = np.array([0.10, 0.05, 0.08, 0.04, 0.06, 0.03, 0.04, 0.02])
_TWIST = np.array([0.5, -0.5, 0.5, -0.5, 0.5, -0.5, 0.5, 0.0]) * np.pi
_TARGET = np.array([0.5, 0.3, 0.4])


def robot_arm(n: int, noise: float = 0.01, seed: int = 0) -> tuple[Array, Array]:
    """n rows of an 8-link all-revolute robot arm: joint angles (n, 8) and the hand's distance to a target (n,).

    A forward-kinematics problem like kin40k: smooth, nonlinear in all inputs, with little noise. `noise` is the
    standard deviation of the noise; that of the distance itself is about 0.36.
    """
    batches = list(robot_arm_batches(n, noise, seed))
    if not batches:
        return np.empty((0, _LINKS)), np.empty(0)
    return np.concatenate([X for X, _ in batches]), np.concatenate([y for _, y in batches])


def robot_arm_batches(n: int, noise: float = 0.01, seed: int = 0, batch: int = _BLOCK) -> Iterator[tuple[Array, Array]]:
    """The rows of `robot_arm(n, noise, seed)`, `batch` at a time, in bounded memory."""
    waiting_X, waiting_y, waiting = [], [], 0
    for block in range(-(-n // _BLOCK)):
        rng = np.random.default_rng([seed, block])
        rows = min(_BLOCK, n - block * _BLOCK)
        X = rng.uniform(-_RANGE, _RANGE, (_BLOCK, _LINKS))[:rows]
        y = distance_to_target(X) + noise * rng.standard_normal(_BLOCK)[:rows]
        waiting_X.append(X)
        waiting_y.append(y)
        waiting += rows
        if waiting >= batch:
            all_X, all_y = np.concatenate(waiting_X), np.concatenate(waiting_y)
            whole = waiting // batch * batch
            for start in range(0, whole, batch):
                yield all_X[start : start + batch], all_y[start : start + batch]
            waiting_X, waiting_y, waiting = [all_X[whole:]], [all_y[whole:]], waiting - whole
    if waiting:
        yield np.concatenate(waiting_X), np.concatenate(waiting_y)


def distance_to_target(angles: Array) -> Array:
    """Distance from the end effector to the target, by chaining the links' Denavit-Hartenberg transforms."""
    position = np.zeros((len(angles), 3))
    # From the hand back to the base: p -> Rot_z(theta) (Rot_x(twist) p + (a, 0, d)).
    for link in reversed(range(_LINKS)):
        x, y, z = position.T
        c, s = np.cos(_TWIST[link]), np.sin(_TWIST[link])
        x, y, z = x + _LENGTH[link], c * y - s * z, s * y + c * z + _OFFSET[link]
        c, s = np.cos(angles[:, link]), np.sin(angles[:, link])
        position = np.stack([c * x - s * y, s * x + c * y, z], axis=1)
    return np.asarray(np.linalg.norm(position - _TARGET, axis=1))
