"""Two processes that train the sharded cases together, each case to a folder of its own.

    python tests/golden/two_processes.py FOLDER CASE …

They meet as torchrun's do, by the environment that it sets, but are forked from one process that has imported
everything: that saves half of the time. The first of them writes the runs; see `scenarios.two_processes`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.golden import cases, scenarios, vocabulary

COUNT = 2
TORCHREC = ("torchrec.distributed.embedding", "torchrec.sparse.jagged_tensor", "fbgemm_gpu")


def work(folder: Path, names: list[str]) -> None:
    """Train the named cases, and one run with validation."""
    for name in names:
        case = cases.TWO_PROCESSES[name]
        vocabulary.train(cases.graph(), {**case.words, "folder": folder / scenarios.file_name(name)})
    vocabulary.train(cases.graph(), {**scenarios.VALIDATED, "engine": "sharded", "folder": folder / "sharded"})


def main(folder: Path, names: list[str]) -> int:
    """Fork the processes and wait for them; return 0 if none failed."""
    vocabulary.load_library()
    for module in TORCHREC if find_spec("torchrec") else ():
        import_module(module)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    left = set()
    for rank in range(COUNT):
        child = os.fork()
        if not child:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(COUNT)}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            os._exit(_child(folder, names))
        left.add(child)
    worst = 0
    while left:
        child, status = os.wait()
        left.discard(child)
        if os.waitstatus_to_exitcode(status):
            worst = 1
            for other in left:  # it would wait for the one that failed
                os.kill(other, signal.SIGKILL)
    return worst


def _child(folder: Path, names: list[str]) -> int:
    try:
        work(folder, names)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
