"""In large tables theta is trained again on other rows until two trainings predict held-out rows equally well."""

import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from gigagp import HGPRegressor
from gigagp.fit import theta_learning
from gigagp.fit.record import Record
from gigagp.fit.training import Trace


@dataclass(frozen=True)
class Score:
    score: float


@pytest.mark.parametrize(
    ("scores", "trainings", "chosen"),
    [
        ([0.3, 0.301, 0.1], 2, 1),  # the first two agree
        ([0.3, 0.2, 0.203, 0.1], 3, 2),
        ([0.3, 0.2, 0.25, 0.1, 0.0], 4, 4),  # none agree
        ([0.2, 0.3, 0.202, 0.1], 3, 1),
    ],
)
def test_training_is_repeated_until_the_two_best_agree(scores, trainings, chosen, monkeypatch):
    made = []

    def trained(start, scorer, cutter, log, record):
        with record.stage("training"):
            record.trace.evidence.append(float(len(made)))
            record.trace.theta.append(np.zeros(1))
        made.append(replace(start, theta=np.array([len(made) + 1.0])))
        return made[-1]

    monkeypatch.setattr(theta_learning, "_trained", trained)
    monkeypatch.setattr(theta_learning, "_score", lambda learnt, scorer: Score(scores[int(learnt.theta[0]) - 1]))
    record = Record(lambda event: None, Trace())
    learnt = theta_learning._repeated(theta_learning.LearntTheta(None, np.zeros(1), None), None, None, None, record)
    assert len(made) == trainings
    assert learnt.theta == chosen
    assert record.trace.evidence == [chosen - 1.0]  # of the chosen training alone
    assert [each.score for each in record.choices] == scores[:trainings]
    assert [each.name for each in record.choices if each.chosen] == [str(chosen)]
    assert record.seconds["training"] > 0


def test_a_large_table_reports_its_trainings_and_does_not_depend_on_the_engine(monkeypatch):
    for name in ("LARGE_TABLE", "_AGREEMENT"):
        monkeypatch.setattr(theta_learning, name, 0)  # any table is large, and no two trainings agree
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (900, 3))
    y = np.sin(5 * X[:, 0]) + X[:, 1] ** 2 + 0.05 * rng.standard_normal(900)
    models = []
    for engine in ("serial", "threads"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = HGPRegressor(leaf_size=100, directions=False, random_state=0, engine=engine, n_jobs=2).fit(X, y)
        models.append(model)
        trainings = [each for each in model.report_.choices if each.what == "training"]
        assert len(trainings) == theta_learning._MOST_TRAININGS
        assert min(trainings, key=lambda each: each.score).chosen
        report = model.report_
        assert sum(stage.evaluations for stage in report.stages) == len(report.evidence_trace)
        np.testing.assert_array_equal(report.theta, model.theta_)
    np.testing.assert_array_equal(models[0].theta_, models[1].theta_)
    np.testing.assert_array_equal(models[0].predict(X[:20]), models[1].predict(X[:20]))
