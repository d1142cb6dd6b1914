"""Peer models that the paper compares with: SVGP and FITC.

They are part of the repository's benchmarks and not of the installed package, and need PyTorch. An experiment that
cannot load one says so in its page and does everything else.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"  # exists in a checkout of the repository only


def reason_unavailable(name: str, *packages: str) -> str | None:
    """Why the peer model cannot be run, or None if it can."""
    if not _path(name).is_file():
        return f"benchmarks/{name}.py is part of the repository, not of the installed package"
    for package in packages:
        try:
            import_module(package)
        except ImportError:
            return f"{package} is not installed"
    return None


def load_peer(name: str) -> Any:
    """The module of a peer model."""
    spec = importlib.util.spec_from_file_location(f"gigagp_peer_{name}", _path(name))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def _path(name: str) -> Path:
    return FOLDER / f"{name}.py"
