"""The report in a real browser: no requests, no console messages, sorting and printing."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

import focuse


@pytest.fixture(scope="module")
def page(small: focuse.Graph, tmp_path_factory: Any) -> Path:
    rows = [(r["head"], f"<script>{r['relation']}", r["tail"], r["weight"]) for r in small.to_arrow().to_pylist()]
    run = focuse.train(rows, dim=6, epochs=4, eval_every=2, label_exponent=1.0, progress=False)
    return run.report(tmp_path_factory.mktemp("page") / "page.html")


def test_report_works_in_a_browser(browser: Any, page: Path) -> None:
    browser.get_log("performance")
    browser.get(page.as_uri())
    asked = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [one["params"]["request"]["url"] for one in asked if one["method"] == "Network.requestWillBeSent"]
    assert [url for url in urls if not url.startswith("data:")] == [page.as_uri()]
    script = "return [...document.querySelectorAll('table.sortable tbody tr')].map(r => r.cells[{}].textContent)"
    for place, numeric in ((0, False), (1, True)):
        head = browser.find_elements("css selector", "table.sortable thead th button")[place]
        cells = []
        for _ in range(2):
            browser.execute_script("arguments[0].click()", head)
            shown = browser.execute_script(script.format(place))
            cells.append([float(text.replace(",", "")) for text in shown] if numeric else shown)
        assert cells[0] == cells[1][::-1]
        assert sorted(cells[0]) == cells[int(numeric)]  # words first rise, numbers first fall
        assert browser.execute_script("return arguments[0].closest('th').ariaSort", head) in ("ascending", "descending")
    assert browser.execute_script("return document.querySelectorAll('.code button').length") == 2
    for width in (1200, 390):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    printed = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Type /Page\n") > 3
    assert browser.get_log("browser") == []


def test_content_security_policy_blocks_foreign_code(browser: Any, page: Path, tmp_path: Path) -> None:
    """Were a name ever not escaped, the page's policy would still stop it."""
    text = page.read_text(encoding="utf-8")
    holed = "<script>window.bad=1</script><img src=x onerror='window.bad=1'><iframe src='javascript:1'></iframe>"
    (tmp_path / "page.html").write_text(text.replace("</h1>", f"</h1>{holed}", 1), encoding="utf-8")
    browser.get((tmp_path / "page.html").as_uri())
    assert browser.execute_script("return document.images.length") > 0
    assert browser.execute_script("return window.bad") is None
    browser.get_log("browser")
