"""Guards of the application: hosts, origins, bodies, security headers, and files of the page."""

import asyncio
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from focuse.explorer import app
from focuse.explorer.guards import MAX_BODY, ConnectionMonitor, RequestGuard, allowed_hosts
from focuse.explorer.server import is_loopback

STATIC = {path.name: path.read_bytes() for path in (Path(app.__file__).parent / "static").iterdir()}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8000", "LOCALHOST", "[::1]:8000", "127.0.0.1:80"])
def test_own_host_names_are_accepted(client, host) -> None:
    assert client.get("/api/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8000", "10.0.0.7", "", ".", "a:b:c", "["),
        *("::", "[::1]evil.example", "localhost:80.evil.example", "user@localhost", "localhost..", "box.local"),
    ],
)
def test_foreign_host_names_are_refused(client, host) -> None:
    """A page on another server can make its own name point to 127.0.0.1; its requests carry that name."""
    for address in ("/api/health", "/", "/static/main.js"):
        assert client.get(address, headers={"host": host}).status_code == 400


def test_public_server_accepts_its_addresses_and_names_only(monkeypatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Box")
    hosts = allowed_hosts("0.0.0.0")
    assert {"localhost", "127.0.0.1", "[::1]", "box", "box.local"} <= set(hosts)
    assert "*" not in hosts
    assert set(allowed_hosts("box.lan")) == {"localhost", "127.0.0.1", "[::1]", "box.lan"}
    assert "[fe80::1]" in allowed_hosts("fe80::1")


def test_loopback_addresses_are_recognized() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "192.168.1.5", "example.org"]))


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_forms_of_other_sites_cannot_post(client, kind) -> None:
    headers = {"content-type": kind} if kind else {}
    answer = client.post("/api/predict", content=b'{"head": "Person 3", "relation": "knows"}', headers=headers)
    assert answer.status_code == 415


@pytest.mark.parametrize("address", ["/", "/docs", "/static/style.css", "/api/health", "/api/nothing", "/api/entities"])
def test_every_answer_has_security_headers(client, address) -> None:
    answer = client.get(address, headers={"origin": "http://evil.example"})
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://[::1"},
        {"origin": "http://127.0.0.1.evil.example"},
        {"origin": "localhost"},
    ],
)
def test_requests_from_other_sites_are_refused(client, headers) -> None:
    answer = client.get("/api/missing", params={"entity": "Person 3"}, headers=headers)
    assert answer.status_code == 403
    assert answer.json()["error"] == "a page of another site sent this"
    assert client.get("/", headers=headers).status_code == 200  # a link may lead here


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://localhost:8000"}, {"origin": "http://[::1]:8000"}, {"sec-fetch-site": "same-origin"}, {}],
)
def test_own_page_and_programs_are_answered(client, headers) -> None:
    assert client.get("/api/health", headers=headers).status_code == 200


def post(chunks, headers=()) -> int:
    """The status with which a guard answers a body of these chunks that does not end."""
    messages, left = [], list(chunks)

    async def receive():
        if not left:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": left.pop(0), "more_body": True}

    async def send(message) -> None:
        messages.append(message)

    scope = {"type": "http", "method": "POST", "path": "/api/predict", "headers": list(headers)}
    guard = RequestGuard(None, ["127.0.0.1"], ConnectionMonitor(io_timeout=0.1))  # type: ignore[arg-type]
    asyncio.run(guard(scope, receive, send))
    return messages[0]["status"]


def test_endless_and_large_bodies_are_refused() -> None:
    assert post([b"{"]) == 408
    assert post([b" " * 2**20] * (1 + MAX_BODY // 2**20)) == 413
    for length in (b"99999999", b"9" * 40, "²".encode("latin-1")):
        assert post([], [(b"content-length", length)]) == 413


ATTEMPTS = [
    "../../pyproject.toml",
    "..%2f..%2fpyproject.toml",
    "%2e%2e/%2e%2e/pyproject.toml",
    "..%5c..%5cpyproject.toml",
    "....//....//etc/passwd",
    "%252e%252e%252fetc%252fpasswd",
    "/etc/passwd",
    "style.css%00.png",
    "index.html/../../server.py",
    "__init__.py",
    "",
]


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_paths_do_not_reach_files(client, attempt) -> None:
    for place in ("/static/", "/", "/api/", "/docs/"):
        answer = client.get(place + attempt, follow_redirects=False)
        assert answer.status_code == 404 or answer.content in STATIC.values(), (place, unquote(attempt))
        assert b"root:" not in answer.content
        assert b"[project]" not in answer.content


def test_pages_load_resources_of_this_server_only(client) -> None:
    text = "\n".join(content.decode() for content in STATIC.values())
    assert set(re.findall(r"https?://[^\s\"'`)]+", text)) == {"http://www.w3.org/2000/svg"}
    for name in re.findall(r"/static/([\w.]+)", text):
        assert client.get(f"/static/{name}").status_code == 200
    for name in re.findall(r'from "\./([\w.]+)"', text):
        assert name in STATIC
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
    assert all(content.count(b"\n") <= 400 for content in STATIC.values())


def test_files_of_the_page_are_checked_for_changes_at_every_visit(client) -> None:
    """A browser that kept files of an older version would ask the API for what it no longer has."""
    answer = client.get("/static/main.js")
    assert (answer.headers["cache-control"], answer.headers["content-type"]) == (
        "no-cache",
        "text/javascript; charset=utf-8",
    )
