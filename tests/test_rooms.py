"""The house's order: every room uses only what stands left of it, and stays small."""

import ast
from pathlib import Path

import pytest

import focuse

SOURCE = Path(focuse.__file__).parent
ORDER = [
    "errors",
    "signals",
    "graph",
    "datasets",
    "models",
    "focus",
    "engines",
    "evaluation",
    "training",
    "ukge",
    "inference",
    "exports",
    "reports",
    "run",
    "living",
    "pykeen",
    "experiments",
    "serve",
    "cli",
]
FILES = sorted(SOURCE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("focuse."):
            names.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("focuse.")}
    return names


@pytest.mark.parametrize("path", [path for path in FILES if room(path) in ORDER], ids=lambda path: path.stem)
def test_rooms_use_only_what_stands_left_of_them(path: Path) -> None:
    here = ORDER.index(room(path))
    assert {name for name in imported_rooms(path) if ORDER.index(name) > here} == set()


def test_every_file_belongs_to_a_room() -> None:
    assert {room(path) for path in FILES} - set(ORDER) <= {"__init__", "__main__"}


def test_graph_needs_no_torch() -> None:
    for path in (SOURCE / "graph").glob("*.py"):
        assert "torch" not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        # The command's options are a list to read, not code to follow.
        if isinstance(node, ast.FunctionDef) and node.name != "command":
            assert (node.end_lineno or 0) - node.lineno < 60, node.name
