"""Names as IRIs and back: those that are IRIs stay, others are minted from a base, so that nothing is lost."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

import pyarrow as pa

from focuse.errors import FocuseError

BASE = "urn:focuse:"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
XSD = "http://www.w3.org/2001/XMLSchema#"
# Narrower than the standard, so that what passes is an IRI to every parser; all else is minted, and comes back.
_LETTERS = r"A-Za-z0-9\u00c0-\u024f\u0370-\u1fff\u3041-\ud7ff"
_SAFE = rf"(?:[{_LETTERS}._~:@!$&'()*+,;=/?-]|%[0-9A-Fa-f]{{2}})"
_FIRST = rf"(?:[{_LETTERS}._~:@!$&'()*+,;=-]|%[0-9A-Fa-f]{{2}})"
_HOST = r"//[A-Za-z0-9.-]+(?::[0-9]{1,5})?(?:[/?]" + _SAFE + r"*)?"
_IRI = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*:(?:{_HOST}|{_FIRST}{_SAFE}*)(?:#{_SAFE}*)?")
_BLANK = re.compile(r"_:[A-Za-z0-9]{1,60}")
# What the parser calls a node without a label: another name each time it is read.
_UNLABELLED = re.compile(r"_:[a-f][0-9a-f]{20,31}")


def check_base(base: str) -> str:
    """A base that names can be appended to."""
    if not _IRI.fullmatch(f"{base}x"):
        raise FocuseError(f"base {base!r} is not the beginning of an IRI; give one like 'https://example.org/graph/'")
    return base


def is_iri(name: str) -> bool:
    """Whether a name is an IRI as it stands.

    >>> is_iri("http://example.org/a"), is_iri("a b"), is_iri("GO:0008150")
    (True, False, True)
    """
    return _IRI.fullmatch(name) is not None


def to_iri(name: str, base: str = BASE) -> str:
    """A name as an IRI.

    >>> to_iri("http://example.org/a"), to_iri("data science")
    ('http://example.org/a', 'urn:focuse:data%20science')
    """
    return name if is_iri(name) and not name.startswith(base) else base + quote(name, safe="")


def from_iri(iri: str, base: str = BASE) -> str:
    """The name that an IRI stands for: what `to_iri` minted is undone.

    >>> from_iri("urn:focuse:data%20science")
    'data science'
    """
    name = unquote(iri[len(base) :], errors="replace") if iri.startswith(base) else ""
    return name if name and to_iri(name, base) == iri else iri


def terms(names: pa.Array, base: str = BASE, blank: bool = True) -> pa.Array:
    """Each name as it stands in N-Triples and Turtle [n]: `<iri>`, or `_:label` where nodes may be blank."""
    listed = names.to_pylist()
    return pa.array(
        [name if blank and _BLANK.fullmatch(name) else f"<{to_iri(name, base)}>" for name in listed], pa.string()
    )


def names_of(values: pa.Array, base: str = BASE, shorten: bool = False, where: str = "") -> pa.Array:
    """Names [n] of IRIs and blank nodes; with `shorten` the last part of each, which must tell them apart."""
    listed = values.to_pylist()
    unlabelled = {value: None for value in listed if value.startswith("_:") and _UNLABELLED.fullmatch(value)}
    number = {value: f"_:unlabelled{place}" for place, value in enumerate(unlabelled, 1)}
    names = [number.get(value) or from_iri(value, base) for value in listed]
    if shorten:
        names = [last_part(name) if is_iri(name) else name for name in names]
        _tell_apart(listed, names, where)
    return pa.array(names, pa.string())


def _tell_apart(values: list[str], names: list[str], where: str) -> None:
    first: dict[str, str] = {}
    for value, name in zip(values, names, strict=True):
        if first.setdefault(name, value) != value:
            raise FocuseError(
                f"{where}: shortened, {first[name]} and {value} would both be {name!r}; read it without shorten"
            )


def last_part(iri: str) -> str:
    """What follows the last #, / or : of an IRI; all of it where nothing does.

    >>> last_part("http://example.org/terms#weight"), last_part("urn:isbn:123"), last_part("weight")
    ('weight', '123', 'weight')
    """
    return re.split(r"[#/:]", iri)[-1] or iri


def short_names(iris: Iterable[str], base: str = BASE) -> list[str]:
    """Headings for properties: the last part of each where that tells them apart."""
    names = [from_iri(iri, base) for iri in iris]
    short = [last_part(name) if is_iri(name) else name for name in names]
    apart = len(set(short)) == len(short) and not {"head", "relation", "tail"} & set(short)
    return short if apart else names
