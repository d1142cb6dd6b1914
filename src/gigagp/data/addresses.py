"""Addresses of files: local paths, and those of other file systems that pyarrow knows, such as s3://bucket/key.

Credentials and endpoint of S3 are those of the usual environment variables. pyarrow reads all of them but the endpoint.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")  # the first that is set counts
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_REGION = "us-east-1"  # that servers other than Amazon's have by default
_DENIED = re.compile(r"ACCESS_DENIED|FORBIDDEN|INVALID_ACCESS_KEY|SIGNATURE_DOES_NOT_MATCH|HTTP status 40[13]", re.I)
_UNREACHABLE = re.compile(r"NETWORK_CONNECTION|curlCode|REQUEST_TIMEOUT|SERVICE_UNAVAILABLE|SLOW_DOWN", re.I)


def is_remote(address: object) -> bool:
    """Whether an address is not a path of this machine."""
    return isinstance(address, str) and "://" in address and not address.startswith("file://")


def below(place: str | os.PathLike[str], name: str) -> str | Path:
    """The folder of that name in a folder or at an address."""
    if not isinstance(place, str) or not is_remote(place):
        return Path(place) / name
    base, mark, query = place.partition("?")
    return f"{base.rstrip('/')}/{name}{mark}{query}"


def locate(address: str, query: str = "") -> tuple[Any, str]:
    """File system, and path on it; wildcards have no place in a URI, and are put back after it is understood.

    query : the part of the address from its question mark on
    """
    from pyarrow import fs  # noqa: PLC0415 pyarrow takes time to load

    if "://" not in address:
        return fs.LocalFileSystem(), Path(os.path.abspath(os.path.expanduser(address))).as_posix()
    wild = re.search(r"[*\[]", address)
    cut = address.rindex("/", 0, wild.start()) if wild else len(address)
    if address.startswith("s3://"):
        query = _with_endpoint(query)
    system, path = fs.FileSystem.from_uri(address[:cut] + query)
    return system, path.rstrip("/") + address[cut:]


def _with_endpoint(query: str) -> str:
    """The query of an S3 address, with the endpoint that environment variables name unless it has one itself."""
    endpoint = next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None)
    if endpoint is None or "endpoint_override=" in query:
        return query
    parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
    added = {"endpoint_override": parts.netloc, "scheme": parts.scheme}
    if "region=" not in query:
        added["region"] = next((os.environ[name] for name in _REGIONS if os.environ.get(name)), _REGION)
    return f"{query}&{urlencode(added)}" if query else f"?{urlencode(added)}"


def without_password(text: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//", text)


def reason(error: BaseException) -> str:
    """An error of a file system in one line, with the remedy where access is denied or no server answers."""
    text = " ".join(without_password(str(error)).split()).rstrip(".")
    if _DENIED.search(text):
        return (
            f"{text}; access is denied: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, and "
            "AWS_ENDPOINT_URL if the server is not Amazon's"
        )
    if _UNREACHABLE.search(text):
        return f"{text}; the server does not answer: check the network and AWS_ENDPOINT_URL, and repeat the call"
    return text
