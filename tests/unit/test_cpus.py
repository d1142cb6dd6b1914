"""Every library, and our own code, follows the CPU that is emulated; results differ between CPUs by rounding alone."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cpus import CPUS, best_here, main, run_as

VECTOR_BYTES = {"avx512": 64, "avx2": 32, "x86-64": 16, "avx512-code": 64}
CORES = {  # as OpenBLAS names them
    "avx512": {"SkylakeX"}, "avx2": {"Haswell"}, "x86-64": {"Prescott", "Katmai"}, "avx512-code": {"Haswell"},
}  # fmt: skip

PROGRAM = """
import json, sys
import numpy as np
from threadpoolctl import threadpool_info
from gigagp.linalg import vectors
from gigagp.linalg.gemm import FULL, multiply

rng = np.random.default_rng(0)
A, B, C = rng.standard_normal((3, 40, 40))
multiply(1.0, A, 0, 0, True, B, 0, 0, 0.0, C, 0, 0, 40, 40, 40, FULL)
numpy = np._core._multiarray_umath
json.dump({
    "vector_bytes": vectors.VECTOR_BYTES,
    "fused": vectors.FUSED,
    "numpy": [name for name in numpy.__cpu_dispatch__ if numpy.__cpu_features__[name]],
    "cores": [library["architecture"] for library in threadpool_info() if library["internal_api"] == "openblas"],
    "product": C.tolist(),
}, open(sys.argv[1], "w"))
"""


@pytest.mark.parametrize("name", CPUS)
def test_everything_follows_the_emulated_cpu(name, tmp_path):
    cpu = CPUS[name]
    if not cpu.runs_here():
        pytest.skip(f"this machine has no {cpu.needs}")
    assert run_as(cpu, [sys.executable, "-c", PROGRAM, str(tmp_path / "seen.json")]) == 0
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["vector_bytes"] == VECTOR_BYTES[name]
    assert seen["fused"] == (name != "x86-64")
    if name != "avx512":
        assert not [feature for feature in seen["numpy"] if feature.startswith(("AVX512", "X86_V4"))]
    if name == "x86-64":
        assert seen["numpy"] == []
    assert set(seen["cores"]) <= CORES[name]
    A, B, _ = np.random.default_rng(0).standard_normal((3, 40, 40))
    np.testing.assert_allclose(seen["product"], A.T @ B, rtol=1e-12, atol=1e-12)


def test_a_cpu_that_this_machine_cannot_play_is_skipped_in_one_line(capfd, monkeypatch):
    monkeypatch.setattr("cpus._host_has", lambda feature: False)
    assert run_as(CPUS["avx512"], [sys.executable, "-c", "raise SystemExit(3)"]) == 0
    assert capfd.readouterr().out == "skipped avx512: this machine has no avx512vl\n"


def test_a_command_that_fails_or_crashes_on_one_cpu_fails_all():
    ends_well, fails = [sys.executable, "-c", ""], [sys.executable, "-c", "raise SystemExit(3)"]
    crashes = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
    assert main(["all", "--", *ends_well]) == 0
    assert main(["all", "--", *fails]) == 1
    assert main(["all", "--", *crashes]) == 1


def test_the_cpu_that_this_machine_is_can_be_left_out(capfd):
    native = best_here()
    if native is None:
        pytest.skip("this machine is no x86")
    assert main([native, "--unless-native", "--", sys.executable, "-c", "raise SystemExit(3)"]) == 0
    assert capfd.readouterr().out == f"skipped {native}: it is what this machine has, and the tests ran on it\n"
