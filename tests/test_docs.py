"""README, manual and examples: every command and every Python block runs."""

import os
import re
import shlex
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import forked
import numpy as np
import pytest

from focuse.data.datasets import careers

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
# Up to half a minute each, and what they show has quicker tests of its own; `make check-all` runs them.
LONG = ("columns", "confidence", "discovery", "evaluation", "getting_started", "intervals", "prediction")
LONG += ("probabilities", "ukge", "neural", "explorer", "report", "uncertain", "explanations", "numbers", "extend")
LONG += ("likely_strong",)
RUN = [pytest.param(page, marks=pytest.mark.slow if page.stem in LONG else []) for page in PAGES]
WHOLE = ("README", "rules", "ukge")  # pages that need every edge of the careers graph
# What a reader runs in a clone of the project, not in a folder of their own.
IN_THE_CLONE = ("make ", "git ", "cd ", "pip ")


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in BLOCK.finditer(page.read_text(encoding="utf-8"))]


def run(command: list[str], folder: Path) -> str:
    if command[0] == "focuse":
        done = forked.run(["-m", *command], folder)
    elif command[0] == sys.executable:
        done = forked.run(command[1:], folder)
    else:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        env = {**os.environ, "PATH": path}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    """Python blocks that follow one another are one program, as a reader would type them."""
    if page.stem == "pykeen":
        pytest.importorskip("pykeen")
    graph = careers()
    if page.stem not in WHOLE:
        graph = graph.select(np.arange(0, len(graph), 3))  # the same, sooner
    if page != PAGES[0]:  # the README begins with an empty folder
        graph.write(tmp_path / "careers.tsv")
    printed = {}
    for language, group in groupby(blocks(page), key=lambda block: block[0]):
        text = "\n".join(block for _, block in group)
        if language == "python":
            run([sys.executable, "-c", text], tmp_path)
        for line in text.splitlines() if language == "sh" else ():
            command = shlex.split(line, comments=True)
            if command and not line.startswith(IN_THE_CLONE):
                printed[shlex.join(command)] = run(command, tmp_path)
    if page == PAGES[0]:
        shown = next(text for _, text in blocks(page) if text.startswith("runs/careers: "))
        assert without_figures(printed["focuse train careers.tsv"]) == without_figures(shown)


def without_figures(text: str) -> str:
    """Return what a training printed without numbers and names of new links, which another machine may round."""
    text = re.sub(r"^  .* \| .* \| .*  |(?<=--head ).*(?= --relation)", "…", text, flags=re.MULTILINE)
    return re.sub(r"[\d.,]*\d", "0", text)


def test_documentation_has_blocks_to_run() -> None:
    kinds = [language for page in PAGES for language, _ in blocks(page)]
    assert kinds.count("python") >= 6
    assert kinds.count("sh") >= 4


LONG_EXAMPLES = ("weights", "explain", "discover", "pykeen_pipeline")
EXAMPLES = [
    pytest.param(path, marks=pytest.mark.slow if path.stem in LONG_EXAMPLES else [])
    for path in sorted((ROOT / "examples").glob("*.py"))
]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(path: Path, tmp_path: Path) -> None:
    assert run([sys.executable, str(path)], tmp_path).strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_have_targets(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_readme_names_the_test_command_that_ci_runs() -> None:
    assert "make test" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
