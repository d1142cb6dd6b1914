"""The conformance kit itself: it passes what is right and catches what is wrong. (Kernels: test_kernels.py.)"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest

from gigagp import engines
from gigagp.combine import BCM, NPAE, RBCM, RULES, Barycentre, CombinationRule, GPoE, Healed, Message, PoE, Prediction
from gigagp.data.store import ExpertStore
from gigagp.engines import Engine, SerialEngine, ThreadsEngine
from gigagp.engines.base import own_workspace
from gigagp.linalg.workspace import Workspace
from gigagp.partition import (
    PARTITIONS,
    LocalPartition,
    Partition,
    RandomPartition,
    Shape,
    StratifiedPartition,
)
from gigagp.testing import check_engine, check_partition, check_rule
from gigagp.tree import Tree


@pytest.mark.parametrize("rule", [*(kind() for kind in RULES.values()), PoE("y"), Healed(0.0), Healed(2.0)], ids=repr)
def test_rules_conform(rule):
    check_rule(rule)


class UnknownLaw(PoE):
    laws = frozenset({"commutative"})


class NotExact(RBCM):
    laws = RBCM.laws | {"exact_with_one_leaf"}


class NotThePrior(PoE):
    laws = PoE.laws | {"returns_to_prior"}


class MeanNeedsVariance(GPoE):
    mean_needs_variance = False


class MeanAlwaysZero(Barycentre):
    def finish(self, total, prior, communication):
        prediction = super().finish(total, prior, communication)
        return Prediction(0 * prediction.mean, prediction.variance)


class Negative(BCM):
    def finish(self, total, prior, communication):
        prediction = super().finish(total, prior, communication)
        return Prediction(prediction.mean, prediction.variance - prior)


class NoVariance(BCM):
    def finish(self, total, prior, communication):
        return Prediction(super().finish(total, prior, communication).mean, None)


class NotANumber(BCM):
    def finish(self, total, prior, communication):
        prediction = super().finish(total, prior, communication)
        return Prediction(prediction.mean * np.nan, prediction.variance)


class Unpicklable(GPoE):
    def __init__(self):
        self.weight = lambda opinion: 1.0


@dataclass(frozen=True)
class Averaged(Message):
    def __add__(self, other):
        return Averaged((self.terms + other.terms) / 2)


class NotAssociative(GPoE):
    def message(self, opinion):
        return Averaged(super().message(opinion).terms)


@dataclass(frozen=True)
class LeftHeavy(Message):
    def __add__(self, other):
        return LeftHeavy(self.terms + 0.999 * other.terms)


class NotCommutative(GPoE):
    def message(self, opinion):
        return LeftHeavy(super().message(opinion).terms)


class DependsOnOrder(NPAE):
    def combine(self, means, covariances, prior):
        prediction = super().combine(means, covariances, prior)
        return Prediction(prediction.mean + 1e-3 * means[:, 0], prediction.variance)


class NeitherKind(CombinationRule):
    laws = frozenset()
    closed_form_held_out = False


class TooSure(NPAE):
    def combine(self, means, covariances, prior):
        prediction = super().combine(means, covariances, prior)
        return Prediction(prediction.mean, 0.9 * prediction.variance)


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (UnknownLaw, "unknown laws"),
        (NeitherKind, "must be a Rule or a JointRule"),
        (NotExact, r"with one expert must return that expert's prediction \(mean\)"),
        (NotThePrior, r"must return the prior when every expert predicts the prior \(variance\)"),
        (MeanNeedsVariance, "mean_needs_variance must be True"),
        (MeanAlwaysZero, r"with one expert must return that expert's prediction \(mean\)"),
        (Negative, "variances of .* must be positive and finite"),
        (NoVariance, "variances of .* must be positive and finite; got None"),
        (NotANumber, "means of .* must be finite"),
        (Unpicklable, "must pickle"),
        (NotAssociative, "must add in any order and grouping"),
        (NotCommutative, "must add in any order and grouping"),
        (DependsOnOrder, "must not depend on the order of the experts"),
        (TooSure, r"with one expert must return that expert's prediction \(variance\)"),
    ],
)
def test_broken_rules_are_caught(broken, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_rule(broken())


SHAPES = [Shape(), Shape(leaf_size=50), Shape(levels=2, branching=3), Shape(leaf_size=60, sharing=2)]


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
@pytest.mark.parametrize("kind", PARTITIONS.values(), ids=PARTITIONS)
def test_partitions_conform(kind, shape):
    check_partition(kind(), shape)


class LosesARow(LocalPartition):
    def split(self, X, shape, rng):
        return super().split(X[:-1], shape, rng)


class Random(RandomPartition):
    def split(self, X, shape, rng):
        return super().split(X, shape, np.random.default_rng())


class Overwrites(StratifiedPartition):
    def split(self, X, shape, rng):
        X[0] = 0
        return super().split(X, shape, rng)


class WrongTree(RandomPartition):
    def split(self, X, shape, rng):
        parts = super().split(X, shape, rng)
        return Partition(parts.order, parts.cells, parts.experts, Tree.balanced(parts.n_leaves + 1))


class ForgetsTargets(RandomPartition):
    def split_large(self, sorter, shape, rng):
        stored = super().split_large(sorter, shape, rng)
        return replace(stored, store=ExpertStore(stored.store.X, np.sort(stored.store.y)))


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (LosesARow, "must contain every row number from 0 to 599 exactly once"),
        (Random, "in the same way when the random numbers are the same"),
        (Overwrites, "changes the inputs it is given"),
        (WrongTree, "has 12 cells, but its tree has 13 leaves"),
        (ForgetsTargets, "split_large of .* must store every row once, with its own target"),
    ],
)
def test_broken_partitions_are_caught(broken, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_partition(broken(), Shape(leaf_size=50))


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_threads_conform(workers):
    with ThreadsEngine(workers) as engine:
        check_engine(engine)


def test_serial_conforms():
    check_engine(SerialEngine())


def test_no_exported_engine_escapes_the_conformance_test():
    exported = {thing for thing in vars(engines).values() if isinstance(thing, type) and issubclass(thing, Engine)}
    assert exported == {Engine, SerialEngine, ThreadsEngine}


class Reversed(SerialEngine):
    def map(self, function, tasks):
        return reversed([function(task, own_workspace()) for task in tasks])


class AddsFromTheRight(SerialEngine):
    def sum(self, tree, leaf_value):
        return sum(leaf_value(leaf, own_workspace()) for leaf in reversed(range(tree.n_leaves)))


class LosesErrors(SerialEngine):
    def map(self, function, tasks):
        for task in tasks:
            try:
                yield function(task, own_workspace())
            except LookupError:
                yield np.zeros(1)


class WrapsErrors(SerialEngine):
    def map(self, function, tasks):
        try:
            yield from super().map(function, tasks)
        except LookupError as error:
            raise RuntimeError("a worker failed") from error


class DiesOfAnError(SerialEngine):
    dead = False

    def map(self, function, tasks):
        if self.dead:
            return
        try:
            yield from super().map(function, tasks)
        except LookupError:
            self.dead = True
            raise


class LeftInTheMiddle(SerialEngine):
    def __init__(self):
        super().__init__()
        self._left = iter(())

    def map(self, function, tasks):
        rest = list(self._left)  # what the last reader did not take
        self._left = iter([function(task, own_workspace()) for task in tasks])
        yield from rest
        yield from self._left


class SharesOneWorkspace(Engine):
    def __init__(self):
        self._work = Workspace()

    def map(self, function, tasks):
        with ThreadPoolExecutor(4) as pool:
            return iter(list(pool.map(lambda task: function(task, self._work), tasks)))


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (Reversed, "map must return the results in the tasks' order$"),
        (AddsFromTheRight, r"sum over Tree\(.*\) differs from the serial engine's bits"),
        (LosesErrors, "must pass on the LookupError a task raised; got None"),
        (WrapsErrors, "must pass on the LookupError a task raised; got RuntimeError"),
        (DiesOfAnError, "after a task has failed"),
        (LeftInTheMiddle, "after a reader has left early"),
        (SharesOneWorkspace, "map must return the results in the tasks' order$"),
    ],
)
def test_broken_engines_are_caught(broken, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_engine(broken())
