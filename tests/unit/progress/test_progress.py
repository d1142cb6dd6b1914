"""Fits and predictions say how far they have come, to whoever asks, and to nobody else."""

import logging
import mmap
import pickle
import warnings

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

from gigagp import HGPRegressor
from gigagp.progress import Counter, Event, Pace, make_listener
from gigagp.progress.pace import resident


def heard(wave, **options):
    X, y = wave
    events = []
    model = HGPRegressor(leaf_size=100, random_state=0, **options).fit(X, y, progress=events.append)
    return model, events


STAGES = [
    "rough theta", "partition and store", "start of training", "directions", "choice of kernel", "training",
    "choice of prediction", "average of kernels",
]  # fmt: skip


def of(events, stage):
    return [event for event in events if event.stage == stage and not event.finished]


def test_a_fit_tells_its_stages_in_order(wave):
    model, events = heard(wave)
    assert list(dict.fromkeys(event.stage for event in events)) == ["scan", "store", *STAGES]
    for stage in ("scan", "store"):
        assert [(event.done, event.total) for event in of(events, stage)] == [(600, 600)]
    counted = (
        of(events, "rough theta")
        + of(events, "start of training")
        + of(events, "directions")
        + of(events, "choice of kernel")
        + of(events, "training")
        + of(events, "average of kernels")
    )
    assert [event.evidence for event in counted] == list(model.report_.evidence_trace)
    training = of(events, "training")
    assert [event.done for event in training] == list(range(1, len(training) + 1))
    assert {event.experts for event in training} == {8}  # groups, of which tests see few
    assert training[-1].slope < 1e-3 < counted[0].slope
    assert np.all(np.diff([event.seconds for event in training]) >= 0)
    ended = [event.stage for event in events if event.finished]
    assert ended == list(model.report_.seconds)
    assert "progress" not in model.get_params()
    pickle.dumps(model)


