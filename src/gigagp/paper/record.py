"""What an experiment has found so far: one small file a step, so that an interrupted run goes on where it stopped."""

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

Found = dict[str, Any]
_FORMAT, _VERSION = "gigagp step", 1


class Record:
    """The steps of one experiment with one set of settings; steps of other settings are made anew.

    A step is not made anew because the code has changed: each keeps the commit it was made with, and pages name them
    all. `fresh` forgets what is there.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], fresh: bool = False) -> None:
        self.folder, self.settings = folder, json.loads(json.dumps(dict(settings)))
        self._steps: dict[str, Found] = {}
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
        self._made = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)

    def tidy(self) -> None:
        """Remove the folders that were made for steps, where none has come."""
        for folder in self._made:
            with suppress(OSError):
                folder.rmdir()

    def step(self, name: str, work: Callable[[], Found], again: bool = False) -> Found:
        """What work() returns, from the folder if it has been done (and need not be done again).

        Numbers, texts, lists and dicts of them.
        """
        path = self.folder / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.json"
        known = None if again else self._read(path)
        if known is None:
            start = time.perf_counter()
            found = work()
            known = {
                "format": _FORMAT, "version": _VERSION, "settings": self.settings, "found": found,
                "seconds": time.perf_counter() - start, "machine": machine(),
            }  # fmt: skip
            write_manifest(path, known)
        self._steps[name] = known
        result: Found = known["found"]
        return result

    def _read(self, path: Path) -> Found | None:
        try:
            known = read_manifest(path, _FORMAT, _VERSION)
        except (GigaGPError, OSError):  # absent or damaged
            return None
        return known if known["settings"] == self.settings else None

    @property
    def seconds(self) -> float:
        """Of all steps together, whenever they were made."""
        return sum(float(step["seconds"]) for step in self._steps.values())

    @property
    def origin(self) -> str:
        """When, where and with what code the steps were made, in words."""
        made = list(self._steps.values())
        commits, days = ([*dict.fromkeys(step["machine"][key] for step in made)] for key in ("commit", "date"))
        where = made[-1]["machine"]
        return (
            f"{' and '.join(days)}, commit {' and '.join(commits)}, {where['cores']} cores ({where['cpu']}), "
            f"{where['memory_gb']} GB, Python {where['python']}"
        )
