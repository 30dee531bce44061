"""Names that are code in a real browser: nothing runs, and each is shown unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from visiting import CHROMIUM, DRIVER, Visit

import focuse

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")
NAMES = [
    "<script>window.bad=1</script>",
    '"><img src=x onerror="window.bad=1">',
    "'><svg onload=window.bad=1>",
    "javascript:window.bad=1",
    "</script></title></style><script>window.bad=1</script>",
    "--><script>window.bad=1</script>",
    "]]><script>window.bad=1</script>",
    "{{constructor.constructor('window.bad=1')()}} ${window.bad=1}",
    "&lt;img src=x onerror=window.bad=1&gt;",
    "abc\u202edef\u202c",
    "nul\x00byte",
    "esc\x1b[31m",
    " spaces around ",
    "two\nlines",
    "long " * 190,
    "👩‍👩‍👧‍👦 🎼",
    "__proto__",
    "constructor",
    "hasOwnProperty",
]
RELATIONS = ["<img src=x onerror=window.bad=1>", "__proto__", "</text><script>window.bad=1</script>"]
TITLE = "<img src=x onerror=window.bad=1>"


@pytest.fixture(scope="module")
def run() -> focuse.api.Run:
    rows = [
        (head, RELATIONS[(i + j) % 3], tail, (i + 3 * j) % 11 / 10)
        for i, head in enumerate(NAMES)
        for j, tail in enumerate(NAMES)
        if i != j and (i + 2 * j) % 4
    ]
    return focuse.train(focuse.read(rows), dim=4, epochs=3, progress=False)


@pytest.fixture(scope="module")
def url(run, start_server):
    from focuse.explorer.app import make_app
    from focuse.explorer.service import Explorer, Service

    service = Service([Explorer(run, TITLE), Explorer(run, "{{title}}")])
    for future in service.warming:
        future.result(60)
    with start_server(make_app(service)) as url:
        yield url


@pytest.fixture
def visit(browser, url):
    browser.set_window_size(1280, 1000)
    browser.get_log("browser")
    made = Visit(browser, url)
    yield made
    assert made.script("return window.bad") is None
    severe = [row["message"] for row in browser.get_log("browser") if row["level"] == "SEVERE"]
    assert [row for row in severe if "status of 404" not in row] == []


def test_every_name_is_shown_as_it_is(visit) -> None:
    visit.open("")
    assert visit.heading() == TITLE
    for name in NAMES:
        visit.script(f"location.hash = {json.dumps('#/entity/' + quote(name, safe=''))}")
        visit.wait(lambda name=name: visit.script("return document.querySelector('h1').textContent") == name)
        visit.settled()
        assert visit.script("return document.title") != ""
        assert visit.all("#triples tbody tr")
        shown = set(visit.script("return [...document.querySelectorAll('#triples .name')].map(e => e.textContent)"))
        assert shown <= set(NAMES)
        kinds = visit.script("return [...document.querySelectorAll('#triples .relation')].map(e => e.textContent)")
        assert {kind[2:] for kind in kinds} <= set(RELATIONS)  # an arrow stands before them
        assert not visit.all("main img, main script, main iframe")
        addresses = visit.script("return [...document.querySelectorAll('a')].map(e => e.getAttribute('href'))")
        assert {address[0] for address in addresses} <= {"#", "/"}
        assert visit.script("return window.bad") is None


def test_hostile_names_work_in_questions_explanations_and_comparisons(visit) -> None:
    for head in NAMES[:10]:
        visit.open(f"#/ask?head={quote(head, safe='')}&relation={quote(RELATIONS[0], safe='')}")
        assert len(visit.all("#answers tbody tr")) == 10
        assert visit.script("return window.bad") is None
    visit.one("#answers .why").click()
    visit.wait(lambda: visit.all("#panel[open] .figures"))
    assert visit.script("return window.bad") is None
    visit.open(f"#/compare?head={quote(NAMES[0], safe='')}&relation={quote(RELATIONS[2], safe='')}")
    assert len(visit.all(".side")) == 2


@pytest.mark.parametrize("name", [" spaces around ", "two\nlines", NAMES[0]])
def test_form_submits_the_exact_name(visit, name) -> None:
    """A field would lose its line end, and a trimmed name is another one."""
    visit.open("#/ask")
    visit.one("form.ask input[role=combobox]").click()
    visit.keys(name.splitlines()[-1])
    offered = "return [...document.querySelectorAll('form.ask li[role=option] span')].map(e => e.textContent)"
    visit.wait(lambda: name in visit.script(offered))
    visit.all("form.ask li[role=option]")[visit.script(offered).index(name)].click()
    visit.script(f"document.querySelector('form.ask select').value = {json.dumps(RELATIONS[0])}")
    visit.one("form.ask .primary").click()
    visit.wait(lambda: len(visit.all("#answers tbody tr")) == 10)
    assert not visit.all("#answers .problem")
    first = visit.script("return document.querySelector('#answers tbody .name').textContent")
    assert first == name


def test_saved_pages_run_no_code(browser, run, tmp_path: Path) -> None:
    from focuse.report.page import write_explanation

    found = run.explain(NAMES[0], RELATIONS[2], NAMES[4])
    pages = [run.report(tmp_path / "report.html"), write_explanation(found, tmp_path / "why.html")]
    for page in pages:
        browser.get(page.as_uri())
        assert browser.execute_script("return window.bad") is None, page
        text = browser.execute_script("return document.documentElement.textContent")
        assert "window.bad=1" in text, page
        bad = "return document.querySelectorAll('[onerror], [onload], iframe, object, a[href^=\"javascript:\"]').length"
        assert browser.execute_script(bad) == 0, page
