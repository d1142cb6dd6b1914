"""Run a command as if on another CPU: `python tests/cpus.py avx2 -- python -m pytest tests/laws`.

Our own vector code, Numba, NumPy and OpenBLAS each ask the processor what it can do. Here the environment variables by
which the last three can be told are set together (our code follows Numba), before any of them is imported; child
processes inherit them. Compiled code of different CPUs lies in the same cache without being mixed up, since Numba keeps
the CPU's name and features with it. Where no command is given, the tests of linalg, kernels, inference and bits run.

"avx512-code" is for machines without AVX-512: our code is generated as for such a machine, and LLVM divides its vectors
in two. This tests everything but LLVM's choice of AVX-512 instructions.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from llvmlite import binding

HERE = Path(__file__).resolve().parent
TESTS = (
    "unit/linalg/test_linalg.py", "unit/linalg/test_products.py", "unit/linalg/test_team.py",
    "unit/kernels/test_kernels.py", "unit/test_expert.py", "unit/model/test_committee.py",
    "unit/model/test_prediction_files.py", "unit/model/test_neighbour_search.py", "unit/model/test_neighbourhood.py",
    "laws/test_rules.py", "laws/test_batches.py", "unit/test_row_noise.py", "unit/test_sparse.py",
    "unit/likelihoods/test_leaf.py", "unit/estimators/test_classifier.py", "unit/estimators/test_input_noise.py",
    "unit/fit/test_small_tables.py", "unit/model/test_averages.py", "unit/model/test_joint.py",
    "unit/model/test_prediction_gradient.py", "unit/kernels/test_circles.py", "unit/linalg/test_levels.py",
    "unit/estimators/test_online_updates.py", "unit/estimators/test_several_targets.py",
    "unit/linalg/test_row_codes.py", "unit/partition/test_partition.py", "unit/model/test_row_segments.py",
    "unit/model/test_leave_one_out.py", "unit/fit/test_exact_answers.py", "unit/fit/test_common_noise.py",
    "unit/data/test_directions.py", "unit/fit/test_learnt_directions.py", "unit/fit/test_theta_learning.py",
)  # fmt: skip
QUICK_TESTS = (
    "unit/linalg/test_linalg.py", "unit/kernels/test_kernels.py", "unit/model/test_committee.py",
    "laws/test_batches.py",
)  # fmt: skip

_AVX2_FEATURES = (
    "+avx,+avx2,+bmi,+bmi2,+cmov,+cx16,+f16c,+fma,+fsgsbase,+lzcnt,+mmx,+movbe,+pclmul,+popcnt,+sse,+sse2,+sse3,"
    "+sse4.1,+sse4.2,+ssse3,+xsave"
)
_AVX512_FEATURES = f"{_AVX2_FEATURES},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"


@dataclass(frozen=True)
class Cpu:
    """A kind of x86 processor, in the words of LLVM (name and features), NumPy and OpenBLAS."""

    name: str
    llvm_name: str
    llvm_features: str
    needs: str  # the feature without which a machine cannot play it
    numpy_lacks: tuple[str, ...]  # beginnings of the names of features
    openblas_core: str
    code_of: Path | None = None  # folder whose sitecustomize.py makes our code that of another CPU

    def environment(self, cache: str) -> dict[str, str]:
        """`cache` is the folder for compiled code where the one in use must be left alone."""
        lacking = [
            feature
            for feature in np._core._multiarray_umath.__cpu_dispatch__  # type: ignore[attr-defined]
            if feature.startswith(self.numpy_lacks) and np._core._multiarray_umath.__cpu_features__.get(feature)  # type: ignore[attr-defined]
        ]
        other_code = {}
        if self.code_of is not None:  # Numba does not know that the code differs, and must not mix it up
            path = os.pathsep.join(filter(None, (str(self.code_of), os.environ.get("PYTHONPATH"))))
            other_code = {"PYTHONPATH": path, "NUMBA_CACHE_DIR": str(Path(cache) / self.name)}
        return {
            **other_code,
            "NUMBA_CPU_NAME": self.llvm_name,
            "NUMBA_CPU_FEATURES": self.llvm_features,
            "NPY_DISABLE_CPU_FEATURES": " ".join(lacking),
            "OPENBLAS_CORETYPE": self.openblas_core,
        }

    def runs_here(self) -> bool:
        return _host_has(self.needs)


CPUS = {
    cpu.name: cpu
    for cpu in (
        Cpu("avx512", "skylake-avx512", _AVX512_FEATURES, "avx512vl", ("AVX512_ICL", "AVX512_SPR"), "SkylakeX"),
        Cpu("avx2", "haswell", _AVX2_FEATURES, "avx2", ("AVX512", "X86_V4"), "Haswell"),
        Cpu("x86-64", "x86-64", "+cmov,+cx8,+fxsr,+mmx,+sse,+sse2", "sse2", ("",), "Prescott"),
        Cpu("avx512-code", "haswell", _AVX2_FEATURES, "avx2", ("AVX512", "X86_V4"), "Haswell", HERE / "avx512_code"),
    )
}


def _host_has(feature: str) -> bool:
    return bool(binding.get_host_cpu_features().get(feature, False))


def best_here() -> str | None:
    """The best of CPUS that this machine can play; None where it is no x86."""
    return next((cpu.name for cpu in CPUS.values() if cpu.runs_here()), None)


def run_as(cpu: Cpu, command: list[str]) -> int:
    """Exit status of the command; 0, with a line that says so, where this machine cannot play the CPU.

    A command that a signal ended has a negative status.
    """
    if not cpu.runs_here():
        print(f"skipped {cpu.name}: this machine has no {cpu.needs}", flush=True)
        return 0
    print(f"as {cpu.name}:", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        environment = cpu.environment(os.environ.get("NUMBA_CACHE_DIR", scratch))
        return subprocess.run(command, env={**os.environ, **environment}, check=False).returncode


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cpu", choices=[*CPUS, "all"])
    parser.add_argument("--unless-native", action="store_true", help="skip the CPU that this machine is")
    parser.add_argument("--quick", action="store_true", help="without a command: fewer tests")
    border = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:border])
    if options.unless_native and options.cpu == best_here():
        print(f"skipped {options.cpu}: it is what this machine has, and the tests ran on it", flush=True)
        return 0
    tests = [str(HERE / test) for test in (QUICK_TESTS if options.quick else TESTS)]
    command = arguments[border + 1 :] or [
        sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "-m", "not slow", *tests,
    ]  # fmt: skip
    chosen = list(CPUS.values()) if options.cpu == "all" else [CPUS[options.cpu]]
    failed = [cpu.name for cpu in chosen if run_as(cpu, command) != 0]
    if failed:
        print(f"failed as {', '.join(failed)}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
