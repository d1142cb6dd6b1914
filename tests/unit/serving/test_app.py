"""The service answers as the model does, and refuses everything else with a reason."""

import io
import json
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import gigagp
from gigagp import HGPRegressor
from gigagp.data.sources.encoding import Encoding, Feature
from gigagp.serving import Limits, make_app
from gigagp.serving.limits import Problem
from gigagp.serving.queries import read, typical_row

SETTINGS = {"kernel": "matern52", "method": "neighbourhood", "neighbours": 15, "random_state": 0, "n_jobs": 1}
ARROW = "application/vnd.apache.arrow.stream"


def table(n=80, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 2))
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, n), unit="D")
    kind, noise = np.where(x[:, 1] > 0, "high", "low"), 0.1 * rng.standard_normal(n)
    y = np.sin(2 * x[:, 0]) + (x[:, 1] > 0) + np.sin(days.day_of_year.to_numpy() / 15) + noise
    return pd.DataFrame({"a": x[:, 0], "kind": kind, "day": days, "y": y})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "model"
    HGPRegressor(**SETTINGS).fit(table(), "y").save(path)
    return path


@pytest.fixture(scope="module")
def client(folder):
    with TestClient(make_app(HGPRegressor.load(folder), limits=Limits(body=20_000, rows=50))) as client:
        yield client


def rows_of(frame):
    return [{"a": r.a, "kind": r.kind, "day": r.day.isoformat()} for r in frame.itertuples()]


def test_predictions_are_those_of_the_model(client, folder):
    model, frame = gigagp.load(folder), table(6, seed=1)
    mean, std = model.predict(frame, return_std=True)
    answer = client.post("/predict", json={"rows": rows_of(frame), "quantiles": [0.1]})
    assert answer.status_code == 200
    content = answer.json()
    np.testing.assert_allclose(content["mean"], mean)
    np.testing.assert_allclose(content["std"], std)
    np.testing.assert_allclose(content["q0.1"], model.predict_quantiles(frame, [0.1])[:, 0])
    data = [[r["kind"], r["a"], r["day"]] for r in rows_of(frame)]
    lists = client.post("/predict", json={"columns": ["kind", "a", "day"], "data": data, "latent": True})
    np.testing.assert_allclose(lists.json()["std"], model.predict(frame, return_std=True, latent=True)[1])


def test_arrow_in_and_out(client, folder):
    frame = table(6, seed=1)
    arrow = pa.Table.from_pandas(frame[["day", "a", "kind"]], preserve_index=False)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, arrow.schema) as writer:
        writer.write_table(arrow)
    answer = client.post("/predict", content=sink.getvalue(), headers={"content-type": ARROW, "accept": ARROW})
    assert answer.status_code == 200, answer.text
    got = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
    np.testing.assert_allclose(got["mean"].to_numpy(), gigagp.load(folder).predict(frame))


