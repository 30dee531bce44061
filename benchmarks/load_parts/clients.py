"""HTTP by hand: a client that can also send half a request, or not take its answer."""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import dataclass, field
from typing import Any

HOST = "127.0.0.1"  # nowhere else
PATIENCE = 90.0  # seconds that an answer may take


@dataclass
class Wire:
    """An open connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def close(self, rudely: bool = False) -> None:
        """`rudely` resets it: what is under way is lost."""
        if rudely:
            made = self.writer.get_extra_info("socket")
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.writer.transport.abort()
        else:
            self.writer.close()


@dataclass
class Reply:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> bool:
        return self.headers.get("content-type", "").startswith("application/json")

    @property
    def close(self) -> bool:
        return self.headers.get("connection", "").lower() == "close"


def request(method: str, address: str, body: Any = None, more: str = "") -> bytes:
    """The bytes of a request; `body` as JSON."""
    text = b"" if body is None else json.dumps(body).encode()
    lines = f"{method} {address} HTTP/1.1\r\nHost: {HOST}\r\n{more}"
    if body is not None:
        lines += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n"
    return lines.encode() + b"\r\n" + text


async def connect(port: int, **options: Any) -> Wire:
    return Wire(*await asyncio.wait_for(asyncio.open_connection(HOST, port, **options), 20))


async def ask(wire: Wire, text: bytes) -> Reply:
    """Send a request and read its whole answer."""
    wire.writer.write(text)
    return await answer(wire)


async def answer(wire: Wire) -> Reply:
    async with asyncio.timeout(PATIENCE):
        head = await wire.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        reply = Reply(int(first.split()[1]), headers)
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await wire.reader.readuntil(b"\r\n"), 16):
                reply.body += (await wire.reader.readexactly(size + 2))[:-2]
            await wire.reader.readexactly(2)
        else:
            reply.body = await wire.reader.readexactly(int(headers.get("content-length", "0")))
        return reply
