"""The real server as a process, and what it uses."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

import numpy as np

IO_TIMEOUT = 10.0  # seconds that the server waits for a client to send or read


class Server:
    """`focuse serve RUN` on a free port, ready to answer."""

    def __init__(self, run: Path) -> None:
        command = [sys.executable, "-m", "focuse", "serve", str(run), "--port", "0", "--json"]
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed by __exit__
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
        )
        assert self.process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = self.process.stdout.readline()
            if not line:
                raise SystemExit(f"the server did not start: {self.errors()}")
            text += line
        self.port = urlsplit(json.loads(text)["url"]).port or 0
        try:
            while json.load(urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/health"))["status"] == "warming":
                time.sleep(0.2)
        except BaseException:  # also when we are killed while it warms
            self.__exit__(None, None, None)
            raise

    def usage(self) -> tuple[float, int]:
        """Resident megabytes and open files; zeros where the system has no /proc."""
        place = Path(f"/proc/{self.process.pid}")
        if not place.exists():
            return 0.0, 0
        text = (place / "status").read_text(encoding="utf-8")
        memory = next(line.split()[1] for line in text.splitlines() if line.startswith("VmRSS"))
        return round(int(memory) / 1024, 1), len(os.listdir(place / "fd"))

    async def settled(self, files: int, seconds: float) -> bool:
        """Wait until no more than so many files are open, for so long at most."""
        end = time.monotonic() + seconds
        while self.usage()[1] > files and time.monotonic() < end:
            await asyncio.sleep(0.2)
        return self.usage()[1] <= files

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def stop(self) -> tuple[int, str]:
        """Its exit code and all that it said on its terminal."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30), self.errors()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        self._errors.close()


def slope(points: list[tuple[float, float]]) -> float:
    """Growth a second of (second, amount), by least squares.

    >>> round(slope([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]), 6)
    2.0
    """
    if len({at for at, _ in points}) < 2:
        return 0.0
    return float(np.polyfit(*np.array(points).T, 1)[0])
