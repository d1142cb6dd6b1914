"""The origin of a figure: commit, machine and date. Recorded with each step of an experiment."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from gigagp.version import __version__

_HERE = Path(__file__).resolve()


def commit() -> str:
    """The commit of the repository with this code, "-dirty" if it was edited; otherwise the version of the package."""
    if _git("ls-files", "--error-unmatch", _HERE.name) is None:
        return f"version {__version__}"
    return _git("describe", "--always", "--dirty") or f"version {__version__}"


def _git(*words: str) -> str | None:
    """The output of git, or None if git or the repository is absent."""
    try:
        result = subprocess.run(["git", *words], cwd=_HERE.parent, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


def machine() -> dict[str, Any]:
    """Processor, usable cores, memory, versions, date and commit."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": model,
        "cores": cores,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "date": today(),
        "commit": commit(),
    }
