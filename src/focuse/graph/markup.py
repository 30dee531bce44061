"""XML from elsewhere: what it declares is looked at before it is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.parsers import expat

from focuse.errors import FocuseError

ENTITY = 1_000  # letters that an XML entity may stand for; those of ontologies are beginnings of IRIs
CHUNK = 1 << 14


def check_entities(path: Path, opened: Callable[[Path], Any]) -> None:
    """Raise for entities of entities, long ones, and other files: a parser would blow a small file up, or open them."""
    begun: list[str] = []

    def declared(name: str, parameter: bool, value: str | None, *_: object) -> None:
        if value is None:
            raise FocuseError(f"{path}: the XML entity {name!r} is another file; write out what it stands for")
        if len(value) > ENTITY or "&" in value or parameter:
            raise FocuseError(f"{path}: the XML entity {name!r} stands for too much; write out what it stands for")

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = declared
    parser.StartElementHandler = lambda name, _: begun.append(name)
    with opened(path) as stream:
        while not begun and (data := stream.read(CHUNK)):
            try:
                parser.Parse(data)
            except (expat.ExpatError, LookupError, ValueError) as error:
                if begun:
                    return
                at = f", line {error.lineno}" if isinstance(error, expat.ExpatError) else ""
                told = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else error
                raise FocuseError(f"{path}{at}: not XML: {told}") from None
