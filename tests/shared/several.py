"""Several processes that meet as torchrun's do, forked from one that has imported everything: seconds saved each time.

    python several.py FILE 2 4

runs `work(group)` of FILE in two processes, then in four; the exit code is 0 if none of them failed.
"""

from __future__ import annotations

import os
import runpy
import signal
import socket
import subprocess
import sys
import traceback
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

HEAVY = ("focuse.api", "focuse.engines.sharded")
TORCHREC = ("torchrec.distributed.embedding", "torchrec.sparse.jagged_tensor", "fbgemm_gpu")


def several(file: Path, *counts: int, timeout: float = 200) -> str:
    """What the processes of `file` print; an AssertionError with all of it where one fails."""
    command = [sys.executable, __file__, str(file), *map(str, counts)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=timeout, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _child(file: str, rank: int, count: int, port: int) -> int:
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank), **meeting})
    try:
        from focuse.engines.process_group import destroy_group, init_group

        runpy.run_path(file)["work"](init_group("cpu"))
        destroy_group()
    except BaseException:
        print(f"process {rank} of {count}:", file=sys.stderr)
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _company(file: str, count: int) -> int:
    port, children = _port(), []
    for rank in range(count):
        child = os.fork()
        if not child:
            os._exit(_child(file, rank, count, port))
        children.append(child)
    worst, left = 0, set(children)
    while left:
        child, status = os.wait()
        left.discard(child)
        code = os.waitstatus_to_exitcode(status)
        worst = worst or code
        if code:  # the others would wait for it
            for other in left:
                os.kill(other, signal.SIGKILL)
    return worst


if __name__ == "__main__":
    wanted = "TORCHREC" in Path(sys.argv[1]).read_text(encoding="utf-8") and find_spec("torchrec")
    found = TORCHREC if wanted else ()
    for each in (*HEAVY, *found):
        import_module(each)
    sys.exit(max(abs(_company(sys.argv[1], int(number))) for number in sys.argv[2:]))
