"""The API: what each address takes and gives. Every answer is typed; questions to the model go through one thread.

An answer is made of its type here, and sent as it is: FastAPI would check and copy it once more.
"""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, cast
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel

from focuse import __version__
from focuse.errors import FocuseError
from focuse.explorer import limits, schemas
from focuse.explorer.explorer import Explorer, compare, missing_part
from focuse.explorer.problems import Refused
from focuse.explorer.state import State
from focuse.explorer.worker import Lane

Answer = TypeVar("Answer")
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Problem} for status in (400, 403, 404, 408, 413, 414, 415, 422, 429, 431, 503)
}
router = APIRouter(prefix="/api", responses=PROBLEMS)


class Visit:
    """One request: the runs it is about, and the way to their models for as long as someone waits."""

    def __init__(self, request: Request) -> None:
        self.state = cast(State, request.app.state.focuse)
        self.first, self.other = self.state.first, self.state.other
        self._gone = request.is_disconnected
        self._client = request.client.host if request.client else ""
        self._end = time.monotonic() + self.state.worker.seconds
        self._admitted = False

    async def ask(self, job: Callable[[], Answer], lane: Lane = "quick") -> Answer:
        """A question to the model. The first of a request takes a place in the queue, its others follow it."""
        admitted, self._admitted = self._admitted, True
        return await self.state.worker.ask(job, self._gone, lane, self._end, admitted, self._client)

    async def look(self, job: Callable[[], Answer]) -> Answer:
        """A question to names and facts."""
        return await self.state.readers.ask(job)


def sent(answer: BaseModel) -> Response:
    return Response(answer.__pydantic_serializer__.to_json(answer), media_type="application/json")


async def _visit(request: Request) -> Visit:
    """FastAPI would make what is not `async` in a thread."""
    return Visit(request)


Here = Annotated[Visit, Depends(_visit)]
Entity = Annotated[str, Query(min_length=1, max_length=limits.NAME, description="Name of the entity.")]
Part = Annotated[str | None, Query(max_length=limits.NAME)]
Top = Annotated[int, Query(ge=1, le=limits.TOP)]
Direction = Literal["out", "in", "both"]
TableFormat = Literal["csv", "tsv", "json"]
TABLE_TYPES = {"csv": "text/csv", "tsv": "text/tab-separated-values", "json": "application/json"}
FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")  # what a spreadsheet may take for the start of a formula
ROWS_AT_ONCE = 500  # rows a piece


@router.get("/health", tags=["run"], summary="Whether it is ready", response_model=schemas.Health)
async def health(here: Here) -> Response:
    run = here.first.run
    return sent(
        schemas.Health(
            status=here.state.status,
            problem=here.state.problem,
            version=__version__,
            model=run.settings.model,
            entities=len(run.graph.entities),
            relations=len(run.graph.relations),
            facts=len(here.first.edges),
            uptime_seconds=round(time.monotonic() - here.state.started, 3),
            waiting=here.state.worker.waiting,
        )
    )


@router.get(
    "/run",
    tags=["run"],
    summary="What was trained, on what, and how well it ranks",
    response_model=schemas.RunSummary,
)
async def about(here: Here) -> Response:
    return Response(here.state.told(), media_type="application/json")


@router.get("/entities", tags=["names"], summary="Search entities by name", response_model=schemas.EntityHits)
async def entities(
    here: Here,
    q: Annotated[str, Query(max_length=limits.SEARCH, description="Part of a name; accents and case do not count.")],
    limit: Annotated[int, Query(ge=1, le=limits.SUGGESTIONS)] = 10,
) -> Response:
    """Exact matches first, then beginnings of names, of words, other parts; the nearest spelling if none has it."""
    return await here.look(lambda: sent(here.first.find(q, limit)))


@router.get(
    "/neighbourhood",
    tags=["facts"],
    summary="The strongest facts around an entity",
    response_model=schemas.Neighbourhood,
)
async def neighbourhood(
    here: Here,
    entity: Entity,
    depth: Annotated[int, Query(ge=1, le=limits.DEPTH)] = 1,
    relation: Part = None,
    min_weight: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    limit: Annotated[int, Query(ge=1, le=limits.EDGES)] = 30,
) -> Response:
    """Weights are in the graph's units. Where lower is better, `min_weight` is the largest that is shown."""
    return await here.look(lambda: sent(here.first.neighbourhood(entity, depth, limit, relation, min_weight)))


