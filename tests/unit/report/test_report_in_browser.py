"""The page and the notebook's view of a model in a real browser: narrow and wide, light, dark and on paper."""

import re

import pandas as pd
import pytest

from browser import Browser
from gigagp import HGPRegressor
from gigagp.datasets import robot_arm
from gigagp.report import write_report

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("ignore:.*bound")]
WIDTHS = (400, 1400)  # pixels of the window
SCHEMES = ("light", "dark")
LUMINANCE = """
const of = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(Number).reduce((sum, part) => sum + part, 0) / 765;
const styled = selector => getComputedStyle(document.querySelector(selector));
return arguments[0].map(([selector, property]) => of(styled(selector)[property]));
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    X, y = robot_arm(1_200, noise=0.05)
    data = pd.DataFrame(X, columns=["long_" * 15, *(f"joint{d}" for d in range(1, 8))]).assign(distance=y)
    model = HGPRegressor(leaf_size=100, random_state=0).fit(data[:1_000], "distance")
    folder = tmp_path_factory.mktemp("page")
    write_report(model, folder / "report.html", data[1_000:], title="x" * 150)
    views = f"{model._repr_html_()}{model.report_._repr_html_()}"
    (folder / "notebook.html").write_text(f"<!doctype html><meta charset=utf-8><link rel=icon href=data:,>{views}")
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture
def shown(page, browser):
    browser.resize(1400)
    browser.media()
    browser.open(page / "report.html")
    return browser


def overflow(browser):
    return browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_and_the_console_is_silent(page, browser, width, scheme):
    browser.resize(width)
    browser.media(scheme=scheme)
    browser.open(page / "report.html")
    assert overflow(browser) == 0
    assert browser.messages() == []
    outside = "return [...document.querySelectorAll('svg, h1, h2, p, li')].filter(e => { \
        const box = e.getBoundingClientRect(); return box.right > innerWidth + 1 || box.left < 0; }).length"
    assert browser.run(outside) == 0


def test_pictures_are_there(shown):
    boxes = "[...document.querySelectorAll('figure svg')].map(svg => svg.getBoundingClientRect())"
    sizes = shown.run(f"return {boxes}.map(box => [box.width, box.height])")
    assert len(sizes) >= 10
    assert all(width > 200 and height > 100 for width, height in sizes)
    script = """
        const done = [...document.querySelectorAll('svg image')].map(image => {
            const loaded = new Image(); loaded.src = image.href.baseVal; return loaded.decode(); });
        return Promise.all(done).then(all => all.length);
    """
    assert shown.run(script) >= 2, "maps are images inside of pictures"


def test_links_lead_to_their_sections(shown):
    links = shown.run("return [...document.querySelectorAll('nav a')].map(a => a.getAttribute('href'))")
    assert len(links) == 8
    shown.run("document.documentElement.style.scrollBehavior = 'auto'")
    for link in links:
        script = (
            "document.querySelector(`nav a[href='${arguments[0]}']`).click();"
            "return [location.hash, document.querySelector(arguments[0]).getBoundingClientRect().top,"
            " scrollY + innerHeight >= document.documentElement.scrollHeight - 1]"
        )
        place, top, at_the_end = shown.run(script, link)
        assert place == link
        assert 0 <= top < 40 or at_the_end


def test_text_and_pictures_stand_out_in_the_light_and_in_the_dark(page, browser):
    parts = [["body", "backgroundColor"], ["section", "backgroundColor"], ["h2", "color"], ["p", "color"]]
    text = ["#figure-against svg g[id*=text] g", "fill"]
    for scheme in SCHEMES:
        browser.media(scheme=scheme)
        browser.open(page / "report.html")
        body, card, *others = browser.run(LUMINANCE, [*parts, text])
        assert (body > 0.9, card > 0.9) == ((True, True) if scheme == "light" else (False, False))
        assert all(abs(card - each) > 0.35 for each in others)


def test_paper_is_white_has_no_links_and_cuts_nothing_off(shown):
    shown.resize(720)
    shown.media("print", "dark")
    ink, *paper = shown.run(LUMINANCE, [["h2", "color"], ["section", "backgroundColor"], ["body", "backgroundColor"]])
    assert ink < 0.3
    assert paper == [1, 1]
    assert shown.run("return getComputedStyle(document.querySelector('nav')).display") == "none"
    assert overflow(shown) == 0
    printed = shown.pdf()
    assert printed.startswith(b"%PDF")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 15


def test_a_model_in_a_notebook(page, browser):
    browser.resize(800)
    browser.media()
    browser.open(page / "notebook.html")
    assert [m for m in browser.messages() if m["level"] == "SEVERE"] == []
    words = browser.run("return document.body.innerText")
    for part in ("HGPRegressor", "lengthscale[joint3]", "distance^2", "training", "evidence per point"):
        assert part in words
