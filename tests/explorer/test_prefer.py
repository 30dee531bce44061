"""The order of links from likely to strong: by the API, and by the slider of the page in a real browser."""

from __future__ import annotations

import json
from urllib.parse import quote

import numpy as np
import pytest
from visiting import CHROMIUM, DRIVER, Visit

import focuse
from focuse.explorer.schemas import MissingQuery, Question

ENTITY, RELATION = "Person 3", "has skill"
QUESTION = {"head": ENTITY, "relation": RELATION, "top": 8}
ASKED = f"?head={quote(ENTITY)}&relation={quote(RELATION)}&top=8"
in_browser = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")


@pytest.fixture(scope="module")
def plain_folder(served_graph, tmp_path_factory):
    """A run without a weight model, on the same graph."""
    folder = tmp_path_factory.mktemp("plain") / "plain"
    focuse.train(served_graph, weight_mode="none", dim=6, epochs=8, out=folder, progress=False)
    return folder


def serving(*folders):
    """The service of runs, once it is ready."""
    from focuse.explorer.service import Explorer, Service

    made = Service([Explorer(focuse.load(folder), folder.name) for folder in folders])
    for future in made.warming:
        future.result(60)
    return made


def client_of(service):
    from starlette.testclient import TestClient

    from focuse.explorer.app import make_app

    return TestClient(make_app(service), base_url="http://127.0.0.1", raise_server_exceptions=False)


@pytest.fixture(scope="module")
def plain_service(plain_folder):
    return serving(plain_folder)


def missing(service, prefer, **asked):
    """The missing links of the entity in the order of a preference, None for the default."""
    chosen = {} if prefer is None else {"prefer": prefer}
    return service.first.missing(MissingQuery(entity=ENTITY, **asked, **chosen)).links


def rows(links) -> list[tuple]:
    return [(link["head"], link["relation"], link["tail"], link["probability"], link["weight_mean"]) for link in links]


# ---- the API --------------------------------------------------------------------------------------------------------


def test_run_says_how_links_are_ordered(client, service, plain_service) -> None:
    chosen = service.first.run.preference
    told = client.get("/api/run").json()
    assert told["preference"] == {"default": chosen.default, "strong_exponent": chosen.strong}
    assert told["compare_preference"] is not None
    compared = service.first.run.evaluate().compared
    assert list(told["metrics"]["compared"]) == ["likely", "default", "strong"]
    for order, figures in told["metrics"]["compared"].items():
        assert figures["MRR"] == pytest.approx(compared[order].all.mrr)
        assert figures.keys() == told["metrics"]["figures"].keys()
    assert told["metrics"]["figures"] == told["metrics"]["compared"]["default"]
    plain = client_of(plain_service).get("/api/run").json()
    assert (plain["preference"], plain["compare_preference"], plain["metrics"]["compared"]) == (None, None, {})


@pytest.mark.parametrize("prefer", [None, "likely", "strong", 0, 0.25, 0.6, 1])
def test_predict_is_the_answer_of_the_run(client, service, prefer) -> None:
    told = client.post("/api/predict", json=QUESTION | {"prefer": prefer}).json()
    expected = service.first.run.predict(head=ENTITY, relation=RELATION, top=8, prefer=prefer)
    assert rows(told["links"]) == rows(expected.to_dicts())
    assert told["ordered_by"] == expected.ordered_by


@pytest.mark.parametrize("prefer", [None, "likely", "strong", "0.6"])
def test_missing_links_are_those_of_discover(client, service, prefer) -> None:
    asked = {"entity": ENTITY, "relation": RELATION, "direction": "out", "top": 8}
    told = client.get("/api/missing", params=asked | ({} if prefer is None else {"prefer": prefer})).json()
    share = float(prefer) if prefer == "0.6" else prefer
    expected = service.first.run.discover([ENTITY], [RELATION], top=8, rerank=200, prefer=share)
    assert rows(told["links"]) == rows(expected.to_dicts())
    assert told["ordered_by"] == expected.ordered_by


