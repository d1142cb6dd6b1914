"""Whether skewed columns of small tables become normal scores: held-out predictions of the whole model decide.

Neither scaling is always better. The mixture of exact GPs that a small table is fitted by (`small_tables`) is fitted
with both, and normal scores are used if it then predicts held-out rows significantly better. One kernel is no guide: on
1,000 rows of houses an exact GP with a Matern 5/2 kernel preferred normal scores in two of four splits, whereas the
mixture predicts test rows worse with them in all four (RMSE .455 instead of .420 on average; trials). But a single
kernel is quickly tried, and where even it does not gain, the mixture is not fitted twice.

In larger tables a sample is no guide either: on houses it preferred normal scores and on bike standardised columns
(2,048 of 16,000 and 14,000 rows), where fits to all rows showed the opposite (splits 1 and 2, trials).
"""

from __future__ import annotations

import numpy as np

from gigagp.arrays import Array
from gigagp.data.scan import Sample
from gigagp.data.store import ExpertStore, split_targets
from gigagp.engines import Engine
from gigagp.fit.held_out_scores import NEGLIGIBLE_GAIN, Gain
from gigagp.fit.plan import Plan
from gigagp.fit.small_tables import fit_mixture, is_small
from gigagp.fit.theta_posterior import Mode, Posterior
from gigagp.fit.training import NEAR, Trace
from gigagp.linalg.workspace import Workspace
from gigagp.metrics import crps_of_rows
from gigagp.model.fit_report import Candidate
from gigagp.model.leave_one_out import LeaveOneOut

_TRAINING_ROWS = 512  # from which the single kernel is learnt
_COMPARED_ROWS = 1024  # that the mixture is fitted to, at most: all rows would triple the time of a fit
_LEAST_ROWS = 50
_FAMILY = 1  # index of the family that is tried first: Matern 5/2, neither the smoothest nor the roughest
_STARTS = 2  # of its training


def is_open(plan: Plan, rows: int) -> bool:
    """Whether the fit may choose, and the rows are enough, but not too many, to choose from."""
    numbers = plan.latents is None and plan.train and plan.partitioner.local
    return numbers and rows >= _LEAST_ROWS and len(plan.families) > _FAMILY and is_small(plan, rows)


def choose_warping(plan: Plan, standardised: Sample, warped: Sample, engine: Engine) -> tuple[Candidate, Candidate]:
    """The rows of a small table in both scalings, of which the second is chosen if it predicts clearly better."""
    samples = [standardised, warped]
    losses = list(engine.local.map(lambda sample, work: _losses_of_one_kernel(plan, sample, work), samples))
    better = Gain.of_losses(losses[1], losses[0]).exceeds(NEGLIGIBLE_GAIN)
    if better:
        losses = [_losses_of_mixture(plan, sample, engine) for sample in samples]
        gain = Gain.of_losses(losses[1], losses[0])
        better = gain.value > 0 and gain.is_clear(0.0)
    return (
        Candidate("scaling", "standardised", float(losses[0].mean()), not better),
        Candidate("scaling", "normal scores", float(losses[1].mean()), better),
    )


def _losses_of_mixture(plan: Plan, sample: Sample, engine: Engine) -> Array:
    """CRPS of held-out predictions by the mixture that would be fitted."""
    X, targets = (np.ascontiguousarray(part, float) for part in sample.first(_COMPARED_ROWS))
    fitted = fit_mixture(plan, ExpertStore(X, *split_targets(targets)), engine, Trace(), np.random.default_rng(0))
    return fitted.held_out.losses


def _losses_of_one_kernel(plan: Plan, sample: Sample, work: Workspace) -> Array:
    """CRPS of leave-one-out predictions by an exact GP with a theta that was learnt from some of the rows."""
    posterior = Posterior.of(plan.families[_FAMILY], plan, np.random.default_rng(0))
    X, targets = (np.ascontiguousarray(part, float) for part in sample.first(_TRAINING_ROWS))
    precision = plan.precision.no_finer(NEAR)
    mode = Mode.highest([posterior.mode(X, targets, start, precision, work) for start in posterior.starts[:_STARTS]])
    X, targets = (np.ascontiguousarray(part, float) for part in sample.first(len(sample.rows)))
    y, row_noise = split_targets(targets)
    errors = LeaveOneOut.of(posterior.family.kernel, mode.theta, X, y, row_noise)
    return crps_of_rows(y, errors.mean, np.sqrt(errors.variance))
