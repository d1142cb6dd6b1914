"""Families are judged by many neighbours where these predict much better than few."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from gigagp.fit import kernel_families
from gigagp.fit.kernel_families import Trial
from gigagp.model.fit_report import Candidate

pytestmark = pytest.mark.full_choices


@dataclass(frozen=True, eq=False)
class Score:
    """Losses of held-out rows around a mean."""

    y: np.ndarray
    losses: np.ndarray
    calibration = SimpleNamespace(rows=1)
    unit = None

    @classmethod
    def of(cls, mean):
        losses = mean * np.random.default_rng(0).uniform(0.9, 1.1, 400)
        return cls(losses, losses * mean / losses.mean())

    @property
    def score(self):
        return float(self.losses.mean())


def judged(losses):
    """The trials after the comparison by many neighbours; losses: by family, for 64, 256 and 512 neighbours."""
    counts = (64, kernel_families._MORE_NEIGHBOURS, kernel_families._MANY_NEIGHBOURS)
    groups = SimpleNamespace(rows=10_000, model=lambda kernel, theta, count: (kernel, count))
    scorer = SimpleNamespace(score=lambda model, rows: Score.of(losses[model[0]][counts.index(model[1])]))
    trials = [
        Trial(name, None, Score.of(values[0]), Candidate("kernel", name, values[0]), (), 64)
        for name, values in losses.items()
    ]
    best = min(trials, key=lambda trial: trial.candidate.score)
    return {t.kernel: t for t in kernel_families._with_more_neighbours(trials, best, groups, scorer)}


def test_many_neighbours_decide_where_they_predict_much_better():
    trials = judged({"smooth": (1.0, 0.7, 0.65), "rougher": (1.02, 0.72, 0.6), "rough": (1.5, 0.9, 0.1)})
    scores = {name: trial.candidate.score for name, trial in trials.items()}
    assert min(scores, key=scores.get) == "rougher"
    assert trials["smooth"].smooth
    assert trials["rougher"].smooth
    assert not trials["rough"].smooth  # far behind with few neighbours: it is not judged again, and not the best
    assert scores["rough"] > scores["smooth"] > scores["rougher"]


def test_few_neighbours_decide_where_more_hardly_help():
    losses = {"smooth": (1.0, 0.95, 2.0), "rough": (1.1, 0.5, 0.1)}
    trials = judged(losses)
    assert {name: trial.candidate.score for name, trial in trials.items()} == {"smooth": 1.0, "rough": 1.1}
    assert not any(trial.smooth for trial in trials.values())
