"""Draw the pictures of docs/pictures.md, input-noise.md, classification.md and likelihoods.md by the code there.

Run as: python docs/pictures/draw.py
"""

import os
import re
import tempfile
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
NAMES = [
    "predictive_band", "predictive_map", "calibration_curve", "pit_histogram", "predicted_against_true",
    "residuals_along", "residual_map", "relevance", "influence", "evidence_trace", "partition_map",
    "tree_of_workers", "learning_curve", "noise_along", "class_calibration", "count_band",
]  # fmt: skip


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the examples save files
        for page in ("pictures.md", "input-noise.md", "classification.md", "likelihoods.md"):
            for code in re.findall(r"```python\n(.*?)```", (HERE.parent / page).read_text(), re.S):
                if "plotting" in code:
                    exec(code, {})
        os.chdir(HERE)
    for name, number in zip(NAMES, plt.get_fignums(), strict=True):
        plt.figure(number).savefig(HERE / f"{name}.png", dpi=90)


if __name__ == "__main__":
    main()
