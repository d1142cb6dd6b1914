"""Scores of files are those of their rows together, and rows that are held out are not seen in training."""

import numpy as np
import pyarrow as pa
import pytest

from gigagp import HGPRegressor, InvalidInput, InvalidParameter, load, metrics
from gigagp.data.sources import Share, open_rows
from gigagp.model.distribution import PredictiveDistribution, Shape
from gigagp.model.evaluation import evaluate


@pytest.fixture(scope="module")
def table(wave):
    X, y = wave
    return pa.table({"a": X[:, 0], "b": X[:, 1], "y": y})


@pytest.fixture(scope="module")
def model(table):
    return HGPRegressor(leaf_size=100, random_state=0).fit(table, "y")


@pytest.mark.parametrize("at_once", [64, 600])
def test_scores_in_blocks_are_those_of_all_rows(wave, at_once):
    y = wave[1]
    rng = np.random.default_rng(0)
    offset, std = rng.standard_normal(600), rng.uniform(0.5, 1.5, 600)
    columns = np.column_stack([y + 1e3 + offset, std])
    evaluation = evaluate(
        open_rows(columns, y + 1e3), lambda X: PredictiveDistribution(X[:, 0], X[:, 1], Shape.gaussian()), at_once
    )
    mean, truth = columns[:, 0], y + 1e3
    assert evaluation.rmse == pytest.approx(metrics.rmse(truth, mean))
    assert evaluation.nlpd == pytest.approx(metrics.nlpd(truth, mean, std))
    assert evaluation.crps == pytest.approx(metrics.crps(truth, mean, std))
    for level, share in evaluation.coverage.items():
        assert share == pytest.approx(metrics.coverage(truth, mean, std, level))
    assert evaluation.target_std == pytest.approx(y.std())
    assert (evaluation.rows, evaluation.dropped) == (600, 0)
    assert "RMSE" in repr(evaluation)


def test_a_model_knows_its_target_and_so_does_its_copy_on_disk(model, table, wave, tmp_path):
    X, y = wave
    mean = model.predict(table)
    evaluation = model.evaluate(table)
    assert evaluation.rmse == pytest.approx(metrics.rmse(y, mean))
    assert evaluation.nlpd == pytest.approx(-model.predict_distribution(table).log_pdf(y).mean())
    model.save(tmp_path / "m")
    assert load(tmp_path / "m").evaluate(table).rmse == evaluation.rmse
    unnamed = HGPRegressor(leaf_size=100, random_state=0).fit(X, y)
    with pytest.raises(InvalidParameter, match="pass target="):
        unnamed.evaluate(X)
    assert unnamed.evaluate(X, y).rows == 600


def test_missing_rows_are_dropped_and_counted(model, table):
    holes = table.set_column(0, "a", pa.array([None, *table["a"].to_pylist()[1:]]))
    with pytest.raises(InvalidInput, match="missing value"):
        model.evaluate(holes)
    evaluation = model.evaluate(holes, missing="drop")
    assert (evaluation.rows, evaluation.dropped) == (599, 1)


def rows_of(table, share, size=64, **options):
    rows = open_rows(table, "y", share=share, **options)
    return np.concatenate([block.y for block in rows.blocks(size)]), rows


def test_a_share_and_the_others_are_all_rows_once(table):
    share = Share(0.25, seed=3)
    ours, rows = rows_of(table, share)
    others, _ = rows_of(table, share.others)
    assert sorted([*ours, *others]) == sorted(table["y"].to_pylist())
    assert 100 < len(ours) < 200
    assert (rows.n_rows, rows.n_dropped) == (len(ours), 0)
    again, _ = rows_of(table, Share(0.25, seed=3), size=600)
    assert (again == ours).all(), "whatever the size of blocks"
    other_seed, _ = rows_of(table, Share(0.25, seed=4))
    assert list(other_seed) != list(ours)
    prints = {open_rows(table, "y", share=s).fingerprint() for s in (None, share, share.others, Share(0.25, seed=4))}
    assert len(prints) == 4


def test_dropped_rows_are_counted_in_their_own_share(table):
    holes = table.set_column(0, "a", pa.array([None, None, None, *table["a"].to_pylist()[3:]]))
    share = Share(0.5, seed=1)
    dropped = [rows_of(holes, s, missing="drop")[1].n_dropped for s in (share, share.others)]
    assert sum(dropped) == 3
    assert dropped[0] == share.mask(0, 3).sum()


@pytest.mark.parametrize("bad", [0, 1, -0.1, 1.5, float("nan"), "half"])
def test_shares_that_mean_nothing(bad):
    with pytest.raises(InvalidParameter, match="between 0 and 1"):
        Share(bad)


def test_a_share_without_rows_is_an_error(table):
    with pytest.raises(InvalidInput, match="no rows in this share"):
        rows_of(table.slice(0, 3), Share(1e-9))


def test_training_does_not_see_held_out_rows(table, wave):
    X, y = wave
    share = Share(0.2, seed=0)
    model = HGPRegressor(leaf_size=100, random_state=0).fit(table, "y", share=share.others)
    inside = share.mask(0, 600)
    by_hand = HGPRegressor(leaf_size=100, random_state=0).fit(X[~inside], y[~inside])
    assert model.theta_.tobytes() == by_hand.theta_.tobytes()
    assert model.evaluate(table, share=share).rmse == pytest.approx(metrics.rmse(y[inside], by_hand.predict(X[inside])))
    with pytest.raises(InvalidParameter, match="share= needs a table"):
        model.fit(X, y, share=share)
