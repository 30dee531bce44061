"""A real server with slow clients: it stays reachable and closes their connections."""

from __future__ import annotations

import http.client
import json
import socket
import time
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest

pytest.importorskip("uvicorn")
CONNECTIONS = 40
HEALTH = b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
POST = b"POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def server(service, start_server):
    """(port, monitor) of a server with short time limits."""
    from focuse.explorer.app import make_app
    from focuse.explorer.guards import ConnectionMonitor

    monitor = ConnectionMonitor(io_timeout=0.5, max_connections=CONNECTIONS)
    with start_server(make_app(service, monitor=monitor)) as url:
        yield urlsplit(url).port, monitor


def connect(port: int, text: bytes) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=10)
    made.sendall(text)
    return made


def read_all(connection: socket.socket) -> bytes:
    text = b""
    with connection:
        try:
            while more := connection.recv(1 << 16):
                text += more
        except ConnectionResetError:
            pass
    return text


def is_healthy(port: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=10) as answer:
        return bool(json.load(answer)["status"] == "ready")


def wait_until(condition) -> bool:
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(condition())


@pytest.mark.parametrize(
    "text", [b"", b"GET /api/hea", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ", HEALTH + HEALTH[:20]]
)
def test_connection_with_an_incomplete_request_is_closed(server, text) -> None:
    answer = read_all(connect(server[0], text))
    assert answer.count(b"HTTP/1.1 ") == text.count(b"\r\n\r\n")


def test_incomplete_body_times_out(server) -> None:
    answer = read_all(connect(server[0], POST + b'Content-Length: 99\r\n\r\n{"head": '))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"content-security-policy" in answer.lower()


def test_many_half_open_connections_do_not_block_other_clients_for_long(server) -> None:
    port, monitor = server
    slow = [connect(port, b"GET / HTTP/1.1\r\n") for _ in range(3 * CONNECTIONS)]
    assert wait_until(lambda: len(monitor.connections) < CONNECTIONS)

    def answers() -> bool:
        try:
            return is_healthy(port)
        except urllib.error.HTTPError:  # some of the slow connections are accepted only now
            return False

    assert wait_until(answers)
    for one in slow:
        one.close()


def test_connection_that_reads_no_answer_is_closed(server) -> None:
    port, monitor = server
    assert wait_until(lambda: not monitor.connections)
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", port))
        deaf.sendall(
            b"GET /static/style.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 1500
        )  # more than the system buffers
        assert wait_until(lambda: monitor.connections)
        assert is_healthy(port)
        assert wait_until(lambda: not monitor.connections)


def test_active_connection_stays_open(server) -> None:
    """Longer than the time limit, as long as it sends requests."""
    end, connection = time.monotonic() + 2.5, http.client.HTTPConnection("127.0.0.1", server[0], timeout=10)
    connection.connect()
    first = connection.sock
    while time.monotonic() < end:
        connection.request("GET", "/api/health")
        assert json.load(connection.getresponse())["status"] == "ready"
    assert connection.sock is first  # a closed one would have been replaced
    connection.close()


@pytest.mark.parametrize(
    "text",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 70_000,
    ],
)
def test_requests_that_are_not_http_are_refused_and_not_logged(server, text, caplog, capfd) -> None:
    assert read_all(connect(server[0], text)).startswith(b"HTTP/1.1 400 ")
    assert not caplog.records
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 5000000\r\n\r\n" + b" " * 5_000_000,
        b"Content-Length: 1000000000000\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n" + (b"100000\r\n" + b" " * 2**20 + b"\r\n") * 5 + b"0\r\n\r\n",
    ],
    ids=["large", "declared", "chunked"],
)
def test_too_large_body_is_refused(server, body) -> None:
    with connect(server[0], POST + body) as connection:
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 413 ")
