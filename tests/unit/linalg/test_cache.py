"""Compiled code is kept on disk: a second process compiles nothing. Large functions are compiled once per precision."""

import json
import os
import subprocess
import sys

import pytest

from gigagp import HGPRegressor
from gigagp.data.store import frozen
from gigagp.engines import SerialEngine
from gigagp.linalg import leaf
from gigagp.model import neighbourhood

FIT = """
import json, sys
import numpy as np
from numba.core.dispatcher import Dispatcher
from gigagp import HGPRegressor

rng = np.random.default_rng(0)
X = rng.standard_normal((300, 2))
y = np.sin(X[:, 0])
model = HGPRegressor(leaf_size=100, random_state=0, n_jobs=1).fit(X, y)
mean, std = model.predict(X[:10], return_std=True)
counts = {}
for name, module in sorted(sys.modules.items()):
    for what, thing in vars(module).items() if name.startswith("gigagp.") else ():
        if isinstance(thing, Dispatcher) and thing.__module__ == name:
            stats = thing.stats
            counts[f"{name}.{what}"] = [sum(stats.cache_misses.values()), sum(stats.cache_hits.values())]
print(json.dumps([counts, [*mean, *std]]))
"""


def fit_in_a_process_of_its_own(cache):
    """Cache misses and hits of each compiled function of the package, and some predictions."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", FIT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow  # It compiles everything.
def test_a_second_process_compiles_nothing(tmp_path):
    first, output = fit_in_a_process_of_its_own(tmp_path)
    second, said_again = fit_in_a_process_of_its_own(tmp_path)
    compiled = {name.split(".")[1] for name, (misses, _) in first.items() if misses}
    assert {"linalg", "expert", "partition"} <= compiled  # the first process had something to compile
    assert {name: misses for name, (misses, _) in second.items() if misses} == {}
    assert sum(hits for _, hits in second.values()) > 0
    assert said_again == output


def test_large_functions_are_compiled_once_whether_arrays_may_be_written_to_or_not(wave):
    X, y = wave
    model = HGPRegressor(leaf_size=60, method="neighbourhood", random_state=0).fit(X, y)
    queries = model.predictor_.neighbourhood.store.X[:9]
    for Z in (queries.copy(), frozen(queries.copy())):
        neighbourhood.predict(model.predictor_.neighbourhood, Z, SerialEngine())
    HGPRegressor(random_state=0).fit(X[:50], y[:50])
    for function in (leaf._evidences, neighbourhood._predict_all):
        kinds = [str(next(each for each in signature if each.ndim == 2).dtype) for signature in arrays(function)]
        assert kinds
        assert len(kinds) == len(set(kinds)), function.signatures


def arrays(function):
    """The arrays among the arguments of every version that was compiled."""
    return [[each for each in signature if hasattr(each, "ndim")] for signature in function.signatures]
