"""Docstrings for the reference: examples (>>> …) are blocks of Python, which plain Markdown takes for quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)


class Examples(griffe.Extension):
    """Fences around every example of a docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every module, class and function that was read."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    r"""Examples within fences, without the notes to doctest.

    >>> fenced("One.\n\n>>> 1 + 1\n2\n").count("```")
    2
    """
    without = re.sub(r"\s*# doctest: .*", "", text)
    without = without.replace("] [", "] \\[")  # two shapes in a row, no link
    return EXAMPLE.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```", without)
