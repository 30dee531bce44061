"""The contract of the API: a server accepts and answers exactly what `/openapi.json` describes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import focuse

SCHEMATHESIS = Path(sys.executable).parent / "schemathesis"
ADDRESSES = "health run entities neighborhood triples predict missing explain predict-weights compare"
QUESTION = {"head": "Person 3", "relation": "knows"}


def test_description_lists_every_address_and_its_problems(client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert sorted(paths) == sorted(f"/api/{name}" for name in ADDRESSES.split())
    for methods in paths.values():
        for operation in methods.values():
            for status in ("400", "403", "404", "405", "408", "409", "413", "415", "422", "429", "503"):
                content = operation["responses"][status]["content"]
                assert content["application/json"]["schema"]["$ref"].endswith("/Problem")


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "HEAD"])
def test_undeclared_method_is_405_with_the_declared_ones(client, method) -> None:
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        declared = {name.upper() for name in operations}
        if method not in declared:
            answer = client.request(method, path)
            assert (answer.status_code, set(answer.headers["allow"].split(", "))) == (405, declared), path


def test_valid_questions_about_unknown_names_are_404(client) -> None:
    for part, name in (("head", "nobody here"), ("relation", "no relation"), ("head", "\x00"), ("head", "x" * 1000)):
        assert client.post("/api/predict", json=QUESTION | {part: name}).status_code == 404
        assert client.post("/api/compare", json=QUESTION | {part: name}).status_code == 404
    assert client.get("/api/triples", params={"entity": "\x00"}).status_code == 404


def test_question_needs_two_parts_in_the_schema_as_well(client) -> None:
    schema = client.get("/openapi.json").json()["components"]["schemas"]["Question"]
    assert schema["anyOf"] == [
        {"required": ["head", "relation"]},
        {"required": ["head", "tail"]},
        {"required": ["relation", "tail"]},
    ]
    assert schema["additionalProperties"] is False
    for address in ("predict", "compare"):
        assert client.post(f"/api/{address}", json={"head": "Person 3"}).status_code == 422
        assert client.post(f"/api/{address}", json=QUESTION | {"tail": "Person 4"}).status_code == 200


@pytest.mark.parametrize("wrong", [{"new_only": 0}, {"new_only": "true"}, {"top": "5"}, {"top": True}, {"tail": None}])
def test_values_of_another_type_are_refused(client, wrong) -> None:
    assert client.post("/api/predict", json=QUESTION | wrong).status_code == 422


def test_too_many_triples_are_422_whatever_their_size(client) -> None:
    """A request that the schema forbids is not answered by the size of its body."""
    triple = {"head": "x" * 1000, "relation": "x" * 1000, "tail": "x" * 1000}
    assert client.post("/api/predict-weights", json={"triples": [triple] * 101}).status_code == 422


@pytest.fixture(scope="module")
def guessable_runs(tmp_path_factory) -> list[Path]:
    """Two runs with names that generated requests contain by chance, so that they reach the model."""
    names = ["0", "00", "1", "a", "A", "null", "true", "0" * 999, "0" * 1000, "\x80", "é", "\U0001f3bc"]
    rows = [
        (head, str((i + j) % 2), tail, (3 * i + j) % 11 / 10)
        for i, head in enumerate(names)
        for j, tail in enumerate(names)
        if (i + 2 * j) % 3
    ]
    folder = tmp_path_factory.mktemp("contract")
    for name, model in (("first", "complex"), ("second", "distmult")):
        focuse.train(focuse.read(rows), model=model, dim=4, epochs=3, out=folder / name, progress=False)
    return [folder / "first", folder / "second"]


@pytest.mark.slow
@pytest.mark.skipif(not (SCHEMATHESIS.exists() or shutil.which("schemathesis")), reason="needs schemathesis")
def test_schemathesis_finds_no_deviation(guessable_runs, start_server, tmp_path) -> None:
    """All checks of schemathesis against a real server."""
    from focuse.explorer.app import make_app
    from focuse.explorer.service import Explorer, Service

    service = Service([Explorer(focuse.load(folder), folder.name) for folder in guessable_runs])
    for future in service.warming:
        future.result(120)
    program = str(SCHEMATHESIS) if SCHEMATHESIS.exists() else "schemathesis"
    with start_server(make_app(service)) as url:
        command = [program, "run", f"{url}openapi.json", "--checks", "all", "--seed", "1", "--max-examples", "40"]
        command += ["--phases", "examples,coverage,fuzzing", "--no-color", "--request-timeout", "60"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", timeout=500)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2000:]
    assert "10 selected / 10 total" in done.stdout
