"""What tests share: small graphs, a listening reporter, and the command as a process."""

from __future__ import annotations

import os

# One thread a process: pytest-xdist fills the cores, and bits depend on the number of threads.
os.environ["OMP_NUM_THREADS"] = "1"

import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

import focuse
from focuse.data.graph import WeightColumns, from_columns

# No deadline: a busy machine is no fault of the code.
hypothesis.settings.register_profile("focuse", deadline=None)
hypothesis.settings.load_profile("focuse")

# A shell's nohup lets all processes below it ignore SIGHUP, but some tests send it.
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

Command = Callable[..., subprocess.CompletedProcess[str]]


def planted(edges: int = 600, entities: int = 40, seed: int = 0) -> focuse.Graph:
    """A graph whose links and weights follow hidden factors, so that a few epochs can learn something."""
    random = np.random.default_rng(seed)
    factors, kinds = random.normal(size=(entities, 4)), random.normal(size=(3, 4))
    fit = np.einsum("hk,rk,tk->hrt", factors, kinds, factors).ravel()
    plausible = np.argsort(-fit.round(9), kind="stable")[: edges * 2]
    chosen = random.choice(plausible, edges, replace=False)
    weight = 1 / (1 + np.exp(-(fit[chosen] - np.median(fit[plausible]))))
    head, kind, tail = np.unravel_index(chosen, (entities, 3, entities))
    return from_columns(
        [f"e{i}" for i in head],
        [f"r{i}" for i in kind],
        [f"e{i}" for i in tail],
        np.round(weight, 4),
        "planted",
    )


@pytest.fixture(scope="session")
def with_columns() -> Callable[..., focuse.Graph]:
    """Beside a graph's weight a column of noise and the weight turned round; some numbers missing."""

    def add(graph: focuse.Graph, missing: float = 0.0, seed: int = 0) -> focuse.Graph:
        random = np.random.default_rng(seed)
        values = np.stack([graph.weight, random.random(len(graph)), 50 - 20 * graph.weight], axis=1)
        values[random.random(values.shape) < missing] = np.nan
        values[np.isnan(values).all(axis=1), 1] = 0.5
        return replace(graph, columns=WeightColumns(("fit", "noise", "distance"), values))

    return add


@pytest.fixture(scope="session")
def signed() -> list[tuple[str, str, str, int]]:
    """Rows of which every fifth weight lies below 0 and every fifth is 0; some entities occur only there."""
    return [(f"h{i % 9}", "r", f"t{i % 40}", i % 5 - 1) for i in range(200)]


@pytest.fixture(scope="session")
def small() -> focuse.Graph:
    """600 edges over 40 entities and 3 relations."""
    return planted()


@pytest.fixture(scope="session")
def careers() -> focuse.Graph:
    """The embedded graph of 10,000 edges."""
    from focuse.data.datasets import careers

    return careers()


class Recorder:
    """A reporter that remembers; `on_step` is called after every batch with (epoch, batches done)."""

    def __init__(self, on_step: Callable[[int, int], None] | None = None) -> None:
        self.notes: list[str] = []
        self.rows: list[dict[str, Any]] = []
        self.on_step = on_step
        self.seen = 0
        self.stopped = 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def start(self, settings: Any, epochs_done: int) -> None:
        self.settings, self.began_at = settings, epochs_done

    def step(self, epoch: int, share: float) -> None:
        self.seen += 1
        if self.on_step is not None:
            self.on_step(epoch, self.seen)

    def epoch(self, row: dict[str, Any]) -> None:
        self.rows.append(row)

    def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
def listen(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Recorder]:
    """`listen(on_step)`: every training from now on reports to the recorder it returns."""

    def start(on_step: Callable[[int, int], None] | None = None) -> Recorder:
        recorder = Recorder(on_step)
        monkeypatch.setattr("focuse.api.make_reporter", lambda progress: recorder)
        return recorder

    return start


@pytest.fixture(scope="session")
def command() -> Command:
    """`command("train", …)`: the command line in a process of its own, output captured as text."""

    import forked  # not above: processes of some tests import this file without pytest's paths

    def run(*arguments: str | Path, cwd: Path | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
        return forked.run(["-m", "focuse", *map(str, arguments)], cwd, **options)

    return run


VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """Tags, attributes and text as a browser would read them, and whether all tags are closed in turn."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(key, value or "") for key, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(key, value or "") for key, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="session")
def read_page() -> type[Page]:
    """`read_page(html)`: the page as a browser would read it."""
    return Page
