"""What a user gets: the wheel, installed into a clean environment, runs README and quick start in an empty folder."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


def run(*words, cwd, path=""):
    """What a command prints, in an environment that knows nothing of this copy of the project or its packages."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "NUMBA_CACHE_DIR"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"PATH": f"{path}{os.pathsep}{os.environ['PATH']}", "MPLBACKEND": "agg"}
    ran = subprocess.run(list(map(str, words)), cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{words}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("gigagp-*.whl")
    return built


@pytest.fixture(scope="module")
def clean(wheel, tmp_path_factory):
    """The `bin` of a new virtual environment with nothing but the wheel and what it depends on."""
    folder = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    programs = folder / "venv" / "bin"
    run(programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=folder)
    return programs


def test_the_wheel_has_every_file_of_the_package(wheel):
    source = ROOT / "src"
    expected = {
        path.relative_to(source).as_posix()
        for path in (source / "gigagp").rglob("*")
        if path.is_file() and path.suffix not in {".pyc", ".nbi", ".nbc"}
    }
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert expected == {name for name in names if name.startswith("gigagp/")}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_package_and_its_command_are_those_of_the_wheel(clean, tmp_path):
    where = run(clean / "python", "-c", "import gigagp; print(gigagp.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(clean.parent)
    version = run(clean / "python", "-c", "import gigagp; print(gigagp.__version__)", cwd=tmp_path)
    assert version.strip() in run(clean / "gigagp", "--version", cwd=tmp_path)


@pytest.mark.parametrize("page", ["README.md", "docs/quick-start.md"])
def test_a_page_works_as_pasted(page, clean, tmp_path):
    run(clean / "python", ROOT / "tests" / "transcript.py", ROOT / page, cwd=tmp_path, path=clean)
