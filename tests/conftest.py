"""Shared by all tests: small data, hypothesis profiles, and tests that need what is not always installed."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from matplotlib.figure import Figure

from gigagp import memory
from gigagp.data import scaled, scaling, scan
from gigagp.engines import one_blas_thread
from gigagp.fit import (
    class_scores,
    column_scaling,
    committee_scores,
    groups,
    held_out_scores,
    kernel_averages,
    kernel_families,
    learnt_directions,
    likelihood_scores,
    planning,
    rough_theta,
    scanning,
    selection,
    small_tables,
    starts,
    store_writer,
    theta_posterior,
    theta_search,
    theta_training,
    training,
)
from gigagp.fit import (
    settings as fit_settings,
)
from gigagp.markup import tag
from gigagp.model import calibration, shape_learning
from gigagp.report import figures

# Where tests run side by side on all cores, a fit with the default number of workers is not to use them all again: two
# fits of two threads each on two cores take a fifth longer than two of one thread. Tests of engines name their workers.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("LOKY_MAX_CPU_COUNT", "1")

# No deadlines: the first call may compile. `make test-slow` runs every hypothesis test again with the long profile.
settings.register_profile("short", deadline=None, max_examples=12)
settings.register_profile("long", deadline=None, max_examples=80)
settings.load_profile("short")

HERE = Path(__file__).resolve().parent
NEEDS = {
    "browser": ("chromium and chromedriver", lambda: all(map(shutil.which, ("chromium", "chromedriver")))),
    "torch": ("torch==2.13.0 and gpytorch", lambda: all(map(find_spec, ("torch", "gpytorch")))),
}


SLOW_CHECKS = ("HGPClassifier(leaf_size=60,random_state=0)-check_classifiers_train",)  # of scikit-learn
SLOW_CASES = {line for line in (HERE / "slow_cases.txt").read_text().splitlines() if line and not line.startswith("#")}


def case_of(item):
    """A case of a test as slow_cases.txt names it."""
    return f"{item.path.relative_to(HERE)}::{item.name}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """A test that needs something special is slow, and is skipped where that is not installed."""
    for item in items:
        case = case_of(item)
        if any(check in case for check in SLOW_CHECKS) or not SLOW_CASES.isdisjoint({case, case.split("[")[0]}):
            item.add_marker(pytest.mark.slow)
    absent = {need for need, (_, installed) in NEEDS.items() if not installed()}
    for item in items:
        for need in NEEDS.keys() & {mark.name for mark in item.iter_markers()}:
            item.add_marker(pytest.mark.slow)
            if need in absent:
                item.add_marker(pytest.mark.skip(reason=f"needs {NEEDS[need][0]}; make test-slow installs what it can"))


def pytest_report_header(config):
    """Say in one line what is left out."""
    if "not slow" in config.getoption("markexpr"):
        return "not run here: slow tests and those that need a browser or torch; `make test-slow` runs them"
    return None


@pytest.fixture(autouse=True, scope="session")
def one_thread_for_references():
    """SciPy and NumPy, which the tests compare with, are up to a hundred times slower when their threads contend."""
    with one_blas_thread():
        yield


@pytest.fixture(autouse=True, scope="session")
def nothing_waits_for_the_disk():
    """Whether files were synchronised shows only after a loss of power; waiting took a tenth of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(autouse=True)
def brief_choices(request, monkeypatch):
    """Choices are made from few held-out rows unless a test is marked `full_choices`; laws do not depend on it.

    Two families of kernels and two numbers of neighbours are tried, optimisers take few steps, and training on groups
    is one round. Small tables are those of up to 300 rows, and are fitted from one start with two folds.
    """
    make_choices(monkeypatch, FULL if request.node.get_closest_marker("full_choices") else BRIEF)


@pytest.fixture(autouse=True, scope="module")
def brief_choices_of_fixtures(request):
    """The same for fixtures of a module, which are made before those of a test."""
    if any(mark.name == "full_choices" for mark in request.node.iter_markers()):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        make_choices(patch, BRIEF)
        yield


