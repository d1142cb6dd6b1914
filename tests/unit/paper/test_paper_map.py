"""docs/paper-map.md names only what exists."""

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "paper-map.md"
NAMES = sorted(set(re.findall(r"`(gigagp\.[\w.]+)`", PAGE.read_text())))


def find(dotted):
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            thing = getattr(thing, name)
        return thing
    raise AttributeError(dotted)


@pytest.mark.parametrize("dotted", NAMES)
def test_the_named_object_exists(dotted):
    assert find(dotted).__doc__


def test_every_equation_of_the_paper_is_mapped():
    page = PAGE.read_text()
    numbers = set()
    for first, last in re.findall(r"eq\. (\d+)(?:-(\d+))?", page):
        numbers |= set(range(int(first), int(last or first) + 1))
    assert numbers == set(range(1, 12))
