"""README and docs work as pasted: every command and example of a page, in order, in an empty folder."""

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import transcript  # noqa: E402
from gigagp.engines.dask import SETTINGS  # noqa: E402

DOCS = ROOT / "docs"
IN_DOCS = sorted(
    page for page in DOCS.rglob("*.md") if not page.stem.endswith("_quick")
)  # `reproduce --quick` made those
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *IN_DOCS]
WITH_CODE = [page for page in PAGES if {language for language, _ in transcript.blocks(page)} & transcript.RUN]
# More than a few seconds each.
LONG = {
    "README", "choosing", "classification", "clusters", "coming-from", "command-line", "ecosystem", "extending", "faq",
    "how-it-works", "input-noise", "joint", "kriging", "likelihoods", "online", "optimisation", "out-of-core",
    "pictures", "quick-start", "report", "row-noise", "tables", "time-series",
}  # fmt: skip
NEEDS = {"ecosystem": ("mapie", "shap", "skpro")}  # optional packages, which `make test-slow` installs
ACCURATE = {"choosing", "input-noise"}  # pages whose checks need as many held-out rows as a fit of a user has


def name(page):
    return str(page.relative_to(ROOT))


def marks(page):
    full = [pytest.mark.full_choices] if page.stem in ACCURATE else []
    return full + ([pytest.mark.slow] if page.stem in LONG else [])


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=marks(page), id=name(page)) for page in WITH_CODE],
)
def test_a_page_works_as_pasted_from_top_to_bottom(page, tmp_path, monkeypatch):
    missing = [package for package in NEEDS.get(page.stem, ()) if find_spec(package) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "gigagp"
    command.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-m", "gigagp"])} "$@"\n')
    command.chmod(0o755)
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path / "work")
    transcript.main(page)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_block_that_is_not_run_says_why(page):
    for language, text in transcript.blocks(page):
        assert language in transcript.RUN | transcript.NOT_RUN
        if language in transcript.NOT_RUN:
            assert text.startswith("# not run: "), text.partition("\n")[0]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)\s]*)?\)", page.read_text()):
        if target.startswith("http"):
            continue
        path = page.parent / target if target else page
        assert path.exists(), target
        if anchor and path.suffix == ".md":
            assert anchor[1:] in anchors(path), f"{target}{anchor}"


def anchors(page):
    """What headings are called in an address."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_commands_that_the_readme_begins_with_are_there():
    targets = re.findall(r"^    make ([a-z-]+)$", (ROOT / "README.md").read_text(), re.M)
    assert targets == ["demo", "test"]
    for target in targets:
        subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)


def test_every_page_is_in_the_site():
    def listed(entry):
        if isinstance(entry, str):
            return {entry}
        return set().union(*map(listed, entry.values() if isinstance(entry, dict) else entry))

    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert listed(nav) == {str(page.relative_to(DOCS)) for page in IN_DOCS}


def test_the_compose_file_is_consistent():
    """Its services wait for services that exist, share the settings of the Dask engine, and are reached by TLS."""
    compose = yaml.safe_load((DOCS / "clusters" / "compose.yaml").read_text())
    services = compose["services"]
    assert (DOCS / "clusters" / services["image"]["build"]["context"]).resolve() == ROOT
    assert (ROOT / services["image"]["build"]["dockerfile"]).exists()
    settings = {f"DASK_{name.upper().replace('.', '__').replace('-', '_')}": str(SETTINGS[name]) for name in SETTINGS}
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= set(services), name
        assert all(volume.partition(":")[0] in compose["volumes"] for volume in service.get("volumes", ())), name
        if service["image"] == "gigagp":
            assert settings.items() <= service["environment"].items(), name
        assert "tcp://" not in " ".join(service["command"])
    assert "--insecure" not in services["fit"]["command"]
