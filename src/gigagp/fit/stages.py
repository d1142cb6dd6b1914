"""The stages of a fit, from scaled rows to experts with a common theta."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.directions import Directions
from gigagp.data.row_lists import RowLists
from gigagp.data.scaled import ScaledRows
from gigagp.data.scan import Sample
from gigagp.engines import Engine
from gigagp.fit.cell_cutting import CellCutter, store_rows
from gigagp.fit.committee_assembly import committees, communication_rows
from gigagp.fit.committee_scores import SHARING, CommitteeScorer
from gigagp.fit.exact_answers import Theta, choose_exact, is_little_work
from gigagp.fit.groups import Groups
from gigagp.fit.held_out_scores import HeldOutScore, Scorer
from gigagp.fit.input_noise import better_noise, with_input_noise
from gigagp.fit.kernel_averages import Train, average_kernels, promising
from gigagp.fit.kernel_families import Trial
from gigagp.fit.latent_scores import choose_prediction, plain_link, scoring_of
from gigagp.fit.plan import Log, Plan, Seeds
from gigagp.fit.record import Record
from gigagp.fit.rough_theta import rough_theta
from gigagp.fit.selection import DEFAULT_NEIGHBOURS, Choice, can_be_held_out, choose_answer
from gigagp.fit.small_tables import fit_mixture, is_small
from gigagp.fit.store_writer import Storage
from gigagp.fit.theta_learning import ENOUGH_TO_CHOOSE, learn_theta
from gigagp.fit.theta_search import search_theta
from gigagp.fit.theta_training import trained_theta
from gigagp.fit.training import (
    Trace,
    bound_warnings,
)
from gigagp.fit.unusual_rows import UnusualRows
from gigagp.kernels.base import Kernel
from gigagp.linalg.row_noise import ADDED
from gigagp.model.calibration import Calibration
from gigagp.model.committee import Committee
from gigagp.model.fit_report import FitReport
from gigagp.model.fit_warnings import FitWarning
from gigagp.model.input_noise import InputNoise
from gigagp.model.mixture import Mixture
from gigagp.model.neighbourhood import Neighbourhood
from gigagp.partition.base import StoredPartition
from gigagp.progress import Listener


@dataclass(frozen=True, eq=False)
class FitResult:
    """The committee, how queries are answered, the report, and the cells whose evidence theta maximises."""

    committee: Committee
    neighbourhood: Neighbourhood | None  # None where the committee answers
    report: FitReport
    cells: RowLists
    unusual: UnusualRows  # held-out rows that look like outliers
    mixture: Mixture | None = None  # exact GPs on all rows, where these answer
    input_noise: InputNoise | None = None  # where the noise depends on the inputs
    link: Any = None  # where targets are classes, or have a likelihood that is not Gaussian
    held_out: HeldOutScore | None = None  # the predictions that the calibration was learnt from
    directions: Directions | None = None  # what takes the places of the columns of the data


def fit(
    data: ScaledRows, sample: Sample, plan: Plan, engine: Engine, seeds: Seeds, storage: Storage, log: Log,
    tell: Listener, dropped: int = 0,
) -> FitResult:  # fmt: skip
    """Rough theta, partition, store, choice of kernel, training, choice of prediction and calibration.

    dropped : rows with missing values that were left out, for the report
    """
    record = Record(tell, Trace(tell=tell))
    theta = plan.start
    small = is_small(plan, data.rows)
    if small:
        plan = replace(plan, shape=replace(plan.shape, leaf_size=data.rows))
    if plan.partitioner.local and plan.train and data.rows > (plan.shape.leaf_size or 0):
        with record.stage("rough theta"):
            climbs = rough_theta(plan, sample, engine.local, log, record.trace)
            theta = climbs[-1].theta
            record.stages.extend(climb.stage for climb in climbs)
    rows = data.rows
    with record.stage("partition and store"):
        stored = store_rows(plan, data, theta, sample, engine, seeds, storage)
        del data  # from here on only the store is used
    plan = replace(plan, student=plan.student and len(stored.cells) > 1)
    scorer = Scorer.drawn(rows, scoring_of(plan), engine, seeds.choice)
    groups = Groups(plan, stored, engine, seeds.choice)
    if small:
        trained = _fit_few_rows(plan, groups, record, seeds)
    else:
        cutter = CellCutter(sample, engine, seeds, storage)
        trained = _fit_many_rows(plan, groups, theta, scorer, cutter, log, record)
        near, score = trained.choice.neighbourhood, trained.choice.held_out
        if plan.noise != "constant" and near is not None and score is not None:
            trained = _with_input_noise(trained, near, score, scorer, seeds, log, record)
    if trained.plan.latents is None:
        trained = replace(trained, choice=_refined(trained.choice))
    plan, choice = trained.plan, trained.choice
    committee = trained.committee_with(choice.sharing)
    if plan.rule is not None and plan.rule.needs_communication:
        committee = replace(committee, communication=communication_rows(committee.experts, rows, seeds.batches))
    warnings = _warnings(trained, small) if plan.train else []
    report = _report(trained, committee, record, warnings, dropped)
    cells = trained.groups.stored.cells
    unusual = UnusualRows.of(choice.held_out, committee.store)
    return FitResult(
        committee, choice.neighbourhood, report, cells, unusual, trained.mixture, trained.input_noise, choice.link,
        choice.held_out, trained.directions,
    )  # fmt: skip


def _refined(choice: Choice) -> Choice:
    """The choice with the shape of errors that its held-out rows have."""
    held_out = choice.held_out
    if held_out is None or not choice.calibration.rows:
        return choice
    calibration = choice.calibration.refined(held_out.prediction, held_out.y)
    return replace(choice, calibration=calibration, held_out=replace(held_out, calibration=calibration))


def _warnings(trained: _TrainedModel, small: bool) -> list[FitWarning]:
    """What the user should know about the trained theta."""
    plan, groups = trained.plan, trained.groups
    bounds, known = plan.bounds.copy(), groups.stored.store.row_noise
    if known is not None and bounds[-1, 0] < bounds[-1, 1] and bool((known[:, ADDED] > 0).any()):
        bounds[-1, 0] = -np.inf  # where known noise explains all of it, none is left to be learnt
    warnings: list[FitWarning] = [*bound_warnings(trained.theta, bounds, trained.names)]
    if not small and plan.latents is None and plan.trainable and groups.possible:
        near = trained.choice.neighbourhood
        common = 0.0 if near is None else near.common
        missed = groups.missed(plan.kernel, trained.theta, common, trained.directions)
        warnings = warnings if missed is None else [missed, *warnings]
    return warnings


def _report(
    trained: _TrainedModel, committee: Committee, record: Record, warnings: list[FitWarning], dropped: int
) -> FitReport:
    cells, experts, trace = trained.groups.stored.cells, committee.experts, record.trace
    return FitReport(
        rows=trained.groups.rows,
        leaves=len(cells),
        points_per_leaf=(int(cells.sizes.min()), int(cells.sizes.max())),
        points_per_expert=(int(experts.sizes.min()), int(experts.sizes.max())),
        stages=tuple(record.stages),
        seconds=record.seconds,
        evidence_trace=tuple(trace.evidence),
        theta_trace=trace.thetas(len(trained.theta)),
        names=trained.names,
        theta=trained.theta,
        jitter=trace.jitter,
        jittered_experts=trace.jittered,
        warnings=tuple(warnings),
        dropped=dropped,
        choices=tuple(record.choices),
        calibration=trained.choice.calibration,
    )


@dataclass(frozen=True, eq=False)
class _TrainedModel:
    """The plan with the chosen kernel, theta, the rows, committees of any sharing, and how queries are answered."""

    plan: Plan
    theta: Array
    groups: Groups
    committee_with: Callable[[float], Committee]
    choice: Choice
    mixture: Mixture | None = None
    input_noise: InputNoise | None = None
    directions: Directions | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return self.plan.names if self.directions is None else self.directions.named(self.plan.names)


def _fit_few_rows(plan: Plan, groups: Groups, record: Record, seeds: Seeds) -> _TrainedModel:
    """Fit a mixture of exact GPs of several kernel families, each on all rows."""
    with record.stage("training"):
        exact = fit_mixture(plan, groups.stored.store, groups.engine, record.trace, seeds.choice)
        record.stages.extend(exact.stages)
        record.choices.extend(exact.candidates)
    plan = replace(plan, kernel=exact.family.kernel)
    committee_with = committees(plan, groups.stored, groups.extents, exact.theta)
    choice = Choice(None, 1.0, exact.held_out.calibration, held_out=exact.held_out)
    return _TrainedModel(plan, exact.theta, groups, committee_with, choice, exact.mixture)


def _fit_many_rows(
    plan: Plan, groups: Groups, theta: Array, scorer: Scorer, cutter: CellCutter, log: Log, record: Record
) -> _TrainedModel:
    """Learn theta, and choose how queries are answered."""
    rows, seeds = groups.rows, cutter.seeds
    learnt = learn_theta(plan, groups, theta, scorer, cutter, log, record)
    plan, groups, theta, trials = learnt.plan, learnt.groups, learnt.theta, learnt.trials
    committee_with = committees(plan, groups.stored, groups.extents, theta)
    near = partial(groups.model, plan.kernel, theta, plan.neighbours or DEFAULT_NEIGHBOURS)
    choice = _choose(plan, groups.stored, near, committee_with, rows, scorer, record, seeds.choice)

    def train(kernel: Kernel, theta: Array) -> Array:
        own = replace(plan, kernel=kernel)
        theta = trained_theta(own, groups.with_plan(own), theta, scorer, log, record, seeds)
        # Where the theta of the first family was right, that of another one is hardly wrong.
        return search_theta(own, groups.with_plan(own), scorer, theta)[0] if learnt.replaced else theta

    result = _TrainedModel(plan, theta, groups, committee_with, choice, directions=learnt.directions)
    if plan.noise != "constant" or plan.latents is not None:
        return result
    return _exact(result, trials, scorer, train, record) or _averaged(result, trials, scorer, train, record)


def _exact(
    trained: _TrainedModel, trials: list[Trial], scorer: Scorer, train: Train, record: Record
) -> _TrainedModel | None:
    """The model whose queries are answered by exact GPs on all rows, where these predict better than neighbours."""
    plan, choice, rows = trained.plan, trained.choice, trained.groups.rows
    near, score = choice.neighbourhood, choice.held_out
    worth_trying = rows <= plan.exact_rows and (choice.more_rows_help or is_little_work(rows))
    if not worth_trying or near is None or score is None or not score.calibration.rows:
        return None

    def another_family() -> Theta | None:
        chosen = [trial for trial in trials if trial.candidate.chosen]
        rival = promising(chosen, trials, trained.groups, scorer) if chosen else None
        return None if rival is None else (rival.kernel, train(rival.kernel, rival.theta))

    with record.stage("exact GPs"):
        exact, candidates = choose_exact((near.kernel, near.theta), another_family, near.store, score, scorer)
        record.choices.extend(candidates)
    if exact is None:
        return None
    record.reject("prediction", near.description)
    calibration = exact.held_out.calibration if plan.calibrate else Calibration.none()
    choice = replace(choice, neighbourhood=None, calibration=calibration, held_out=exact.held_out)
    return replace(trained, choice=choice, mixture=exact.mixture)


def _averaged(
    trained: _TrainedModel, trials: list[Trial], scorer: Scorer, train: Train, record: Record
) -> _TrainedModel:
    """The model with neighbourhoods of several kernels averaged, where these predict better than one."""
    plan, choice = trained.plan, trained.choice
    cost_is_open = plan.neighbours is None  # whoever sets the number of neighbours has decided what a query costs
    if len(trials) < 2 or not cost_is_open or choice.neighbourhood is None:
        return trained
    with record.stage("average of kernels"):
        averaged, candidates = average_kernels(choice, trials, trained.groups, scorer, train)
        record.choices.extend(candidates)
    return replace(trained, choice=averaged if plan.calibrate else replace(averaged, calibration=Calibration.none()))


def _with_input_noise(
    trained: _TrainedModel, near: Neighbourhood, before: HeldOutScore, scorer: Scorer, seeds: Seeds, log: Log,
    record: Record,
) -> _TrainedModel:  # fmt: skip
    """Let the noise depend on the inputs; with noise="auto" only where held-out rows are then predicted better."""
    plan, own = trained.plan, Record(record.tell, Trace(tell=record.tell))
    with record.stage("noise of the inputs"):
        candidates = with_input_noise(
            near, before, trained.groups, scorer, plan.noise == "auto", trained.directions,
            lambda groups, theta: trained_theta(plan, groups, theta, scorer, log, own, seeds), log, own.trace,
        )  # fmt: skip
        noisy, scores = better_noise(before, candidates, plan.noise == "inputs")
        record.choices += scores
    if noisy is None:
        return _exact(trained, [], scorer, lambda kernel, theta: theta, record) or trained
    record.stages += [*noisy.stages, *own.stages]
    record.trace.add(own.trace)
    calibration = noisy.held_out.calibration if plan.calibrate else Calibration.none()
    choice = replace(
        trained.choice, neighbourhood=noisy.neighbourhood, calibration=calibration, held_out=noisy.held_out
    )
    groups, theta = noisy.groups, noisy.neighbourhood.theta
    committee_with = committees(plan, groups.stored, groups.extents, theta)
    result = _TrainedModel(plan, theta, groups, committee_with, choice, None, noisy.noise, trained.directions)
    if noisy.neighbourhood.store.row_noise is None:  # the noise of queries is learnt, but not that of rows
        return result
    return _exact(result, [], scorer, lambda kernel, theta: theta, record) or result


def _choose(
    plan: Plan, stored: StoredPartition, model: Callable[[], Neighbourhood],
    committee_with: Callable[[float], Committee], rows: int, scorer: Scorer, record: Record, rng: np.random.Generator,
) -> Choice:  # fmt: skip
    """Choose how queries are answered, and learn the distribution of errors."""
    open_choice = Choice(None, plan.shape.sharing or SHARING[1], Calibration.none())
    if plan.latents is not None:
        few, plain = model() if plan.neighbours else replace(model(), neighbours=rows), plain_link(plan)
        if rows < ENOUGH_TO_CHOOSE:
            return replace(open_choice, neighbourhood=few, link=plain)
        with record.stage("choice of prediction"):
            best = choose_prediction(scorer, model(), plan.neighbours)
            record.choices.extend(best.candidates)
        link = best.link if plan.calibrate else plain
        return replace(open_choice, neighbourhood=best.neighbourhood, link=link)
    if not plan.partitioner.local:
        return open_choice
    near = None if plan.method == "committee" or plan.kernel.metric(plan.kernel.theta) is None else model()
    if not plan.train or rows < ENOUGH_TO_CHOOSE:
        return replace(open_choice, neighbourhood=near if plan.method == "neighbourhood" else None)
    with record.stage("choice of prediction"):
        committees = CommitteeScorer.drawn(committee_with, stored.cells, scorer, rng)
        allowed = plan.method != "neighbourhood" and can_be_held_out(plan.rule)
        allowed = allowed and not (near is not None and rows <= plan.exact_rows)  # an exact GP predicts better
        if near is None and not allowed:
            return open_choice
        choice = choose_answer(
            scorer, near, committees, plan.shape.sharing, plan.rule, _nearest(plan, stored.cells), plan.neighbours,
            allowed,
        )  # fmt: skip
        record.choices.extend(choice.candidates)
    return choice if plan.calibrate else replace(choice, calibration=Calibration.none())


def _nearest(plan: Plan, cells: RowLists) -> int | None:
    """How many experts answer a query; None where that is to be chosen."""
    return None if plan.nearest == "auto" else len(cells) if plan.nearest is None else int(plan.nearest)
