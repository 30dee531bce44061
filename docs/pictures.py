"""The manual's pictures of the explorer: two short trainings on the careers graph, a headless Chromium, four PNGs.

python docs/pictures.py            # writes docs/images/explorer*.png
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import focuse
from focuse.data.datasets import careers

IMAGES = Path(__file__).parent / "images"
WIDE, NARROW = (1360, 1180), (390, 1500)
ENTITY, RELATION = "Site Reliability Engineer", "requires skill"


@contextmanager
def served(run: Path, compare: Path) -> Iterator[str]:
    """The address of a server that stops at the end."""
    command = [sys.executable, "-m", "focuse", "serve", run, "--compare", compare, "--port", "0", "--json"]
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        assert process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            text += process.stdout.readline()
        try:
            yield json.loads(text)["url"]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(10)


def shoot(url: str, out: Path, dark: bool) -> None:
    from selenium import webdriver
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--hide-scrollbars", "--force-device-scale-factor=1"):
        options.add_argument(flag)
    driver = shutil.which("chromedriver")  # else selenium looks for one elsewhere
    service = webdriver.ChromeService(driver) if driver else None
    with webdriver.Chrome(options=options, service=service) as browser:
        if dark:
            features = [{"name": "prefers-color-scheme", "value": "dark"}]
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

        def show(address: str, size: tuple[int, int], ready: str) -> None:
            metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 700}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            browser.get("about:blank")
            browser.get(url + address)
            settled(ready)

        def settled(ready: str) -> None:
            WebDriverWait(browser, 120).until(lambda page: page.find_elements(By.CSS_SELECTOR, ready))
            WebDriverWait(browser, 120).until(
                lambda page: not page.find_elements(By.CSS_SELECTOR, "[aria-busy], .notice:not([hidden])")
            )

        entity = f"#/entity/{quote(ENTITY)}"
        show(entity, WIDE, "#missing tbody tr")
        save(browser.get_screenshot_as_png(), out / "explorer.png")
        browser.find_element(By.CSS_SELECTOR, "#missing .why").click()
        settled("#panel[open] .explanation > *:not(.loading)")
        browser.execute_script("return new Promise(done => setTimeout(done, 400))")
        save(browser.get_screenshot_as_png(), out / "explorer-explain.png")
        show(f"#/compare?head={quote(ENTITY)}&relation={quote(RELATION)}&top=12", (1360, 1000), "#comparison tbody tr")
        save(browser.get_screenshot_as_png(), out / "explorer-compare.png")
        show(entity, NARROW, "#missing tbody tr")
        save(browser.get_screenshot_as_png(), out / "explorer-narrow.png")


def save(png: bytes, path: Path) -> None:
    """In 256 colours: a third of the size, and nobody sees it."""
    from PIL import Image

    image = Image.open(io.BytesIO(png)).convert("RGB")
    image.quantize(256, kmeans=3, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=IMAGES)
    parser.add_argument("--runs", type=Path, help="keep the two runs here, and take them from here the next time")
    parser.add_argument("--dark", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        runs = options.runs or Path(temporary)
        trained = {
            "focused": {"model": "complex", "dim": 100},
            "plain": {"model": "distmult", "dim": 100, "weight_mode": "none"},
        }
        for name, settings in trained.items():
            if not (runs / name).exists():
                focuse.train(careers(), out=runs / name, epochs=60, seed=0, progress=False, **settings)
        with served(runs / "focused", runs / "plain") as url:
            shoot(url, options.out, options.dark)


if __name__ == "__main__":
    main()
