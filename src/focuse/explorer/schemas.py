"""The types of all requests and answers of the API; `/openapi.json` is generated from them.

A request is accepted if and only if the published schema allows it: unknown fields, null for a field that can be left
out (except `prefer`), and numbers in any other spelling are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

MAX_NAME = 1000  # characters of a name
MAX_SEARCH = 200  # characters of a search
MAX_SUGGESTIONS = 50
MAX_TOP = 200  # completions of one question
MAX_TRIPLES = 100  # triples in one request
MAX_EDGES = 300  # edges of a neighborhood
MAX_LISTED = 5000  # triples of an entity on one page
PLAIN_NUMBER = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,4})?")

# ---- fields of requests ----------------------------------------------------------------------------------------------


def _refuse_null(value: Any) -> Any:
    if value is None:
        raise ValueError("leave the field out instead of null")
    return value


def _integral(value: Any) -> Any:
    """Return 5 for 5.0, which JSON Schema calls an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _plain_number(value: Any) -> Any:
    """Refuse spellings of a number in a query string that JSON does not know, such as '1_0', ' 1' and 'nan'."""
    if isinstance(value, str) and not PLAIN_NUMBER.fullmatch(value):
        raise ValueError("this is not a number")
    return value


IN_QUERY = BeforeValidator(_plain_number)
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
OptionalName = Annotated[
    Name | SkipJsonSchema[None],
    BeforeValidator(_refuse_null),
    Field(json_schema_extra=lambda schema: schema.pop("default", None)),
]


def _preference(value: Any) -> Any:
    """Refuse all but 'likely', 'strong' and numbers from 0 to 1, with one message."""
    is_share = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    if not is_share and value not in ("likely", "strong"):
        raise ValueError("give 'likely', 'strong', or a number from 0 (likely) to 1 (strong)")
    return value


def _preference_in_query(value: Any) -> Any:
    is_number = isinstance(value, str) and PLAIN_NUMBER.fullmatch(value)
    return _preference(float(value) if is_number else value)


Preferred = Literal["likely", "strong"] | Annotated[float, Field(ge=0, le=1)]
ABOUT_PREFER = (
    "What orders the links: 0 or `likely` is the probability alone, 1 or `strong` counts the weight most, numbers "
    "between are a trade-off. By default the one that the run chose on validation triples."
)
# In a body, null stands for the default; a query string has no null.
Prefer = Annotated[
    Preferred | None,
    BeforeValidator(lambda value: value if value is None else _preference(value)),
    Field(description=ABOUT_PREFER),
]
PreferInQuery = Annotated[
    Preferred | SkipJsonSchema[None],
    BeforeValidator(_preference_in_query),
    Field(description=ABOUT_PREFER, json_schema_extra=lambda schema: schema.pop("default", None)),
]
TriplePart = Literal["head", "relation", "tail"]
PARTS: tuple[TriplePart, ...] = ("head", "relation", "tail")
TWO_PARTS: list[Any] = [{"required": [first, second]} for first, second in (PARTS[:2], PARTS[::2], PARTS[1:])]


class Request(BaseModel):
    """What all requests have in common."""

    model_config = ConfigDict(extra="forbid")


# ---- requests --------------------------------------------------------------------------------------------------------


class EntityQuery(Request):
    q: Annotated[str, Field(max_length=MAX_SEARCH, description="Part of a name; case and accents are ignored.")]
    limit: Annotated[int, Field(ge=1, le=MAX_SUGGESTIONS), IN_QUERY] = 10


class NeighborhoodQuery(Request):
    entity: Name
    depth: Annotated[int, Field(ge=1, le=2), IN_QUERY] = 1
    relation: OptionalName = None
    limit: Annotated[int, Field(ge=1, le=MAX_EDGES), IN_QUERY] = 30


class TriplesQuery(Request):
    entity: Name
    relation: OptionalName = None
    offset: Annotated[int, Field(ge=0, le=2**31), IN_QUERY] = 0
    limit: Annotated[int, Field(ge=1, le=MAX_LISTED), IN_QUERY] = 100


class MissingQuery(Request):
    entity: Name
    relation: OptionalName = None
    direction: Literal["out", "in", "both"] = "both"
    top: Annotated[int, Field(ge=1, le=MAX_TOP), IN_QUERY] = 20
    prefer: PreferInQuery = None


class Question(Request):
    """A triple without one of its parts, which is ranked. If all parts are given, the tail is ranked as well."""

    model_config = ConfigDict(json_schema_extra={"anyOf": TWO_PARTS})
    head: OptionalName = None
    relation: OptionalName = None
    tail: OptionalName = None
    top: Annotated[int, Field(ge=1, le=MAX_TOP, strict=True), BeforeValidator(_integral)] = 10
    new_only: Annotated[bool, Field(strict=True)] = False
    prefer: Prefer = None

    @property
    def missing(self) -> list[TriplePart]:
        """The parts that are left out."""
        return [part for part in PARTS if getattr(self, part) is None]

    @model_validator(mode="after")
    def check_parts(self) -> Question:
        if len(self.missing) > 1:
            raise ValueError("give two of head, relation and tail; the third is ranked")
        return self


