"""The web application: the API, the page, and all errors as problems."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from focuse import __version__
from focuse.errors import FocuseError, printable
from focuse.explorer import routes
from focuse.explorer.guards import ConnectionMonitor, RequestGuard, allowed_hosts, problem_response
from focuse.explorer.schemas import ProblemError
from focuse.explorer.service import Service

PAGES = {"/": "index.html", "/docs": "docs.html", "/favicon.ico": "icon.svg"}
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MAX_MESSAGE = 500  # characters of a message that quotes the request
log = logging.getLogger("focuse.explorer")


def make_app(service: Service, host: str = "127.0.0.1", monitor: ConnectionMonitor | None = None) -> FastAPI:
    """Return the application for a service; `host` is the address on which it will listen."""
    # The /docs of FastAPI load code from another server; those of the explorer are a page of its own.
    app = FastAPI(
        title="focuse explorer",
        version=__version__,
        description="Questions to a run of focuse: names, facts, missing links, weights, explanations.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    app.state.monitor = monitor or ConnectionMonitor()
    app.include_router(routes.router)
    _add_pages(app)
    _add_errors(app)
    hosts = allowed_hosts(host)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    app.add_middleware(RequestGuard, hosts=hosts, monitor=app.state.monitor)
    return app


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(ProblemError)
    async def refused(request: Request, error: ProblemError) -> JSONResponse:
        return problem_response(error)

    @app.exception_handler(FocuseError)
    async def impossible(request: Request, error: FocuseError) -> JSONResponse:
        return problem_response(ProblemError(409, str(error)))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["type"] == "json_invalid":  # its location is a number of characters, not a field
            reason = f"body: not JSON ({first['ctx']['error']})"
            return problem_response(ProblemError(422, reason, "send a JSON object"))
        where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
        reason = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
        message = printable(f"{where}: {reason}"[:MAX_MESSAGE])  # an unknown field is quoted as it was sent
        return problem_response(ProblemError(422, message, "GET /docs lists what each address accepts"))

    @app.exception_handler(HTTPException)
    async def failed(request: Request, error: HTTPException) -> JSONResponse:
        answer = problem_response(ProblemError(error.status_code, str(error.detail), "GET /docs lists the addresses"))
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return problem_response(ProblemError(500, "the server failed", "its terminal shows the error"))


def _add_pages(app: FastAPI) -> None:
    """Add the files of the page. They are read into memory at the start: no request ever names a path."""
    folder = Path(__file__).parent / "static"
    addresses = PAGES | {f"/static/{path.name}": path.name for path in folder.iterdir() if path.suffix != ".html"}
    for address, name in addresses.items():
        content, media_type = (folder / name).read_bytes(), MEDIA_TYPES[Path(name).suffix]
        app.add_route(address, partial(_send, content, media_type), include_in_schema=False)


async def _send(content: bytes, media_type: str, request: Request) -> Response:
    return Response(content, media_type=media_type)
