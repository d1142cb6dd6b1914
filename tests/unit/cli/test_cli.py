"""The command line: what it prints, how it ends, what it leaves behind, and that every example works as pasted."""

import fcntl
import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyte
import pytest
from typer.testing import CliRunner

import gigagp
from gigagp import HGPRegressor, kernels
from gigagp.cli import app, descriptions, display, fit_options, options, running
from gigagp.datasets import robot_arm
from gigagp.kernels import expressions
from gigagp.progress import Pace

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs" / "command-line.md"
COMMANDS = [
    "fit",
    "predict",
    "grid",
    "evaluate",
    "inspect",
    "report",
    "demo",
    "benchmark",
    "reproduce",
    "datasets make",
]
MODULE = [sys.executable, "-m", "gigagp"]
ROWS = 300
pytestmark = pytest.mark.usefixtures("no_pictures_in_module")


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def done(*words):
    result = run(*words)
    assert result.exit_code == 0, result.stderr
    return result


def paste(lines):
    """Run lines as a shell would, here."""
    for line in lines:
        first, *words = shlex.split(line)
        assert first == "gigagp"
        done(*words)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """arm.parquet and a model of it."""
    here = tmp_path_factory.mktemp("made")
    done("datasets", "make", "robot-arm", "-n", ROWS, "-o", here / "arm.parquet")
    done("fit", here / "arm.parquet", "--target", "distance", "-o", here / "model", "--leaf-size", 50)
    pq.write_table(pq.read_table(here / "arm.parquet").slice(0, 0), here / "empty.parquet")
    (here / "unmasked").mkdir()
    np.savez(here / "unmasked" / "uci_kin40k.npz", X=np.ones((9, 2)), y=np.ones(9))
    np.savez(here / "unmasked" / "airline2008_jan_apr.npz", X=np.empty((0, 8)), y=np.empty(0))
    (here / "words.csv").write_text("a,colour,distance\n" + "1.5,red,2\n2.5,blue,3\n" * 5 + "1;5,red,2\n")
    return here


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """An empty folder to work in, with `made` at hand as ../made."""
    (tmp_path / "made").symlink_to(made)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def example(command):
    text = done(*command.split(), "--help").stdout
    return [line.strip() for line in text.split("Example:\n")[1].splitlines() if line.strip()]


# Help and documents


@pytest.fixture(scope="module")
def folder_after(tmp_path_factory):
    """The folder in which these lines have been pasted; examples that begin alike share what they begin with."""

    @cache
    def pasted(lines):
        folder = tmp_path_factory.mktemp("pasted")
        if len(lines) > 1:
            shutil.copytree(pasted(lines[:-1]), folder, dirs_exist_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            paste(lines[-1:])
        return folder

    return pasted


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("predict", "report", "demo", "benchmark") else ())
        for name in COMMANDS
    ],
)
def test_the_example_in_the_help_works_as_pasted(command, folder_after):
    lines = example(command)
    assert lines[-1].startswith(f"gigagp {command}")
    folder_after(tuple(lines))


def test_the_document_names_every_command_and_option():
    text = DOCUMENT.read_text()
    for command in COMMANDS:
        assert f"gigagp {command}" in text
        for option in re.findall(r"--[a-z-]+", done(*command.split(), "--help").stdout):
            assert option in text or option == "--help", f"{command} {option}"


