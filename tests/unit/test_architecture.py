"""docs/architecture.md is true, imports point downwards, and modules are small and keep their private parts."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "gigagp"
LINES_PER_MODULE = 400
LINES_PER_FUNCTION = 60  # without its docstring: that of `fit` describes every parameter
ORDERED_FOLDERS = ("fit", "model")  # whose modules are listed in the document, each above those that it imports


def section(name):
    """The text of the document between the comments that enclose it."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    return text.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0]


def listed(name):
    """Names in a table's second column, from its top to its bottom: a name may import those after it."""
    cells = [line.split("|")[2] for line in section(name).strip().splitlines()[2:]]
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def top_level(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def modules(folder=SOURCE):
    return [p for p in folder.rglob("*.py") if p != SOURCE / "__init__.py"]


@cache
def parsed(path):
    return ast.parse(path.read_text())


@cache
def nodes(path):
    return tuple(ast.walk(parsed(path)))


def imported(path, *, lazily=True):
    """Dotted names below gigagp that a module imports; with lazily=False only those imported when it is loaded."""
    for node in nodes(path) if lazily else parsed(path).body:
        if isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("gigagp.") for alias in node.names if alias.name.startswith("gigagp."))
        elif isinstance(node, ast.ImportFrom) and node.module == "gigagp":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gigagp."):
            below = node.module.removeprefix("gigagp.")
            yield from (f"{below}.{alias.name}" for alias in node.names)


def imported_beside(path, *, lazily=True):
    """Modules of the same folder that a module imports."""
    folder = path.parent.relative_to(SOURCE).as_posix().replace("/", ".")
    beside = {p.stem for p in path.parent.glob("*.py")} | {p.name for p in path.parent.iterdir() if p.is_dir()}
    for name in imported(path, lazily=lazily):
        if name.startswith(f"{folder}."):
            first = name.removeprefix(f"{folder}.").split(".")[0]
            if first in beside:
                yield first


def test_every_module_has_a_layer_and_every_layer_exists():
    names = listed("layers")
    assert len(names) == len(set(names))
    assert {top_level(p) for p in modules()} == set(names)


def test_imports_point_downwards_only():
    depth = {name: i for i, name in enumerate(listed("layers"))}
    public = dict.fromkeys(
        ("HGPRegressor", "HGPClassifier", "load"), depth["estimators"]
    )  # what gigagp/__init__.py offers
    upward = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in modules()
        for name in (each.split(".")[0] for each in imported(path))
        if name != top_level(path) and {**public, **depth}[name] <= depth[top_level(path)]
    ]
    assert upward == []


def test_the_large_folders_are_listed_in_the_order_of_their_imports():
    for folder in ORDERED_FOLDERS:
        depth = {name: i for i, name in enumerate(listed(folder))}
        files = {p.stem: p for p in (SOURCE / folder).glob("*.py") if p.stem != "__init__"}
        assert set(files) == set(depth)
        upward = [
            f"{folder}/{name} imports {other}"
            for name, path in files.items()
            for other in imported_beside(path)
            if depth[other] <= depth[name]
        ]
        assert upward == []


def test_modules_of_a_folder_do_not_import_each_other_in_a_circle():
    for folder in {p.parent for p in modules()} - {SOURCE}:
        waiting = {p.stem: set(imported_beside(p, lazily=False)) - {p.stem} for p in folder.glob("*.py")}
        while ready := [name for name, needs in waiting.items() if not needs & waiting.keys()]:
            for name in ready:
                del waiting[name]
        assert waiting == {}, folder


def lines_of_code(function):
    """The number of lines of a function, without its docstring: a list of parameters may be long."""
    docstring = function.body[0] if ast.get_docstring(function) else None
    lines = 0 if docstring is None else docstring.end_lineno - docstring.lineno + 1
    return function.end_lineno - function.lineno + 1 - lines


def test_modules_and_functions_are_short():
    long = []
    for path in (*modules(), *(ROOT / "benchmarks").glob("*.py"), *(ROOT / "docs").rglob("*.py")):
        where = path.relative_to(ROOT)
        if (lines := path.read_text().count("\n")) > LINES_PER_MODULE:
            long.append(f"{where}: {lines} lines")
        functions = (node for node in nodes(path) if isinstance(node, ast.FunctionDef))
        lengths = ((node.name, lines_of_code(node)) for node in functions)
        long += [f"{where}: {name} has {lines} lines" for name, lines in lengths if lines > LINES_PER_FUNCTION]
    assert long == []


def private_names_of_others(path):
    """Private names that a module reads although it does not define them."""
    defined = {node.name for node in nodes(path) if isinstance(node, ast.FunctionDef)}
    own = {"self", "cls", "super()"}
    attributes = [node for node in nodes(path) if isinstance(node, ast.Attribute)]
    defined |= {node.attr for node in attributes if ast.unparse(node.value) in own}
    for node in nodes(path):
        if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr) and node.attr not in defined:
            yield ast.unparse(node)
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if re.match("_[a-z]", alias.name))


def test_no_module_reads_private_names_of_another():
    violations = [f"{p.relative_to(SOURCE)}: {name}" for p in modules() for name in private_names_of_others(p)]
    assert violations == []


def test_unit_tests_mirror_the_folders():
    folders = {p.name for p in SOURCE.iterdir() if p.is_dir()} | {"benchmarks"}
    assert {p.parent.name for p in (ROOT / "tests" / "unit").glob("*/*.py")} <= folders


def test_slow_cases_are_tests_that_exist():
    lines = (ROOT / "tests" / "slow_cases.txt").read_text().splitlines()
    for path, name in (line.split("::") for line in lines if not line.startswith("#")):
        assert f"def {name.split('[')[0]}(" in (ROOT / "tests" / path).read_text(), f"{path} has no test {name}"
