"""Requests made of bytes, put to the explorer's application: no 500, no hang, well-formed answers that are true.

PYTHONPATH=tests/shared python -m fuzzing.http --cases 100000 --seed 0
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes, urlencode

ALLOWED = {200, 304, 400, 403, 404, 405, 408, 413, 414, 415, 422, 429}
SLOW = 20.0  # seconds after which a case counts as hanging
GETS = ["health", "run", "entities", "neighborhood", "triples", "missing"]
POSTS = ["predict", "predict-weights", "compare", "explain"]
PATHS = [f"/api/{name}" for name in GETS + POSTS]
OTHERS = ["/", "/docs", "/openapi.json", "/static/main.js", "/favicon.ico", "/api/", "/api/triples/", "//", "/%2e%2e/x"]
HOSTILE = [
    "<script>window.bad=1</script>",
    '"><img src=x onerror=bad()>',
    "javascript:alert(1)",
    "</script><svg/onload=1>",
    "{{7*7}}${7*7}",
    "abc\u202edef",
    "nul\x00byte",
    "🎼" * 20,
    "__proto__",
    "constructor",
    "../../etc/passwd",
    "=1+1",
    " space ",
    "a" * 1000,
    "\x1b[31mred\x1b[0m",
    "tab\tline\nreturn\r",
    "",
]
RELATIONS = ["knows", "<b>likes</b>", "toString"]
KEYS = [
    "entity",
    "relation",
    "head",
    "tail",
    "q",
    "limit",
    "depth",
    "offset",
    "top",
    "direction",
    "new_only",
    "prefer",
    "min_weight",
    "table",
    "format",
]
VALUES = [
    "1",
    "0",
    "-1",
    "200",
    "201",
    "9" * 30,
    "1e309",
    "nan",
    "-inf",
    "true",
    "none",
    "out",
    "both",
    "csv",
    "json",
    "0.5",
    "likely",
    "strong",
]
TABLES = ["triples", "missing", "predict", "compare", "tsv", "<x>"]
FORMS = ["csv", "tsv", "json"]
NAMES = [f"person {number}" for number in range(30)]
FIRST = {"/api/entities": "q"}
WORDS = [*HOSTILE, *RELATIONS, *VALUES, *TABLES, "\ud800", "ﬀ", "İ"]


class Taken:
    """Bytes as choices: whatever they are, they say something; nothing left is zero."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def byte(self) -> int:
        self.place += 1
        return self.data[self.place - 1] if self.place <= len(self.data) else 0

    def pick(self, among: list[Any]) -> Any:
        return among[self.byte() % len(among)]

    def raw(self) -> bytes:
        size = self.byte()
        made = self.data[self.place : self.place + size]
        self.place += size
        return made

    def word(self) -> str:
        kind = self.byte() % 8
        if kind == 7:
            return self.raw().decode("utf-8", "replace")
        return str(self.pick(WORDS if kind == 6 else NAMES if kind else HOSTILE))

    def part(self, key: str) -> str:
        """A word for one part of a question: mostly one that makes sense there."""
        if self.byte() % 8 == 7:
            return self.word()
        sensible = {"relation": RELATIONS, "table": TABLES, "direction": ["in", "out", "both"], "format": FORMS}
        names = NAMES + HOSTILE if key in ("entity", "head", "tail", "q") else VALUES
        return str(self.pick(sensible.get(key, names)))

    def value(self, depth: int = 0) -> Any:
        kind = self.byte() % (12 if depth < 3 else 8)
        plain = [None, True, 0, 10, -1, 1e308, float("nan")]
        if kind < len(plain):
            return plain[kind]
        if kind == 7 or kind == 8:
            return self.word()
        if kind == 9:
            return {self.word(): self.value(depth + 1) for _ in range(self.byte() % 4)}
        return [self.value(depth + 1) for _ in range(self.byte() % 5)]

    def triple(self) -> dict[str, Any]:
        made: dict[str, Any] = {part: self.part(part) for part in ("head", "relation", "tail") if self.byte() % 4}
        if self.byte() % 4 == 0:
            made |= {self.pick(["top", "new_only", "prefer", "x", "head"]): self.value(2)}
        return made


@cache
def explorer() -> tuple[Any, Any, asyncio.AbstractEventLoop]:
    """The application over two tiny runs whose names are hostile, its service, and the loop that all cases share."""
    import focuse
    from focuse.explorer.app import make_app
    from focuse.explorer.service import Explorer, Service

    chance = random.Random(0)
    names = [name for name in HOSTILE if name.strip()] + NAMES
    rows = {(chance.choice(names), chance.choice(RELATIONS), chance.choice(names)) for _ in range(400)}
    graph = focuse.read([(*row, round(chance.random(), 3)) for row in sorted(rows)])
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for number, model in enumerate(("distmult", "complex")):
            place = Path(folder) / f"run {number}"
            focuse.train(graph, model=model, dim=4, epochs=3, out=place, progress=False)
            runs.append(Explorer(focuse.load(place), HOSTILE[number]))
        service = Service(runs)
        for future in service.warming:
            future.result(120)
    return make_app(service), service, asyncio.new_event_loop()


