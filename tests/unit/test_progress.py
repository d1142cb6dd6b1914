"""Fits and predictions say how far they have come, to whoever asks, and to nobody else."""

import logging
import pickle

import numpy as np
import pytest

from gigagp import HGPRegressor
from gigagp.progress import Counter, Event, teller


def heard(wave, **options):
    X, y = wave
    events = []
    model = HGPRegressor(leaf_size=100, random_state=0, **options).fit(X, y, progress=events.append)
    return model, events


def of(events, stage):
    return [event for event in events if event.stage == stage and not event.finished]


def test_a_fit_tells_its_stages_in_order(wave):
    model, events = heard(wave)
    assert list(dict.fromkeys(event.stage for event in events)) == [
        "scan", "store", "rough theta", "partition and store", "choice of kernel", "training", "choice of experts",
    ]  # fmt: skip
    for stage in ("scan", "store"):
        assert [(event.done, event.total) for event in of(events, stage)] == [(600, 600)]
    counted = of(events, "rough theta") + of(events, "choice of kernel") + of(events, "training")
    assert [event.evidence for event in counted] == list(model.report_.evidence_trace)
    training = of(events, "training")
    assert [event.done for event in training] == list(range(1, len(training) + 1))
    assert {event.experts for event in training} == {model.n_leaves_}
    assert training[-1].slope < 1e-3 < counted[0].slope
    assert np.all(np.diff([event.seconds for event in training]) >= 0)
    ended = [event.stage for event in events if event.finished]
    assert ended == list(model.report_.seconds)
    assert "progress" not in model.get_params()
    pickle.dumps(model)


def test_rows_that_exceed_memory_are_counted_as_they_are_dealt_and_sorted(wave, small_sizes):
    X, y = wave
    events = []
    HGPRegressor(leaf_size=50, random_state=0, memory=20_000).fit(X, y, progress=events.append)
    for stage in ("scan", "store"):
        assert [event.done for event in of(events, stage)] == [256, 512, 600]
    assert of(events, "sort")[-1].done == 600


def test_progress_changes_nothing(wave):
    told, _ = heard(wave)
    silent = HGPRegressor(leaf_size=100, random_state=0).fit(*wave)
    assert told.theta_.tobytes() == silent.theta_.tobytes()


def test_a_listener_may_stop_a_fit_and_the_model_stays_as_it_was(wave):
    class Enough(Exception):
        pass

    def stop(event):
        if event.stage == "training" and event.done == 2:
            raise Enough

    model = HGPRegressor(leaf_size=100, random_state=0).fit(*wave)
    before = model.theta_.copy()
    with pytest.raises(Enough):
        model.set_params(leaf_size=60).fit(*wave, progress=stop)
    assert (model.theta_ == before).all()


def test_predictions_of_files_are_counted(wave, tmp_path):
    X, y = wave
    model = HGPRegressor(leaf_size=100, random_state=0).fit(X, y)
    events = []
    model.predict_file(X, tmp_path / "p.parquet", progress=events.append)
    assert [(event.stage, event.done, event.total) for event in events] == [("prediction", 600, 600)]


def test_verbose_2_prints_evaluations(wave, capsys):
    heard(wave, verbose=1)
    stages = capsys.readouterr().out.splitlines()
    assert all(line.startswith("[gigagp] ") and line.endswith(" s") for line in stages)
    assert len(stages) == 5
    model, _ = heard(wave, verbose=2)
    printed = capsys.readouterr().out.splitlines()
    assert sum("evaluation" in line for line in printed) == model.report_.evaluations
    assert any("scan: 600 rows of 600" in line for line in printed)


def test_the_logger_hears_what_its_level_asks_for(wave, caplog):
    with caplog.at_level(logging.INFO, logger="gigagp"):
        heard(wave)
    assert [record.levelname for record in caplog.records] == ["INFO"] * 5
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="gigagp"):
        heard(wave)
    assert "evidence/point" in caplog.text


def test_counter_and_teller():
    events = []
    count = Counter("making", 10, teller(0, events.append))
    count.add(4)
    count.add(6)
    assert [event.done for event in events] == [4, 10]
    assert events[0].line == "making: 4 rows of 10"
    assert Event("x", 1, None, 0.0).line == "x: 1 rows"
