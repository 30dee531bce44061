"""What a server holds while it runs: one or two runs, the model's thread, and whether it is warm."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any, Literal

from focuse.explorer import limits, schemas
from focuse.explorer.explorer import Explorer
from focuse.explorer.problems import Refused
from focuse.explorer.worker import Readers, Worker

PENDING = schemas.Metrics(source="pending", figures={})


class State:
    """The runs behind the API. Fitting what first questions need begins at once, before any question."""

    def __init__(self, first: Explorer, second: Explorer | None = None, worker: Worker | None = None) -> None:
        self.first, self.second = first, second
        self.worker = worker or Worker()
        names, facts = len(first.run.graph.entities), len(first.edges)
        self.readers = Readers(names <= limits.SMALL_NAMES and facts <= limits.SMALL_FACTS)
        self.started = time.monotonic()
        self._told: tuple[bool, bytes] | None = None
        self._warming: list[Future[None]] = [
            self.worker.submit(explorer.warm) for explorer in (first, second) if explorer is not None
        ]

    @property
    def status(self) -> Literal["ready", "warming", "failed"]:
        if not all(future.done() for future in self._warming):
            return "warming"
        return "failed" if self.problem else "ready"

    @property
    def problem(self) -> str:
        """What went wrong while fitting, in one line."""
        faults = [str(future.exception()) for future in self._warming if future.done() and future.exception()]
        return faults[0] if faults else ""

    def other(self) -> Explorer:
        """The run to compare with; 404 without one."""
        if self.second is None:
            raise Refused(404, "there is no second run", "start with: focuse serve RUN --compare OTHER_RUN")
        return self.second

    def told(self) -> bytes:
        """The first run's summary as JSON, made once: it changes only when its figures are there."""
        done = "metrics" in self.first.__dict__
        if self._told is None or self._told[0] != done:
            self._told = done, self.summary(self.first).model_dump_json().encode()
        return self._told[1]

    def summary(self, explorer: Explorer) -> schemas.RunSummary:
        run, settings = explorer.run, explorer.run.settings
        parts = (("train", run.splits.train), ("valid", run.splits.valid), ("test", run.splits.test))
        return schemas.RunSummary(
            name=explorer.name,
            model=settings.model,
            dim=settings.dim,
            epochs=len(run.history),
            entities=len(run.graph.entities),
            facts=len(explorer.edges),
            weighted=run.graph.weighted,
            lower_is_better=run.graph.lower_is_better,
            splits={name: len(graph) for name, graph in parts},
            relations=explorer.relations,
            hubs=explorer.hubs,
            settings={key: _plain(value) for key, value in settings.to_dict().items()},
            # Ranking belongs to the model's thread: figures are shown once it has made them.
            metrics=explorer.__dict__.get("metrics", PENDING),
            compare=None if self.second is None else self.second.name,
        )


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
