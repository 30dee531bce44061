"""No regular expression of the source is slow on long hostile text."""

from __future__ import annotations

import ast
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

import focuse
from focuse.data import graph as iris
from focuse.data import sniffer as diagnosis
from focuse.integrations import rdf

CALLS = {"compile", "search", "match", "fullmatch", "sub", "split", "findall", "finditer"}
PIECES = [
    "a",
    "1",
    " ",
    "\t",
    ",",
    ".",
    "-",
    "/",
    ":",
    "@",
    "?",
    "=",
    "a.",
    "1,",
    ",111",
    "a:",
    "//",
    "%41",
    "<",
    ">",
    "x@",
]
LENGTH = 1_500


def patterns() -> Iterator[tuple[str, str]]:
    """What is handed to `re`, where it stands there as text; names made of others are taken from their modules."""
    for path in sorted(Path(focuse.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS:
                if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "re" and node.args):
                    continue
                if isinstance(node.args[0], ast.Constant):
                    yield f"{path.name}:{node.lineno}", str(node.args[0].value)
    for module in (iris, rdf, diagnosis):
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                yield f"{module.__name__}.{name}", value.pattern


def late(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


@pytest.mark.skipif(not hasattr(signal, "SIGPROF"), reason="no such clock here")
def test_no_regular_expression_takes_exponential_time() -> None:
    found = dict(patterns())
    assert len(found) > 15
    before = signal.signal(signal.SIGPROF, late)
    try:
        for place, pattern in found.items():
            expression = re.compile(pattern)
            for piece in PIECES:
                for text in (piece * LENGTH, piece * LENGTH + "!", "a" + piece * LENGTH + "\n"):
                    signal.setitimer(signal.ITIMER_PROF, 5.0)
                    try:
                        expression.search(text)
                        expression.fullmatch(text)
                    except TimeoutError:
                        pytest.fail(f"{place}: {pattern!r} on {piece!r} × {LENGTH}")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