def test_missing_links_of_both_directions_are_in_one_order(service) -> None:
    run = service.first.run
    for prefer in ("likely", 0.5, "strong"):
        found = missing(service, prefer, relation="knows", top=20)
        assert {link.head == ENTITY for link in found} == {True, False}
        relation = np.full(len(found), run.graph.relations.find("knows"))
        weight = run.weight_model.normalizer.transform(np.array([link.weight_mean for link in found]), relation)
        keys = [link.probability for link in found] * np.maximum(weight, 1e-3) ** run.exponent(prefer)
        assert keys.tolist() == pytest.approx(sorted(keys, reverse=True))


def test_probability_of_a_link_does_not_depend_on_the_order(service) -> None:
    chances: dict[tuple, list[float]] = {}
    for prefer in ("likely", None, 0.7, "strong"):
        answers = service.first.predict(Question(**QUESTION | {"top": 50}, prefer=prefer))
        lacks = missing(service, prefer, top=100)
        for link in (*answers.links, *lacks):
            chances.setdefault((link.head, link.relation, link.tail), []).append(link.probability)
    assert len(chances) > 50
    assert max(len(values) for values in chances.values()) > 2
    for values in chances.values():
        assert values == pytest.approx([values[0]] * len(values), rel=1e-12)


@pytest.mark.parametrize("prefer", [2, -0.5, "best", "0.5", True, [], {}, float("nan")])
def test_invalid_preference_is_one_clear_problem(client, prefer) -> None:
    for path in ("predict", "compare"):
        content, headers = json.dumps(QUESTION | {"prefer": prefer}).encode(), {"content-type": "application/json"}
        answer = client.post(f"/api/{path}", content=content, headers=headers)
        assert answer.status_code == 422
        message = "prefer: give 'likely', 'strong', or a number from 0 (likely) to 1 (strong)"
        assert answer.json()["error"] == message
    if isinstance(prefer, int | float | str) and prefer not in ("0.5", True):
        answer = client.get("/api/missing", params={"entity": ENTITY, "prefer": str(prefer)})
        assert (answer.status_code, answer.json()["error"]) == (422, message)


def test_run_without_a_weight_model_refuses_to_prefer_strong(plain_service) -> None:
    plain = client_of(plain_service)
    answers = [
        plain.post("/api/predict", json=QUESTION | {"prefer": "strong"}),
        plain.get("/api/missing", params={"entity": ENTITY, "prefer": "0.5"}),
    ]
    for answer in answers:
        assert answer.status_code == 409
        assert answer.json()["error"].startswith("prefer: the run has no weight model")
        assert "\n" not in answer.json()["error"]
    assert plain.post("/api/predict", json=QUESTION | {"prefer": "likely"}).json()["ordered_by"] == "probability"


def test_compare_asks_only_runs_with_a_weight_model_for_strong(run_folders, plain_folder) -> None:
    service = serving(run_folders[0], plain_folder)
    told = client_of(service).post("/api/compare", json=QUESTION | {"prefer": "strong"}).json()
    strong = service.first.run.predict(head=ENTITY, relation=RELATION, top=8, prefer="strong")
    plain = service.second.run.predict(head=ENTITY, relation=RELATION, top=8)
    assert rows(told["first"]["links"]) == rows(strong.to_dicts())
    assert rows(told["second"]["links"]) == rows(plain.to_dicts())
    assert (told["first"]["ordered_by"], told["second"]["ordered_by"]) == (strong.ordered_by, "probability")


def test_compare_asks_both_runs_for_the_same_preference(client, service) -> None:
    told = client.post("/api/compare", json=QUESTION | {"prefer": 1}).json()
    for place, explorer in (("first", service.first), ("second", service.second)):
        expected = explorer.run.predict(head=ENTITY, relation=RELATION, top=8, prefer="strong")
        assert rows(told[place]["links"]) == rows(expected.to_dicts())


