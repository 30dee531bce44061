"""Requests made of random bytes (`tests/shared/fuzzing/http.py`), and earlier faults."""

from __future__ import annotations

import json
import random

import pytest
from fuzzing import http as fuzz


def test_random_requests_are_answered_correctly() -> None:
    chance = random.Random(7)
    statuses = {fuzz.one(chance.randbytes(chance.choice([8, 24, 60, 200]))) for _ in range(250)}
    assert {200, 404, 422} <= statuses


def test_checks_detect_wrong_answers() -> None:
    """The checks can fail: a 500, bytes that are no JSON, a triple that the graph has not."""
    service = fuzz.explorer()[1]
    scope = {"method": "GET", "path": "/api/triples"}
    headers = {b"x-content-type-options": b"nosniff", b"content-type": b"application/json"}
    invented = json.dumps({"triples": [{"head": "a", "relation": "b", "tail": "c"}]}).encode()
    for status, text in ((500, b"{}"), (200, b"NaN"), (200, invented), (422, b'{"error": "two\\nlines", "hint": ""}')):
        with pytest.raises(AssertionError):
            fuzz.check(scope, status, headers, text, service)


def test_field_with_a_line_end_is_reported_in_one_line(client) -> None:
    answer = client.post("/api/predict", json={"two\nlines\x1b[31m": 1})
    assert answer.status_code == 422
    assert "\n" not in answer.json()["error"]
    assert "\x1b" not in answer.json()["error"]
    long = client.post("/api/predict", json={"x" * 100_000: 1})
    assert len(long.json()["error"]) <= 500


def test_exact_name_comes_first(client, service) -> None:
    """Before others that read alike: spaces and capitals are part of a name."""
    found = client.get("/api/entities", params={"q": "skill 1", "limit": 1}).json()["entities"]
    assert [one["name"] for one in found] == ["skill 1"]
    name = "tab\tand\nline"
    assert client.get("/api/entities", params={"q": name}).json()["entities"][0]["name"] == name
