"""Names with terminal codes: no command prints them, in text or in JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import focuse
from focuse.cli.main import app
from focuse.errors import TERMINAL_CODES, FocuseError

NAMES = ["red \x1b[31m", "title \x1b]0;owned\x07", "eight bits \x9b2J", "back\x08space", "\u202eturned", "two\nlines"]
NAMES += ["nul\x00", "return\rover", "\u2067isolated", "del\x7f", "[bold]markup[/bold]", "{{braces}}", "%s %d {0}"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: Any) -> Path:
    """Every name as an entity, two as relations."""
    rows = [
        (h, NAMES[(i + j) % 2], t, (i + 2 * j) % 7) for i, h in enumerate(NAMES) for j, t in enumerate(NAMES) if i != j
    ]
    folder = tmp_path_factory.mktemp("hostile") / "run"
    focuse.train(rows, dim=4, epochs=2, out=folder, progress=False)
    return folder


COMMANDS = [
    ["predict", "RUN", "--head", NAMES[0], "--relation", NAMES[1], "--top", "20"],
    ["discover", "RUN", "--top", "20"],
    ["explain", "RUN", "--head", NAMES[0], "--relation", NAMES[0], "--tail", NAMES[2]],
    ["similar", "RUN", NAMES[2]],
    ["clusters", "RUN"],
    ["duplicates", "RUN"],
    ["describe", "RUN"],
    ["evaluate", "RUN"],
    ["rules", "mine", "RUN"],
    ["predict", "RUN", "--head", "red \x1b[3m", "--relation", NAMES[1]],
    ["predict", "no such \x1b[31m run", "--head", "x", "--relation", "y"],
]


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_no_terminal_code_of_a_name_is_printed(run: Path, command: list[str], as_json: bool, capsys: Any) -> None:
    words = [str(run) if word == "RUN" else word for word in command]
    answer = CliRunner().invoke(app, [*words, *(["--json"] if as_json else [])], standalone_mode=False)
    shown = answer.stdout + answer.stderr
    if isinstance(answer.exception, FocuseError):
        shown += str(answer.exception)
    elif answer.exception is not None:
        raise answer.exception
    assert shown.strip()
    assert not TERMINAL_CODES.search(shown.replace("\n", "")), TERMINAL_CODES.findall(shown)
    if as_json and answer.exception is None:
        text = json.dumps(json.loads(answer.stdout))
        if command[0] in ("predict", "discover"):
            assert json.dumps(NAMES[3])[1:-1] in text  # JSON keeps the name itself