# ---- the page -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def visit(browser, service, start_server):
    from focuse.explorer.app import make_app

    with start_server(make_app(service)) as url:
        browser.set_window_size(1280, 1000)
        yield Visit(browser, url)


def shown(visit) -> list[tuple[str, str]]:
    """The tails and probabilities in the table of answers."""
    visit.settled()
    code = """return [...document.querySelectorAll('#answers tbody tr')].map(row => [
        row.querySelectorAll('.name')[1].textContent, row.querySelector('.probability span').textContent])"""
    return [tuple(row) for row in visit.script(code)]


def expected(service, prefer) -> list[tuple[str, str]]:
    found = service.first.run.predict(head=ENTITY, relation=RELATION, top=8, prefer=prefer)
    return [(row.tail, as_percent(row.probability)) for row in found]


def as_percent(value: float) -> str:
    if 0.99 < value < 1:
        return ">99 %"
    return "<1 %" if 0 < value < 0.01 else f"{int(value * 100 + 0.5)} %"


@in_browser
def test_slider_reorders_the_answers(visit, service) -> None:
    from selenium.webdriver.common.keys import Keys

    likely, strong, usual = (expected(service, prefer) for prefer in ("likely", "strong", None))
    assert likely != strong
    visit.open(f"#/ask{ASKED}")
    slider = visit.one(".prefer input")
    run = service.first.run
    assert float(slider.get_attribute("value")) == pytest.approx(run.preference.default, abs=0.005)
    assert slider.get_attribute("aria-valuetext").endswith("the default")
    assert visit.one(".prefer").text.split()[:2] == ["likely", "strong"]
    assert shown(visit) == usual
    assert not visit.one(".reset").is_displayed()

    visit.script("document.querySelector('.prefer input').focus()")
    visit.keys(Keys.END)
    visit.wait(lambda: "prefer=1" in visit.browser.current_url)
    assert shown(visit) == strong
    assert slider.get_attribute("aria-valuetext") == "strong"
    assert visit.script("return document.activeElement.matches('.prefer input')")  # the next key moves it, too
    assert f"weight{run.preference.strong:g}" in visit.one("#answers .order").text
    visit.keys(Keys.ARROW_LEFT)
    visit.wait(lambda: "prefer=0.99" in visit.browser.current_url)
    assert slider.get_attribute("aria-valuetext") == "strong: 0.99"
    assert shown(visit) == expected(service, 0.99)
    visit.keys(Keys.HOME)
    visit.wait(lambda: "prefer=0&" in visit.browser.current_url + "&")
    assert shown(visit) == likely
    assert slider.get_attribute("aria-valuetext") == "likely"
    assert visit.one("#answers .order").text == "Ordered by probability"

    visit.one(".reset").click()
    visit.wait(lambda: "prefer" not in visit.browser.current_url)
    assert shown(visit) == usual
    assert visit.script("return document.activeElement.matches('.prefer input')")


@in_browser
def test_slider_is_moved_by_the_pointer_and_asks_once(visit, service) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    visit.open(f"#/ask{ASKED}")
    count = "window.fetch = (...question) => { window.asked++; return ask(...question) }"
    visit.script(f"const ask = window.fetch; window.asked = 0; {count}")
    slider = visit.one(".prefer input")
    width = slider.rect["width"]
    drag = ActionChains(visit.browser).move_to_element(slider).click_and_hold()
    for _ in range(8):
        drag = drag.move_by_offset(int(width / 12), 0)
    drag.release().perform()
    visit.wait(lambda: slider.get_attribute("value") == "1" and "prefer=1" in visit.browser.current_url)
    visit.wait(lambda: shown(visit) == expected(service, "strong"))
    assert visit.script("return window.asked") == 1


