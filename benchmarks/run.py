"""All benchmarks, each in a process of its own, then the page. `make bench` is the quick set; `--full` the long one."""

from __future__ import annotations

import subprocess
import sys
import time

from measure import HERE, arguments

PARTS = (
    "leaf_floor", "evidence_rate", "exact_gp", "scale", "end_to_end", "prediction", "neighbourhood", "startup",
    "online", "serving", "kin40k", "million", "products", "temperature", "out_of_core", "file_to_file", "accuracy",
)  # fmt: skip
LONG = (
    "leaf_size",
    "choices",
    "progress",
    "cluster",
    "shuffle",
    "scaling_page",
    "experiments",
    "ideas",
    "sparse_leaves",
)  # only with --full, or when named
TAKES_DATA = ("kin40k", "temperature", "leaf_size", "choices", "accuracy", "experiments", "ideas", "sparse_leaves")


def main() -> int:
    parser = arguments(__doc__ or "", data=True)
    parser.add_argument("parts", nargs="*", help=f"some of: {', '.join(PARTS + LONG)} (default all)")
    options = parser.parse_args()
    unknown = set(options.parts) - {*PARTS, *LONG}
    if unknown:
        parser.error(f"unknown parts {sorted(unknown)}; choose from {', '.join(PARTS + LONG)}")
    failed = []
    for part in options.parts or (PARTS + LONG if options.full else PARTS):
        print(f"== {part}", flush=True)
        command = [sys.executable, str(HERE / f"{part}.py")]
        command += ["--full"] if options.full else []
        command += ["--data", str(options.data)] if part in TAKES_DATA else []
        start = time.perf_counter()
        if subprocess.run(command, check=False).returncode != 0:
            failed.append(part)
        print(f"   {time.perf_counter() - start:.0f} s", flush=True)
    if subprocess.run([sys.executable, str(HERE / "render.py")], check=False).returncode != 0:
        failed.append("render")
    if failed:
        print(f"failed: {', '.join(failed)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
