"""Runs the manual's notebooks and keeps what they print: `python docs/tools/notebooks.py [name …]`.

Each runs in an empty folder of its own. What names a folder of this machine is no output to keep, and stops it.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"
LARGEST = 200_000  # bytes
OF_A_MACHINE = re.compile(r"/(home|tmp|root|work|Users)/|[A-Z]:\\\\")


def executed(path: Path) -> str:
    """The notebook with the outputs of a fresh run, as text."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": folder}}).execute()
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [kept(output) for output in cell.outputs if kept(output) is not None]
    notebook.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    }
    text = nbformat.writes(notebook) + "\n"
    check(path, text)
    return text


def kept(output: nbformat.NotebookNode) -> nbformat.NotebookNode | None:
    """An output without what only a running kernel needs; progress on stderr is none."""
    if output.output_type == "stream":
        return output if output.name == "stdout" else None
    output.metadata = {}
    data = output.get("data", {})
    if "image/png" in data:
        output.data = {"image/png": data["image/png"]}
    return output


def check(path: Path, text: str) -> None:
    """Stop at what must not be kept."""
    found = OF_A_MACHINE.search(text)
    if found:
        sys.exit(f"{path.name}: an output names a place of this machine: {text[found.start() - 60 : found.end() + 60]}")
    if len(text.encode()) > LARGEST:
        sys.exit(f"{path.name}: {len(text.encode()):,} bytes; keep outputs below {LARGEST:,}")


def main(names: list[str]) -> None:
    """Run those of these names, or all."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.stem in names:
            path.write_text(executed(path), encoding="utf-8")
            print(path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
