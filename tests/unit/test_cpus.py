"""Every library, and our own code, follows the CPU that is emulated; results differ between CPUs by rounding alone."""

import json
import os
import subprocess
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
from gigagp.linalg.stationary import RATIONAL_QUADRATIC, gram, pullback

rng = np.random.default_rng(0)
A, B, C = rng.standard_normal((3, 40, 40))
K, gradient = np.zeros((40, 40)), np.empty(5)
gram(RATIONAL_QUADRATIC, A[:3], 1.5, 0.8, np.empty(0), K)
pullback(RATIONAL_QUADRATIC, A[:3], 1.5, 0.8, np.empty(0), B + B.T, K, gradient)
multiply(1.0, A, 0, 0, True, B, 0, 0, 0.0, C, 0, 0, 40, 40, 40, FULL)
numpy = np._core._multiarray_umath
json.dump({
    "vector_bytes": vectors.VECTOR_BYTES,
    "fused": vectors.FUSED,
    "numpy": [name for name in numpy.__cpu_dispatch__ if numpy.__cpu_features__[name]],
    "cores": [library["architecture"] for library in threadpool_info() if library["internal_api"] == "openblas"],
    "product": C.tolist(),
    "gradient": gradient.tolist(),
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
    np.testing.assert_allclose(seen["gradient"], gradient_of_rational_quadratic(A[:3], B + B.T, 1.5, 0.8), rtol=1e-9)


def gradient_of_rational_quadratic(x, W, variance, shape):
    """By the logarithms of variance, length-scales (one, at which x is scaled) and shape, of the sum of W times k."""
    squares = (x[:, :, None] - x[:, None, :]) ** 2
    base = 1 + squares.sum(axis=0) / (2 * shape)
    k = variance * base**-shape
    by_lengthscales = [(W * k / base * each).sum() for each in squares]
    return [(W * k).sum(), *by_lengthscales, (W * k * shape * (1 - 1 / base - np.log(base))).sum()]


COMPILE = """
from numba import boolean, float64, int64, types
from gigagp.linalg import cholesky, gemm

matrix = types.Array(float64, 2, "C")
product = (float64, matrix, int64, int64, boolean, matrix, int64, int64, float64, matrix, *[int64] * 6)
for function, arguments in ((gemm.multiply, product), (cholesky._factor_whole_block, (matrix, matrix, int64, int64))):
    function.compile(arguments)
    code = function.inspect_asm(function.signatures[0])
    assert "vfmadd" in code and "%zmm" in code, function
assert "{%k" in list(gemm.multiply.inspect_asm().values())[0]  # columns beyond the last are masked
"""


@pytest.mark.slow  # It compiles without the cache, whose code cannot be looked at.
def test_code_for_avx512_compiles_on_any_x86(tmp_path):
    """Nothing runs: the machine may lack the instructions."""
    if best_here() is None:
        pytest.skip("this machine is no x86")
    cpu = CPUS["avx512"]
    settings = {"NUMBA_CPU_NAME": cpu.llvm_name, "NUMBA_CPU_FEATURES": cpu.llvm_features}
    environment = {**os.environ, **settings, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", COMPILE], env=environment, check=True)


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