FAMILIES = fit_settings.families
CLASS_FAMILIES = fit_settings.class_families
BRIEF = {
    (fit_settings, "families"): lambda kernel: FAMILIES(kernel)[:2],
    (fit_settings, "class_families"): lambda kernel: CLASS_FAMILIES(kernel)[:2],
    (theta_search, "_CHECK_ROWS"): 0,  # no search
    (column_scaling, "_TRAINING_ROWS"): 100,
    (rough_theta, "_ROWS"): 300,
    (rough_theta, "_LAPLACE_ROWS"): 200,
    (rough_theta, "_ITERATIONS"): 12,
    (groups, "_LARGEST_GROUP"): 100,
    (class_scores, "_EFFORT"): 1.0,
    (held_out_scores, "_NUMBER_CALIBRATION_ROWS"): 400,
    (class_scores, "CALIBRATION_ROWS"): 400,
    (likelihood_scores, "CALIBRATION_ROWS"): 400,
    (held_out_scores, "_TRIAL_ROWS"): 200,
    (held_out_scores, "_FEWEST_ROWS"): 150,
    (held_out_scores, "_WORK"): 1e8,
    (held_out_scores, "_LEAST_CALIBRATION_ROWS"): 250,
    (committee_scores, "_COMMITTEE_ROWS"): 400,
    (committee_scores, "_SCATTERED_ROWS"): 400,
    (selection, "NEIGHBOURS"): (32, 64),
    (selection, "_FEWEST_OUTER"): 64,
    (calibration, "_STUDENT_STEPS"): 10,
    (shape_learning, "_EM_STEPS"): 50,
    (kernel_families, "_ITERATIONS"): 4,
    (kernel_families, "_MUCH_BETTER"): np.inf,
    (kernel_families, "_FIRST_ROWS"): 200,
    (kernel_families, "_ROWS"): 200,
    (kernel_families, "_GROUPS"): 4,
    (kernel_averages, "_COMPARED_ROWS"): 200,
    (learnt_directions, "_GROUPS"): 4,
    (learnt_directions, "_SLOPES"): 256,
    (learnt_directions, "_ROUNDS"): 1,
    (starts, "_GROUPS"): 4,
    (starts, "_ROUNDS"): 1,
    (starts, "_ITERATIONS"): 6,
    (theta_training, "FIRST_GROUPS"): 8,
    (training, "_GROUPS_PER_PARAMETER"): 0,
    (training, "_MOST_GROUPS"): 8,
    (planning, "most_rows"): lambda budget: 0,  # no exact GPs on all rows
    (small_tables, "_EVALUATION_WORK"): 300.0**3,
    (small_tables, "_FOLDS"): 2,
    (small_tables, "_MOST_PAIRS"): 1,
    (theta_posterior, "_STARTS"): theta_posterior._STARTS[:1],
    (theta_posterior, "_MOST_STEPS"): 4,
}
FULL = {(module, name): getattr(module, name) for module, name in BRIEF}


def make_choices(patch, values):
    for (module, name), value in values.items():
        patch.setattr(module, name, value)


@pytest.fixture(scope="session")
def wave():
    """600 rows of a smooth function of two columns, with a little noise."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (600, 2))
    y = 3.0 + 2.0 * np.sin(1.5 * X[:, 0]) * np.cos(X[:, 1]) + 0.05 * rng.standard_normal(600)
    return X, y


def drawing_only(name, draw, width, height, caption):
    """A figure of a report that is drawn but not rendered, which takes seconds; tests/unit/report renders some."""
    draw(Figure().add_subplot())
    return tag("figure", caption, id=f"figure-{name}")


@pytest.fixture
def no_pictures(monkeypatch):
    monkeypatch.setattr(figures, "figure", drawing_only)


@pytest.fixture(scope="module")
def no_pictures_in_module():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "figure", drawing_only)
        yield


@pytest.fixture
def small_sizes(monkeypatch):
    """Everything that begins with millions of rows begins with hundreds: buckets, samples, blocks, budgets."""
    monkeypatch.setattr(store_writer, "bucket_rows", lambda columns: 400)
    monkeypatch.setattr(memory, "LEAST", 1)
    monkeypatch.setattr(scan, "_SAMPLE_ROWS", 300)
    monkeypatch.setattr(scan, "_LEAST_SAMPLE", 300)
    for module in (scaled, scaling, scanning):
        monkeypatch.setattr(module, "BLOCK", 256)
