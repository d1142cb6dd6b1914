"""Decides whether several targets share one theta: by held-out predictions of each target with a theta of its own.

The common theta has been trained. From there theta is trained for each target alone, on a few groups of neighbouring
rows, with the same kernel family, and both predict the same held-out rows. This costs a fraction of a fit per target.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_lists import Runs
from gigagp.data.store import ExpertStore
from gigagp.engines import Engine, one_blas_thread, open_engine
from gigagp.fit import settings
from gigagp.fit.committee_assembly import Extents
from gigagp.fit.held_out_scores import DOUBLING_GAIN, NumberScoring, Scorer
from gigagp.fit.rough_theta import ROUGH
from gigagp.fit.settings import FitSettings
from gigagp.fit.shared_targets import SharedFit
from gigagp.fit.training import Trace, maximise, summed_evidence
from gigagp.linalg.workspace import Workspace
from gigagp.model import neighbourhood
from gigagp.model.fit_report import Candidate
from gigagp.model.neighbourhood import Neighbourhood, nearest_rows
from gigagp.model.target_neighbourhood import TargetNeighbourhoods
from gigagp.tree import Tree

MOST_SEPARATE = 2048  # rows up to which targets are always separate: several exact GPs then predict each of them
_GROUPS = 16  # of neighbouring rows per round, as many as a start of training has
_ROUNDS = 2  # of forming groups and training on them
_ITERATIONS = 20  # of L-BFGS per round
_GROUP_ROWS = 256
_JUDGES = 1024  # held-out rows that both ways predict
_EXACT_ROWS = 1 << 24  # rows up to which groups are found by an exact search


def judge(shared: SharedFit, options: FitSettings, rng: np.random.Generator) -> tuple[Candidate, Candidate]:
    """The mean scores of one theta for all targets and of one for each, in deviations of the targets.

    Separate ones are chosen only if they are clearly better, because they take as much time and memory as all models
    together.
    """
    near = replace(shared.together.models[0], others=())
    common = TargetNeighbourhoods.of(near, shared.together.targets)
    extents = Extents.of(near.store, near.cells)
    with one_blas_thread(), open_engine("threads", options.n_jobs) as engine:
        scorer = Scorer.drawn(len(near.store.y), NumberScoring(1.0), engine, rng)
        rows = scorer.order[:_JUDGES]
        X = np.ascontiguousarray(near.store.gather(rows)[0])
        together, alone = [], []
        for model, prediction in zip(common.models, common.predict(X, engine, held_out=rows), strict=True):
            y = model.store.y[rows]
            own = _trained(model, extents, options, engine, rng)
            own_prediction = neighbourhood.predict(own, X, engine, held_out=rows)
            together.append(scorer.with_calibration(rows, y, prediction, model).losses)
            alone.append(scorer.with_calibration(rows, y, own_prediction, own).losses)
    losses, own_losses = np.mean(together, axis=0), np.mean(alone, axis=0)
    gain = (losses - own_losses) / max(float(losses.mean()), 1e-300)
    error = float(gain.std() / np.sqrt(len(gain)))
    better = float(gain.mean()) > max(DOUBLING_GAIN, error)
    return (
        Candidate("targets", "shared", float(losses.mean()), not better),
        Candidate("targets", "separate", float(own_losses.mean()), better),
    )


def _trained(
    model: Neighbourhood, extents: Extents, options: FitSettings, engine: Engine, rng: np.random.Generator
) -> Neighbourhood:
    """The model of one target with a theta that is trained for it, from that of the model."""
    low, high = settings.noise_bounds(options.noise_bounds)  # targets are standardised
    bounds = np.vstack([model.kernel.bounds, np.log([low, high])])
    for _ in range(_ROUNDS):
        store, cells = _groups(model, engine, rng)
        evidence = summed_evidence(model.kernel, store, cells, Tree.balanced(len(cells)), engine)
        theta = maximise("targets", evidence, None, model.theta, bounds, Trace(), ROUGH, _ITERATIONS).theta
        metric = model.kernel.metric(theta[:-1])
        assert metric is not None
        metric = np.broadcast_to(metric, (model.store.X.shape[1],)).astype(float)
        model = replace(model, theta=theta, router=extents.router(metric, True, model.router.categories))
    return model


def _groups(model: Neighbourhood, engine: Engine, rng: np.random.Generator) -> tuple[ExpertStore, Runs]:
    """Groups of the rows nearest to random rows, in the metric of the model."""
    store, n = model.store, len(model.store.y)
    search = replace(model, neighbours=min(_GROUP_ROWS, n), inner=0, exact=n <= _EXACT_ROWS)
    centres = np.sort(rng.choice(n, min(_GROUPS, n), replace=False))

    def find(row: int, work: Workspace) -> Array:
        return nearest_rows(search, store.X[row])

    rows = np.concatenate(list(engine.map(find, centres.tolist())))
    X, y = store.gather(rows)
    return ExpertStore(X, y, store.noise_of(rows)), Runs(np.arange(len(centres) + 1) * search.neighbours)
