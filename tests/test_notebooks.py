"""Notebooks of the manual: every cell runs, in order, with few epochs and without the benchmark graphs."""

import json
import re
from pathlib import Path

import forked
import pytest

FOLDER = Path(__file__).parent.parent / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 200_000
# The same in seconds: few epochs, and graphs so small that weights are predicted by curves alone.
QUICK = {
    r"^EPOCHS = \d+": "EPOCHS = 3",
    r"= careers\(\)": "= careers().select(range(0, 10_000, 12))",
    r"stand_in\(\), seed": "stand_in(80, draws=350), seed",
}


def cells(path: Path, kind: str) -> list[str]:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def quick(path: Path) -> str:
    """All code as one quick program."""
    code = "\n\n".join(cells(path, "code"))
    assert len(re.findall(r"^EPOCHS = \d+", code, re.MULTILINE)) == 1  # it says how long it trains in one line
    for found, instead in QUICK.items():
        code = re.sub(found, instead, code, flags=re.MULTILINE)
    return code


def test_every_expected_notebook_exists() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["common_sense", "proteins", "workforce"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_run_in_order(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nothing").mkdir()
    nowhere = {"FOCUSE_DATA": str(tmp_path / "nothing"), "FOCUSE_CACHE": str(tmp_path / "nothing")}
    for name, value in {**nowhere, "MPLBACKEND": "Agg"}.items():
        monkeypatch.setenv(name, value)
    done = forked.run(["-c", quick(path)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "stand-in" in done.stdout or "toy" in done.stdout or "careers" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)  # of a large graph the first question about weights takes minutes
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_run_in_a_kernel(path: Path, tmp_path: Path) -> None:
    """As a reader runs them, with the benchmark graphs where FOCUSE_DATA names their folder."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        cell.source = re.sub(r"^EPOCHS = \d+", "EPOCHS = 3", cell.source, flags=re.MULTILINE)
    nbclient.NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(tmp_path)}}).execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_of_a_full_run_without_machine_details(path: Path) -> None:
    """`make notebooks` has run it: every cell has its number, and something was printed."""
    text = path.read_text(encoding="utf-8")
    coded = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in coded] == list(range(1, len(coded) + 1))
    assert sum(bool(cell["outputs"]) for cell in coded) >= len(coded) - 1
    assert not any(output["output_type"] == "error" for cell in coded for output in cell["outputs"])
    assert len(text.encode()) < LARGEST
    assert not re.search(r"/(home|tmp|root|work|Users)/|[A-Z]:\\\\", text)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_links_have_targets(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", "\n".join(cells(path, "markdown"))):
        assert target.startswith("http") or (FOLDER / target).exists(), target
