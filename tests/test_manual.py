"""The manual as a whole: navigation, links, pictures, and a site that builds."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import typer

from focuse.cli.main import app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "tools" not in path.parts)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
# Pages of the site that are made while it is built.
MADE = {"changelog.md", "contributing.md", "security.md", "reference/commands.md"}


def tool(name: str) -> ModuleType:
    """A module of docs/tools, which is no package."""
    spec = importlib.util.spec_from_file_location(f"manual_{name}", DOCS / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def name_of(path: Path) -> str:
    return path.relative_to(DOCS).as_posix()


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """What headings are called in links, on a code forge as on the site."""
    headings = re.findall(r"^#+ (.+)$", CODE.sub(lambda match: match[0].replace("\n#", "\n"), read(page)), re.MULTILINE)
    plain = [re.sub(r"`|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


# ---- pages ----------------------------------------------------------------------------------------------------------


def navigation() -> list[str]:
    return re.findall(r"^ +- [^#\n]*?: (\S+\.md)$", read(ROOT / "mkdocs.yml"), re.MULTILINE)


def test_navigation_lists_exactly_the_pages() -> None:
    notebooks = {f"notebooks/{path.stem}.md" for path in (DOCS / "notebooks").glob("*.ipynb")}
    there = {name_of(page) for page in PAGES} - {"README.md"}
    listed = navigation()
    assert len(listed) == len(set(listed))
    assert set(listed) == there | notebooks | MADE, "mkdocs.yml: give every page of docs/ its line in nav"


def test_index_links_to_every_page() -> None:
    index = read(DOCS / "README.md")
    assert [page.name for page in sorted(DOCS.glob("*.md")) if f"]({page.name})" not in index] == ["README.md"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_anchors_have_targets(page: Path) -> None:
    text = CODE.sub("", read(page))
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), target
        made_up = anchor.startswith("focuse.")  # of the reference, checked by the strict build
        assert not anchor or made_up or anchor in anchors(path), f"{target}#{anchor}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent != DOCS], ids=name_of)
def test_commands_are_only_on_pages_that_are_run(page: Path) -> None:
    """tests/test_docs.py runs the blocks of docs/*.md; folders below are not run."""
    assert not re.findall(r"^```(python|sh)$", read(page), re.MULTILINE)


def test_pictures_have_descriptions_and_are_used() -> None:
    texts = [read(page) for page in [*PAGES, ROOT / "README.md"]]
    shown = [found for text in texts for found in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", text)]
    assert all(len(words) > 8 for words, _ in shown), "say in words what a picture shows"
    used = {Path(target).name for _, target in shown}
    assert {path.name for path in (DOCS / "images").iterdir()} <= used


def test_every_command_has_a_page() -> None:
    words = [*tool("hooks").commands()]
    assert "train" in words
    assert "rules mine" in words
    pages = "\n".join(read(page) for page in DOCS.glob("*.md"))
    for command in words:
        inner: Any = typer.main.get_command(app)
        for part in command.split():
            inner = inner.commands[part]
        assert re.search(rf"\bfocuse {command}\b", pages), f"no page mentions `focuse {command}`"


def test_api_names_linked_from_pages_exist() -> None:
    line_of, links = tool("hooks").line_of, 0
    for page in PAGES:
        for name, target in re.findall(r"\[`([A-Za-z_][\w.]*)`\]\(([^)\s#]+\.py)\)", read(page)):
            if not name.endswith(".py"):
                links += 1
                assert line_of(name, page.parent / target), f"{name_of(page)}: {target} has no {name}"
    assert links >= 15


def test_documented_error_messages_exist_in_the_code() -> None:
    code = re.sub(r'"\s*\n\s*f?"', "", "\n".join(read(path) for path in (ROOT / "src").rglob("*.py")))
    rows = re.findall(r"^\| ([^|]+) \|", read(DOCS / "howto.md").split("## Something went wrong")[1], re.MULTILINE)
    for row in rows[2:]:
        for part in re.split(r"…", row):
            words = part.strip(" ()?:")
            assert words in code or words.replace("entity", "{kind}") in code, words
    assert len(rows) >= 6


def test_page_of_settings_is_up_to_date() -> None:
    assert read(DOCS / "reference" / "settings.md") == tool("settings").settings_page()


# ---- what the site is made of -------------------------------------------------------------------------------------


def test_links_to_source_files_become_pages_of_code() -> None:
    hooks = tool("hooks")
    given = (
        "[a](../src/focuse/objective/focuse.py) [b](graphs.md#splits) [c](notebooks/proteins.ipynb) [d](https://x.org)"
    )
    made = hooks.redirect(given, DOCS, "concepts.md")
    assert (
        made
        == "[a](code/src/focuse/objective/focuse.py.md) [b](graphs.md#splits) [c](notebooks/proteins.md) [d](https://x.org)"
    )
    assert hooks.redirect("[a](../CHANGELOG.md)", DOCS, "reference/x.md") == "[a](../changelog.md)"
    html = '<a href="code/src/focuse/objective/focuse.py.html"><code>FocusELayer.beta</code></a>'
    line = int(re.search(r"#__span-0-(\d+)", hooks.on_page_content(html))[1])  # type: ignore[index]
    assert "def beta" in read(ROOT / "src/focuse/objective/focuse.py").splitlines()[line - 1]


def test_notebook_is_converted_to_a_page() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "words"]},
        {
            "cell_type": "code",
            "source": ["print(1)"],
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["1\n"]},
                {"output_type": "display_data", "data": {"image/png": "iVBO"}},
            ],
        },
    ]
    page = tool("hooks").notebook_page({"cells": cells})
    expected = "# Title\nwords\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n"
    assert page == expected + "![what the cell draws](data:image/png;base64,iVBO)\n"


# ---- numbers behind pictures ---------------------------------------------------------------------------------------


def test_curves_follow_the_equations() -> None:
    curves = tool("curves")
    weight, f = np.linspace(0, 1, 11), np.linspace(-5, 5, 21)
    for beta in curves.BETAS:
        up, down = curves.factors(weight, beta)
        np.testing.assert_allclose(up, beta + (1 - weight) * (1 - beta), atol=1e-12)
        np.testing.assert_allclose(down, beta + weight * (1 - beta), atol=1e-12)
    np.testing.assert_allclose(curves.softplus(f)["shifted-softplus"], np.log(1 + 9999 * np.exp(f)))
    np.testing.assert_allclose(curves.labels(weight)[4.0], weight**4)


def test_gradients_shown_are_slopes_of_the_loss() -> None:
    """By differences: the loss of equations 2 to 5 in NumPy, with one score moved a little."""
    curves = tool("curves")
    negative, step, epoch = curves.rivals().numpy()[0], 1e-6, 60

    def loss(positive: float, others: np.ndarray, w: float) -> float:
        beta = 1 - epoch / curves.DECAY
        h = (beta + (1 - w) * (1 - beta)) * np.log1p(np.exp(positive))
        rivals = (beta + w * (1 - beta)) * np.log1p(np.exp(others))
        return float(np.log(np.exp(h) + np.exp(rivals).sum()) - h)

    up, down = curves.pulls(curves.WEIGHTS, epoch + 1)
    for place, w in enumerate(curves.WEIGHTS):
        slope = (loss(1 + step, negative, w) - loss(1 - step, negative, w)) / (2 * step)
        pushed = (loss(1, negative + step, w) - loss(1, negative - step, w)) / (2 * step)
        np.testing.assert_allclose([up[epoch, place], down[epoch, place]], [-slope, pushed], rtol=1e-5)


def test_probabilities_converge_to_their_soft_labels() -> None:
    curves = tool("curves")
    shares = curves.followed((0.1, 0.5, 0.9), 400, "label")
    np.testing.assert_allclose(shares[-1], [0.1, 0.5, 0.9], atol=0.01)
    f, others = np.linspace(-2, 8, 5), np.exp(curves.rivals().numpy()).sum()
    p = np.exp(f) / (np.exp(f) + others)
    np.testing.assert_allclose(curves.slopes(f, (0.25, 1.0)), np.stack([p - 0.25, p - 1.0], axis=1), atol=1e-9)


@pytest.mark.slow
def test_pictures_of_the_layer_are_up_to_date(tmp_path: Path) -> None:
    command = [sys.executable, str(DOCS / "tools" / "figures.py"), "--quick", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    number = re.compile(r"-?\d+\.\d+")
    for path in tmp_path.iterdir():
        old, new = (np.array(number.findall(read(file)), float) for file in (DOCS / "images" / path.name, path))
        np.testing.assert_allclose(old, new, atol=0.01)
    assert len(list(tmp_path.iterdir())) >= 10


# ---- the site --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_site_builds_without_warnings_or_external_resources(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    fetched = re.compile(r"<(?:script|img|iframe|source)[^>]+src=\"?(?:https?:)?//|<link[^>]+href=\"?(?:https?:)?//")
    for page in pages:
        assert not fetched.search(read(page)), page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import\s*)[\"']?(?:https?:)?//", read(sheet)), sheet


@pytest.mark.slow
def test_site_has_search_and_api_reference(site: Path) -> None:
    index = json.loads(read(site / "search" / "search_index.json"))
    assert any("label_exponent" in entry["text"] for entry in index["docs"])
    face = read(site / "reference" / "index.html")
    for name in ("focuse.api.train", "focuse.api.Run.predict", "focuse.data.readers.read"):
        assert f'id="{name}"' in face
    commands = read(site / "reference" / "commands.html")
    assert 'id="focuse-rules-mine"' in commands
    assert "--label-exponent" in commands
    assert "data:image/png" in read(site / "notebooks" / "proteins.html")


@pytest.mark.slow
def test_search_works_without_a_server(site: Path) -> None:
    """In a browser, without a server: a word is typed, and results appear."""
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.support.expected_conditions import element_to_be_clickable
    from selenium.webdriver.support.ui import WebDriverWait

    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,900"):
        options.add_argument(argument)
    try:
        browser = webdriver.Chrome(options=options)
    except WebDriverException:
        pytest.skip("no browser here")
    try:
        browser.get((site / "index.html").as_uri())
        field = WebDriverWait(browser, 60).until(element_to_be_clickable(("css selector", ".md-search__input")))
        field.click()
        field.send_keys("label_exponent")
        WebDriverWait(browser, 60).until(
            lambda page: page.execute_script("return document.querySelectorAll('.md-search-result__item').length") > 2
        )
    finally:
        browser.quit()
