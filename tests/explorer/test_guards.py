"""Guards of the server: hosts, origins, sizes, rates and security headers."""

import re
from urllib.parse import unquote

import pytest

from focuse.errors import FocuseError
from focuse.explorer import limits
from focuse.explorer.app import assets
from focuse.explorer.guards import Guard, Rates, is_loopback
from focuse.explorer.limits import Limits


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost:8000", "LOCALHOST.", "localhost.:80", "[::1]:8000", "[0:0:0:0:0:0:0:1]", "127.0.0.1:"],
)
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


def test_public_server_accepts_addresses_but_no_foreign_names() -> None:
    guard = Guard(None, host="0.0.0.0")  # type: ignore[arg-type]
    assert guard._known("192.168.1.5")
    assert guard._known("fe80::1")
    assert not any(map(guard._known, ["evil.example", "", "box.evil.example"]))
    named = Guard(None, host="box.lan")  # type: ignore[arg-type]
    assert named._known("box.lan")
    assert not named._known("192.168.1.5")


@pytest.mark.parametrize("called", ["Box", "box.lan", "box.lan."])
def test_public_server_accepts_its_own_names(monkeypatch, called) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: called)
    guard = Guard(None, host="0.0.0.0")  # type: ignore[arg-type]
    assert all(map(guard._known, ["box", "box.local", called.lower().rstrip(".")]))
    assert not any(map(guard._known, ["box.evil.example", "box.local.evil.example", "other.local", "local", ".local"]))
    assert not Guard(None, host="127.0.0.1")._known("box")  # type: ignore[arg-type]


def test_loopback_addresses_are_recognized() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LocalHost."]))
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
    assert answer.json()["error"] == "a page of another site asks"
    assert client.get("/", headers=headers).status_code == 200  # a link may lead here


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://localhost:8000"}, {"origin": "http://localhost.:8000"}, {"sec-fetch-site": "same-origin"}, {}],
)
def test_own_page_and_programs_are_answered(client, headers) -> None:
    assert client.get("/api/health", headers=headers).status_code == 200


def test_too_long_address_is_refused(client) -> None:
    answer = client.get("/api/entities", params={"q": "a" * limits.ADDRESS})
    assert (answer.status_code, answer.json()["error"]) == (414, "the address is longer than 40,960 bytes")


def test_too_long_headers_are_refused(client) -> None:
    many = {f"x-{number}": "a" * 1000 for number in range(66)}
    answer = client.get("/api/health", headers=many)
    assert (answer.status_code, answer.json()["error"]) == (431, "the headers are longer than 65,536 bytes")
    assert client.get("/api/health", headers=dict(list(many.items())[:60])).status_code == 200


def send(guard, chunks, headers=()):
    """What a guard answers to a POST of these chunks: status and headers. An endless body is asked for in vain."""
    import asyncio

    told, left = [], list(chunks)

    async def receive():
        if not left:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": left.pop(0), "more_body": True}

    async def answer(message) -> None:
        told.append(message)

    scope = {"type": "http", "method": "POST", "path": "/api/predict", "raw_path": b"", "query_string": b""}
    scope["headers"] = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), *headers]
    asyncio.run(guard(scope, receive, answer))
    return told[0]["status"], dict(told[0]["headers"]), len(left)


def test_endless_body_times_out() -> None:
    guard = Guard(None, taken=Limits(patience=0.1))  # type: ignore[arg-type]
    status, headers, _ = send(guard, [b"{"])
    assert (status, headers[b"connection"]) == (408, b"close")
    # One too large is read on for a while, so that whoever sends it hears the answer; not one that says it is vast.
    status, headers, left = send(guard, [b" " * 2**20] * 9)
    assert (status, headers[b"connection"], left) == (413, b"close", 4)
    assert send(guard, [b" "], [(b"content-length", b"99999999")])[::2] == (413, 1)
    assert send(guard, [b" "], [(b"content-length", "²".encode("latin-1"))])[::2] == (413, 1)
    assert send(guard, [b" "], [(b"content-length", b"300000"), (b"expect", b"100-continue")])[::2] == (413, 1)


def test_rate_of_a_client_is_limited(state) -> None:
    from starlette.testclient import TestClient

    from focuse.explorer.app import make_app

    client = TestClient(make_app(state, taken=Limits(rate=0.5)), base_url="http://127.0.0.1")
    assert client.get("/api/health").status_code == 200
    refused = client.get("/api/health")
    assert refused.status_code == 429
    assert refused.json()["error"] == "more than 0.5 requests a second"
    assert int(refused.headers["retry-after"]) in (1, 2)
    assert client.get("/static/main.js").status_code == 200  # the page itself is not counted


def test_rates_of_many_clients_use_bounded_memory() -> None:
    rates = Rates(5.0, clients=100)
    for number in range(1000):
        assert rates.wait(f"client {number}", now=1.0) == 0
    assert len(rates._left) == 100
    asked = [rates.wait("one", now=2.0 + 0.001 * n) for n in range(20)]
    assert asked[:10] == [0.0] * 10
    assert asked[-1] == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [({"waiting": 0}, "--waiting 0: give 1"), ({"rate": float("nan")}, "--rate nan"), ({"seconds": 0.0}, "--timeout")],
)
def test_invalid_limits_are_refused(wrong, told) -> None:
    with pytest.raises(FocuseError, match=told):
        Limits(**wrong)


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
        shown = [asset.content for asset in assets().values()]
        assert answer.status_code == 404 or answer.content in shown, (place, unquote(attempt))
        assert b"root:" not in answer.content
        assert b"[project]" not in answer.content


def test_pages_load_resources_of_this_server_only(client) -> None:
    found = assets()
    text = "\n".join(asset.content.decode() for asset in found.values())
    assert set(re.findall(r"https?://[^\s\"'`)]+", text)) == {"http://www.w3.org/2000/svg"}
    for name in re.findall(r"/static/([\w.]+)", text):
        assert client.get(f"/static/{name}").status_code == 200
    for name in re.findall(r'from "\./([\w.]+)"', text):
        assert name in found
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
    assert all(asset.content.count(b"\n") <= 400 for asset in found.values())


def test_unchanged_file_is_not_sent_again(client) -> None:
    first = client.get("/static/main.js")
    again = client.get("/static/main.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_openapi_description_lists_every_address(client) -> None:
    told = client.get("/openapi.json").json()
    names = "health run entities neighbourhood facts predict missing explain weigh batch compare export"
    assert sorted(told["paths"]) == sorted(f"/api/{name}" for name in names.split())
    for methods in told["paths"].values():
        for one in methods.values():
            assert one["responses"]["404"]["content"]["application/json"]["schema"]["$ref"].endswith("/Problem")


def test_openapi_description_lists_the_file_formats(client) -> None:
    told = client.get("/openapi.json").json()["paths"]["/api/export"]["get"]["responses"]["200"]["content"]
    for form in ("csv", "tsv", "json"):
        answer = client.get("/api/export", params={"table": "facts", "entity": "Person 3", "format": form})
        assert answer.headers["content-type"].partition(";")[0] in told


@pytest.mark.parametrize(
    ("method", "address", "allowed"), [("PUT", "/api/health", "GET"), ("GET", "/api/predict", "POST")]
)
def test_wrong_method_is_answered_with_the_allowed_one(client, method, address, allowed) -> None:
    answer = client.request(method, address)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
