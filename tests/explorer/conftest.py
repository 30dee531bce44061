"""Two tiny runs with hostile names, and the application that serves them."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from visiting import browser  # noqa: F401

import focuse

pytest.importorskip("fastapi", reason="the explorer needs the extra serve")

# Names that would break a page, a spreadsheet, an address or a file name that trusts them.
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "=cmd()|'/C calc'!A0",
    "../../etc/passwd",
    'quote " and , comma',
    "tab\tand\nline",
    "100% & more?#x=/y",
    "Façade Designer",
    "日本語 🎼",
]


@pytest.fixture(scope="session")
def hostile() -> list[str]:
    return HOSTILE


@pytest.fixture(scope="session")
def served_graph() -> focuse.Graph:
    """60 people and 20 skills, links by hidden factors, weights in [0, 1], hostile names among them."""
    random = np.random.default_rng(3)
    people = [f"Person {i}" for i in range(52)] + HOSTILE
    skills = [f"skill {i}" for i in range(20)]
    taste, need = random.normal(size=(60, 3)), random.normal(size=(20, 3))
    fit = 1 / (1 + np.exp(-taste @ need.T))
    rows = [
        (people[h], "has skill", skills[t], round(float(fit[h, t]), 3))
        for h in range(60)
        for t in np.argsort(-fit[h])[:9]
    ]
    pairs = random.integers(0, 60, size=(160, 2))
    rows += [(people[a], "knows", people[b], round(float(random.random()), 3)) for a, b in pairs if a != b]
    return focuse.read(rows)


@pytest.fixture(scope="session")
def run_folders(served_graph, tmp_path_factory) -> tuple[Path, Path]:
    """Two runs on the same graph."""
    folder = tmp_path_factory.mktemp("served")
    for name, model, dim in (("first", "complex", 8), ("second", "distmult", 6)):
        focuse.train(served_graph, model=model, dim=dim, epochs=12, out=folder / name, progress=False)
    return folder / "first", folder / "second"


@pytest.fixture(scope="session")
def service(run_folders):
    from focuse.explorer.service import Explorer, Service

    made = Service([Explorer(focuse.load(folder), folder.name) for folder in run_folders])
    for future in made.warming:
        future.result(60)
    return made


@pytest.fixture(scope="session")
def client(service):
    from starlette.testclient import TestClient

    from focuse.explorer.app import make_app

    return TestClient(make_app(service), base_url="http://127.0.0.1", raise_server_exceptions=False)


@pytest.fixture(scope="session")
def start_server():
    """Start an application as the command does, in a thread; the context's value is its address."""
    from focuse.explorer.server import address, listen, make_server

    @contextmanager
    def started(app):
        listener, server = listen("127.0.0.1", 0), make_server(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield address(listener, "127.0.0.1")
        server.should_exit = True
        thread.join(10)

    return started
