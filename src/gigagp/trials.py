"""The family of kernels, chosen before training: each is trained on a few cells and judged by held-out predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.engines import Engine
from gigagp.fit_report import Candidate
from gigagp.kernels.base import Kernel
from gigagp.neighbourhood import Neighbourhood
from gigagp.placing import Placed
from gigagp.plan import Log, Plan
from gigagp.rough_theta import ROUGH
from gigagp.selection import Scorer
from gigagp.training import Optimum, Trace, maximise, summed_evidence

_CELLS = 8  # to train candidates on
_ITERATIONS = 12
_INDISTINGUISHABLE = 0.003  # nats per row by which a rougher kernel must be better than a smoother one


@dataclass(frozen=True, eq=False)
class Trial:
    """A family, the theta it was trained to, and its score."""

    kernel: Kernel
    optimum: Optimum
    candidate: Candidate


def try_kernels(
    plan: Plan, placed: Placed, theta: Array, answering: Callable[[Kernel, Array], Neighbourhood], scorer: Scorer,
    engine: Engine, log: Log, trace: Trace, rng: np.random.Generator,
) -> list[Trial]:  # fmt: skip
    """Every family trained on the same cells and judged by the same rows; the chosen one is marked.

    answering : the model of a kernel and theta that predicts held-out rows
    """
    cells = np.sort(rng.permutation(len(placed.cells))[:_CELLS])
    some = None if len(cells) == len(placed.cells) else cells
    trials: list[Trial] = []
    for family in plan.families:
        evidence = log.recorded(
            summed_evidence(family.kernel, placed.store, placed.cells, placed.tree, engine, plan.dof)
        )
        bounds = replace(plan, kernel=family.kernel).bounds
        start = np.clip(family.start(theta), *bounds.T)
        name = type(family.kernel).__name__
        optimum = maximise(name, evidence, some, start, bounds, trace, ROUGH, _ITERATIONS)
        scored = scorer.score(answering(family.kernel, optimum.theta))
        trials.append(Trial(family.kernel, optimum, Candidate("kernel", name, scored.score)))
    least = min(trial.candidate.score for trial in trials)
    best = next(trial for trial in trials if trial.candidate.score <= least + _INDISTINGUISHABLE)
    return [replace(trial, candidate=replace(trial.candidate, chosen=trial is best)) for trial in trials]
