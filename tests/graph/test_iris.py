"""Names as IRIs and back."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from focuse.errors import FocuseError
from focuse.graph.iris import BASE, check_base, from_iri, is_iri, names_of, short_names, terms, to_iri

pyoxigraph = pytest.importorskip("pyoxigraph")
NAMES = st.text(min_size=1) | st.from_regex(r"[a-z]{1,4}:(//)?[a-zA-Z0-9:%/#?@é\[\]._-]{0,12}", fullmatch=True)


@given(NAMES, st.sampled_from([BASE, "https://example.org/graph/"]))
@example("urn:focuse:a%20b", BASE)
@example("http://e:port/", BASE)
@example("a:%zz", BASE)
@example("a://[", BASE)
@example("x#y#z", BASE)
@example("a:b#c#d", BASE)
@example("_:x", BASE)
def test_every_name_comes_back_from_an_iri_that_a_strict_parser_takes(name: str, base: str) -> None:
    iri = to_iri(name, base)
    line = f"<{iri}> <{iri}> <{iri}> .".encode()
    (triple,) = pyoxigraph.parse(line, pyoxigraph.RdfFormat.N_TRIPLES)
    assert triple.subject.value == triple.predicate.value == triple.object.value == iri
    assert from_iri(triple.subject.value, base) == name


@given(st.lists(NAMES, unique=True, max_size=8))
def test_distinct_names_have_distinct_iris(names: list[str]) -> None:
    assert len({to_iri(name) for name in names}) == len(names)


def test_what_is_an_iri_stays() -> None:
    for iri in ("http://example.org/a#b", "https://e.org:8080/x?y=z", "urn:isbn:0", "GO:0008150", "http://e/ä"):
        assert is_iri(iri)
        assert to_iri(iri) == iri
    for name in ("plain", "with space", "http://e/<", "1a:b", "", "a:", "x://"):
        assert not is_iri(name)


def test_blank_nodes_stay_blank_but_not_as_relations() -> None:
    names = pa.array(["_:b1", "_:not a label"])
    assert terms(names).to_pylist() == ["_:b1", "<urn:focuse:_%3Anot%20a%20label>"]
    assert terms(names, blank=False).to_pylist()[0] == "<urn:focuse:_%3Ab1>"


def test_shortened_names_must_stay_apart() -> None:
    assert names_of(pa.array(["http://e/a", "http://e#b", "_:c"]), shorten=True).to_pylist() == ["a", "b", "_:c"]
    with pytest.raises(FocuseError, match=r"f\.ttl: shortened, http://e/a and http://f/a would both be 'a'"):
        names_of(pa.array(["http://e/a", "http://f/a"]), shorten=True, where="f.ttl")


def test_headings_of_properties_are_their_last_parts_where_these_tell_them_apart() -> None:
    assert short_names(["http://e/weight", "http://e/year"]) == ["weight", "year"]
    assert short_names(["http://e/weight", "http://f/weight"]) == ["http://e/weight", "http://f/weight"]
    assert short_names(["http://e/head", "http://e/x"]) == ["http://e/head", "http://e/x"]
    assert short_names(["urn:focuse:two%20words"]) == ["two words"]


def test_a_base_is_the_beginning_of_an_iri() -> None:
    assert check_base("https://example.org/") == "https://example.org/"
    with pytest.raises(FocuseError, match="base 'no iri' is not the beginning of an IRI"):
        check_base("no iri")
