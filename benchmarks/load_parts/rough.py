"""Clients that misbehave: too large, too slow, cut off. Each phase checks that others are still answered quickly."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from load_parts.clients import HOST, Wire, answer, ask, connect, request
from load_parts.server import IO_TIMEOUT, Server

Say = Callable[[str, bool, str], None]
HALF = f"GET /api/health HTTP/1.1\r\nHost: {HOST}\r\nX-Slow: ".encode()
POST = f"POST /api/predict HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n".encode()


async def bystander(server: Server, asked: dict[str, list[bytes]], count: int = 20) -> float:
    """The longest that an honest visitor waits, on new connections; infinity if one answer is not 200."""
    longest = 0.0
    for number in range(count):
        began = time.monotonic()
        for name in ("health", "entities", "predict"):
            wire = await connect(server.port)
            reply = await ask(wire, asked[name][number % len(asked[name])])
            wire.close()
            if reply.status != 200:
                return float("inf")
        longest = max(longest, time.monotonic() - began)
    return longest


async def too_large(server: Server, asked: dict[str, list[bytes]], options: Any, say: Say) -> None:
    """Bodies, addresses and headers beyond the limits, declared or not: 413, 422 or 400, and memory stays."""
    before, statuses = server.usage()[0], Counter[str]()
    kinds = {
        "body of 5 MB": POST + b"Content-Length: 5000000\r\n\r\n" + b" " * 5_000_000,
        "body said to be a terabyte": POST + b"Content-Length: 1000000000000\r\n\r\n",
        "chunks of 5 MB": POST
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + (b"10000\r\n" + b" " * 65_536 + b"\r\n") * 80
        + b"0\r\n\r\n",
        "address of 50 kB": request("GET", "/api/entities?q=" + "a" * 50_000),
        "headers without end": HALF + b"a" * 200_000,
        "a deep list": request(
            "POST", "/api/predict", None, "Content-Type: application/json\r\nContent-Length: 200000\r\n"
        )
        + b"[" * 200_000,
    }
    for name, text in kinds.items():
        for _ in range(5):
            wire = await connect(server.port)
            try:
                statuses[f"{name}: {(await ask(wire, text)).status}"] += 1
            except (OSError, EOFError) as error:
                statuses[f"{name}: {type(error).__name__}"] += 1
            wire.close()
    wanted = {"body of 5 MB: 413", "body said to be a terabyte: 413", "chunks of 5 MB: 413"}
    wanted |= {"address of 50 kB: 422", "headers without end: 400", "a deep list: 400"}
    say("too large is refused", set(statuses) == wanted, ", ".join(statuses))
    grown = server.usage()[0] - before
    say("too large: memory", grown < 30, f"{grown:+.1f} MB")


async def slow_headers(server: Server, asked: dict[str, list[bytes]], options: Any, say: Say) -> None:
    """Half-open connections that send a byte now and then: others are answered, these are closed."""
    before = server.usage()[1]
    wires = [await connect(server.port) for _ in range(options.slow)]
    for wire in wires:
        wire.writer.write(HALF)
    stop = asyncio.Event()

    async def drip() -> None:
        while not stop.is_set():
            for wire in wires:
                if not wire.writer.is_closing():
                    wire.writer.write(b"a")
            await asyncio.sleep(0.5)

    dripping = asyncio.create_task(drip())
    longest = await bystander(server, asked)
    waited = f"others wait {longest:.2f} s at most"
    say(f"{options.slow} half-open connections stop nobody", longest < options.soon, waited)
    gone = await server.settled(before + 4, IO_TIMEOUT + 8)
    stop.set()
    await dripping
    for wire in wires:
        wire.close()
    say("half-open connections are closed", gone, f"{server.usage()[1]} files open")


async def slow_bodies(server: Server, asked: dict[str, list[bytes]], options: Any, say: Say) -> None:
    """Bodies that do not come to an end: 408."""
    wires = [await connect(server.port) for _ in range(options.slow // 2)]
    for wire in wires:
        wire.writer.write(POST + b'Content-Length: 90\r\n\r\n{"head": ')
    longest = await bystander(server, asked, 8)
    statuses = Counter([(await answer(wire)).status for wire in wires])
    for wire in wires:
        wire.close()
    fine = longest < options.soon and set(statuses) == {408}
    say(f"{len(wires)} half-sent bodies", fine, f"{dict(statuses)}, others wait {longest:.2f} s at most")


async def slow_readers(server: Server, asked: dict[str, list[bytes]], options: Any, say: Say) -> None:
    """Clients that ask much and take nothing: what is kept for them is bounded, and thrown away after a while."""
    memory, files = server.usage()
    deaf = []
    for _ in range(min(100, options.slow)):
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, (HOST, server.port))
        with suppress(BlockingIOError):
            made.send(request("GET", "/static/style.css") * 400)
        deaf.append(made)
    longest = await bystander(server, asked, 8)
    most = server.usage()[0]
    gone = await server.settled(files + 4, IO_TIMEOUT + 8)
    for made in deaf:
        made.close()
    say(f"{len(deaf)} clients that do not read", longest < options.soon, f"others wait {longest:.2f} s at most")
    say("answers not taken are bounded", most - memory < 60, f"{most - memory:+.1f} MB for {len(deaf)}")
    say("answers not taken are thrown away", gone, f"{server.usage()[1]} files open")


async def cut(server: Server, asked: dict[str, list[bytes]], options: Any, say: Say) -> None:
    """Connections reset in the middle of a request, while the model works, and in the middle of an answer."""
    before, count = server.usage(), 0
    for number in range(options.cuts):
        for name, asks in asked.items():
            text = asks[number % len(asks)]
            wire: Wire = await connect(server.port)
            wire.writer.write(text[: 1 + (number * 37) % len(text)] if number % 3 else text)
            if number % 3 == 0 and name in ("page", "triples", "run"):
                await wire.reader.read(100)
            elif number % 3 == 1:
                await asyncio.sleep(0.002)
            wire.close(rudely=True)
            count += 1
    longest = await bystander(server, asked, 8)
    health = json.loads((await ask(await connect(server.port), request("GET", "/api/health"))).body)
    settled = await server.settled(before[1] + 4, IO_TIMEOUT + 8)
    after = server.usage()
    say(
        f"{count} connections cut",
        longest < options.soon and settled,
        f"others wait {longest:.2f} s at most, files {after[1]}",
    )
    say("work for those who left is given up", health["waiting"] == 0, f"{health['waiting']} questions wait")
    grown = after[0] - before[0]
    say("connections cut: memory", grown < 30, f"{grown:+.1f} MB")


async def garbage(server: Server, asked: dict[str, list[bytes]], options: Any, say: Say) -> None:
    """Bytes that are no HTTP, and requests with some bytes changed: an answer or an end, never a 500."""
    import random

    chance, statuses = random.Random(0), Counter[str]()
    texts = [text for asks in asked.values() for text in asks]
    for number in range(options.garbage):
        text = bytearray(chance.choice(texts))
        if number % 4 == 0:
            text = bytearray(chance.randbytes(chance.randrange(1, 300)))
        for _ in range(chance.choice([1, 2, 8])):
            text[chance.randrange(len(text))] = chance.choice([0, 10, 13, 32, 37, 92, 255, chance.randrange(256)])
        wire = await connect(server.port)
        wire.writer.write(bytes(text) + b"\r\n\r\n")
        wire.writer.write_eof()
        try:
            statuses[str((await answer(wire)).status)] += 1
        except (OSError, EOFError):
            statuses["ended"] += 1
        wire.close()
    allowed = {"ended", "200", "304", *map(str, (400, 403, 404, 405, 408, 411, 413, 414, 415, 422, 429, 431, 501))}
    say(f"{options.garbage:,} malformed requests", set(statuses) <= allowed, f"{dict(statuses.most_common())}")


ROUGH = {
    "large": too_large,
    "headers": slow_headers,
    "bodies": slow_bodies,
    "readers": slow_readers,
    "cut": cut,
    "garbage": garbage,
}
