"""The addresses of the API. Questions to a model go through the model queue, everything else is answered directly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request

from focuse import __version__
from focuse.explorer import schemas
from focuse.explorer.guards import Lane
from focuse.explorer.schemas import ProblemError
from focuse.explorer.service import Explorer, Service

Answer = TypeVar("Answer")
PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body cannot be read, or the request is for another host."},
    403: {"description": "The page of another site sent the request."},
    404: {"description": "There is no such name; the nearest names are listed."},
    405: {"description": "The address does not support this method; the header Allow lists those it supports."},
    408: {"description": "The body did not arrive in time."},
    409: {"description": "The run cannot answer this question."},
    413: {"description": "The body is too large."},
    415: {"description": "The body is not declared as JSON."},
    422: {"description": "The request does not conform to this schema."},
    429: {"description": "Too many questions wait for the model; the header Retry-After says when to try again."},
    500: {"description": "The server failed; its terminal shows the error."},
    503: {"description": "There was no answer in time, or too many connections are open."},
}
TEXT_PROBLEM: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}  # of the server in front of the API
for status, response in PROBLEMS.items():
    response["model"] = schemas.Problem
    response["content"] = TEXT_PROBLEM if status in (400, 503) else {}


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
router = APIRouter(prefix="/api", responses=PROBLEMS)
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


@router.get("/neighborhood", tags=["facts"], summary="The strongest facts near an entity")
def neighborhood(here: Here, asked: Annotated[schemas.NeighborhoodQuery, Query()]) -> schemas.Neighborhood:
    return here.first.neighborhood(asked)


@router.get("/facts", tags=["facts"], summary="The facts of an entity, strongest first")
def facts(here: Here, asked: Annotated[schemas.FactsQuery, Query()]) -> schemas.Facts:
    return here.first.facts(asked)


@router.get("/missing", tags=["model"], summary="The best links that an entity lacks")
async def missing(here: Here, asked: Annotated[schemas.MissingQuery, Query()]) -> schemas.Links:
    """Over all relations of the entity, as head and as tail, or over one."""
    return schemas.Links(links=await here.ask(lambda: here.first.missing(asked), "slow"))


@router.post("/predict", tags=["model"], summary="Complete a triple", dependencies=JSON_BODY)
async def predict(here: Here, asked: schemas.Question) -> schemas.Links:
    return schemas.Links(links=await here.ask(lambda: here.first.predict(asked)))


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
