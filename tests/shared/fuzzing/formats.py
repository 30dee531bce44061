"""Parquet, RDF, GraphML, JSON, Matrix Market and Excel."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from xml.parsers import expat

import pyarrow as pa
import pyarrow.parquet as pq

from focuse.data.readers import read
from fuzzing.guard import WrongError
from fuzzing.text import Row, compare, rows_of

Call = Callable[[bytes], object]
ROWS = [("a", "r", "b", 0.5), ("b c", "r", 'd "e"', -2.0), ("é", "s", "a", 1e3)]
HOSTILE = [("=1+1", "<r>", "../x", 1.0), ("a&b", "r", "\u202ex", 2.0), ("http://e.org/a", "r", "_:b", 3.0)]


def parquet(folder: Path) -> tuple[Call, list[bytes]]:
    path = folder / "graph.parquet"

    def call(data: bytes) -> None:
        path.write_bytes(data)
        graph = read(path)
        if data[:4] != b"PAR1":  # the name of a file means nothing
            return
        file = pq.ParquetFile(io.BytesIO(data))
        plain = [field.name for field in file.schema_arrow if not pa.types.is_nested(field.type)]  # others are not read
        table = file.read(columns=plain)
        if table.column_names == ["head", "relation", "tail", "weight"] and all(
            pa.types.is_string(table.schema.field(place).type) for place in range(3)
        ):
            rows = [tuple(row[name] for name in table.column_names) for row in table.to_pylist()]
            compare(rows_of(graph), [(*row[:3], float(row[3])) for row in rows])

    return call, [written(folder, ".parquet"), written(folder, ".parquet", HOSTILE), *_odd_tables()]


def _odd_tables() -> list[bytes]:
    """Columns of other kinds, dictionaries, nulls, other compressions."""
    names = pa.array(["a", "b", "c"]).dictionary_encode()
    tables = [
        pa.table({"head": names, "relation": names, "tail": names, "weight": pa.array([1, 2, 3])}),
        pa.table({"head": [1, 2], "relation": ["r", "r"], "tail": [3, 4], "weight": ["1", "2.5"]}),
        pa.table({"h": ["a"], "r": ["r"], "t": ["b"], "x": [[1, 2]]}),
        pa.table({"head": ["a"], "relation": ["r"], "tail": ["b"], "weight": pa.array([None], pa.float64())}),
    ]
    found = []
    for table, way in zip(tables, ("none", "snappy", "gzip", "zstd"), strict=True):
        stream = io.BytesIO()
        pq.write_table(table, stream, compression=way)
        found.append(stream.getvalue())
    return found


def written(folder: Path, suffix: str, rows: list[Row] | None = None) -> bytes:
    """A small graph as focuse writes it."""
    path = folder / f"seed{suffix}"
    read(ROWS if rows is None else rows).write(path)
    return path.read_bytes()


RDF = (".nt", ".nq", ".ttl", ".trig", ".n3", ".rdf", ".jsonld")
NOTED = b"""<urn:a> <urn:r> <urn:b> .
<< <urn:a> <urn:r> <urn:b> >> <urn:w> "0.5"^^<http://www.w3.org/2001/XMLSchema#double> .
"""
TURTLE = b"""@prefix e: <http://e.org/> . @base <http://e.org/> .
e:a e:r e:b {| e:weight 0.5 ; e:year 1999 |} , [ e:s "x"@en ] .
[] a <http://www.w3.org/1999/02/22-rdf-syntax-ns#Statement> ; e:weight 1.0e3 .
"""
XML = b"""<?xml version="1.0"?><!DOCTYPE rdf [<!ENTITY e "http://e.org/">]>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e.org/">
<rdf:Description rdf:about="&e;a"><e:r rdf:resource="http://e.org/b"/><e:n>5</e:n></rdf:Description></rdf:RDF>"""
JSON = b'{"@context": {"r": {"@id": "http://e.org/r", "@type": "@id"}}, "@id": "http://e.org/a", "r": "http://e.org/b"}'


def rdf(folder: Path) -> tuple[Call, list[bytes]]:
    """All seven forms of RDF; the first byte says which and how."""
    import pyoxigraph

    paths = [folder / f"graph{suffix}" for suffix in RDF]

    def call(data: bytes) -> None:
        way, data = data[0] if data else 0, data[1:]
        path = paths[way % len(paths)]
        path.write_bytes(data)
        keep = way & 8 > 0
        graph = read(path, missing_weight=1.0, literals="keep" if keep else "skip")
        # Every name is a term of the file: what focuse minted or shortened is not asked for here.
        text = data[3:] if data.startswith(b"\xef\xbb\xbf") else data
        kind = {".nt": "TURTLE", ".rdf": "RDF_XML", ".nq": "N_QUADS", ".jsonld": "JSON_LD"}.get(path.suffix)
        kind = kind or path.suffix[1:].upper().replace("TTL", "TURTLE")
        found = list(pyoxigraph.parse(text, getattr(pyoxigraph.RdfFormat, kind)))
        facts = {
            (q.subject.value, q.predicate.value, q.object.value)
            for q in found
            if all(isinstance(term, pyoxigraph.NamedNode) for term in (q.subject, q.object))
            and not q.predicate.value.startswith("http://www.w3.org/1999/02/22-rdf")
        }
        if len(found) == len(facts):  # nothing but plain facts
            from focuse.integrations.rdf import from_iri

            expected = {tuple(map(from_iri, row)) for row in facts}
            if {row[:3] for row in rows_of(graph)} != expected:
                raise WrongError(f"{len(graph)} facts read, the file has {len(expected)}")

    seeds = [bytes([place]) + written(folder, suffix) for place, suffix in enumerate(RDF[:4])]
    seeds += [bytes([0]) + NOTED, bytes([2]) + TURTLE, bytes([10]) + TURTLE, bytes([4]) + TURTLE, bytes([5]) + XML]
    seeds += [
        bytes([6]) + JSON,
        bytes([2]) + written(folder, ".ttl", HOSTILE),
        bytes([0]) + b"<urn:a> <urn:r> <urn:b> .",
    ]
    return call, [*seeds, bytes([1]) + b"<urn:a> <urn:r> <urn:b> <urn:g> .\n_:x <urn:r> <urn:c> .\n"]


def graphml(folder: Path) -> tuple[Call, list[bytes]]:
    path = folder / "graph.graphml"
    extra = b"""<graphml><key id="k" for="edge" attr.name="weight" attr.type="double"><default>1</default></key>
