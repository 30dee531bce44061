"""FOCUSE_SPREADSHEET=1: no command writes a cell that a spreadsheet would run, whatever names there are."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import focuse

SIGNS = ["=cmd|'/c calc'!A", "+1", "-1+", "@SUM", '"=quoted"', "＝", "=a,=b;"]  # what names begin with


@pytest.fixture(scope="module")
def odd(tmp_path_factory) -> Path:
    """A folder with a graph of such names alone, files that ask about them, and a run."""
    folder, random = tmp_path_factory.mktemp("odd"), np.random.default_rng(0)
    names = [f"{SIGNS[i % len(SIGNS)]}{i}" for i in range(28)]
    pairs = sorted({(int(a), int(b)) for a, b in random.integers(0, 28, (260, 2)) if a != b})
    rows = [
        (names[a], "=knows" if (a + b) % 2 else "@likes", names[b], round((a * b % 19 + 1) / 20, 2)) for a, b in pairs
    ]
    focuse.read(rows).write(folder / "graph.tsv")
    focuse.read(rows[:9]).write(folder / "some.tsv")
    two = ["\t".join(["head", "relation", "tail", "=first", "+second"])]
    two += ["\t".join([*row[:3], str(row[3]), str(1 - row[3])]) for row in rows]
    (folder / "two.tsv").write_text("\n".join(two), encoding="utf-8")
    (folder / "asked.tsv").write_text(f"{rows[0][0]}\t{rows[0][1]}\t?\n?\t@likes\t{rows[1][2]}\n", encoding="utf-8")
    (folder / "back.rules").write_text('"=knows"(x, y) -> "=knows"(y, x) : 0.9\n', encoding="utf-8")
    focuse.train(rows, dim=4, epochs=2, label_exponent=1, progress=False, out=folder / "run")
    return folder


def asked(folder: Path) -> dict[str, list[str]]:
    """Every command that writes tables, without its --out."""
    run, graph = str(folder / "run"), str(folder / "graph.tsv")
    first = focuse.read(graph)
    a, b, c = (first.entities[place] for place in (first.head[0], first.tail[0], first.head[-1]))
    return {
        "predict": ["predict", run, "--head", a, "--relation", "=knows"],
        "predict of a file": ["predict", run, "--queries", str(folder / "asked.tsv")],
        "discover": ["discover", run, "--top", "9", "--quiet"],
        "predict-weights": ["predict-weights", run, str(folder / "some.tsv")],
        "neighbours": ["similar", run, "--", a, b],
        "duplicates": ["duplicates", run, "--similarity", "0", "--overlap", "0", "--names"],
        "clusters": ["clusters", run, "--count", "3"],
        "analogies": ["analogies", run, "--method", "offset", "--", a, b, c],
        "export": ["export", run, "--what", "entities"],
        "export of relations": ["export", run, "--what", "relations"],
        "convert": ["convert", graph],
        "convert several weights": ["convert", str(folder / "two.tsv"), "--weight-columns", "=first,+second"],
        "rules ground": ["rules", "ground", graph, str(folder / "back.rules")],
    }


def cells(path: Path) -> list[str]:
    """As a spreadsheet reads them, which takes quotes for quotes in TSV, too."""
    with path.open(encoding="utf-8", newline="") as file:
        return [cell for row in csv.reader(file, delimiter="," if path.suffix == ".csv" else "\t") for cell in row]


def runs(cell: str) -> bool:
    """Whether a spreadsheet runs it; a number it only reads."""
    try:
        float(cell)
    except ValueError:
        return cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"))
    return False


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.slow
def test_no_command_writes_a_formula(inside, odd, suffix, tmp_path, monkeypatch):
    for name, words in asked(odd).items():
        found = []
        for safe in ("", "1"):
            monkeypatch.setenv("FOCUSE_SPREADSHEET", safe)
            out = tmp_path / f"{name}{safe}{suffix}"
            options, dashes, names = (list(part) for part in _parted(words))
            inside(*options, *([str(out)] if words[0] == "convert" else ["--out", str(out)]), *dashes, *names)
            found.append(cells(out))
        assert any(map(runs, found[0])), name  # else nothing would be shown by this
        assert not [cell for cell in found[1] if runs(cell)], name
        assert len(found[0]) == len(found[1]), name


def _parted(words: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Options before `--`, it, and names that may begin as options do."""
    if "--" not in words:
        return words, [], []
    place = words.index("--")
    return words[:place], ["--"], words[place + 1 :]


def test_labels_of_the_projector_are_escaped(inside, odd, tmp_path, monkeypatch):
    monkeypatch.setenv("FOCUSE_SPREADSHEET", "1")
    inside("export", odd / "run", "--format", "projector", "--out", tmp_path / "shown")
    found = cells(tmp_path / "shown" / "metadata.tsv")
    assert len(found) == 28
    assert not [cell for cell in found if runs(cell)]
