"""The explorer in a real browser: by keyboard and pointer, wide and narrow."""

from __future__ import annotations

import json
from urllib.parse import quote, urlsplit

import pytest
from visiting import CHROMIUM, DRIVER, Visit

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")
ENTITY = "Person 3"


@pytest.fixture(scope="module")
def url(service, start_server):
    """One server in a thread for all of these."""
    from focuse.explorer.app import make_app

    with start_server(make_app(service)) as url:
        yield url


@pytest.fixture
def visit(browser, url):
    browser.set_window_size(1280, 1000)
    browser.get_log("browser")
    browser.get_log("performance")
    made = Visit(browser, url)
    yield made
    severe = [row["message"] for row in browser.get_log("browser") if row["level"] == "SEVERE"]
    assert [row for row in severe if "status of 404" not in row] == []
    for row in browser.get_log("performance"):
        message = json.loads(row["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked = urlsplit(message["params"]["request"]["url"])
            assert asked.hostname in ("127.0.0.1", None) or asked.scheme == "chrome", asked


def test_search_works_by_keyboard_and_back_button_returns(visit) -> None:
    from selenium.webdriver.common.keys import Keys

    visit.open("")
    assert visit.heading() == "first"
    visit.keys("/")
    visit.keys("person 1")
    visit.wait(lambda: len(visit.all("#find-list li[role=option]")) > 3)
    field = visit.one("#find")
    assert field.get_attribute("aria-expanded") == "true"
    visit.keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_UP)
    chosen = visit.one("#find-list [aria-selected=true] span").text
    assert chosen == "Person 1"
    assert field.get_attribute("aria-activedescendant") == visit.one("#find-list [aria-selected=true]").get_attribute(
        "id"
    )
    visit.keys(Keys.ENTER)
    visit.wait(lambda: visit.heading() == "Person 1")
    visit.settled()
    visit.keys("/", "skil 7")
    visit.wait(lambda: visit.all("#find-list li"))
    visit.keys(Keys.ESCAPE)
    visit.wait(lambda: visit.one("#find").get_attribute("aria-expanded") == "false")
    visit.keys(Keys.ENTER)  # misspelt, and without waiting for suggestions
    visit.wait(lambda: visit.heading().startswith("skill"))
    visit.browser.back()
    visit.wait(lambda: visit.heading() == "Person 1")
    visit.browser.back()
    visit.wait(lambda: visit.heading() == "first")


def test_graph_view_links_to_other_entities(visit, service) -> None:
    visit.open(f"#/entity/{quote(ENTITY)}")
    nodes = visit.all("a.node")
    assert len(nodes) >= 8
    assert len(visit.all(".edge")) >= len(nodes)
    first = visit.script("return [...document.querySelectorAll('.edge path')].map(e => e.getAttribute('d')).join()")
    visit.open(f"#/entity/{quote(ENTITY)}")
    assert (
        visit.script("return [...document.querySelectorAll('.edge path')].map(e => e.getAttribute('d')).join()")
        == first
    )
    widths = visit.script(
        "return [...document.querySelectorAll('.edge .line')].map(e => +e.getAttribute('stroke-width'))"
    )
    assert max(widths) > min(widths)
    visit.script(
        "const s = document.querySelector('.slider input'); s.value = 0.9; s.dispatchEvent(new Event('input'))"
    )
    visit.wait(lambda: len(visit.all(".edge")) < len(widths))
    visit.one(".legend button").click()
    visit.settled()
    relation = visit.one(".legend button[aria-pressed=true]").text
    assert {cell.text.split(" ", 1)[1] for cell in visit.all("#triples td:first-child")} == {relation}
    name = visit.one("a.node").get_attribute("data-name")
    visit.one("a.node .disc").click()
    visit.wait(lambda: visit.heading() == name)


def test_graph_view_can_be_expanded(visit) -> None:
    visit.open(f"#/entity/{quote(ENTITY)}?steps=2")
    assert visit.all("a.node.step-2")
    visit.open(f"#/entity/{quote(ENTITY)}")
    before = len(visit.all("a.node"))
    shifted = "new MouseEvent('click', {shiftKey: true, bubbles: true, cancelable: true})"
    visit.script(f"document.querySelector('a.node').dispatchEvent({shifted})")
    visit.wait(lambda: len(visit.all("a.node")) > before)
    assert visit.heading() == ENTITY


def test_missing_links_are_shown_with_explanations(visit, service) -> None:
    from selenium.webdriver.common.keys import Keys

    from focuse.explorer.schemas import MissingQuery

    visit.open(f"#/entity/{quote(ENTITY)}")
    shown = [link.text for link in visit.all("#missing .name")]
    expected = service.first.missing(MissingQuery(entity=ENTITY)).links
    names = [link.tail if link.head == ENTITY else link.head for link in expected]
    assert shown == [" ".join(name.split()) for name in names]  # a browser shows a tab as a blank
    assert len(visit.all("#missing .range")) == len(shown)
    assert len({bar.rect["x"] for bar in visit.all("#missing .bar")}) == 1
    for ends in (one.text.split(" – ") for one in visit.all("#missing .weight small")):
        assert len({len(end.partition(".")[2]) for end in ends}) == 1
    visit.one("#missing th:nth-child(2) .sort").click()
    assert [link.text for link in visit.all("#missing .name")] != shown
    assert visit.one("#missing th[aria-sort]").get_attribute("aria-sort") == "ascending"
    visit.one("#missing .why").click()
    visit.wait(lambda: visit.all("#panel[open] .figures"))
    panel = visit.one("#panel").text
    assert ENTITY in panel
    visit.keys(Keys.ESCAPE)
    visit.wait(lambda: not visit.all("#panel[open]"))


def test_questions_can_be_asked_and_compared(visit, service) -> None:
    from selenium.webdriver.common.keys import Keys

    visit.open("#/ask")
    visit.one("form.ask input[role=combobox]").click()
    visit.keys("Person 3")
    visit.wait(lambda: visit.all("form.ask li[role=option]"))
    visit.keys(Keys.ENTER)
    visit.script("document.querySelector('form.ask select').value = 'has skill'")
    visit.one("form.ask .primary").click()
    visit.wait(lambda: len(visit.all("#answers tbody tr")) == 10)
    best = service.first.run.predict(head=ENTITY, relation="has skill", top=1)[0].tail
    assert visit.all("#answers tbody tr")[0].find_elements("css selector", ".name")[1].text == best
    visit.open(f"#/compare?head={quote(ENTITY)}&relation=has+skill&top=6")
    assert len(visit.all(".side")) == 2
    marks = {cell.text.split()[0] for cell in visit.all("#comparison td:last-child")}
    assert marks & {"only", "▲", "▼", "same"}
    assert "MRR" in visit.one(".side").text


def test_names_of_the_second_run_do_not_link_into_the_first(visit, service, monkeypatch) -> None:
    from focuse.explorer.schemas import Metrics, Problem, Side

    near = Problem(error="the graph has no entity", hint="did you mean elsewhere?", nearest=["elsewhere"])
    side = Side(run="second", model="m", metrics=Metrics(source="none", figures={}), links=[], problem=near)
    monkeypatch.setattr(service.second, "side", lambda asked: side)
    visit.open(f"#/compare?head={quote(ENTITY)}&relation=has+skill")
    assert "did you mean elsewhere?" in visit.one(".side .problem").text
    assert not visit.all(".side .problem a")


def test_table_can_be_downloaded(visit, service) -> None:
    visit.open(f"#/entity/{quote(ENTITY)}")
    visit.one("#triples button[data-format=csv]").click()
    target = visit.browser.downloads / "focuse-triples-Person-3.csv"
    visit.wait(target.exists)
    assert len(target.read_text(encoding="utf-8").splitlines()) == 1 + int(
        service.first.edges.degree[service.first.entity(ENTITY)]
    )


def test_hostile_names_are_text(visit, hostile) -> None:
    visit.open("")
    for name in hostile:
        visit.script(f"location.hash = {json.dumps('#/entity/' + quote(name, safe=''))}")
        visit.wait(lambda name=name: visit.script("return document.querySelector('h1').textContent") == name)
        visit.settled()
        assert visit.all("#triples tbody tr")
        assert not visit.all("main img, main script")


def test_unknown_name_suggests_the_nearest(visit) -> None:
    visit.open("#/entity/Persn%203")
    assert "no entity" in visit.one(".problem").text
    visit.one(".problem li a").click()
    visit.wait(lambda: visit.heading().startswith("Person"))


def test_enter_uses_the_typed_text_over_old_suggestions(visit) -> None:
    from selenium.webdriver.common.keys import Keys

    visit.open("")
    visit.keys("/")
    visit.keys("Person 3")
    visit.wait(lambda: [item.text.split("\n")[0] for item in visit.all("#find-list li[role=option]")][:1] == [ENTITY])
    visit.keys("1", Keys.ENTER)  # faster than new suggestions
    visit.wait(lambda: visit.heading() != "first")
    assert visit.heading() == "Person 31"


@pytest.mark.parametrize("address", ["#/constructor", "#/__proto__", "#/entity/", "#/nowhere"])
def test_unknown_addresses_show_the_start_page(visit, address) -> None:
    visit.open(address)
    assert visit.heading() == "first"
    assert visit.script("return document.title") == "first – focuse explorer"


def test_a_narrow_screen_has_one_column_and_no_sideways_scrolling(visit) -> None:
    visit.browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    )
    try:
        for address in (
            "",
            f"#/entity/{quote(ENTITY)}",
            "#/ask",
            f"#/compare?head={quote(ENTITY)}&relation=knows",
            "docs",
        ):
            visit.open(address)
            assert visit.script("return document.documentElement.scrollWidth") <= 390, address
        visit.open(f"#/entity/{quote(ENTITY)}")
        cards = visit.script("return [...document.querySelectorAll('.card')].map(e => e.getBoundingClientRect().left)")
        assert len(set(cards)) == 1
    finally:
        visit.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_everything_is_reached_by_keyboard_and_named(visit) -> None:
    visit.open(f"#/entity/{quote(ENTITY)}")
    nameless = """return [...document.querySelectorAll('a, button, input, select')].filter(e => e.checkVisibility()
        && !(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label')?.textContent.trim())).length"""
    assert visit.script(nameless) == 0
    from selenium.webdriver.common.keys import Keys

    visit.keys(Keys.TAB)
    assert visit.script("return document.activeElement.id") == "skip"
    visit.keys(Keys.ENTER)
    assert visit.script("return document.activeElement.id") == "main"
    assert visit.heading() == ENTITY
    reached = []
    for _ in range(5):
        visit.keys(Keys.TAB)
        reached.append(
            visit.script("const e = document.activeElement; return e.getAttribute('aria-label') ?? e.className")
        )
    assert visit.script("return document.activeElement.matches('a.node')"), reached
    name = visit.script("return document.activeElement.dataset.name")
    visit.keys(Keys.ENTER)
    visit.wait(lambda: visit.heading() == name)


def test_api_page_lists_every_address(visit) -> None:
    visit.open("docs")
    visit.wait(lambda: len(visit.all("section.card")) > 20)
    told = visit.one("main").text
    assert "/api/missing" in told
    assert "`" not in told
    assert {head.text for head in visit.all("th:last-child")} == {"Meaning"}


def test_lost_server_is_reported(visit) -> None:
    visit.open(f"#/entity/{quote(ENTITY)}")
    visit.script("window.fetch = () => Promise.reject(new TypeError('Failed to fetch'))")
    visit.script("location.hash = '#/entity/Person%204'")
    visit.wait(lambda: visit.all(".problem"))
    assert "does not answer" in visit.one(".problem").text
    assert visit.one(".problem button").text == "Try again"
