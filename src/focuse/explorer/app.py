"""The web application: the API, the page, and errors in one form."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from importlib.resources import files

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from focuse import __version__
from focuse.errors import FocuseError, printable
from focuse.explorer.guards import Guard
from focuse.explorer.limits import Limits
from focuse.explorer.problems import Refused
from focuse.explorer.routes import router
from focuse.explorer.schemas import Problem
from focuse.explorer.state import State

PAGES = {"/": "index.html", "/docs": "docs.html"}
MESSAGE = 500  # characters of a message that repeats what was sent
log = logging.getLogger("focuse.explorer")


def make_app(state: State, host: str = "127.0.0.1", taken: Limits | None = None) -> FastAPI:
    """An application that answers for `state`'s runs; `host` is the one it will listen on, `taken` what it takes."""
    # FastAPI's own /docs loads its program from another server; ours is a page of this one.
    app = FastAPI(
        title="focuse explorer",
        version=__version__,
        description="Questions to a run of focuse: names, facts, missing links, weights, explanations.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.focuse = state
    app.include_router(router)
    _add_pages(app)
    _add_errors(app)
    app.add_middleware(Guard, host=host, taken=taken)
    return app


def _add_pages(app: FastAPI) -> None:
    """Fixed addresses for fixed files; what else is asked for below /static is not there."""
    found = assets()
    addresses = PAGES | {f"/static/{name}": name for name in found if not name.endswith(".html")}
    addresses["/favicon.ico"] = "icon.svg"
    for address, name in addresses.items():
        app.add_api_route(address, _sender(found[name]), methods=["GET", "HEAD"], include_in_schema=False)


def _sender(asset: Asset):  # type: ignore[no-untyped-def]
    async def send(request: Request) -> Response:
        headers = {"ETag": asset.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == asset.tag:
            return Response(status_code=304, headers=headers)
        return Response(asset.content, media_type=asset.kind, headers=headers)

    return send


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> JSONResponse:
        headers = {} if error.again is None else {"Retry-After": str(error.again)}
        return _answer(error.status, error.problem, headers)

    @app.exception_handler(FocuseError)
    async def wrong(request: Request, error: FocuseError) -> JSONResponse:
        return _answer(422, Problem(error=str(error)))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["type"] == "json_invalid":  # its place is a count of characters, not a name
            return _answer(422, Problem(error=f"body: not JSON ({first['ctx']['error']})", hint="send a JSON object"))
        place = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
        told = printable(f"{place}: {first['msg']}"[:MESSAGE])  # a field that is not there is named as it was sent
        return _answer(422, Problem(error=told, hint="GET /docs lists what each address takes"))

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> JSONResponse:
        problem = Problem(error=str(error.detail), hint="GET /docs lists the addresses")
        return _answer(error.status_code, problem, dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return _answer(500, Problem(error="the server failed at this", hint="its terminal says more"))


def _answer(status: int, problem: Problem, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse(problem.model_dump(), status, headers)


# ---- the page's own files, read into memory at start: no request ever names a path -----------------------------------

ASSET_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Asset:
    """One file as it is sent."""

    content: bytes
    kind: str
    tag: str


def assets() -> dict[str, Asset]:
    """Every file of `static/` by its name.

    >>> sorted(name for name in assets() if name.endswith(".html"))
    ['docs.html', 'index.html']
    """
    found = {}
    for entry in files("focuse.explorer").joinpath("static").iterdir():
        suffix = "." + entry.name.rpartition(".")[2]
        if suffix in ASSET_TYPES:
            content = entry.read_bytes()
            found[entry.name] = Asset(content, ASSET_TYPES[suffix], f'"{hashlib.sha256(content).hexdigest()[:16]}"')
    return found
