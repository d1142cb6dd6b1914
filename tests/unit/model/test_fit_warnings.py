"""Warnings of a fit are values: they name columns, say what to do, and survive saving and loading."""

from dataclasses import replace

import numpy as np
import pytest

from gigagp import HGPRegressor, load
from gigagp.model.fit_warnings import MissedStructure, ParameterAtBound, sentences
from gigagp.model.loading import read_warning
from gigagp.model.saving import describe_warning
from gigagp.model.units import Units

UNITS = Units(("age", "id"), "price", (1.0, 1.0), 1.0)
WARNINGS = (
    ParameterAtBound("lengthscale[0]", "upper", 999.9, 1e3),
    ParameterAtBound("left.lengthscale[1]", "lower", 1e-3, 1e-3),
    ParameterAtBound("noise_variance", "lower", 1e-6, 1e-6),
    ParameterAtBound("variance", "upper", 1e3, 1e3),
    MissedStructure(1.7),
)


@pytest.mark.parametrize(
    ("warning", "sentence"),
    [
        (WARNINGS[0], "lengthscale[age] ended at its upper bound 1e+03; the model ignores that column"),
        (WARNINGS[1], "column 'id' behaves like an identifier; consider categorical="),
        (WARNINGS[2], "lower noise_bounds"),
        (WARNINGS[3], "widen the bound if that value is plausible"),
        (WARNINGS[4], "1.7 times as large"),
    ],
)
def test_a_sentence_names_columns_and_gives_advice(warning, sentence):
    assert sentence in warning.sentence(UNITS)
    assert warning.advice() in str(warning)


def test_many_ignored_columns_are_one_sentence():
    units = Units(("a", "b", "c", "d"), "y", (1.0,) * 4, 1.0)
    ignored = [ParameterAtBound(f"lengthscale[{j}]", "upper", 1e3, 1e3) for j in (0, 2, 3)]
    together = sentences([WARNINGS[4], *ignored, WARNINGS[2]], units)
    assert len(together) == 3
    assert "each of the columns a, c, d ended at its upper bound; the model ignores these columns" in together[1]
    assert sentences(ignored[:2], units) == [warning.sentence(units) for warning in ignored[:2]]


def test_only_extreme_length_scales_are_interpreted():
    assert ParameterAtBound("lengthscale[0]", "upper", 20.0, 20.0).ignored_column is None
    assert ParameterAtBound("lengthscale[0]", "lower", 0.1, 0.1).identifier_column is None
    assert ParameterAtBound("lengthscale", "upper", 1e3, 1e3).ignored_column is None
    assert (WARNINGS[0].ignored_column, WARNINGS[1].identifier_column) == (0, 1)


@pytest.mark.parametrize("warning", WARNINGS)
def test_plain_values_give_the_warning_back(warning):
    names = ("lengthscale[0]", "left.lengthscale[1]", "variance", "noise_variance")
    assert read_warning(describe_warning(warning), names) == warning


@pytest.mark.parametrize(
    "change", [{"kind": "Other"}, {"kind": 3}, {"side": "left"}, {"bound": "high"}, {"parameter": "lengthscale[9]"}]
)
def test_other_values_are_refused(change):
    with pytest.raises(ValueError, match=r"."):
        read_warning(describe_warning(WARNINGS[3]) | change, ("variance", "noise_variance"))


def test_a_loaded_model_has_the_warnings_of_the_saved_one(tmp_path):
    X = np.linspace(0, 1, 60)[:, None]
    model = HGPRegressor(partition="random", random_state=0).fit(X, np.sin(6 * X[:, 0]) + 0.1 * np.cos(90 * X[:, 0]))
    warnings = (replace(WARNINGS[2]), ParameterAtBound("lengthscale[0]", "upper", 1e3, 1e3), WARNINGS[4])
    model.model_ = replace(model.model_, report=replace(model.report_, warnings=warnings))
    model.save(tmp_path / "m")
    assert load(tmp_path / "m").report_.warnings == warnings