def test_it_starts_without_what_it_does_not_need():
    code = "import sys, gigagp.cli; print({'numpy', 'sklearn', 'numba', 'pyarrow', 'rich'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
    said = subprocess.run([*MODULE, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == f"gigagp {gigagp.__version__}\n"


def test_nothing_asked_is_help():
    assert done().stdout == done("--help").stdout


def test_the_package_still_offers_what_it_did():
    assert gigagp.HGPRegressor is HGPRegressor
    assert gigagp.kernels is kernels
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = gigagp.nothing_of_the_kind


# Completion


def test_a_shell_completes_commands_and_options(tmp_path):
    shell = shutil.which("bash")
    if shell is None:
        pytest.skip("there is no bash here")
    (tmp_path / "gigagp").write_text(f'#!/bin/sh\nexec {shlex.join(MODULE)} "$@"\n')
    (tmp_path / "gigagp").chmod(0o755)
    environment = os.environ | {"HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ask = "COMP_WORDS=({}); COMP_CWORD={}; _gigagp_completion gigagp; echo ${{COMPREPLY[*]}}"
    script = "\n".join(
        [
            "gigagp --install-completion bash > /dev/null",
            "source ~/.bashrc",
            ask.format("gigagp insp", 1),
            ask.format("gigagp fit --bran", 2),
            ask.format("gigagp datasets ma", 2),
            'diff <(gigagp --show-completion bash) <(cat ~/.bash_completions/gigagp.sh; echo) && echo "the same"',
        ]
    )
    ran = subprocess.run([shell, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout.split("\n") == ["inspect", "--branching", "make", "the same", ""], ran


# What commands do


@pytest.mark.filterwarnings("ignore:.*bound")  # of 300 rows some columns are not worth a length-scale
def test_a_fit_is_the_librarys(made, here):
    table = pq.read_table(made / "arm.parquet")
    by_hand = HGPRegressor(leaf_size=50, random_state=0).fit(table, "distance")
    assert gigagp.load(made / "model").theta_.tobytes() == by_hand.theta_.tobytes()


def test_settings_reach_the_model(here):
    words = ["--features", "joint0,joint1", "--features", "joint2", "--kernel", "matern52", "--partition", "random"]
    words += ["--leaf-size", 90, "--sharing", 2, "--combine", "rbcm", "--training", "full", "--engine", "serial"]
    words += ["--jobs", 1, "--dtype", "float32", "--memory", "1GB", "--seed", 7, "--experts-per-query", 3]
    words += ["--noise", "0.001,0.5", "--restarts", 1, "--no-standardize", "--experts", "gaussian", "--no-calibrate"]
    done("fit", "../made/arm.parquet", "--target", "distance", "-o", "m", *words)
    model = gigagp.load("m")
    assert list(model.feature_names_in_) == ["joint0", "joint1", "joint2"]
    wanted = {
        "kernel": "matern52", "partition": "random", "leaf_size": 90, "sharing": 2, "combine": "rbcm",
        "training": "full", "engine": "serial", "n_jobs": 1, "dtype": "float32", "memory": "1GB", "random_state": 7,
        "experts_per_query": 3, "noise_bounds": (0.001, 0.5), "n_restarts": 1, "standardize": False,
        "experts": "gaussian", "calibrate": False,
    }  # fmt: skip
    assert {name: model.get_params()[name] for name in wanted} == wanted


def test_the_tree_and_a_fixed_noise_reach_the_model(here):
    words = ["--levels", 2, "--branching", 3, "--partition", "random", "--experts-per-query", "all", "--noise", "0.01"]
    done(*FIT, "m", *words)
    model = gigagp.load("m")
    assert (model.n_leaves_, model.tree_.depth, model.experts_per_query) == (9, 2, None)
    assert model.noise_variance_ == pytest.approx(0.01 * np.var(pq.read_table(ARM)["distance"].to_numpy()))


def test_weights_and_known_noise_are_columns(here):
    rng = np.random.default_rng(0)
    a, weights, deviations = rng.uniform(size=60), rng.integers(0, 3, 60), rng.uniform(0.1, 0.3, 60)
    y = np.sin(5 * a) + deviations * rng.standard_normal(60)
    pq.write_table(pa.table({"a": a, "y": y, "w": weights, "s": deviations}), "t.parquet")
    words = ["fit", "t.parquet", "--target", "y", "--seed", 0, "--weight-column", "w", "--noise-column", "s"]
    done(*words, "--no-learn-noise", "-o", "m", "--partition", "random")
    by_hand = HGPRegressor(partition="random", random_state=0)
    by_hand.fit(a[:, None], y, weights, noise_std=deviations, learn_noise=False)
    model = gigagp.load("m")
    assert list(model.feature_names_in_) == ["a"]
    assert model.theta_.tobytes() == by_hand.theta_.tobytes()
    failed = run("fit", "t.parquet", "--target", "y", "-o", "n", "--no-learn-noise")
    assert failed.exit_code == 1
    assert "--no-learn-noise needs --noise-column" in failed.stderr


def test_every_setting_of_the_model_is_an_option_of_fit():
    spelt = {
        "experts_per_query": "--experts-per-query",
        "exact_neighbours": "--exact-neighbours",
        "n_jobs": "--jobs",
        "n_restarts": "--restarts",
    }
    spelt |= {"noise_bounds": "--noise", "random_state": "--seed", "leaf_size": "--leaf-size"}
    help_text = done("fit", "--help").stdout
    for name in set(HGPRegressor().get_params()) - {"verbose"}:
        assert spelt.get(name, f"--{name}") in help_text


def test_categories_dropped_columns_and_missing_rows(here):
    rng = np.random.default_rng(0)
    a, colour = rng.uniform(size=80), rng.choice(["red", "blue"], 80)
    y = np.sin(5 * a) + (colour == "red") + 0.1 * rng.standard_normal(80)
    lines = [f"{p},{c},{q},{i}" for i, (p, c, q) in enumerate(zip(a, colour, y, strict=True))]
    lines[3] = ",red,1.0,3"
    Path("t.csv").write_text("a,colour,y,id\n" + "\n".join(lines) + "\n")
    words = ["--target", "y", "-o", "m", "--drop", "id", "--categorical", "colour"]
    assert "--missing drop" in run("fit", "t.csv", *words).stderr
    said = json.loads(done("fit", "t.csv", *words, "--missing", "drop", "--json").stdout)
    assert (said["rows"], said["dropped"]) == (79, 1)
    assert "missing=drop" in done("inspect", "m").stdout
    assert json.loads(done("evaluate", "m", "t.csv", "--missing", "drop", "--json").stdout)["dropped"] == 1
    done("predict", "m", "t.csv", "-o", "p.parquet", "--missing", "drop", "--keep", "id,colour")
    assert pq.read_table("p.parquet").column_names == ["id", "colour", "mean", "std"]
    assert "lengthscale[colour]" in done("inspect", "m").stdout


def test_held_out_rows_are_seeded_not_trained_on_and_scored(made, here):
    words = ["fit", "../made/arm.parquet", "--target", "distance", "--test-fraction", 0.2, "--json"]
    first, second, other = (
        json.loads(done(*words, "-o", name, "--seed", seed).stdout) for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert first["rows"] + first["held_out"]["rows"] == ROWS
    assert first["held_out"]["rmse"] == second["held_out"]["rmse"] != other["held_out"]["rmse"]
    assert set(first["held_out"]["coverage"]) == {"0.5", "0.8", "0.95"}
    assert "held-out rows" in done(*words[:-1], "-o", "d").stdout


def test_predictions_are_the_librarys(made, here):
    done("predict", "../made/model", "../made/arm.parquet", "-o", "p.parquet", "--quantiles", "0.05,0.95", "--latent")
    found = pq.read_table("p.parquet")
    model = gigagp.load(made / "model")
    mean, std = model.predict(str(made / "arm.parquet"), return_std=True, latent=True)
    assert found.column_names == ["mean", "std", "q0.05", "q0.95"]
    assert (found["mean"].to_numpy() == mean).all()
    assert (found["std"].to_numpy() == std).all()


def test_data_are_those_of_the_library_in_row_groups(here):
    done("datasets", "make", "robot-arm", "-n", "7e4", "-o", "new/arm.parquet", "--noise", "0.1", "--seed", 3)
    found, (X, y) = pq.ParquetFile("new/arm.parquet"), robot_arm(70_000, noise=0.1, seed=3)
    assert found.num_row_groups == 2, "written a block at a time"
    table = found.read()
    assert (table["joint7"].to_numpy() == X[:, 7]).all()
    assert (table["distance"].to_numpy() == y).all()
    assert os.listdir("new") == ["arm.parquet"]


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ("fit ../made/arm.parquet --target distance -o m", "parameters"),
        ("predict ../made/model ../made/arm.parquet -o p.parquet", "rows"),
        ("evaluate ../made/model ../made/arm.parquet", "crps"),
        ("inspect ../made/model", "tree"),
        pytest.param("report ../made/model ../made/arm.parquet -o r.html", "warnings", marks=pytest.mark.slow),
        ("datasets make robot-arm -n 10 -o x.parquet", "rows"),
        pytest.param("demo -n 300", "models", marks=pytest.mark.slow),
        ("benchmark -n 300", "share_of_gemm"),
        pytest.param("reproduce blocks --quick", "page", marks=pytest.mark.slow),
    ],
)
def test_json_is_one_object_and_alone_on_stdout(here, words, key):
    output = done(*words.split(), "--json").stdout
    assert output.count("\n") == 1
    assert key in json.loads(output)


def test_json_also_describes_a_failure(here):
    failed = run("evaluate", "nothing", "../made/arm.parquet", "--json")
    assert json.loads(failed.stdout)["exit_code"] == failed.exit_code == 1


def test_inspect_shows_what_was_learnt(here):
    text = done("inspect", "../made/model").stdout
    for part in ("distance from joint0", "6 leaves", "lengthscale[joint3]", "distance^2", "training", "leaf_size=50"):
        assert part in text


@pytest.mark.filterwarnings("ignore:.*bound")
def test_parameters_are_in_the_users_units():
    X, y = robot_arm(400)
    kernel = kernels.SquaredExponential() + kernels.Linear(ard=True)
    found = []
    for width, height in ((1.0, 1.0), (1e3, 10.0)):
        model = HGPRegressor(kernel, partition="random", leaf_size=100, random_state=0).fit(X * width, y * height)
        found.append({each["name"]: each for each in descriptions.parameters(model)})
    for name, factor in {
        "squared_exponential.variance": 1e2, "lengthscale[x0]": 1e3, "linear.variance[x2]": 1e2 / 1e6,
        "noise_variance": 1e2,
    }.items():  # fmt: skip
        assert found[1][name]["value"] == pytest.approx(found[0][name]["value"] * factor, rel=0.02)
    assert found[0]["linear.variance[x2]"]["unit"] == "y^2/x2^2"


@pytest.mark.filterwarnings("ignore:.*(bound|metric|converge)")
def test_what_has_no_unit_says_so():
    X, y = robot_arm(200)
    one = kernels.RationalQuadratic(ard=False) * kernels.Constant() + kernels.Periodic()
    model = HGPRegressor(one, partition="random", leaf_size=100, random_state=0).fit(X, y)
    units = {each["name"]: each["unit"] for each in descriptions.parameters(model)}
    assert units["rational_quadratic.lengthscale"] == "standardised"  # one for columns of different units
    assert units["rational_quadratic.variance"] == "y^2"
    assert units["value"] == units["alpha"] == units["periodic.lengthscale[x0]"] == ""
    assert units["period[x0]"] == "x0"


def test_the_help_lists_all_kernels():
    assert set(fit_options.KERNELS) == set(expressions.NAMES)


@pytest.mark.filterwarnings("ignore:.*bound")
def test_a_kernel_on_columns_by_an_expression(here):
    kernel = "matern32(lengthscale=2, columns=[joint0, joint1]) * matern52(columns='joint2')"
    done("fit", "../made/arm.parquet", "--target", "distance", "-o", "m", "--kernel", kernel, "--leaf-size", "100")
    names = [each["name"] for each in json.loads(done("inspect", "m", "--json").stdout)["parameters"]]
    assert names[1:3] == ["matern32.lengthscale[joint0]", "matern32.lengthscale[joint1]"]
    failed = run("fit", "../made/arm.parquet", "--target", "distance", "-o", "n", "--kernel", "matern32(columns=joint)")
    assert failed.exit_code == 1
    assert "no column 'joint'. Did you mean 'joint" in failed.stderr + failed.stdout


def test_options_are_read():
    assert options.names(["a,b", '"c,d"', "e"]) == ["a", "b", "c,d", "e"]
    assert options.row_count("1e6") == options.row_count("1_000_000") == 10**6
    assert options.numbers("quantiles", "0.1, 0.9") == [0.1, 0.9]


# Errors

ARM, MODEL = "../made/arm.parquet", "../made/model"
NO_JOBS = "--jobs must be a positive number of workers, -1 for all cores, or None; got -5"
FIT = ["fit", ARM, "--target", "distance", "-o"]
PREDICT = ["predict", MODEL, ARM, "-o", "p.parquet"]
MAKE = ["datasets", "make", "robot-arm", "-n", "9", "-o"]
GRID = ["grid", MODEL, "--step", "1", "--range", "joint0=0,2"]
GRID += [word for joint in range(1, 8) for word in ("--at", f"joint{joint}=0")]
WRONG = {
    "fit: wrong file": (["fit", "no.parquet", "--target", "y", "-o", "m"], "no.parquet"),
    "fit: wrong file, of another kind": (["fit", "../there.png", "--target", "y", "-o", "m"], "end in one of"),
    "fit: wrong file, a folder": (["fit", ".", "--target", "y", "-o", "m"], "end in one of"),
    "fit: wrong column": (["fit", ARM, "--target", "distanse", "-o", "m"], "Did you mean 'distance'"),
    "fit: wrong column, a feature": ([*FIT, "m", "--features", "joint9"], "no column 'joint9'"),
    "fit: wrong column, dropped": ([*FIT, "m", "--drop", "id"], "no column 'id'"),
    "fit: wrong column, words": (["fit", "../made/words.csv", "-t", "distance", "-o", "m"], "--categorical 'a'"),
    "fit: empty data": (["fit", "../made/empty.parquet", "--target", "distance", "-o", "m"], "no rows"),
    "fit: empty data, no columns": (["fit", "../nothing.csv", "--target", "distance", "-o", "m"], "nothing.csv"),
    "fit: existing output": ([*FIT, MODEL], "--overwrite"),
    "fit: existing output, no model": ([*FIT, ".."], "choose another folder"),
    "fit: existing output, no model, overwrite": ([*FIT, "..", "--overwrite"], "choose another folder"),
    "fit: no permission": ([*FIT, "/proc/m"], "choose another folder"),
    "fit: store and checkpoint": ([*FIT, "m", "--store", "s", "--checkpoint", "c"], "not both"),
    "fit: kernel": ([*FIT, "m", "--kernel", "rbf"], "matern52"),
    "fit: engine": ([*FIT, "m", "--engine", "gpu"], "threads"),
    "fit: fraction": ([*FIT, "m", "--test-fraction", "2"], "--test-fraction must be between 0 and 1"),
    "fit: memory": ([*FIT, "m", "--memory", "lots"], "2GB"),
    "fit: seed": ([*FIT, "m", "--seed", "-1"], "--seed must be"),
    "fit: not a number": ([*FIT, "m", "--leaf-size", "many"], "gigagp fit --help"),
    "fit: no target": (["fit", ARM, "-o", "m"], "--target"),
    "fit: levels and leaf size": ([*FIT, "m", "--levels", "2", "--leaf-size", "9"], "or --leaf-size, not both"),
    "fit: branching alone": ([*FIT, "m", "--branching", "2"], "needs --levels too"),
    "fit: experts": ([*FIT, "m", "--experts-per-query", "some"], "auto, all or a whole number"),
    "fit: no experts": ([*FIT, "m", "--experts-per-query", "0"], "positive whole number"),
    "fit: noise": ([*FIT, "m", "--noise", "1,2,3"], "two numbers separated by a comma"),
    "fit: negative noise": ([*FIT, "m", "--noise", "-1"], "--noise must be"),
    "fit: restarts": ([*FIT, "m", "--restarts", "-1"], "--restarts must be"),
    "grid: wrong file": (["grid", "no", "-o", "map.nc", "--step", "1"], "choose another folder"),
    "grid: wrong column": (["grid", MODEL, "-o", "map.nc", "--step", "1", "--at", "joint9=0"], "no column 'joint9'"),
    "grid: missing columns": (["grid", MODEL, "-o", "map.nc", "--step", "1"], "give --at or --range for joint0"),
    "grid: existing output": ([*GRID, "-o", ARM], "NetCDF"),
    "grid: no permission": ([*GRID, "-o", "/proc/map.nc"], "/proc"),
    "predict: wrong file": (["predict", MODEL, "no.parquet", "-o", "p.parquet"], "no.parquet"),
    "predict: wrong file, no model": (["predict", "no", ARM, "-o", "p.parquet"], "choose another folder"),
    "predict: wrong column": (["predict", MODEL, "../made/words.csv", "-o", "p.parquet"], "which the model reads"),
    "predict: wrong column, kept": ([*PREDICT, "--keep", "id"], "no column 'id'"),
    "predict: empty data": (["predict", MODEL, "../made/empty.parquet", "-o", "p.parquet"], "no rows"),
    "predict: existing output": (["predict", MODEL, ARM, "-o", ARM], "choose another output"),
    "predict: existing output, a folder": (["predict", MODEL, ARM, "-o", "../f.parquet"], "choose another output"),
    "predict: no permission": (["predict", MODEL, ARM, "-o", "/proc/p.parquet"], "choose another output"),
    "predict: neither Parquet nor CSV": (["predict", MODEL, ARM, "-o", "p.txt"], ".parquet"),
    "predict: quantiles": ([*PREDICT, "--quantiles", "5%"], "0.05,0.95"),
    "evaluate: wrong file": (["evaluate", MODEL, "no.csv"], "no.csv"),
    "evaluate: wrong file, no model": (["evaluate", ARM, ARM], "choose another folder"),
    "evaluate: wrong column": (["evaluate", MODEL, ARM, "--target", "y"], "no column 'y'"),
    "evaluate: empty data": (["evaluate", MODEL, "../made/empty.parquet"], "no rows"),
    "inspect: wrong file": (["inspect", "no"], "choose another folder"),
    "inspect: wrong file, no model": (["inspect", ARM], "choose another folder"),
    "inspect: empty data": (["inspect", "../f.parquet"], "choose another folder"),
    "report: wrong file": (["report", MODEL, "no.csv", "-o", "r.html"], "no.csv"),
    "report: wrong file, no model": (["report", "no", "-o", "r.html"], "choose another folder"),
    "report: wrong column": (["report", MODEL, ARM, "-o", "r.html", "--target", "y"], "no column 'y'"),
    "report: empty data": (["report", MODEL, "../made/empty.parquet", "-o", "r.html"], "no rows"),
    "report: no permission": (["report", MODEL, ARM, "-o", "/proc/r.html"], "choose a folder"),
    "report: existing output": (["report", MODEL, ARM, "-o", "../r.html"], "--overwrite"),
    "report: not HTML": (["report", MODEL, ARM, "-o", "r.pdf"], ".html"),
    "report: at an address": (["report", MODEL, ARM, "-o", "s3://bucket/r.html"], "give a path"),
    "datasets make: existing output": (["datasets", "make", "robot-arm", "-o", ARM], "--overwrite"),
    "datasets make: existing output, a folder": ([*MAKE, "../f.parquet"], "is a folder"),
    "datasets make: no permission": ([*MAKE, "/proc/a.parquet"], "choose a folder"),
    "datasets make: empty data": (["datasets", "make", "robot-arm", "-n", "0", "-o", "a.parquet"], "at least 1"),
    "datasets make: name": (["datasets", "make", "arm", "-o", "a.parquet"], "robot-arm"),
    "datasets make: rows": (["datasets", "make", "robot-arm", "-n", "0.5", "-o", "a.parquet"], "whole number"),
    "datasets make: noise": ([*MAKE, "a.parquet", "--noise", "-1"], "at least 0"),
    "datasets make: not Parquet": ([*MAKE, "a.csv"], ".parquet"),
    "datasets make: too much": (["datasets", "make", "robot-arm", "-n", "1e14", "-o", "a.parquet"], "make room"),
    "demo: existing output": (["demo", "--picture", "../there.png"], "choose another"),
    "demo: no permission": (["demo", "--picture", "/proc/demo.png"], "choose another"),
    "demo: wrong file": (["demo", "--picture", "no/demo.png"], "choose another"),
    "demo: empty data": (["demo", "-n", "1"], "at least 2"),
    "demo: not PNG": (["demo", "--picture", "demo.gif"], ".png"),
    "benchmark: empty data": (["benchmark", "-n", "0"], "at least 2"),
    "benchmark: rows": (["benchmark", "-n", "few"], "whole number"),
    "reproduce: wrong file": (["reproduce", "kin40k", "--quick", "--data", "nowhere"], "with --data"),
    "reproduce: wrong column": (["reproduce", "kin40k", "--quick", "--data", "../made/unmasked"], "no array orig_test"),
    "reproduce: empty data": (["reproduce", "airline", "--quick", "--data", "../made/unmasked"], "0 rows, fewer than"),
    "reproduce: no permission": (["reproduce", "blocks", "--out", "/proc/pages"], "choose another path"),
    "reproduce: name": (["reproduce", "kin8nm"], "kin40k, airline"),
    "fit: workers": (["fit", ARM, "-t", "distance", "-o", "m", "--jobs", "-5"], NO_JOBS),
    "predict: workers": (["predict", MODEL, ARM, "-o", "p.parquet", "--jobs", "-5"], NO_JOBS),
    "evaluate: workers": (["evaluate", MODEL, ARM, "--jobs", "-5"], NO_JOBS),
    "report: workers": (["report", MODEL, ARM, "-o", "page.html", "--jobs", "-5"], NO_JOBS),
    "benchmark: workers": (["benchmark", "-n", "300", "--jobs", "-5"], NO_JOBS),
    "no such command": (["predikt"], "gigagp --help"),
    "no subcommand": (["datasets"], "gigagp datasets --help"),
}  # fmt: skip
UNREADABLE = {
    "fit: data": ["fit", "arm.parquet", "--target", "distance", "-o", "m"],
    "fit: output": ["fit", "../made/arm.parquet", "--target", "distance", "-o", "locked/m"],
    "fit: checkpoint": ["fit", "../made/arm.parquet", "-t", "distance", "-o", "m", "--checkpoint", "locked/run"],
    "predict: data": ["predict", "../made/model", "arm.parquet", "-o", "p.parquet"],
    "predict: model": ["predict", "model", "../made/arm.parquet", "-o", "p.parquet"],
    "predict: output": ["predict", "../made/model", "../made/arm.parquet", "-o", "locked/p.parquet"],
    "evaluate: data": ["evaluate", "../made/model", "arm.parquet"],
    "evaluate: model": ["evaluate", "model", "../made/arm.parquet"],
    "inspect: model": ["inspect", "model"],
    "report: data": ["report", "../made/model", "arm.parquet", "-o", "r.html"],
    "report: model": ["report", "model", "-o", "r.html"],
    "report: output": ["report", "../made/model", "-o", "locked/r.html"],
    "datasets make: output": ["datasets", "make", "robot-arm", "-n", "9", "-o", "locked/a.parquet"],
    "demo: output": ["demo", "-n", "100", "--picture", "locked/demo.png"],
    "reproduce: output": ["reproduce", "blocks", "--out", "locked/pages"],
}
KINDS = ["wrong file", "wrong column", "empty data", "no permission", "existing output"]
CANNOT_HAPPEN = {  # and why
    "evaluate: existing output": "it writes nothing",
    "inspect: existing output": "it writes nothing",
    "inspect: wrong column": "it reads no columns",
    "datasets make: wrong file": "it reads no file",
    "datasets make: wrong column": "it reads no columns",
    "grid: empty data": "it reads no rows",
    "demo: wrong column": "it makes its data",
    "benchmark: wrong file": "it reads no file",
    "benchmark: wrong column": "it makes its data",
    "benchmark: no permission": "it touches no file",
    "benchmark: existing output": "it writes nothing",
    "reproduce: existing output": "its page is there to be made anew",
}


def test_every_command_is_tried_with_everything_that_can_go_wrong():
    tried = {*WRONG, *(f"{case.split(':')[0]}: no permission" for case in UNREADABLE)}
    cells = {f"{command}: {kind}" for command in COMMANDS for kind in KINDS}
    assert cells - tried == set(CANNOT_HAPPEN)


def files(folder):
    """Every file, with its content."""
    return {path: path.read_bytes() if path.is_file() else b"" for path in sorted(folder.rglob("*"))}


def assert_one_line(result):
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    (line,) = [line for line in result.stderr.splitlines() if not re.match(r"(scan|store|partition and store): ", line)]
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize("case", WRONG)
def test_what_the_user_can_cure_is_one_line_and_nothing_is_written_or_lost(case, here, made):
    words, cure = WRONG[case]
    (here.parent / "f.parquet").mkdir()
    (here.parent / "there.png").write_bytes(b"")
    (here.parent / "r.html").write_bytes(b"")
    (here.parent / "nothing.csv").write_text("")
    before = files(here.parent), files(made)
    assert cure in assert_one_line(run(*words))
    assert (files(here.parent), files(made)) == before


@pytest.fixture(scope="module")
def locked(made):
    """Data and a model that their owner alone may read, a folder that nobody may write to, and an open folder."""
    with tempfile.TemporaryDirectory() as place:
        open_to_all = Path(place)
        shutil.copytree(made, open_to_all / "made", copy_function=shutil.copyfile)
        work = open_to_all / "work"
        work.mkdir()
        shutil.copyfile(made / "arm.parquet", work / "arm.parquet")
        shutil.copytree(made / "model", work / "model", copy_function=shutil.copyfile)
        (work / "locked").mkdir()
        for path in [open_to_all, *open_to_all.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        work.chmod(0o777)
        for path in (work / "arm.parquet", *(work / "model").iterdir()):
            path.chmod(0)
        (work / "locked").chmod(0o555)
        yield work


@pytest.fixture
def not_root(locked, everything_imported, monkeypatch):
    """Work in that folder as somebody whom permissions bind."""
    monkeypatch.chdir(locked)
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)  # nobody, for the time of the test
    yield
    os.seteuid(me)


@pytest.fixture(scope="module")
def everything_imported(locked, tmp_path_factory):
    """Nobody may not even read this project, so that each command is run once before."""
    if os.geteuid() != 0:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("imported"))
        run_every_command(locked)


def run_every_command(locked):
    done("fit", locked.parent / "made" / "arm.parquet", "-t", "distance", "-o", "x", "--leaf-size", 50, "--overwrite")
    done("predict", "x", locked.parent / "made" / "arm.parquet", "-o", "x.parquet", "--overwrite")
    done("evaluate", "x", locked.parent / "made" / "arm.parquet")
    done("reproduce", "blocks", "--quick", "--out", "pages")
    done("report", "x", locked.parent / "made" / "arm.parquet", "-o", "x.html", "--overwrite")


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_may_not_be_read_or_written_is_named_and_stays(case, locked, not_root):
    me = os.geteuid()
    assert not os.access("arm.parquet", os.R_OK, effective_ids=True)
    before = sorted(locked.rglob("*"))
    line = assert_one_line(run(*UNREADABLE[case]))
    assert re.search(r"arm\.parquet|model|locked", line)
    assert re.search("[Pp]ermission|may not|cannot write", line), line
    assert sorted(locked.rglob("*")) == before
    assert os.geteuid() == me


def test_overwrite_replaces(here):
    for _ in range(2):
        done("datasets", "make", "robot-arm", "-n", 300, "-o", "a.parquet", "--overwrite")
        done("fit", "a.parquet", "--target", "distance", "-o", "m", "--overwrite")
        done("predict", "m", "a.parquet", "-o", "p.parquet", "--overwrite")


def test_a_share_without_rows_leaves_the_model(here):
    result = run(*FIT, "m", "--test-fraction", "1e-9")
    assert result.exit_code == 1
    assert "the model is saved in m" in result.stderr
    assert "tree" in done("inspect", "m").stdout


def test_data_that_cannot_be_made_leave_nothing(here, monkeypatch):
    def fail(*_):
        yield np.ones((2, 8)), np.ones(2)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gigagp.datasets.robot_arm_batches", fail)
    result = run("datasets", "make", "robot-arm", "-o", "a.parquet")
    assert result.exit_code == 1
    assert "No space left" in result.stderr
    assert os.listdir() == []


def test_a_bug_is_exit_code_2_and_a_traceback_only_if_asked_for(here, monkeypatch):
    def broken(*_, **__):
        raise KeyError("never")

    monkeypatch.setattr("gigagp.model.target_folders.load_model", broken)
    short = run("inspect", MODEL)
    assert (short.exit_code, short.stderr.count("\n")) == (2, 1)
    assert "internal error" in short.stderr
    long = run("inspect", MODEL, "--debug")
    assert long.exit_code == 2
    assert "Traceback" in long.stderr
    assert "in broken" in long.stderr


def test_memory_and_ctrl_c_and_disks_are_explained():
    assert running._explained(MemoryError())[0] == 1
    assert running._explained(KeyboardInterrupt()) == (130, "interrupted")
    assert running._explained(PermissionError(13, "Permission denied", "x"))[1].startswith("x: Permission denied")


def test_warnings_are_lines_of_their_own(here):
    done("datasets", "make", "robot-arm", "-n", 300, "-o", "a.parquet", "--noise", 0)
    result = done(
        "fit", "a.parquet", "--target", "distance", "-o", "m", "--kernel", "linear", "--leaf-size", 100, "--json"
    )
    assert re.search(r"^warning: .*no metric", result.stderr, re.M)
    json.loads(result.stdout)


# Ctrl-C


@pytest.mark.slow
def test_ctrl_c_leaves_a_checkpoint_and_the_printed_command_goes_on_to_the_same_bits(here):
    done("datasets", "make", "robot-arm", "-n", 4000, "-o", "a b.parquet")
    words = ["fit", "a b.parquet", "--target", "distance", "--partition", "random", "--leaf-size", "999", "--jobs", "1"]
    begun = subprocess.Popen(
        [*MODULE, *words, "-o", "m", "--checkpoint", "run"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    for line in begun.stderr:
        if line.startswith("partition and store"):
            begun.send_signal(signal.SIGINT)
            break
    printed, said = begun.communicate(timeout=60)
    assert (begun.returncode, printed) == (130, "")
    assert "kept in run" in said
    assert "Traceback" not in said
    assert not Path("m").exists()
    command = said.split("To continue:\n")[1].strip()
    subprocess.run(command, shell=True, check=True, capture_output=True)
    done(*words, "-o", "whole")
    names = sorted(path.name for path in Path("m").glob("*.npy"))
    assert "theta.npy" in names
    assert all(Path("m", name).read_bytes() == Path("whole", name).read_bytes() for name in names)


def stopped(*words, at="training"):
    """The command, with Ctrl-C at the first event of a stage."""

    def listening(event):
        if event.stage == at:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pace, "__call__", lambda self, event: listening(event))
        return run(*words)


@pytest.mark.slow
def test_ctrl_c_with_processes_is_one_message_not_one_a_worker(many, here):
    words = ["fit", str(many), "--target", "distance", "-o", "m", "--engine", "processes", "--jobs", "2"]
    words += ["--partition", "random", "--leaf-size", "1000", "--training", "full"]
    begun = subprocess.Popen(
        [*MODULE, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    for line in begun.stderr:
        if line.startswith("partition and store"):
            break
    time.sleep(3)  # workers start, and begin to work
    os.killpg(begun.pid, signal.SIGINT)  # as a terminal does: to all of them
    _, said = begun.communicate(timeout=60)
    assert begun.returncode == 130
    assert [line.split(":")[0] for line in said.splitlines() if line.strip()][-1].startswith(
        "interrupted; nothing was saved"
    )
    assert "Traceback" not in said
    assert "KeyboardInterrupt" not in said
    assert os.listdir() == []


def test_ctrl_c_without_a_checkpoint_says_how_to_have_one(here):
    result = stopped(*FIT, "m")
    assert result.exit_code == 130
    assert "--checkpoint FOLDER" in result.stderr
    assert os.listdir() == []


def test_ctrl_c_during_a_prediction_prints_how_to_go_on(here):
    result = stopped("predict", MODEL, ARM, "-o", "p.parquet", at="prediction")
    assert result.exit_code == 130
    paste([result.stderr.splitlines()[-1].strip()])
    assert pq.read_metadata("p.parquet").num_rows == ROWS


def test_ctrl_c_while_data_are_made_leaves_nothing(here):
    assert stopped("datasets", "make", "robot-arm", "-o", "a.parquet", at="making").exit_code == 130
    assert os.listdir() == []


# The display


def on_a_terminal(words, columns):
    """All that a command sends to a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")} | {"TERM": "xterm-256color"}
    process = subprocess.Popen([*MODULE, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    raw = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            read = os.read(ours, 65536)
        except OSError:  # what Linux says at the end
            break
        if not read:
            break
        raw += read
    os.close(ours)
    assert process.wait(60) == 0, raw
    return raw.decode()


def shown(raw, columns):
    """What a terminal of so many columns shows in the end, and every line that stood on it meanwhile."""
    terminal, seen = pyte.Screen(columns, 24), set()
    stream = pyte.Stream(terminal)
    for part in re.split(r"(?=\r|\n)", raw):
        stream.feed(part)
        seen |= {line.rstrip() for line in terminal.display}
    assert not terminal.cursor.hidden, "the cursor is back"
    return [line.rstrip() for line in terminal.display if line.strip()], seen


LONG = ["--partition", "random", "--leaf-size", "1000", "--training", "full"]  # some seconds of training, to be seen
MANY = 2_000  # rows
STAGES = ["scan", "store", "partition and store", "training"]


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Rows enough for every stage to be seen."""
    path = tmp_path_factory.mktemp("many") / "arm.parquet"
    done("datasets", "make", "robot-arm", "-n", MANY, "-o", path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 200])
def test_on_a_terminal_a_fit_leaves_no_garbage(columns, many, here):
    words = ["fit", str(many), "--target", "distance", "-o", "m", *LONG]
    raw = on_a_terminal(words, columns)
    told = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", raw.rpartition("\x1b[?25h")[0])
    assert max(map(len, told.splitlines())) < columns, "a line that wraps cannot be erased"
    left, seen = shown(raw, columns)
    assert [line.split(":")[0] for line in left[: len(STAGES)]] == STAGES
    assert left[len(STAGES)].startswith(f"m: {MANY:,} rows")
    number = r"-?[\d.]+"
    parts = [r"\d+ steps?", f"evidence {number}", rf"slope {number}e[-+]\d\d", f"{number}/s", f"{number} GB"]
    parts += [r"\d+ experts"] if columns > 80 else []
    training = [line for line in seen if line.startswith("training ")]
    assert any(
        re.fullmatch("training " + ", ".join([*parts[:3], r"\d+ s left", *parts[3:]]), line) for line in training
    )
    assert not any("training " in line for line in left), "what moves is gone"


@pytest.mark.slow
def test_on_a_terminal_a_prediction_shows_its_pace(here, made):
    done("datasets", "make", "robot-arm", "-n", 60_000, "-o", "new.parquet")
    raw = on_a_terminal(["predict", str(made / "model"), "new.parquet", "-o", "p.parquet", "--memory", "64MiB"], 80)
    left, seen = shown(raw, 80)
    number = r"[\d.]+"
    assert re.fullmatch(rf"prediction: 60,000 rows, {number} s, {number}k?/s, {number} GB", left[0])
    assert left[1].startswith("p.parquet: 60,000 rows")
    moving = rf"prediction ━+ [\d,]+ of 60,000 rows, \d+ s left, {number}k?/s, {number} GB"
    assert any(re.fullmatch(moving, line) for line in seen), seen


@pytest.mark.slow
def test_a_terminal_too_narrow_for_anything_is_not_spoilt(made, here):
    left, _ = shown(on_a_terminal(["fit", ARM, "--target", "distance", "-o", "m", "--partition", "random"], 20), 20)
    assert [line.split(":")[0][:10] for line in left[:3]] == ["scan", "store", "partition "]


def test_in_a_pipe_there_are_plain_lines_and_nothing_that_moves(many, here):
    ran = done("fit", many, "--target", "distance", "-o", "m", *LONG)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", ran.stdout + ran.stderr), "no control characters"
    lines = ran.stderr.splitlines()
    assert [line.split(":")[0] for line in lines if not line.startswith("warning")] == STAGES
    number = r"-?[\d.e+-]+"
    assert re.fullmatch(rf"scan: {MANY:,} rows, {number} s, {number}[kM]?/s, {number} GB", lines[0])
    training = (
        f"training: \\d+ steps, evidence {number}, slope {number}, {number} s, {number}/s, {number} GB, \\d+ experts"
    )
    assert re.fullmatch(training, lines[3])
    assert ran.stdout.startswith(f"m: {MANY:,} rows")


def test_as_many_facts_as_there_is_room_for():
    facts = ["7 steps", "evidence -0.1", "slope 1e-3", "5/s"]
    assert display.joined(facts, 80) == "7 steps, evidence -0.1, slope 1e-3, 5/s"
    assert display.joined(facts, 23) == "7 steps, evidence -0.1"
    assert display.joined(facts, 12) == "7 steps, 5/s"
    assert display.joined(facts, 3) == "7 s"


def test_rows_of_any_table_have_the_same_columns():
    assert running.table(["a", "bb"], [["ccc", "d"]]) == "a    bb\nccc   d"
    assert running._plain({"x": [float("nan"), np.float64(2), (1, None)]}) == {"x": [None, 2.0, [1, None]]}


def test_tables_of_pyarrow_are_of_one_type(made):
    assert pq.read_schema(made / "arm.parquet").types == [pa.float64()] * 9


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate"])
def test_a_scheduler_without_authentication_is_refused_unless_told_otherwise(made, tmp_path, command, monkeypatch):
    monkeypatch.setattr("gigagp.engines.dask._CONNECT_SECONDS", 1)
    words = {
        "fit": ["fit", made / "arm.parquet", "--target", "distance", "-o", tmp_path / "model"],
        "predict": ["predict", made / "model", made / "arm.parquet", "-o", tmp_path / "out.parquet"],
        "evaluate": ["evaluate", made / "model", made / "arm.parquet"],
    }[command]
    refused = run(*words, "--engine", "tcp://127.0.0.1:9")
    assert refused.exit_code == 1
    assert "neither encrypted nor authenticated" in " ".join(refused.stderr.split())
    assert "--insecure" in refused.stderr
    told = run(*words, "--engine", "tcp://127.0.0.1:9", "--insecure")
    assert told.exit_code == 1
    assert "no Dask scheduler answers" in " ".join(told.stderr.split())