def test_training_along_columns_belongs_to_the_stage_of_directions():
    """Where directions are trained to the end, columns are too; the trace has only those of the chosen coordinates."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (1500, 3))
    y = np.sin(8 * (X[:, 0] - X[:, 1])) + 0.3 * X[:, 2] + 0.05 * rng.standard_normal(1500)
    model, events = heard((X, y), n_jobs=1, method="neighbourhood", neighbours=32)
    assert model.model_.inputs.directions is not None
    assert {event.stage for event in events} == {"scan", "store", *model.report_.seconds}
    of_directions = of(events, "directions")
    assert [event.done for event in of_directions] == list(range(1, len(of_directions) + 1))
    assert np.all(np.diff([event.seconds for event in of_directions]) >= 0)
    assert of_directions[-1].seconds <= model.report_.seconds["directions"]
    told = sum(len(of(events, stage)) for stage in model.report_.seconds)
    assert told > len(model.report_.evidence_trace) == model.report_.evaluations


def test_rows_that_exceed_memory_are_counted_as_they_are_dealt_and_sorted(wave, small_sizes):
    X, y = wave
    events = []
    HGPRegressor(leaf_size=50, random_state=0, memory=20_000).fit(X, y, progress=events.append)
    assert [event.done for event in of(events, "scan")] == [256, 512, 600]
    assert [event.done for event in of(events, "store")] == [600], "one range of rows is one task"
    sorted_rows = [event.done for event in of(events, "sort")]
    assert len(sorted_rows) > 1
    assert sorted_rows[-1] == 600


def test_progress_changes_nothing(wave):
    heard_model, _ = heard(wave)
    silent = HGPRegressor(leaf_size=100, random_state=0).fit(*wave)
    assert heard_model.theta_.tobytes() == silent.theta_.tobytes()


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
    assert [line.removeprefix("[gigagp] ").split(":")[0] for line in stages] == STAGES
    model, _ = heard(wave, verbose=2)
    printed = capsys.readouterr().out.splitlines()
    assert sum("evaluation" in line for line in printed) == model.report_.evaluations
    assert any("scan: 600 rows of 600" in line for line in printed)


def test_the_logger_hears_what_its_level_asks_for(wave, caplog):
    with caplog.at_level(logging.INFO, logger="gigagp"):
        heard(wave)
    assert [record.levelname for record in caplog.records] == ["INFO"] * len(STAGES)
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="gigagp"):
        heard(wave)
    assert "evidence/point" in caplog.text


def test_one_line_a_stage():
    lines = []
    pace = Pace(lambda facts: lines.append([fact for fact in facts if not fact.endswith("GB")]))
    for event in (
        Event("scan", 10, 20, 0.1),
        Event("scan", 20, 20, 0.2),
        Event("rough theta", 1, None, 1.0, -0.5, 0.1, 1),
        Event("rough theta", 0, None, 1.1, finished=True),
        Event("sharing", 0, None, 0.3, finished=True),
        Event("prediction", 5_000_000, None, 0.1),
    ):
        pace(event)
    pace.close()
    pace.close()
    assert lines == [
        ["scan: 20 rows", "0.2 s", "100/s"],
        ["rough theta: 1 step", "evidence -0.5000", "slope 1.0e-01", "1.0 s", "1/s", "1 expert"],
        ["sharing: 0.3 s"],
        ["prediction: 5,000,000 rows", "0.1 s", "50M/s"],
    ]


def test_time_left_of_rows_and_of_a_slope_that_falls():
    pace = Pace(lambda facts: None)
    assert (pace.stage, pace.share, pace.left) == (None, None, None)
    pace(Event("scan", 10, 40, 2.0))
    assert (pace.share, pace.left) == (0.25, 6.0)
    assert pace.facts()[:3] == ["10 of 40 rows", "6 s left", "5/s"]
    for step, slope in enumerate((1e-1, 5e-2, 1e-3, 2e-2)):
        pace(Event("training", step + 1, None, step + 1.0, -0.5, slope, 8))
        assert (pace.left is None) == (step < 2), "a slope that has hardly fallen tells nothing"
    assert pace.left == pytest.approx(4.0), "half of the way to 1e-5, by the least slope so far, in 4 s"
    pace(Event("training", 5, None, 5.0, -0.5, 1e-4, 16))
    assert pace.left is None, "batches that grow"
    pace(Event("other", 1, 10_000, 5.0))
    assert pace.facts()[1] == "14 h left"


def test_a_stage_that_lasts_is_heard_of_meanwhile():
    lines = []
    pace = Pace.plain(lines.append)
    for seconds in range(0, 100, 10):
        pace(Event("scan", seconds, 200, float(seconds)))
    assert [facts[0] for facts in lines] == ["scan: 40 of 200 rows", "scan: 80 of 200 rows"]


def test_memory_is_that_of_this_process():
    before = resident()
    with mmap.mmap(-1, 160 << 20) as block:  # never from what was freed before
        for _ in range(160):
            block.write(bytes(1 << 20))
        assert 150 << 20 < resident() - before < 200 << 20


NOTEBOOK = """
from gigagp import HGPRegressor
from gigagp.datasets import robot_arm
from gigagp.kernels import SquaredExponential
X, y = robot_arm(300)
model = HGPRegressor(SquaredExponential(), leaf_size=100, neighbours=16, random_state=0, verbose=2).fit(X, y)
model.predict_file(X, "p.parquet");
"""


@pytest.mark.slow  # a kernel of Jupyter takes seconds to start
def test_a_notebook_shows_lines_that_move_instead_of_one_an_evaluation(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(NOTEBOOK)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the notebook's own libraries
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [o for o in notebook.cells[0].outputs if o.output_type == "display_data"]
    fit, prediction = (o.data["text/plain"].splitlines() for o in outputs)
    told = ["scan", "store", "rough theta", "partition and store", "start of training", "training"]
    assert [line.split(":")[0] for line in fit] == [*told, "choice of prediction"]
    assert prediction[0].startswith("prediction: 300 rows")
    assert outputs[0].data["text/html"].startswith("<pre>scan: 300 rows")
    printed = [o.text for o in notebook.cells[0].outputs if o.output_type == "stream" and o.name == "stdout"]
    assert printed == []


def test_a_counter_passes_events_to_the_listener():
    events = []
    count = Counter("making", 10, make_listener(0, events.append))
    count.add(4)
    count.add(6)
    assert [event.done for event in events] == [4, 10]
    assert events[0].line == "making: 4 rows of 10"
    assert Event("x", 1, None, 0.0).line == "x: 1 rows"