@router.get("/facts", tags=["facts"], summary="The facts of an entity, strongest first", response_model=schemas.Facts)
async def facts(
    here: Here,
    entity: Entity,
    relation: Part = None,
    offset: Annotated[int, Query(ge=0, le=2**31)] = 0,
    limit: Annotated[int, Query(ge=1, le=limits.FACTS)] = 100,
) -> Response:
    return await here.look(lambda: sent(here.first.facts(entity, relation, offset, limit)))


@router.post("/predict", tags=["model"], summary="Complete a triple", response_model=schemas.Links)
async def predict(here: Here, question: schemas.Question) -> Response:
    return await here.ask(lambda: sent(schemas.Links(links=here.first.predict(question))))


@router.get("/missing", tags=["model"], summary="The best links that an entity lacks", response_model=schemas.Links)
async def missing(
    here: Here, entity: Entity, relation: Part = None, direction: Direction = "both", top: Top = 20
) -> Response:
    """Over all relations in which it stands, as head and as tail, or over one."""
    job = partial(here.first.missing, entity, relation, direction, top)
    return await here.ask(lambda: sent(schemas.Links(links=job())), "dear")


@router.post("/explain", tags=["model"], summary="Why a link is predicted", response_model=schemas.Explained)
async def explain(here: Here, triple: schemas.Triple) -> Response:
    return await here.ask(lambda: sent(here.first.explain(triple)), "dear")


@router.post(
    "/weigh",
    tags=["model"],
    summary="Weights, intervals and probabilities of triples",
    response_model=schemas.Weights,
)
async def weigh(here: Here, asked: schemas.Weigh) -> Response:
    lane: Lane = "quick" if len(asked.triples) <= limits.FEW else "dear"
    return await here.ask(lambda: sent(here.first.weigh(asked)), lane)


@router.post("/batch", tags=["model"], summary="Many questions at once", response_model=schemas.BatchAnswers)
async def batch(here: Here, asked: schemas.Batch) -> Response:
    """A question that cannot be answered has its problem in its place; the others are answered."""
    if sum(question.top for question in asked.questions) > limits.LINKS:
        raise Refused(422, f"more than {limits.LINKS:,} completions at once", "ask for fewer (top), or fewer questions")

    def one(question: schemas.Question) -> schemas.BatchAnswer:
        try:
            return schemas.BatchAnswer(links=here.first.predict(question))
        except Refused as refused:
            return schemas.BatchAnswer(problem=refused.problem)
        except FocuseError as error:
            return schemas.BatchAnswer(problem=schemas.Problem(error=str(error)))

    # One by one: others are answered between them.
    answers = [await here.ask(partial(one, question), "dear") for question in asked.questions]
    return sent(schemas.BatchAnswers(answers=answers))


@router.get("/compare", tags=["model"], summary="The same question to two runs", response_model=schemas.Comparison)
async def compared(
    here: Here, head: Part = None, relation: Part = None, tail: Part = None, top: Top = 10, new_only: bool = False
) -> Response:
    question = _question(head, relation, tail, top, new_only)
    return await here.ask(lambda: sent(compare(here.first, here.other(), question)))


FILES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file",
        "content": {
            kind: {"schema": {"type": "array" if form == "json" else "string"}} for form, kind in TABLE_TYPES.items()
        },
    }
}


@router.get("/export", tags=["files"], summary="A table as a file", response_class=StreamingResponse, responses=FILES)
async def export(
    here: Here,
    table: Literal["facts", "missing", "predict", "compare"],
    format: Annotated[TableFormat, Query()] = "csv",
    entity: Part = None,
    head: Part = None,
    relation: Part = None,
    tail: Part = None,
    direction: Direction = "both",
    top: Top = 50,
    new_only: bool = False,
) -> StreamingResponse:
    """The facts of an entity (all of them), what it lacks, the completions of a triple, or a comparison.

    In CSV and TSV a name that begins with = + - @ or a control sign gets an apostrophe before it, so that no
    spreadsheet takes it for a formula. JSON has names as they are.
    """
    rows: Iterable[Mapping[str, Any]]
    if table in ("facts", "missing"):
        if not entity:
            raise Refused(422, f"the table {table!r} needs an entity", "add entity=NAME")
        words, columns = [table, entity], FACTS if table == "facts" else LINKS
        if table == "facts":
            rows = await here.look(lambda: _facts(here.first, entity, relation))
        else:
            found = await here.ask(lambda: here.first.missing(entity, relation, direction, top), "dear")
            rows = [link.model_dump() for link in found]
    else:
        question = _question(head, relation, tail, top, new_only)
        words = [table, *(part for part in (head, relation, tail) if part)]
        if table == "predict":
            columns = LINKS
            rows = [link.model_dump() for link in await here.ask(lambda: here.first.predict(question))]
        else:
            columns = COMPARED
            rows = _compared(await here.ask(lambda: compare(here.first, here.other(), question)))
    return StreamingResponse(
        write_table(columns, rows, format),
        media_type=TABLE_TYPES[format],
        headers={"Content-Disposition": disposition(words, format), "Cache-Control": "no-store"},
    )


