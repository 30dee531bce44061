"""A real server with slow clients: it stays reachable and closes their connections."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.request

import pytest

from focuse.explorer.limits import Limits

TAKEN = Limits(patience=0.5, connections=40)
pytest.importorskip("uvicorn")


@pytest.fixture(scope="module")
def server(state):
    """In a thread, as the command starts it; (port, door)."""
    import uvicorn

    from focuse.explorer.app import make_app
    from focuse.explorer.connections import Door
    from focuse.explorer.server import configuration, listen

    listener, door = listen("127.0.0.1", 0), Door(TAKEN)
    server = uvicorn.Server(configuration(make_app(state, taken=TAKEN), door))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield listener.getsockname()[1], door
    server.should_exit = True
    thread.join(10)


def connect(port: int, said: bytes) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=10)
    made.sendall(said)
    return made


def rest(connection: socket.socket) -> bytes:
    """All that it says until it ends."""
    text = b""
    with connection:
        while more := connection.recv(1 << 16):
            text += more
    return text


def healthy(port: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=10) as answer:
        return bool(json.load(answer)["status"] == "ready")


def entered(door) -> bool:
    end = time.monotonic() + 10
    while not door.inside and time.monotonic() < end:
        time.sleep(0.01)
    return bool(door.inside)


def emptied(door) -> bool:
    end = time.monotonic() + 10
    while door.inside and time.monotonic() < end:
        time.sleep(0.05)
    return not door.inside


@pytest.mark.parametrize(
    "said", [b"", b"GET /api/hea", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ", b"GET / HTTP/1.1\r\nHost: x\r\n"]
)
def test_incomplete_request_times_out(server, said) -> None:
    answer = rest(connect(server[0], said))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"] == "no whole request within 0.5 seconds"
    assert b"content-security-policy" in answer


def test_incomplete_body_times_out(server) -> None:
    head = (
        b"POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"
    )
    answer = rest(connect(server[0], head + b'{"head": '))
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_incomplete_second_request_times_out(server) -> None:
    whole = b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    connection = connect(server[0], whole)
    assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    connection.sendall(whole[:20])
    assert b"HTTP/1.1 408 " in rest(connection)


def test_many_half_open_connections_do_not_block_other_clients(server) -> None:
    port, door = server
    slow = [connect(port, b"GET / HTTP/1.1\r\n") for _ in range(3 * TAKEN.connections)]
    assert healthy(port)
    assert len(door.inside) <= TAKEN.connections
    for one in slow:
        one.close()
    assert emptied(door)


def test_connection_that_reads_no_answer_is_closed(server) -> None:
    port, door = server
    assert emptied(door)
    asked = b"GET /static/style.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", port))
        deaf.sendall(asked * 400)  # 7 MB of answers, more than the system keeps for it
        assert entered(door)
        assert healthy(port)
        assert emptied(door)


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /" + b"a" * 70_000, 431),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 70_000, 431),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 400),
    ],
)
def test_requests_that_are_not_http_are_refused_and_not_logged(server, said, status, caplog) -> None:
    answer = rest(connect(server[0], said))
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert not caplog.records


@pytest.mark.parametrize("place", ["http://127.0.0.1", "HTTP://LocalHost.:80", "http://[0:0::1]"])
def test_absolute_url_is_handled_like_its_path(server, place) -> None:
    for path, begins in (("/api/entities?q=Person%203&limit=1", b'{"query":"Person 3"'), ("", b"<!DOCTYPE html>")):
        asked = f"GET {place}{path} HTTP/1.1\r\nHost: elsewhere.example\r\nConnection: close\r\n\r\n"
        head, _, body = rest(connect(server[0], asked.encode())).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), (head, body)
        assert body.startswith(begins)


def test_garbage_after_a_request_closes_the_connection(server) -> None:
    port, door = server
    rest(connect(port, b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n\x00\x01 nonsense\r\n\r\n"))
    assert healthy(port)
    assert emptied(door) or len(door.inside) <= 1


def test_file_limit_is_raised_for_every_connection() -> None:
    resource = pytest.importorskip("resource")
    from focuse.explorer.connections import SPARE, room_for

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, before[1]))
        room = room_for(500)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= room + SPARE or room < 500
        assert room_for(10**9) < 10**9
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
