"""An S3 server on this machine (moto), and a bucket on it."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

from pyarrow import fs

BUCKET = "bucket"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def running_server():
    """The address of a server that has nothing yet."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{address}/moto-api/", timeout=5).close()
                break
            except OSError:
                assert process.poll() is None, "moto's server has ended"
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()


def empty_bucket(server, monkeypatch, cache):
    """A fixture: a bucket, the settings that find it, and a cache of its own."""
    settings = {
        "AWS_ENDPOINT_URL": server, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_EC2_METADATA_DISABLED": "true", "GIGAGP_CACHE": str(cache),
    }  # fmt: skip
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    system = fs.S3FileSystem(
        endpoint_override=server, access_key="test", secret_key="test", allow_bucket_creation=True, region="us-east-1"
    )
    system.create_dir(BUCKET)
    yield system
    system.delete_dir_contents(BUCKET)
