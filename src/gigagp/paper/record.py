"""Results of the steps of an experiment, one file per step, so that an interrupted run continues where it stopped."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gigagp.data.folders import read_manifest, write_manifest
from gigagp.errors import GigaGPError
from gigagp.paper.provenance import machine

Results = dict[str, Any]
_FORMAT = "gigagp step"
_VERSION = 1


class Record:
    """The steps of one experiment with one set of settings; steps with other settings are computed again.

    A step is not computed again because the code has changed: each records its commit, and pages name all commits.
    `fresh` deletes all recorded steps.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], fresh: bool = False) -> None:
        self.folder, self.settings = folder, json.loads(json.dumps(dict(settings)))
        self._steps: dict[str, Results] = {}
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
        self._created = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)

    def tidy(self) -> None:
        """Remove the folders that were created for steps but are empty."""
        for folder in self._created:
            with suppress(OSError):
                folder.rmdir()

    def step(self, name: str, work: Callable[[], Results], again: bool = False) -> Results:
        """The result of work(), read from the folder if it is there and `again` is False.

        A result consists of numbers, strings, lists and dicts.
        """
        path = self.folder / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.json"
        step = None if again else self._read(path)
        if step is None:
            start = time.perf_counter()
            computed = work()
            step = {
                "format": _FORMAT, "version": _VERSION, "settings": self.settings, "found": computed,
                "seconds": time.perf_counter() - start, "machine": machine(),
            }  # fmt: skip
            write_manifest(path, step)
        self._steps[name] = step
        result: Results = step["found"]
        return result

    def _read(self, path: Path) -> Results | None:
        try:
            step = read_manifest(path, _FORMAT, _VERSION)
        except (GigaGPError, OSError):  # absent or damaged
            return None
        return step if step["settings"] == self.settings else None

    @property
    def seconds(self) -> float:
        """Seconds of all steps together, including those of earlier runs."""
        return sum(float(step["seconds"]) for step in self._steps.values())

    @property
    def origin(self) -> str:
        """Dates, machine and commits of the steps, as a sentence fragment."""
        steps = list(self._steps.values())
        commits, days = ([*dict.fromkeys(step["machine"][key] for step in steps)] for key in ("commit", "date"))
        where = steps[-1]["machine"]
        return (
            f"{' and '.join(days)}, commit {' and '.join(commits)}, {where['cores']} cores ({where['cpu']}), "
            f"{where['memory_gb']} GB, Python {where['python']}"
        )
