"""The explorer's API under load on this machine: throughput, waiting times, errors, memory; then rude clients.

python benchmarks/load.py                          # trains a small run on the careers graph, 60 seconds
python benchmarks/load.py RUN --seconds 600 --clients 16 --json

The server is a process of its own, started by `focuse serve` on a free port of 127.0.0.1; nothing else is asked. Ends
by itself, with code 1 if anything failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import smoke
from load_parts.clients import HOST, Reply, Wire, ask, connect, request
from load_parts.floor import Empty, bare_prediction, whole_prediction
from load_parts.rough import ROUGH
from load_parts.server import IO_TIMEOUT, Server, slope

MIX = {  # what visitors ask, as they click: names and triples often, slow questions to the model seldom
    "health": 2,
    "run": 2,
    "page": 3,
    "entities": 6,
    "neighborhood": 4,
    "triples": 5,
    "predict": 5,
    "predict-weights": 2,
    "missing": 1,
    "explain": 1,
}
BOUNDS = {"predict": 10_000, "explain": 45_000, "missing": 45_000}  # milliseconds, also on a busy machine
FLAT = 2.0  # megabytes a minute that memory may grow by, once warm


@dataclass
class Tally:
    """Waiting times (seconds) of good answers by address, and what else came back."""

    took: dict[str, list[float]] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, seconds: float, reply: Reply) -> None:
        self.statuses[reply.status] += 1
        if reply.status == 200:
            self.took.setdefault(name, []).append(seconds)

    def quantile(self, share: float, name: str | None = None) -> float:
        rows = sorted(self.took.get(name, []) if name else [one for each in self.took.values() for one in each])
        return 1000 * rows[min(len(rows) - 1, int(share * len(rows)))] if rows else float("nan")

    def row(self, name: str | None, seconds: float) -> dict[str, Any]:
        count = len(self.took.get(name, [])) if name else sum(map(len, self.took.values()))
        told = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
        return {"answers": count, "per_second": round(count / seconds, 1)} | {
            key: round(self.quantile(share, name), 1) for key, share in told.items()
        }


def questions(run: Path) -> dict[str, list[bytes]]:
    """Requests of every kind, a few hundred each, about names of the run."""
    import focuse

    train = focuse.load(run).splits.train
    rows = range(0, len(train), max(1, len(train) // 200))
    triples = [
        (train.entities[train.head[i]], train.relations[train.relation[i]], train.entities[train.tail[i]]) for i in rows
    ]
    heads = [quote(head, safe="") for head, _, _ in triples]
    posts = [{"head": head, "relation": relation, "tail": tail} for head, relation, tail in triples]
    two = [{"head": one["head"], "relation": one["relation"], "top": 10} for one in posts]
    return {
        "health": [request("GET", "/api/health")],
        "run": [request("GET", "/api/run")],
        "page": [request("GET", path) for path in ("/", "/static/main.js", "/static/style.css")],
        "entities": [request("GET", f"/api/entities?q={quote(head[:3])}") for head, _, _ in triples],
        "neighborhood": [request("GET", f"/api/neighborhood?entity={head}") for head in heads],
        "triples": [request("GET", f"/api/triples?entity={head}") for head in heads],
        "predict": [request("POST", "/api/predict", one) for one in two],
        "predict-weights": [
            request("POST", "/api/predict-weights", {"triples": posts[at : at + 5]}) for at in range(len(posts) - 5)
        ],
        "missing": [request("GET", f"/api/missing?entity={head}") for head in heads],
        "explain": [request("POST", "/api/explain", one) for one in posts],
    }


async def visitor(
    port: int, asked: dict[str, list[bytes]], turns: list[str], number: int, end: float, tally: Tally
) -> None:
    """One client on one connection, asking one thing after another; a broken connection is counted and made again."""
    wire, turn = None, number
    while time.monotonic() < end:
        name = turns[(turn * 7919 + number) % len(turns)]
        text = asked[name][(turn * 31 + number) % len(asked[name])]
        turn += 1
        began = time.monotonic()
        try:
            wire = wire or await connect(port)
            reply = await ask(wire, text)
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            tally.faults[f"{name}: {type(error).__name__} {error}"[:80]] += 1
            wire = await _closed(wire)
            continue
        tally.add(name, time.monotonic() - began, reply)
        if reply.status == 200 and reply.json:
            try:
                json.loads(reply.body)
            except ValueError:
                tally.faults[f"{name}: not JSON"] += 1
        if reply.close:
            wire = await _closed(wire)
        if reply.status in (429, 503):  # as they were told
            await asyncio.sleep(min(float(reply.headers.get("retry-after", "1")), 1.0))
    await _closed(wire)


async def _closed(wire: Wire | None) -> None:
    if wire is not None:
        wire.close()


async def load(
    server: Server | Empty,
    asked: dict[str, list[bytes]],
    mix: dict[str, int],
    clients: int,
    seconds: float,
    watch: list[Any],
) -> Tally:
    """So many visitors for so long; memory and files of the server are noted on the way."""
    tally, turns = Tally(), [name for name, share in mix.items() for _ in range(share)]
    end = time.monotonic() + seconds
    visitors = [
        asyncio.create_task(visitor(server.port, asked, turns, number, end, tally)) for number in range(clients)
    ]
    began = time.monotonic()
    while time.monotonic() < end:
        watch.append((round(time.monotonic() - began, 1), *server.usage()))
        await asyncio.sleep(min(10.0, max(0.25, seconds / 6), max(0.01, end - time.monotonic())))
    await asyncio.gather(*visitors)
    watch.append((round(time.monotonic() - began, 1), *server.usage()))
    return tally


async def phase_load(server: Server, asked: Any, options: Any, say: Callable[[str, bool, str], None]) -> dict[str, Any]:
    """Sustained load of the whole mix."""
    await load(server, asked, MIX, options.clients, min(3.0, options.seconds / 4), [])  # what is made once is made
    watch: list[Any] = []
    tally = await load(server, asked, MIX, options.clients, options.seconds, watch)
    memory = slope([(at, used) for at, used, _ in watch[len(watch) // 4 :]]) * 60
    bad = sum(count for status, count in tally.statuses.items() if status != 200)
    say("sustained load", not bad and not tally.faults, f"{dict(tally.statuses)} {dict(tally.faults)}")
    grown = watch[-1][1] - watch[len(watch) // 4][1]
    say("memory is flat", memory <= FLAT or grown <= 8, f"{memory:+.2f} MB a minute, {grown:+.1f} MB")
    rows = {name: tally.row(name, options.seconds) for name in MIX} | {"all": tally.row(None, options.seconds)}
    return {"addresses": rows, "watch": watch, "memory_mb_a_minute": round(memory, 2)}


async def phase_floor(
    server: Server, asked: Any, options: Any, say: Callable[[str, bool, str], None]
) -> dict[str, Any]:
    """What each costs alone, one client; and beside it a server that does nothing, and the sums of a prediction."""
    told: dict[str, Any] = {}
    seconds = max(0.3, options.seconds / 60)
    for name in MIX:
        told[name] = (await load(server, asked, {name: 1}, 1, seconds, [])).row(name, seconds)
    with Empty() as empty:
        await load(empty, asked, {"health": 1}, options.clients, 0.3, [])
        most = (await load(empty, asked, {"health": 1}, options.clients, seconds, [])).row("health", seconds)
    rates = {"an empty application": most["per_second"]}
    for name in ("health", "entities", "triples", "predict"):
        one = await load(server, asked, {name: 1}, options.clients, seconds, [])
        rates[f"{name} alone"] = one.row(name, seconds)["per_second"]
    costs = {"bare_ms": round(bare_prediction(options.run), 3), "whole_ms": round(whole_prediction(options.run), 3)}
    return told | {"rates": rates, "prediction": costs}


async def phase_overload(
    server: Server, asked: Any, options: Any, say: Callable[[str, bool, str], None]
) -> dict[str, Any]:
    """Many more questions to the model than may wait: some are turned away, the others answered in bounded time."""
    seconds = max(1.5, options.seconds / 6)
    tally = await load(server, asked, {"predict": 6, "explain": 2, "missing": 1}, options.crowd, seconds, [])
    others = set(tally.statuses) - {200, 429, 503}
    say(
        "overload: only 200, 429 and 503",
        not others and not tally.faults,
        f"{dict(tally.statuses)} {dict(tally.faults)}",
    )
    say(
        "overload: some are turned away",
        bool(tally.statuses[429]),
        f"{tally.statuses[429]:,} of {tally.statuses.total():,}",
    )
    for name, most in BOUNDS.items():
        late = tally.quantile(0.99, name)
        say(f"overload: p99 of {name} below {most / 1000:g} s", not late >= most, f"{late:,.0f} ms")
    after = await load(server, asked, {"health": 1, "predict": 1}, 2, max(1.0, seconds / 4), [])
    say("overload: recovered", set(after.statuses) == {200} and not after.faults, f"{dict(after.statuses)}")
    return {name: tally.row(name, seconds) for name in ("predict", "explain", "missing")} | {
        "statuses": dict(tally.statuses),
        "clients": options.crowd,
    }


PHASES = {"floor": phase_floor, "load": phase_load, "overload": phase_overload}


def print_tables(told: dict[str, Any], options: Any) -> None:
    load, floor = told.get("load") or {"addresses": {}, "watch": []}, told.get("floor") or {}
    print(f"\n{options.clients} clients, {options.seconds:g} seconds, {os.cpu_count()} cores; milliseconds\n")
    print("| address | answers | a second | p50 | p95 | p99 | most | p50 alone |\n|" + " --- |" + " ---: |" * 7)
    for name, row in load["addresses"].items():
        alone = floor.get(name, {}).get("p50", "")
        cells = [f"{row['answers']:,}", row["per_second"], row["p50"], row["p95"], row["p99"], row["max"], alone]
        print(f"| {name} | " + " | ".join(map(str, cells)) + " |")
    if floor:
        rates, bare = floor["rates"], floor["prediction"]
        print(f"\n| {options.clients} clients, one kind of question | a second | of an empty application |")
        print("| --- | ---: | ---: |")
        for name, rate in rates.items():
            print(f"| {name} | {rate:,.0f} | {rate / rates['an empty application']:.0%} |")
        print(
            f"\nA prediction: {bare['bare_ms']} ms for scores and the best ten alone, {bare['whole_ms']} ms with",
            end=" ",
        )
        print("names, known triples, weights, intervals and probabilities.")
    print("\n| seconds | memory, MB | open files |\n| ---: | ---: | ---: |")
    for at, memory, files in load["watch"]:
        print(f"| {at:.0f} | {memory:.1f} | {files} |")
    print("\n| check | result | |\n| --- | --- | --- |")
    for check in told["checks"]:
        print(f"| {check['check']} | {'ok' if check['ok'] else 'FAILED'} | {check['told']} |")


async def measure(run: Path, options: Any) -> dict[str, Any]:
    checks: list[dict[str, Any]] = []

    def say(check: str, fine: bool, told: str) -> None:
        checks.append({"check": check, "ok": bool(fine), "told": told})
        print(f"{'ok    ' if fine else 'FAILED'} {check}: {told}", file=sys.stderr, flush=True)

    asked = questions(run)
    with Server(run) as server:
        first = server.usage()
        told: dict[str, Any] = {}
        for name, phase in (PHASES | ROUGH).items():
            if name in options.phases:
                told[name] = await phase(server, asked, options, say)
        await server.settled(first[1] + 8, IO_TIMEOUT + 8)
        last = server.usage()
        say("open files are as at the start", last[1] <= first[1] + 8, f"{first[1]} and {last[1]}")
        reply = await ask(await connect(server.port), request("GET", "/api/health"))
        say(
            "healthy at the end", reply.status == 200 and json.loads(reply.body)["status"] == "ready", f"{reply.status}"
        )
        code, errors = server.stop()
        say(
            "stopped when told, nothing on its terminal",
            code == 0 and errors == "focuse: stopped\n",
            f"{code} {errors[-300:]!r}",
        )
    return told | {"checks": checks, "memory_mb": [first[0], last[0]], "files": [first[1], last[1]]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "run", type=Path, nargs="?", help="a trained run; without it one is trained on the careers graph"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of sustained load")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--crowd", type=int, default=120, help="clients of the overload")
    parser.add_argument("--slow", type=int, default=500, help="half-open connections")
    parser.add_argument("--garbage", type=int, default=3000, help="malformed requests")
    parser.add_argument("--cuts", type=int, default=60, help="connections cut at each address")
    parser.add_argument("--soon", type=float, default=2.0, help="seconds within which others are answered meanwhile")
    parser.add_argument("--phases", default=",".join(PHASES | ROUGH), help="those to go through; all without it")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    options = smoke.parse(parser, seconds=0.5, crowd=90, cuts=2, soon=30.0, phases="load,overload,large,cut")
    options.phases = options.phases.split(",")
    if unknown := set(options.phases) - set(PHASES | ROUGH):
        parser.error(f"no phase {', '.join(unknown)}; there are {', '.join(PHASES | ROUGH)}")
    if not (
        0 < options.seconds <= 36_000 and all(0 < n <= 900 for n in (options.clients, options.crowd, options.slow))
    ):
        parser.error("at most ten hours, and 900 of each kind of client")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # one that is killed takes its server along
    print(f"asks {HOST} only", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        run = options.run
        if run is None:
            import focuse
            from focuse.data.datasets import careers

            run = Path(folder) / "careers"
            if options.smoke:
                smoke.train(run)
            else:
                focuse.train(careers(), weight_mode="soft-labels", dim=100, epochs=30, out=run, progress=False)
        options.run = run
        told = asyncio.run(measure(run, options))
    if options.json:
        print(json.dumps(told, indent=2))
    else:
        print_tables(told, options)
    sys.exit(0 if all(check["ok"] for check in told["checks"]) else 1)


if __name__ == "__main__":
    main()
