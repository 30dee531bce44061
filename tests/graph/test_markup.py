"""XML that would blow up or look elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from focuse.errors import FocuseError
from focuse.graph import read

EDGE = '<edge source="a" target="b"/>'
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"


def documents(declared: str, used: str = "&x;") -> dict[str, str]:
    """The same declaration before GraphML and before RDF/XML."""
    graphml = f"<!DOCTYPE g [{declared}]>\n<graphml><graph>{EDGE}<edge source='{used}' target='c'/></graph></graphml>"
    about = f"<rdf:Description rdf:about='http://e.org/{used}'><e:r rdf:resource='http://e.org/b'/></rdf:Description>"
    rdf = f'<!DOCTYPE r [{declared}]>\n<rdf:RDF xmlns:rdf="{RDF}" xmlns:e="http://e.org/">{about}</rdf:RDF>'
    return {"graph.graphml": graphml, "graph.rdf": rdf}


def laughs() -> str:
    levels = ["<!ENTITY l0 'lol'>", *(f"<!ENTITY l{n} '{f'&l{n - 1};' * 10}'>" for n in range(1, 10))]
    return "".join(levels) + "<!ENTITY x '&l9;'>"


@pytest.mark.parametrize("name", ["graph.graphml", "graph.rdf"])
@pytest.mark.parametrize(
    ("declared", "told"),
    [
        (laughs(), "stands for too much"),
        ("<!ENTITY x '" + "y" * 5_000 + "'>", "stands for too much"),
        ("<!ENTITY % x 'y'>", "stands for too much"),
        ("<!ENTITY x SYSTEM 'file:///etc/passwd'>", "is another file"),
        ("<!ENTITY x PUBLIC 'p' 'http://127.0.0.1:9/x'>", "is another file"),
    ],
)
def test_what_stands_for_too_much_or_elsewhere(name: str, declared: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(documents(declared)[name], encoding="utf-8")
    with pytest.raises(FocuseError, match=told):
        read(path)


@pytest.mark.parametrize("name", ["graph.graphml", "graph.rdf"])
def test_beginnings_of_names_are_well(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(documents('<!ENTITY x "people/">', "&x;ann")[name], encoding="utf-8")
    assert any("people/ann" in entity for entity in read(path).entities)


@pytest.mark.parametrize("encoding", ["UTF2", "utf-7", "ebcdic", "rot13", "idna"])
def test_encodings_that_there_are_not(encoding: str, tmp_path: Path) -> None:
    for name, text in documents("").items():
        path = tmp_path / name
        path.write_text(f'<?xml version="1.0" encoding="{encoding}"?>\n{text}', encoding="utf-8")
        with pytest.raises(FocuseError) as caught:
            read(path)
        assert str(path) in str(caught.value)