def asked(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The request that bytes say: its ASGI scope and body."""
    from_bytes = Taken(data)
    kind = from_bytes.byte() % 8
    headers, query, body, method = [(b"host", b"127.0.0.1")], b"", b"", "GET"
    if kind < 3:
        path = f"/api/{from_bytes.pick(GETS)}"
        first = [] if path in PATHS[:2] else [FIRST.get(path, "entity")]
        keys = first + [from_bytes.pick(KEYS) for _ in range(from_bytes.byte() % 6)]
        pairs = [(key, from_bytes.part(key)) for key in keys]
        query = urlencode(pairs, errors="surrogatepass").encode()
    elif kind < 6:
        method, path = "POST", f"/api/{from_bytes.pick(POSTS)}"
        headers.append((b"content-type", b"application/json"))
        made = from_bytes.triple()
        if path.endswith("predict-weights"):
            made = {"triples": [from_bytes.triple() for _ in range(from_bytes.byte() % 4)]}
        body = json.dumps(made if from_bytes.byte() % 4 else from_bytes.value()).encode()
        if from_bytes.byte() % 4 == 0:  # cut, or with bytes in it that are no JSON
            at = from_bytes.byte() % (len(body) + 1)
            body = body[:at] + from_bytes.raw() + body[at + from_bytes.byte() % 3 :]
    else:
        method = from_bytes.pick(["GET", "POST", "HEAD", "PUT", "OPTIONS", "DELETE", "PATCH", "get", ""])
        path = (
            from_bytes.pick(PATHS + OTHERS)
            if from_bytes.byte() % 2
            else "/" + from_bytes.raw().decode("utf-8", "replace")
        )
        query, body = quote_from_bytes(from_bytes.raw(), safe="&=%+").encode(), from_bytes.raw()
        if from_bytes.byte() % 2:
            headers.append((b"content-type", b"application/json"))
    if from_bytes.byte() % 8 == 7:
        known = [b"origin", b"sec-fetch-site", b"content-length", b"if-none-match", b"accept", b"host", b"expect"]
        headers.append((from_bytes.pick(known), from_bytes.raw()))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("utf-8", "replace"),
        "query_string": query,
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
    return scope, body


def one(data: bytes) -> int:
    """Put the request to the application; AssertionError if its answer may not be. Its status."""
    app, service, loop = explorer()
    scope, body = asked(data)
    told: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        told.append(message)

    async def call() -> None:
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if not waiting:
                await asyncio.Event().wait()
            return waiting.pop()

        async with asyncio.timeout(SLOW):
            await app(scope, receive, send)

    loop.run_until_complete(call())
    start, text = told[0], b"".join(message.get("body", b"") for message in told[1:])
    check(scope, start["status"], dict(start["headers"]), text, service)
    return int(start["status"])


def check(scope: dict[str, Any], status: int, headers: dict[bytes, bytes], text: bytes, service: Any) -> None:
    assert status in ALLOWED, status
    assert headers[b"x-content-type-options"] == b"nosniff"
    for name, value in headers.items():
        assert b"\n" not in value, name
        assert b"\r" not in value, name
    if (
        scope["method"] == "HEAD"
        or status == 304
        or not headers.get(b"content-type", b"").startswith(b"application/json")
    ):
        return
    made = json.loads(text, parse_constant=_no_constant)
    if status != 200:
        assert set(made) == {"error", "hint", "nearest"}, made
        assert made["error"]
        assert "\n" not in made["error"]
        assert "\x1b" not in made["error"]
    elif scope["path"] in ("/api/triples", "/api/neighborhood"):
        for triple in made.get("triples", made.get("edges")):
            assert (triple["head"], triple["relation"], triple["tail"]) in _triples(service), triple
    elif scope["path"] == "/api/missing":
        for link in made["links"]:
            assert (link["head"], link["relation"], link["tail"]) not in _triples(service), link


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@cache
def _triples(service: Any) -> set[tuple[str, str, str]]:
    run = service.first.run
    graphs = [run.splits.train, run.splits.valid, run.splits.test]
    names, kinds = run.graph.entities, run.graph.relations
    return {(names[h], kinds[r], names[t]) for g in graphs for h, r, t in zip(g.head, g.relation, g.tail, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance, statuses, faults, slowest = random.Random(options.seed), Counter[int](), Counter[str](), 0.0
    explorer()
    began = time.monotonic()
    for number in range(options.cases):
        data = chance.randbytes(chance.choice([8, 24, 60, 200]))
        case = time.monotonic()
        try:
            statuses[one(data)] += 1
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            faults[f"{type(error).__name__}: {error}"[:160]] += 1
            if faults.total() <= 20:
                print(f"case {number}: {data.hex()} {asked(data)[0]['path']} {error!r}"[:600], file=sys.stderr)
        slowest = max(slowest, time.monotonic() - case)
    took = time.monotonic() - began
    print(f"{options.cases:,} requests in {took:.0f} s, the slowest {slowest:.2f} s: {dict(statuses.most_common())}")
    print(f"{faults.total()} faults {dict(faults.most_common(10))}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
