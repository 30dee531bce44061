"""A visitor of the explorer in a real browser."""

from __future__ import annotations

import shutil

import pytest

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
DRIVER = shutil.which("chromedriver")
SLOW = 30


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    selenium = pytest.importorskip("selenium.webdriver")
    options = selenium.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,1000"):
        options.add_argument(flag)
    downloads = tmp_path_factory.mktemp("downloads")
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with selenium.Chrome(options=options, service=selenium.ChromeService(DRIVER)) as driver:
        driver.downloads = downloads
        yield driver


class Visit:
    """What a visitor sees and does."""

    def __init__(self, browser, url: str) -> None:
        self.browser, self.url = browser, url

    def open(self, address: str) -> None:
        self.browser.get("about:blank")
        self.browser.get(self.url + address)
        self.settled()

    def all(self, selector: str):
        return self.browser.find_elements("css selector", selector)

    def one(self, selector: str):
        return self.wait(lambda: next(iter(self.all(selector)), None))

    def wait(self, found):
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.ui import WebDriverWait

        wait = WebDriverWait(
            self.browser, SLOW, poll_frequency=0.05, ignored_exceptions=[StaleElementReferenceException]
        )
        return wait.until(lambda _: found())

    def settled(self) -> None:
        self.wait(lambda: self.all("h1") and not self.all("[aria-busy], main > .loading"))

    def keys(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.browser).send_keys(*keys).perform()

    def script(self, code: str):
        return self.browser.execute_script(code)

    def heading(self) -> str:
        return self.one("h1").text