FACTS = ["head", "relation", "tail", "weight", "strength", "split"]
NUMBERS = ["probability", "expected_weight", "low", "high", "confidence", "score", "known", "weight"]
LINKS = ["rank", "head", "relation", "tail", *NUMBERS]
COMPARED = ["name", "moved", *(f"{run}_{column}" for run in ("first", "second") for column in ("rank", *NUMBERS))]


def _facts(explorer: Explorer, entity: str, relation: str | None) -> Iterator[Mapping[str, Any]]:
    """All facts of an entity, a piece at a time: a hub may have millions."""
    rows = explorer.edges.of(explorer.entity(entity), None if relation is None else explorer.relation(relation))
    return (row for start in range(0, len(rows), ROWS_AT_ONCE) for row in explorer.rows(rows[start:][:ROWS_AT_ONCE]))


def _compared(found: schemas.Comparison) -> list[dict[str, Any]]:
    rows = []
    for row in found.rows:
        made: dict[str, Any] = {"name": row.name, "moved": row.moved}
        for run, link in (("first", row.first), ("second", row.second)):
            made |= {} if link is None else {f"{run}_{key}": value for key, value in link.model_dump().items()}
        rows.append(made)
    return rows


def _question(head: str | None, relation: str | None, tail: str | None, top: int, new_only: bool) -> schemas.Question:
    """From a query string, where an empty part is one left out."""
    asked = schemas.Question(
        head=head or None, relation=relation or None, tail=tail or None, top=top, new_only=new_only
    )
    missing_part(asked)
    return asked


# ---- tables as files: CSV, TSV or JSON, a piece at a time ------------------------------------------------------------


def safe_cell(cell: Any) -> Any:
    """A cell that no spreadsheet runs: an apostrophe before a name that begins as a formula does. Numbers stay.

    >>> safe_cell("=1+1"), safe_cell("plain"), safe_cell(-0.5), safe_cell(None)
    ("'=1+1", 'plain', -0.5, '')
    """
    if cell is None:
        return ""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell


def write_table(columns: list[str], rows: Iterable[Mapping[str, Any]], form: TableFormat) -> Iterator[str]:
    """The file in pieces; JSON is a list of objects, the others have a heading and quote where they must."""
    if form == "json":
        yield from _json_pieces(columns, rows)
        return
    text = io.StringIO()
    writer = csv.writer(text, delimiter="," if form == "csv" else "\t", lineterminator="\r\n")
    writer.writerow(columns)
    for count, row in enumerate(rows, 1):
        writer.writerow([safe_cell(row.get(column)) for column in columns])
        if count % ROWS_AT_ONCE == 0:
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()


def _json_pieces(columns: list[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    before, made = "[\n", []
    for count, row in enumerate(rows, 1):
        made += [
            before,
            json.dumps({column: row.get(column) for column in columns}, ensure_ascii=False, allow_nan=False),
        ]
        before = ",\n"
        if count % ROWS_AT_ONCE == 0:
            yield "".join(made)
            made = []
    yield "".join([*made, "[" if before.startswith("[") else "", "\n]\n"])


def disposition(words: Iterable[str], form: TableFormat) -> str:
    """The header that names the file; whatever a name holds, only letters, digits and dashes reach the file's.

    >>> disposition(["missing", 'a"/../b'], "csv")
    'attachment; filename="focuse-missing-a-b.csv"; filename*=UTF-8\\'\\'focuse-missing-a-b.csv'
    """
    name = "-".join(part for word in words for part in re.findall(r"\w+", word))[:80]
    plain = re.sub("-+", "-", re.sub(r"[^A-Za-z0-9_-]", "-", name)).strip("-")
    whole = quote(f"focuse-{name}.{form}", safe="")
    return f"attachment; filename=\"focuse-{plain}.{form}\"; filename*=UTF-8''{whole}"
