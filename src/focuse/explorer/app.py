"""The web application: the addresses of the API, the page, and all errors as problems.

Questions to a model go through the model queue, everything else is answered directly.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from focuse import __version__
from focuse.errors import FocuseError, printable
from focuse.explorer import schemas
from focuse.explorer.guards import ConnectionMonitor, Lane, RequestGuard, allowed_hosts
from focuse.explorer.schemas import ProblemError
from focuse.explorer.service import Explorer, Service

Answer = TypeVar("Answer")
PAGES = {"/": "index.html", "/docs": "docs.html", "/favicon.ico": "icon.svg"}
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MAX_MESSAGE = 500  # characters of a message that quotes the request
TEXT_PROBLEM: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}  # of the server in front of the API
PROBLEMS = {
    400: "The body cannot be read, or the request is for another host.",
    403: "The page of another site sent the request.",
    404: "There is no such name; the nearest names are listed.",
    405: "The address does not support this method; the header Allow lists those it supports.",
    408: "The body did not arrive in time.",
    409: "The run cannot answer this question.",
    413: "The body is too large.",
    415: "The body is not declared as JSON.",
    422: "The request does not conform to this schema.",
    429: "Too many questions wait for the model; the header Retry-After says when to try again.",
    500: "The server failed; its terminal shows the error.",
    503: "There was no answer in time, or too many connections are open.",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "model": schemas.Problem, "content": TEXT_PROBLEM if status in (400, 503) else {}}
    for status, text in PROBLEMS.items()
}
log = logging.getLogger("focuse.explorer")


def make_app(service: Service, host: str = "127.0.0.1", monitor: ConnectionMonitor | None = None) -> FastAPI:
    """Return the application for a service; `host` is the address on which it will listen."""
    # The /docs of FastAPI load code from another server; those of the explorer are a page of its own.
    app = FastAPI(
        title="focuse explorer",
        version=__version__,
        description="Questions to a run of focuse: names, triples, missing links, weights, explanations.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=dict.fromkeys((HTTPException, FocuseError, RequestValidationError, Exception), _refuse),
    )
    app.state.service = service
    app.state.monitor = monitor or ConnectionMonitor()
    app.include_router(router)
    # The files of the page are read into memory at the start: no request ever names a path.
    folder = Path(__file__).parent / "static"
    addresses = PAGES | {f"/static/{path.name}": path.name for path in folder.iterdir() if path.suffix != ".html"}
    for address, name in addresses.items():
        content, media_type = (folder / name).read_bytes(), MEDIA_TYPES[Path(name).suffix]
        app.add_route(address, partial(_send, content, media_type), include_in_schema=False)
    hosts = allowed_hosts(host)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    app.add_middleware(RequestGuard, hosts=hosts, monitor=app.state.monitor)
    return app


async def _send(content: bytes, media_type: str, request: Request) -> Response:
    return Response(content, media_type=media_type)


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    """Return the answer to a request that failed."""
    if isinstance(error, ProblemError):
        return error.response()
    if isinstance(error, FocuseError):
        return ProblemError(409, str(error)).response()
    if isinstance(error, RequestValidationError):
        return _describe_invalid(error.errors()[0]).response()
    if isinstance(error, HTTPException):
        problem = ProblemError(error.status_code, error.detail, "GET /docs lists the addresses")
        problem.headers = error.headers
        return problem.response()
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return ProblemError(500, "the server failed", "its terminal shows the error").response()


def _describe_invalid(fault: Any) -> ProblemError:
    """Return the problem of a request that does not conform to the schema."""
    if fault["type"] == "json_invalid":  # its location is a number of characters, not a field
        return ProblemError(422, f"body: not JSON ({fault['ctx']['error']})", "send a JSON object")
    where = ".".join(str(part) for part in fault["loc"][1:]) or str(fault["loc"][0])
    reason = str(fault["ctx"]["error"]) if fault["type"] == "value_error" else fault["msg"]
    message = printable(f"{where}: {reason}"[:MAX_MESSAGE])  # an unknown field is quoted as it was sent
    return ProblemError(422, message, "GET /docs lists what each address accepts")


# ---- the API ---------------------------------------------------------------------------------------------------------


class Visit:
    """One request: the service, and the model queue for as long as the client is connected."""

    def __init__(self, request: Request) -> None:
        self.service: Service = request.app.state.service
        self.first: Explorer = self.service.first
        self._is_gone = request.is_disconnected

    async def ask(self, job: Callable[[], Answer], lane: Lane = "quick") -> Answer:
        """Run a job in the thread of the models."""
        return await self.service.queue.run(job, lane, self._is_gone)


async def _visit(request: Request) -> Visit:  # FastAPI would run a plain function in another thread
    return Visit(request)


async def _require_json(request: Request) -> None:
    """Refuse bodies of other types: forms of other sites' pages can send those."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ProblemError(415, "the body is not JSON", "send it with Content-Type: application/json")


Here = Annotated[Visit, Depends(_visit)]
router = APIRouter(prefix="/api", responses=RESPONSES)
JSON_BODY = [Depends(_require_json)]


@router.get("/health", tags=["run"], summary="Whether the server is ready")
async def health(here: Here) -> schemas.Health:
    return here.service.health(__version__)


@router.get("/run", tags=["run"], summary="What was trained, on which data, and its metrics")
async def run(here: Here) -> schemas.RunSummary:
    return here.service.summary()


@router.get("/entities", tags=["names"], summary="Search entities by name")
def entities(here: Here, asked: Annotated[schemas.EntityQuery, Query()]) -> schemas.EntityHits:
    """Exact matches first, then prefixes, starts of words and other parts; similar names if no name contains it."""
    return here.first.find(asked.q, asked.limit)


@router.get("/neighborhood", tags=["triples"], summary="The strongest triples near an entity")
def neighborhood(here: Here, asked: Annotated[schemas.NeighborhoodQuery, Query()]) -> schemas.Neighborhood:
    return here.first.neighborhood(asked)


@router.get("/triples", tags=["triples"], summary="The triples of an entity, strongest first")
def triples(here: Here, asked: Annotated[schemas.TriplesQuery, Query()]) -> schemas.Triples:
    return here.first.triples(asked)


@router.get("/missing", tags=["model"], summary="The best links that an entity lacks")
async def missing(here: Here, asked: Annotated[schemas.MissingQuery, Query()]) -> schemas.Links:
    """Over all relations of the entity, as head and as tail, or over one."""
    return await here.ask(lambda: here.first.missing(asked), "slow")


@router.post("/predict", tags=["model"], summary="Complete a triple", dependencies=JSON_BODY)
async def predict(here: Here, asked: schemas.Question) -> schemas.Links:
    return await here.ask(lambda: here.first.predict(asked))


@router.post(
    "/predict-weights",
    tags=["model"],
    summary="Weights, intervals and probabilities of triples",
    dependencies=JSON_BODY,
)
async def predict_weights(here: Here, asked: schemas.WeightsQuestion) -> schemas.PredictedWeights:
    return await here.ask(lambda: here.first.predict_weights(asked))


@router.post("/explain", tags=["model"], summary="Why a link is predicted", dependencies=JSON_BODY)
async def explain(here: Here, triple: schemas.Triple) -> schemas.Explained:
    return await here.ask(lambda: here.first.explain(triple), "slow")


@router.post("/compare", tags=["model"], summary="The same question to two runs", dependencies=JSON_BODY)
async def compare(here: Here, asked: schemas.Question) -> schemas.Comparison:
    return await here.ask(lambda: here.service.compare(asked))
