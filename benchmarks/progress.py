"""How much a fit is slowed down by showing its progress on a terminal. Fits with and without take turns."""

from __future__ import annotations

import os
import pty
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from gigagp import HGPRegressor
from gigagp.cli.display import display
from gigagp.datasets import robot_arm
from measure import Timing, arguments, bar, save, seconds

ROWS = 200_000
BAR = 1.01


@contextmanager
def terminal() -> Iterator[None]:
    """stderr is a terminal that somebody reads."""
    ours, theirs = pty.openpty()

    def read() -> None:
        while True:
            try:
                if not os.read(ours, 65536):
                    return
            except OSError:
                return

    reader = threading.Thread(target=read)
    reader.start()
    before, term = sys.stderr, os.environ.get("TERM")
    os.environ["TERM"] = "xterm-256color"
    try:
        with os.fdopen(theirs, "w") as shown:
            sys.stderr = shown
            yield
    finally:
        sys.stderr = before
        if term is None:
            del os.environ["TERM"]
        else:
            os.environ["TERM"] = term
        reader.join()
        os.close(ours)


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    X, y = robot_arm(ROWS)

    def silent() -> float:
        return seconds(lambda: HGPRegressor(training="full", random_state=0).fit(X, y))

    def shown() -> float:
        with terminal(), display() as progress:
            return seconds(lambda: HGPRegressor(training="full", random_state=0).fit(X, y, progress=progress))

    silent()
    pairs = np.array([(shown(), silent()) for _ in range(11 if options.full else 5)])
    ratio = Timing.of(pairs[:, 0] / pairs[:, 1])
    print(f"  {ROWS:,} rows: {np.median(pairs[:, 0]):.2f} s shown, {np.median(pairs[:, 1]):.2f} s silent", flush=True)
    bars = [bar(f"fit of {ROWS:,} rows with its progress on a terminal over silent", ratio.median, BAR, at_least=False)]
    result = {"rows": ROWS, "shown": float(np.median(pairs[:, 0])), "silent": float(np.median(pairs[:, 1]))}
    save("progress", {**result, "ratio": vars(ratio), "bars": bars})


if __name__ == "__main__":
    main()
