"""docs/architecture.md is true: every module has a layer, and imports point downwards only."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "gigagp"


def layers():
    """Package or module name -> line number of its layer in the document; larger is lower."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.split("<!-- layers -->")[1].split("<!-- /layers -->")[0]
    rows = [line.split("|")[1] for line in table.strip().splitlines()[2:]]
    return {name: depth for depth, row in enumerate(rows) for name in re.findall(r"`(\w+)`", row)}


def top_level(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def modules():
    return [p for p in SOURCE.rglob("*.py") if p != SOURCE / "__init__.py"]


def imported(path):
    """Names right below gigagp that a module imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("gigagp."):
                    yield alias.name.split(".")[1]
        elif isinstance(node, ast.ImportFrom) and node.module == "gigagp":
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gigagp."):
            yield node.module.split(".")[1]


def test_every_module_has_a_layer_and_every_layer_exists():
    assert {top_level(p) for p in modules()} == set(layers())


def test_imports_point_downwards_only():
    depth = layers()
    public = {"HGPRegressor": depth["estimator"]}  # what gigagp/__init__.py offers
    upward = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in modules()
        for name in imported(path)
        if {**public, **depth}[name] < depth[top_level(path)]
    ]
    assert upward == []


def test_modules_of_one_layer_do_not_lean_on_each_other():
    depth = layers()
    sideways = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in modules()
        for name in imported(path)
        if name in depth and depth[name] == depth[top_level(path)] and name != top_level(path)
    ]
    assert sideways == []
