"""A sharded training over several hosts, played by network namespaces of this machine (Linux, as root).

    python benchmarks/hosts.py --hosts 2 --processes 1 --megabits 100

Each host is a namespace with an address of its own on one bridge, and knows of the others only that; torchrun meets
over it by c10d. `--megabits` limits what a host may send, by tc. The same training runs in one process as well: losses
and test figures of both are printed. All namespaces are taken down again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import smoke

SWITCH = "focuse-switch"
PORT = 29400


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=not check)


@contextmanager
def hosts(count: int, megabits: float) -> Iterator[list[str]]:
    """Namespaces focuse-host0, … with addresses 10.77.0.1, … on one bridge."""
    names = [f"focuse-host{number}" for number in range(count)]
    try:
        ip("netns", "add", SWITCH)
        ip("-n", SWITCH, "link", "add", "bridge0", "type", "bridge")
        ip("-n", SWITCH, "link", "set", "bridge0", "up")
        for number, name in enumerate(names):
            ip("netns", "add", name)
            ip("-n", SWITCH, "link", "add", f"port{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("-n", SWITCH, "link", "set", f"port{number}", "master", "bridge0", "up")
            ip("-n", name, "addr", "add", f"10.77.0.{number + 1}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name, "link", "set", device, "up")
            if megabits:
                limit(name, megabits)
        yield names
    finally:
        for name in [*names, SWITCH]:
            ip("netns", "del", name, check=False)


def limit(host: str, megabits: float) -> None:
    shape = ["tbf", "rate", f"{megabits}mbit", "burst", "256kb", "latency", "100ms"]
    if subprocess.run(["ip", "netns", "exec", host, "tc", "qdisc", "add", "dev", "eth0", "root", *shape]).returncode:
        raise SystemExit("this kernel cannot limit a network (tc qdisc tbf); leave out --megabits")


def sent(host: str) -> int:
    """Bytes that a host has sent over its network."""
    shown = subprocess.run(["ip", "netns", "exec", host, "cat", "/proc/self/net/dev"], capture_output=True, text=True)
    return next(int(line.split()[9]) for line in shown.stdout.splitlines() if line.strip().startswith("eth0:"))


def train_on(names: list[str], processes: int, graph: Path, out: Path, settings: list[str]) -> float:
    """The training over hosts; seconds that it took, all told."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
    began, running = time.monotonic(), []
    for number, name in enumerate(names):
        meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"10.77.0.1:{PORT}", "--rdzv-id", "hosts"]
        # By their names, which all namespaces share, every host would take itself for the first.
        local = ["--local-addr", f"10.77.0.{number + 1}", "--rdzv-conf", f"is_host={int(number == 0)},timeout=100"]
        launch = ["-m", "torch.distributed.run", "--nnodes", str(len(names)), "--nproc-per-node", str(processes)]
        command = [sys.executable, *launch, *meeting, *local, "-m", "focuse", "train", str(graph), "--out", str(out)]
        running.append(
            subprocess.Popen(["ip", "netns", "exec", name, *command, "--engine", "sharded", *settings], env=environment)
        )
    try:
        codes = [process.wait(timeout=600) for process in running]
    finally:
        for process in running:
            process.kill()
    if any(codes):
        raise SystemExit(f"torchrun ended with {codes}")
    return time.monotonic() - began


def figures(run: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "focuse", "evaluate", str(run), "--json"]
    done = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8").stdout)
    rows = [json.loads(line) for line in (run / "history.jsonl").read_text(encoding="utf-8").splitlines()]
    epochs = sorted(row["seconds"] for row in rows)
    test = {"test_mrr": done["all"]["mrr"], "delta_mrr": done["delta_mrr"]}
    return {"loss": rows[-1]["loss"], **test, "seconds_an_epoch": epochs[len(epochs) // 2]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--processes", type=int, default=1, help="of each host")
    parser.add_argument("--megabits", type=float, default=0.0, help="a host sends a second at most [default: no limit]")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--graph", type=Path, help="[default: the careers graph]")
    given = smoke.parse(parser)
    if not given.smoke and (not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("ip") is None):
        raise SystemExit("network namespaces need root and the command ip")
    settings = ["--epochs", str(given.epochs), "--dim", "50", "--label-exponent", "1", "--quiet"]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        graph = given.graph
        if given.smoke:
            print(f"{smoke.write(folder)['train'].stat().st_size:,} bytes of edges written")
            smoke.missing("network namespaces and torchrun, which a smoke run does not start")
        if graph is None:
            subprocess.run([sys.executable, "-m", "focuse", "demo", "--graph-only", "--out", place], check=True)
            graph = folder / "careers.tsv"
        with hosts(given.hosts, given.megabits) as names:
            seconds = train_on(names, given.processes, graph, folder / "together", settings)
            bytes_sent = [sent(name) for name in names]
        alone = [sys.executable, "-m", "focuse", "train", str(graph), "--out", str(folder / "alone")]
        subprocess.run([*alone, "--engine", "torch", *settings], check=True, stdout=subprocess.DEVNULL)
        found = {name: figures(folder / name) for name in ("together", "alone")}
    print(json.dumps({**found, "seconds": seconds, "bytes_sent_by_each_host": bytes_sent}, indent=1))


if __name__ == "__main__":
    main()
