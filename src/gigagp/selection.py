"""What the user leaves open is chosen from the data: kernel, sharing, rule, and how many experts answer a query.

Candidates are judged by rows left out in closed form (`left_out`), the same rows for all, so that small differences
show. The same rows tell how errors are distributed (`calibration`). All of it is seeded. Choosing is done on so few
experts that it takes less than a third of a fit (`FitReport.choosing`; measured in docs/accuracy.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.calibration import NONE, Calibration
from gigagp.combine import NPAE, RULES, Rule
from gigagp.engines import Engine
from gigagp.fit_report import Candidate
from gigagp.inference import Committee
from gigagp.left_out import Asked, Opinions, Said, ask_nearest, ask_one
from gigagp.partition.base import RowLists

AUTO_RULE, AUTO_NEAREST = "healed_blend", 4  # where nothing speaks for others
_RULES = ("blend", "healed")  # those others
_MORE_NEAREST = 8
SHARING = (2.0, 4.0, 8.0)
_ALIKE = 0.003  # nats a row by which kernels must differ for the rougher to be taken
FEW_ROWS = 50_000  # up to which leaf size is chosen, and sharing is at least 4; beyond, it is at most 4
_GAIN_FEW, _GAIN = 0.005, 0.02  # nats a row, for which sharing is doubled: a prediction then costs 4 to 8 times as much
_MUCH, _UNSEEN = 0.03, 1.5  # nats a row for which sharing is raised once more, by this factor, without a trial
_CHEAP = 2.0  # sharing at which many experts can be asked
_SIGNIFICANT, _WORTHWHILE = 2.0, 0.005  # standard errors, and nats a row, by which another rule must be better
_CELLS, _SHARING_CELLS = 24, 4  # whose own experts are asked, to choose the kernel, and sharing
_ROWS = 128  # of a cell that are asked
_PLACES, _FEWEST, _MOST = 256, 16, 64  # where the whole committee is asked, and how many rows lie together there
_SOME = 64  # cells of which rows are asked, where all experts can be
_RATIO_CELLS = 12  # whose own experts tell what more sharing does
_ENOUGH = 1000  # rows to calibrate by
_WORK = 9e10  # multiplications that one use may cost
_ALL = 1e12  # and those of all experts, each asked once: ten seconds on two cores


def chosen_among(candidates: list[Candidate]) -> list[Candidate]:
    """The same, with the best marked; of those that are as good as it, the first."""
    least = min(c.score for c in candidates)
    best = next(c for c in candidates if c.score <= least + _ALIKE)
    return [replace(c, chosen=c is best) for c in candidates]


@dataclass(frozen=True, eq=False)
class Verdict:
    """What was learnt by leaving rows out."""

    rule: str
    nearest: int
    calibration: Calibration = NONE
    choices: tuple[Candidate, ...] = ()


@dataclass(frozen=True, eq=False)
class Jury:
    """Cells drawn at random, some rows of each, and what their own experts have said of them.

    shared : the committee in which experts have so many times the points of their cells
    """

    shared: Callable[[float], Committee]
    cells: RowLists
    engine: Engine
    order: Array  # all cells, shuffled
    seed: int
    _known: dict[tuple[float, int], Said] = field(default_factory=dict)

    @classmethod
    def drawn(
        cls, shared: Callable[[float], Committee], cells: RowLists, engine: Engine, rng: np.random.Generator
    ) -> Jury:
        return cls(shared, cells, engine, rng.permutation(len(cells)), int(rng.integers(2**32)))

    def own(self, sharing: float, most: int = _CELLS, least: int = 0) -> list[Said]:
        """What some experts say of rows of their own cells; as many as can be afforded, within these numbers."""
        committee = self.shared(sharing)
        cells = self.order[: max(least, min(most, _affordable(committee)))].tolist()
        new = [Asked(leaf, self._some(leaf)) for leaf in cells if (sharing, leaf) not in self._known]
        for asked, said in zip(new, ask_one(committee, new, self.engine), strict=True):
            self._known[sharing, asked.leaf] = said
        return [self._known[sharing, leaf] for leaf in cells]

    def _some(self, leaf: int) -> Array:
        """A few rows of a cell."""
        rows = self.cells[leaf]
        return np.sort(np.random.default_rng([self.seed, leaf]).choice(rows, min(_ROWS, len(rows)), replace=False))

    def places(self, committee: Committee) -> list[Array]:
        """Rows of many cells: any, if all experts can be asked; else such as lie together and ask the same few."""
        affordable = _affordable(committee)
        if affordable == len(committee.experts):
            return [self._some(leaf) for leaf in self.order[:_SOME].tolist()]
        places = min(_PLACES, affordable // _MORE_NEAREST)
        together = max(_FEWEST, min(_MOST, _FEWEST * _PLACES // max(places, 1)))
        return [self._near(leaf, committee, together) for leaf in self.order[:places].tolist()]

    def _near(self, leaf: int, committee: Committee, together: int) -> Array:
        rows = self.cells[leaf]
        points = committee.store.gather(rows)[0] * committee.router.metric
        middle = points[np.random.default_rng([self.seed, leaf]).integers(len(rows))]
        near = np.argsort(((points - middle) ** 2).sum(axis=1), kind="stable")[:together]
        return np.sort(rows[near])


def _affordable(committee: Committee) -> int:
    """How many experts can be asked; not one where they are very large."""
    points = float(committee.experts.sizes.mean())
    return int(min(len(committee.experts), _WORK / (points**3 / 3 + points**2 * _ROWS)))


def own_cells(jury: Jury, sharing: float | None) -> list[Said]:
    """What experts with little sharing say of rows of their own cells, left out."""
    return jury.own(min(sharing or _CHEAP, _CHEAP)) or jury.own(1.0, least=1)


def clearly_better(said: list[Said], usual: list[Said]) -> bool:
    """Whether the same rows, cell by cell, are better foretold: by enough, and by more than chance."""
    gain, error = _gain(Said.joined(said), Said.joined(usual), [len(each.y) for each in said])
    return gain > max(_WORTHWHILE, _SIGNIFICANT * error)


def choose_sharing(jury: Jury, rows: int, unit: float = 1.0) -> tuple[float, list[Candidate]]:
    """Sharing is doubled as long as that pays, and all experts together do not become too much work.

    Where the last doubling has gained much, half as much again is taken without a trial, if it is little work.

    unit : of sharing; less where leaves are larger than usual
    """
    few = rows <= FEW_ROWS
    usual, gain = (SHARING[1:], _GAIN_FEW) if few else (SHARING[:2], _GAIN)
    work = float((jury.cells.sizes.astype(float) ** 3).sum()) / 3
    steps = tuple(s * unit for s in usual if work * (s * unit) ** 3 <= _ALL) or (1.0,)
    chosen = steps[0]
    candidates: list[Candidate] = []
    for sharing in steps:
        said = jury.own(sharing, _SHARING_CELLS)
        if len(said) < min(_SHARING_CELLS, len(jury.order)):
            break  # too large to be judged by the same cells
        candidates.append(Candidate("sharing", f"{sharing:g}", Said.joined(said).score))
        if len(candidates) > 1 and candidates[-2].score - candidates[-1].score < gain:
            break
        chosen = sharing
    candidates = [replace(c, chosen=c.name == f"{chosen:g}") for c in candidates]
    much = len(candidates) > 1 and candidates[-1].chosen and candidates[-2].score - candidates[-1].score > _MUCH
    if much and work * (_UNSEEN * chosen) ** 3 <= _ALL / 2:
        candidates[-1] = replace(candidates[-1], name=f"{chosen:g}, raised to {_UNSEEN * chosen:g}")
        chosen *= _UNSEEN
    return chosen, candidates


def judge(jury: Jury, sharing: float, rule: Rule | None, k: int | None, calibrate: bool) -> Verdict:
    """Which rule and how many experts, where these are left open (None), and how errors are distributed.

    Rules are compared where experts are small, and the committee can be asked at many places.
    """
    usual = Verdict(AUTO_RULE, k or AUTO_NEAREST)
    for cheap in (max(sharing / 2, min(sharing, _CHEAP)), min(sharing, _CHEAP), 1.0):
        committee = jury.shared(cheap)
        places = jury.places(committee)
        if sum(map(len, places)) >= _ENOUGH:
            break
    asked = min(k or _MORE_NEAREST, len(committee.experts))
    if sum(map(len, places)) < _ENOUGH or asked > _MORE_NEAREST:
        return usual
    if rule is not None and (isinstance(rule, NPAE) or rule.needs_communication):
        return usual
    opinions = ask_nearest(committee, np.concatenate(places), asked, jury.engine)
    verdict, said = _choose_rule(opinions, [len(rows) for rows in places], rule, k)
    if not calibrate:
        return verdict
    if sharing > cheap:
        shrink = _shrinkage(jury, committee, cheap, sharing, rule or RULES[verdict.rule](), verdict.nearest)
        said = replace(said, variance=said.variance / shrink**2)
    return replace(verdict, calibration=Calibration.of(said.y - said.mean, said.variance))


def _shrinkage(jury: Jury, committee: Committee, cheap: float, sharing: float, rule: Rule, k: int) -> float:
    """By what factor more sharing shrinks errors in the deviations foretold, on the same rows.

    Of the committee at some places or, where that is too much work, of a few experts alone. There are too few rows to
    tell how errors are distributed: tails come from the many rows that the cheap committee was asked.
    """
    more = jury.shared(sharing)
    places = jury.places(more)
    if sum(map(len, places)) >= _ENOUGH:
        rows = np.concatenate(places)
        after, before = (ask_nearest(each, rows, k, jury.engine).combined(rule, k) for each in (more, committee))
    else:
        own = jury.own(sharing, _RATIO_CELLS)
        if not own:
            return 1.0
        after, before = Said.joined(own), Said.joined(jury.own(cheap, len(own)))
    return float(np.abs(after.z).mean() / np.abs(before.z).mean())


def _choose_rule(opinions: Opinions, sizes: list[int], rule: Rule | None, k: int | None) -> tuple[Verdict, Said]:
    """The usual rule and k, or others that are clearly better at these places."""
    if k is None and len(opinions.committee.experts) <= AUTO_NEAREST:
        k = AUTO_NEAREST
    tries = [(AUTO_RULE, k or AUTO_NEAREST)]
    if rule is None:
        tries += [(name, k or AUTO_NEAREST) for name in _RULES]
    if k is None:
        tries.append((AUTO_RULE, _MORE_NEAREST))
    said = [opinions.combined(rule or RULES[name](), nearest) for name, nearest in tries]
    best, best_gain = 0, _WORTHWHILE
    for i in range(1, len(tries)):
        gain, error = _gain(said[i], said[0], sizes)
        if gain > max(best_gain, _SIGNIFICANT * error):
            best, best_gain = i, gain
    names = [f"{nearest} experts" if rule is not None else f"{name} of {nearest}" for name, nearest in tries]
    candidates = [
        Candidate("rule", name, each.score, i == best) for i, (name, each) in enumerate(zip(names, said, strict=True))
    ]
    return Verdict(*tries[best], choices=tuple(candidates) if len(tries) > 1 else ()), said[best]


def _gain(said: Said, usual: Said, sizes: list[int]) -> tuple[float, float]:
    """Nats a row by which the first is better, and the error of that, from the means of groups of these sizes."""
    rows = usual.losses - said.losses
    gains = np.array([part.mean() for part in np.split(rows, np.cumsum(sizes)[:-1])])
    return float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else np.inf