def streamed(columns, compression=None):
    arrow, sink = pa.table(columns), io.BytesIO()
    with pa.ipc.new_stream(sink, arrow.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(arrow)
    return sink.getvalue()


def test_arrow_that_becomes_large_is_refused_before_it_does(client):
    """Compressed bodies, and one long text as the value of all rows."""
    post = partial(client.post, "/predict", headers={"content-type": ARROW})
    few = {"a": np.zeros(40), "kind": ["low"] * 40, "day": np.zeros(40, "datetime64[us]")}
    for compression in (None, "zstd", "lz4"):
        coded = few | {"kind": pa.array(few["kind"]).dictionary_encode()}
        answers = [post(content=streamed(each, compression)).json() for each in (few, coded)]
        assert answers[0] == answers[1]
        assert len(answers[0]["mean"]) == 40
    many = streamed({"a": np.zeros(1_000_000)}, "zstd")
    levels = streamed({"kind": pa.array(["x" * 100_000]).dictionary_encode()}, "zstd")
    assert max(len(many), len(levels)) < 2000
    for body in (many, levels):
        answer = post(content=body)
        assert answer.status_code == 413
        assert answer.json()["detail"] == "a body may have 20,000 bytes after decompression"
    once = pa.array(["x" * 10_001])
    for texts in (once, once.cast(pa.large_string()), once.cast(pa.string_view()), once.dictionary_encode()):
        answer = post(content=streamed({"kind": texts}))
        assert answer.status_code == 422
        assert "text of more than 10,000 bytes" in answer.json()["detail"]


def test_schema_health_metrics_and_page(client):
    schema = client.get("/schema").json()
    assert [column["name"] for column in schema["columns"]] == ["a", "kind", "day"]
    assert schema["columns"][1]["levels"] == ["high", "low"]
    assert client.get("/health").json()["status"] == "ok"
    client.post("/predict", json={"rows": rows_of(table(1))})
    metrics = client.get("/metrics").text
    assert 'gigagp_requests_total{path="/predict",status="200"}' in metrics
    assert "gigagp_model_rows 80" in metrics


def test_the_page_has_typical_values_that_the_service_answers(client, folder):
    text, example = client.get("/").text, typical_row(HGPRegressor.load(folder).model_)
    assert 'data-column="kind"' in text
    assert f'<option value="{example["kind"]}" selected="selected">' in text
    assert all(f'value="{example[name]}"' in text for name in ("a", "day"))
    frame = table()
    assert example["kind"] == frame["kind"].mode()[0]
    assert example["a"] == pytest.approx(frame["a"].median(), rel=1e-5)
    assert abs(pd.Timestamp(example["day"]) - frame["day"].median()) < pd.Timedelta("1D")
    assert client.post("/predict", json={"rows": [example]}).status_code == 200


GOOD = {"a": 1.0, "kind": "low", "day": "2024-03-01"}
WRONG = {
    "not json": b"{",
    "not an object": b"[1]",
    "no rows": {},
    "rows are a number": {"rows": 5},
    "empty": {"rows": []},
    "row is a list": {"rows": [[1]]},
    "missing column": {"rows": [{"a": 1.0}]},
    "unknown column": {"rows": [{**GOOD, "z": 1}]},
    "text for a number": {"rows": [{**GOOD, "a": "1"}]},
    "null": {"rows": [{**GOOD, "a": None}]},
    "boolean": {"rows": [{**GOOD, "a": True}]},
    "NaN": b'{"rows": [{"a": NaN, "kind": "low", "day": "2024-03-01"}]}',
    "huge": b'{"rows": [{"a": 1e999, "kind": "low", "day": "2024-03-01"}]}',
    "very long integer": b'{"rows": [{"a": ' + b"9" * 400 + b', "kind": "low", "day": "2024-03-01"}]}',
    "number for a category": {"rows": [{**GOOD, "kind": 3}]},
    "half a character": b'{"rows": [{"a": 1, "kind": "\\ud800", "day": "2024-03-01"}]}',
    "no date": {"rows": [{**GOOD, "day": "yesterday"}]},
    "date is a list": {"rows": [{**GOOD, "day": []}]},
    "too many rows": {"rows": [GOOD] * 51},
    "too long": {"rows": [GOOD], "more": "x" * 30_000},
    "unknown option": {"rows": [GOOD], "pickle": 1},
    "wrong quantile": {"rows": [GOOD], "quantiles": [2.0]},
    "quantiles are a text": {"rows": [GOOD], "quantiles": "0.5"},
    "wrong latent": {"rows": [GOOD], "latent": "yes"},
    "wrong columns": {"columns": ["a"], "data": [[1]]},
    "columns of lists": {"columns": [[1], "a", {}], "data": [[1, 2, 3]]},
    "short row": {"data": [[1]]},
    "deep": b"[" * 5000,
    "bytes": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_malformed_request_is_refused_with_problem_details(client, name):
    body = WRONG[name]
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = client.post("/predict", content=content, headers={"content-type": "application/json"})
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == answer.status_code
    assert answer.json()["detail"]


def test_errors_name_the_row_and_the_column(client):
    answer = client.post("/predict", json={"rows": [GOOD, {**GOOD, "a": "x"}]}).json()
    assert (answer["row"], answer["column"]) == (1, "a")


def test_other_media_paths_and_methods_are_refused(client):
    assert client.post("/predict", content=b"a,b", headers={"content-type": "text/csv"}).status_code == 415
    assert client.post("/predict", content=b"junk", headers={"content-type": ARROW}).status_code == 400
    assert client.get("/predict").status_code == 405
    assert client.get("/nothing").status_code == 404
    assert client.post("/update", json={"rows": [{**GOOD, "y": 1.0}]}).status_code == 403


def test_a_token_is_required_where_there_is_one(folder):
    with TestClient(make_app(HGPRegressor.load(folder), token="secret")) as client:
        assert client.post("/predict", json={"rows": [GOOD]}).status_code == 401
        assert client.get("/health").status_code == 200
        right = {"authorization": "Bearer secret"}
        assert client.post("/predict", json={"rows": [GOOD]}, headers=right).status_code == 200
        wrong = {"authorization": b"Bearer \xe9"}
        assert client.post("/predict", json={"rows": [GOOD]}, headers=wrong).status_code == 401


@pytest.mark.parametrize("named", [True, False])
def test_updates_are_learnt_and_kept(tmp_path, named):
    frame = table()
    model = HGPRegressor(**SETTINGS)
    numbers = np.column_stack([frame.a, frame.day.astype("int64") / 1e18])
    model = model.fit(frame, "y") if named else model.fit(numbers, frame.y.to_numpy())
    model.save(tmp_path / "model")
    row = {**GOOD, "y": 5.0} if named else {"x0": 1.0, "x1": 1.7, "y": 5.0}
    with TestClient(make_app(HGPRegressor.open(tmp_path / "model"), writable=True)) as client:
        answer = client.post("/update", json={"rows": [row] * 3})
        assert answer.json() == {"learnt": 3, "rows": 83}
        assert client.post("/update", json={"rows": [{**row, "y": None}]}).status_code == 422
    assert gigagp.load(tmp_path / "model").n_rows_ == 83
    HGPRegressor.open(tmp_path / "model").close()  # the service has released the folder


def test_times_with_an_offset_are_converted_to_utc():
    class Model:
        reading = Encoding((Feature("at", "timestamp"),))

    def instants(*texts):
        body = json.dumps({"rows": [{"at": text} for text in texts]}).encode()
        return read("application/json", body, Model(), Limits()).table["at"].to_pylist()

    noon = pd.Timestamp("2024-05-31T12:00:00").to_pydatetime()
    texts = ("2024-05-31T12:00:00", "2024-05-31T12:00:00Z", "2024-05-31T14:00:00+02:00", "2024-05-31T07:00:00-05:00")
    assert instants(*texts) == [noon] * 4
    with pytest.raises(Problem, match="a date or time"):
        instants("0001-01-01T00:00:00+02:00")
