"""Addresses of S3 get the endpoint of the environment; errors say what to do. tests/slow/test_s3.py has a server."""

from __future__ import annotations

from urllib.parse import parse_qs

import pytest
from pyarrow import fs

from gigagp import HGPRegressor, InvalidParameter
from gigagp.data import addresses


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("settings", "query", "expected"),
    [
        ({}, "", {}),
        ({}, "?region=eu-west-1", {"region": "eu-west-1"}),
        (
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}, "",
            {"endpoint_override": "127.0.0.1:9000", "scheme": "http", "region": "us-east-1"},
        ),
        (
            {"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "https://b:1", "AWS_REGION": "here"}, "",
            {"endpoint_override": "b:1", "scheme": "https", "region": "here"},
        ),
        (
            {"AWS_ENDPOINT_URL": "store.example", "AWS_DEFAULT_REGION": "there"}, "?region=mine",
            {"endpoint_override": "store.example", "scheme": "https", "region": "mine"},
        ),
        ({"AWS_ENDPOINT_URL": "http://a"}, "?endpoint_override=b", {"endpoint_override": "b"}),
    ],
)  # fmt: skip
def test_the_endpoint_comes_from_the_environment_unless_the_address_has_one(monkeypatch, settings, query, expected):
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    seen = []
    from_uri = staticmethod(lambda uri: (seen.append(uri), (None, "bucket/key"))[1])
    monkeypatch.setattr(fs, "FileSystem", type("FileSystem", (), {"from_uri": from_uri}))
    assert addresses.locate("s3://bucket/key/*.parquet", query)[1] == "bucket/key/*.parquet"
    address, _, found = seen[0].partition("?")
    assert address == "s3://bucket/key"
    assert parse_qs(found) == {name: [value] for name, value in expected.items()}


@pytest.mark.parametrize(
    ("address", "remote"), [("s3://b/k", True), ("gs://b", True), ("file:///tmp", False), ("a/b", False), (None, False)]
)
def test_which_addresses_are_of_other_machines(address, remote):
    assert addresses.is_remote(address) == remote


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("AWS Error ACCESS_DENIED during HeadObject operation: No response body.", "set AWS_ACCESS_KEY_ID and"),
        ("AWS Error NETWORK_CONNECTION during GetObject: curlCode: 7", "does not answer: check the network"),
        ("s3://key:secret@bucket is odd", "s3://bucket is odd"),
    ],
)
def test_errors_say_what_to_do_and_no_password(text, remedy):
    assert remedy in addresses.reason(OSError(text))
    assert "secret" not in addresses.reason(OSError(text))


def test_a_model_that_takes_updates_is_on_this_machine():
    with pytest.raises(InvalidParameter, match="opened for updates must be a folder on this machine"):
        HGPRegressor.open("s3://bucket/model")
