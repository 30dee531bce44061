"""One target by one driver in a process of its own: `python -m fuzzing.worker '{"target": …}'`."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from fuzzing.guard import Guard
from fuzzing.mutating import LONGEST, Mutator

WRITTEN = 2.0  # seconds between two writings of the counts
STUCK = 300  # seconds after which a case inside of some library ends the process
INSTRUMENTED = [
    "focuse.data",
    "focuse.rules.grammar",
    "focuse.training",
    "focuse.tuning",
    "focuse.inference",
]


class Ended(BaseException):
    """The cases or the time are over. No Exception: hypothesis would look for a smaller case that ends."""


class Worker:
    """Runs cases and writes down what came of them."""

    def __init__(self, target: str, driver: str, cases: int, seed: int, until: float, folder: str, work: str) -> None:
        from fuzzing.targets import TARGETS

        self.driver, self.cases, self.seed, self.until = driver, cases, seed, until
        self.out = Path(folder)
        self.corpus, files = Path(work, "corpus"), Path(work, "files")
        for place in (self.corpus, files):
            place.mkdir()
        call, self.seeds = TARGETS[target].make(files)
        self.guard = Guard(target, call, driver, self.out)
        self.result = self.out / f"{target}.{driver}.json"
        self.written = 0.0

    def __call__(self, data: bytes) -> None:
        self.guard(data)
        now = time.time()
        if now > self.written + WRITTEN or self.guard.counts.cases >= self.cases:
            self.written = now
            self.guard.write(self.result)
            faulthandler.dump_traceback_later(STUCK, exit=True)
        if now > self.until or self.guard.counts.cases >= self.cases:
            self.guard.write(self.result)
            raise Ended

    def run(self) -> None:
        self.guard.limit()
        {"atheris": self.atheris, "hypothesis": self.hypothesis, "mutator": self.mutator}[self.driver]()

    def mutator(self) -> None:
        if self.seed % 1000 == 0:
            for seed in self.seeds:
                self(seed)
        mutator = Mutator(self.seeds, f"{self.guard.counts.target} {self.seed}")
        while True:
            self(mutator.case())

    def hypothesis(self) -> None:
        from fuzzing.structured import run

        # Each thousand cases is a test of its own: hypothesis remembers what it drew, and grows slow.
        for batch in range(self.cases):
            run(self.guard.counts.target, self.seeds, self, 1_000, self.seed + batch)

    def atheris(self) -> None:
        import atheris

        for place, seed in enumerate(self.seeds):
            Path(self.corpus, f"seed{place}").write_bytes(seed)
        # Limits are ours: those of libFuzzer end the process, and count the time that others take.
        flags = [f"-seed={self.seed + 1}", f"-max_len={LONGEST}", "-timeout=100000", "-rss_limit_mb=0", "-verbosity=0"]
        atheris.Setup([sys.argv[0], *flags, f"-artifact_prefix={self.out}/", str(self.corpus)], self._one)
        atheris.Fuzz()

    def _one(self, data: bytes) -> None:
        try:
            self(data)
        except Ended:
            os._exit(0)  # libFuzzer ends in no other way without a word on how it died


def main() -> None:
    asked: dict[str, Any] = json.loads(sys.argv[1])
    if asked["driver"] == "atheris":
        import atheris

        with atheris.instrument_imports(include=INSTRUMENTED, enable_loader_override=False):
            worker = Worker(**asked)
    else:
        worker = Worker(**asked)
    try:
        worker.run()
    except Ended:
        return


if __name__ == "__main__":
    main()
