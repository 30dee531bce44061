"""What could be had at most: a server that does nothing, and the bare sums of a prediction."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

import numpy as np

EMPTY = """
import sys, uvicorn
from focuse.explorer.server import listen

async def app(scope, receive, send):
    headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"{}"})

with listen("127.0.0.1", 0) as listener:
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_level="critical", http="h11", lifespan="off", ws="none", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])
"""


class Empty:
    """The same Uvicorn with an application that says {} to everything."""

    def __enter__(self) -> Empty:
        self.process = subprocess.Popen([sys.executable, "-c", EMPTY], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.wait(30)

    def usage(self) -> tuple[float, int]:
        return 0.0, 0


def bare_prediction(run: Path, times: int = 200) -> float:
    """Milliseconds to score every entity for one question with NumPy and take the best ten: no names, no weights."""
    import focuse

    table = focuse.load(run).scorer.tables["entity"].numpy()
    query = np.ascontiguousarray(table[0])
    began = time.perf_counter()
    for _ in range(times):
        scores = table @ query
        best = np.argpartition(-scores, min(10, len(scores) - 1))[:10]
        best[np.argsort(-scores[best])]
    return 1000 * (time.perf_counter() - began) / times


def whole_prediction(run: Path, times: int = 100) -> float:
    """Milliseconds of `run.predict` itself: names, known triples, weights, intervals and probabilities."""
    import focuse

    loaded = focuse.load(run)
    train = loaded.splits.train
    rows = np.linspace(0, len(train) - 1, times).astype(int)
    asked = [(train.entities[train.head[i]], train.relations[train.relation[i]]) for i in rows]
    loaded.predict(*asked[0])
    began = time.perf_counter()
    for head, relation in asked:
        loaded.predict(head, relation)
    return 1000 * (time.perf_counter() - began) / times
