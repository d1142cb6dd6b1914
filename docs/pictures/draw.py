"""Draw the pictures of the pages below by the code there.

Run as: python docs/pictures/draw.py
"""

import os
import re
import tempfile
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

plt.rcParams["figure.max_open_warning"] = 0  # all figures are open until they are saved
HERE = Path(__file__).resolve().parent
NAMES = [
    "predictive_band", "predictive_map", "calibration_curve", "pit_histogram", "predicted_against_true",
    "residuals_along", "residual_map", "relevance", "influence", "evidence_trace", "partition_map",
    "tree_of_workers", "learning_curve", "noise_along", "class_calibration", "class_map", "class_confidence",
    "count_band", "co2_forecast", "grid_mean", "grid_std",
]  # fmt: skip
PAGES = ("pictures.md", "input-noise.md", "classification.md", "likelihoods.md", "time-series.md", "kriging.md")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the examples save files
        for page in PAGES:
            blocks = re.findall(r"```python\n(.*?)```", (HERE.parent / page).read_text(), re.S)
            last = max(i for i, code in enumerate(blocks) if "plotting" in code)
            for code in blocks[: last + 1]:
                exec(code, {})
        os.chdir(HERE)
    for name, number in zip(NAMES, plt.get_fignums(), strict=True):
        plt.figure(number).savefig(HERE / f"{name}.png", dpi=90)


if __name__ == "__main__":
    main()