class Triple(Request):
    head: Name
    relation: Name
    tail: Name


class WeightsQuestion(Request):
    """`coverage` is the share of true weights that the intervals shall contain."""

    triples: Annotated[list[Triple], Field(min_length=1, max_length=MAX_TRIPLES)]
    coverage: Annotated[float, Field(strict=True, gt=0, lt=1)] = 0.9


# ---- answers ---------------------------------------------------------------------------------------------------------


class Problem(BaseModel):
    """Every error: what is wrong, what to do, and the names nearest to a misspelled one."""

    error: str
    hint: str = ""
    nearest: list[str] = []


class ProblemError(HTTPException):
    """A request that is answered by a problem, with its HTTP status and the seconds after which to try again."""

    def __init__(
        self, status: int, error: str, hint: str = "", nearest: Sequence[str] = (), retry_after: int | None = None
    ) -> None:
        super().__init__(status, error, None if retry_after is None else {"Retry-After": str(retry_after)})
        self.problem = Problem(error=error, hint=hint, nearest=list(nearest))

    def response(self) -> JSONResponse:
        """Return the answer to the request."""
        return JSONResponse(self.problem.model_dump(), self.status_code, self.headers)


class Health(BaseModel):
    """`status` is 'warming' while the run fits its weight and probability estimators for the first time."""

    status: Literal["ready", "warming", "failed"]
    problem: str = ""
    version: str
    model: str
    entities: int
    relations: int
    triples: int
    waiting: int


class RelationCount(BaseModel):
    name: str
    triples: int
    lowest: float
    highest: float


class EntityHit(BaseModel):
    name: str
    degree: int


class EntityHits(BaseModel):
    entities: list[EntityHit]


class Metrics(BaseModel):
    """Metrics of the test split if ranking it is quick, otherwise those of validation that training stored.

    `compared` has those of the orders `likely`, `default` and `strong` if the run has a weight model.
    """

    source: Literal["test", "validation", "none", "pending"]
    figures: dict[str, float]
    compared: dict[str, dict[str, float]] = {}


class Preference(BaseModel):
    """The order of a run's links if a question does not give `prefer`, as a number from 0, likely, to 1, strong.

    Links are ordered by probability · weight^c, where c is `prefer` times `strong_exponent`.
    """

    default: float
    strong_exponent: float


class RunSummary(BaseModel):
    """`hubs` are the entities with the most triples.

    `preference` and `compare_preference`, of the second run, are null if the run has no weight model: its links are
    ordered by probability, and `prefer` is not available.
    """

    name: str
    model: str
    dim: int
    epochs: int
    entities: int
    triples: int
    weighted: bool
    lower_is_better: bool
    splits: dict[str, int]
    relations: list[RelationCount]
    hubs: list[EntityHit]
    settings: dict[str, Any]
    metrics: Metrics
    preference: Preference | None
    compare: str | None
    compare_preference: Preference | None


class Node(EntityHit):
    distance: int


class NamedTriple(BaseModel):
    head: str
    relation: str
    tail: str


class Edge(NamedTriple):
    """`strength` is the weight scaled to [0, 1] per relation."""

    weight: float
    strength: float
    split: Literal["train", "valid", "test"]


class Neighborhood(BaseModel):
    """Edges, strongest first."""

    entity: str
    degree: int
    nodes: list[Node]
    edges: list[Edge]
    relations_out: list[str]
    relations_in: list[str]


class Triples(BaseModel):
    """A page of an entity's triples, strongest first."""

    entity: str
    total: int
    triples: list[Edge]


class Link(NamedTriple):
    """One completion; the predicted weight is in the units of the graph, null if the run cannot predict it."""

    rank: int
    score: float
    known: bool = False
    weight: float | None = None
    weight_mean: float | None = None
    weight_median: float | None = None
    weight_low: float | None = None
    weight_high: float | None = None
    probability: float | None = None
    confidence: float | None = None


class Links(BaseModel):
    """Links, best first; `ordered_by` names what orders them."""

    links: list[Link]
    ordered_by: str


class PredictedWeight(NamedTriple):
    weight_mean: float | None
    weight_median: float | None
    weight_low: float | None
    weight_high: float | None
    probability: float | None
    in_train: bool


class PredictedWeights(BaseModel):
    coverage: float
    triples: list[PredictedWeight]
    notes: list[str]


class Explained(BaseModel):
    """The explanation of the run, as text and as data."""

    text: str
    explanation: dict[str, Any]


class Side(BaseModel):
    """The answer of one run to the compared question; a run without a weight model is not asked for `prefer`."""

    run: str
    model: str
    metrics: Metrics
    links: list[Link]
    ordered_by: str = ""
    problem: Problem | None = None


class ComparedLink(BaseModel):
    """One completion in both runs; `moved` is by how many ranks the second run has it higher, null if one lacks it."""

    name: str
    first: Link | None
    second: Link | None
    moved: int | None


class Comparison(BaseModel):
    missing: TriplePart
    first: Side
    second: Side
    rows: list[ComparedLink]
    shared: int