<graph edgedefault="undirected"><node id="a"/><edge source="a" target="b"><data key="k">2</data></edge>
<edge source="a" target="c"/></graph></graphml>"""
    laughs = b'<!DOCTYPE g [<!ENTITY a "xx"><!ENTITY b "&a;&a;">]><graphml><graph><edge source="&b;" target="b"/>'

    def call(data: bytes) -> None:
        path.write_bytes(data)
        graph = read(path)
        ends: list[tuple[str | None, str | None]] = []

        def begun(name: str, given: dict[str, str]) -> None:
            if name.rpartition(":")[2] == "edge":
                ends.append((given.get("source"), given.get("target")))

        parser = expat.ParserCreate()  # without a tree, without names of name spaces
        parser.StartElementHandler = begun
        parser.Parse(data, True)
        if [(row[0], row[2]) for row in rows_of(graph)] != ends:
            raise WrongError(f"{len(graph)} edges, the file has {len(ends)}")

    seeds = [written(folder, ".graphml"), written(folder, ".graphml", HOSTILE), extra]
    return call, [*seeds, laughs + b"</graph></graphml>"]


TABLES = Path(__file__).parents[2] / "fixtures" / "tables"


def tables(folder: Path) -> tuple[Call, list[bytes]]:
    """JSON Lines, JSON, Matrix Market and Excel, of which the first byte says which."""
    paths = [folder / f"graph{suffix}" for suffix in (".jsonl", ".json", ".mtx", ".xlsx")]

    def call(data: bytes) -> None:
        path = paths[data[0] % len(paths) if data else 0]
        path.write_bytes(data[1:])
        graph = read(path)
        if path.suffix == ".jsonl":
            rows = [json.loads(line) for line in data[1:].decode("utf-8-sig").split("\n") if line.strip()]
            keys = ["head", "relation", "tail", "weight"]
            if all(isinstance(row, dict) and list(row) == keys and row["weight"].__class__ is float for row in rows):
                texts = all(isinstance(row[key], str) for row in rows for key in keys[:3])
                compare(rows_of(graph), [tuple(row.values()) for row in rows] if texts else rows_of(graph))
        if path.suffix == ".mtx":
            banner, *lines = [line for line in data[1:].decode("latin-1").split("\n") if line.strip()]
            entries = [line.split() for line in lines if not line.startswith("%")][1:]
            ends = {(int(float(entry[0])), int(float(entry[1]))) for entry in entries if len(entry) > 1}
            if (
                all(len(entry) in (2, 3) for entry in entries)
                and "general" in banner.lower()
                and len(graph) != len(ends)
            ):
                raise WrongError(f"{len(graph)} entries read, the file has {len(ends)}")

    names = ["pandas_columns.json", "networkx_node_link.json"]
    matrices = ["scipy_general.mtx", "scipy_symmetric.mtx", "scipy_pattern.mtx"]
    lines = b"".join(
        json.dumps(dict(zip(("head", "relation", "tail", "weight"), row, strict=True))).encode() + b"\n"
        for row in [*ROWS, *HOSTILE]
    )
    seeds = [b"\0" + lines, b"\0" + (TABLES / "pandas_records.jsonl").read_bytes()]
    seeds += [b"\1" + (TABLES / name).read_bytes() for name in names]
    seeds += [b"\2" + (TABLES / name).read_bytes() for name in matrices]
    return call, [*seeds, b"\3" + (TABLES / "pandas.xlsx").read_bytes(), b"\0" + b'{"head": ']