@in_browser
def test_address_keeps_the_preference(visit, service) -> None:
    visit.open(f"#/ask{ASKED}&prefer=strong")
    assert visit.one(".prefer input").get_attribute("value") == "1"
    assert shown(visit) == expected(service, "strong")
    visit.script("document.querySelector('form.ask input[type=number]').value = 3")
    visit.one("form.ask .primary").click()  # another question in the same order
    visit.wait(lambda: len(shown(visit)) == 3)
    assert "prefer=1" in visit.browser.current_url
    assert shown(visit) == expected(service, "strong")[:3]
    visit.browser.back()
    visit.wait(lambda: len(shown(visit)) == 8)
    for wrong in ("2", "x", "", "-1"):
        visit.open(f"#/ask{ASKED}&prefer={wrong}")
        assert visit.one(".prefer output").text.endswith("(default)")


@in_browser
def test_slider_orders_missing_links_and_both_compared_runs(visit, service) -> None:
    from selenium.webdriver.common.keys import Keys

    def names() -> list[str]:
        visit.settled()
        return [link.text for link in visit.all("#missing .name")]

    def expected_names(prefer) -> list[str]:
        ends = [link.tail if link.head == ENTITY else link.head for link in missing(service, prefer)]
        return [" ".join(name.split()) for name in ends]  # a browser shows a tab as a blank

    visit.open(f"#/entity/{quote(ENTITY)}")
    assert names() == expected_names(None)
    visit.script("document.querySelector('.prefer input').focus()")
    visit.keys(Keys.END)
    visit.wait(lambda: visit.browser.current_url.endswith("?prefer=1"))
    assert names() == expected_names("strong")
    visit.open(f"#/compare{ASKED}")
    assert len(visit.all(".prefer")) == 1
    visit.script("document.querySelector('.prefer input').focus()")
    visit.keys(Keys.END)
    exponents = [one.run.preference.strong for one in (service.first, service.second)]
    orders = [f"Ordered by probability · weight{exponent:g}" for exponent in exponents]
    visit.wait(lambda: [note.text for note in visit.all(".side .order")] == orders)
    visit.settled()
    code = """return [...document.querySelectorAll('#comparison > .scroll tbody tr')].map(row =>
        [0, 1, 4].map(column => (row.cells[column].querySelector('.name') ?? row.cells[column]).textContent))"""
    compared = visit.script(code)
    for column, explorer in ((1, service.first), (2, service.second)):
        ranks = {row[column]: row[0] for row in compared}
        found = explorer.run.predict(head=ENTITY, relation=RELATION, top=8, prefer="strong")
        assert [ranks[f"#{row.rank}"] for row in found] == [row.tail for row in found]


@in_browser
@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_slider_fits_on_a_narrow_screen(visit, scheme) -> None:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    visit.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    visit.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        for address in (f"#/ask{ASKED}&prefer=0.33", f"#/entity/{quote(ENTITY)}?prefer=0.33", f"#/compare{ASKED}"):
            visit.open(address)
            assert visit.one(".prefer input").rect["width"] >= 80
            assert visit.script("return document.documentElement.scrollWidth") <= 390
            ends = visit.script(
                "return [...document.querySelectorAll('.prefer, .prefer *')].map(e => e.getBoundingClientRect().right)"
            )
            assert max(ends) <= 390
    finally:
        visit.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        visit.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@in_browser
def test_run_without_a_weight_model_has_no_slider(browser, plain_service, run_folders, start_server) -> None:
    from focuse.explorer.app import make_app

    with start_server(make_app(plain_service)) as url:
        alone = Visit(browser, url)
        for address in (f"#/ask{ASKED}&prefer=1", f"#/entity/{quote(ENTITY)}?prefer=1"):
            alone.open(address)
            assert alone.all("tbody tr")
            assert not alone.all(".problem")
            assert not alone.all(".prefer")
            assert alone.one(".order").text == "Ordered by probability"
