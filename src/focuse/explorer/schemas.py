"""What the API takes and gives, typed; /openapi.json is made of these."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from focuse.explorer import limits

Name = Annotated[str, Field(max_length=limits.NAME)]
Top = Annotated[int, Field(ge=1, le=limits.TOP)]


class Problem(BaseModel):
    """Every error: what is wrong, what to do, and names that come near a misspelt one."""

    error: str
    hint: str = ""
    nearest: list[str] = []


class Health(BaseModel):
    """`status` is 'warming' while the run fits its weights and probabilities for the first time."""

    status: Literal["ready", "warming", "failed"]
    problem: str = ""
    version: str
    model: str
    entities: int
    relations: int
    facts: int
    uptime_seconds: float
    waiting: int


class RelationCount(BaseModel):
    name: str
    facts: int
    lowest: float | None
    highest: float | None


class EntityHit(BaseModel):
    name: str
    degree: int


class Metrics(BaseModel):
    """Figures of the test split where ranking it is quick, else of validation as training stored them."""

    source: Literal["test", "validation", "none", "pending"]
    figures: dict[str, float]


class RunSummary(BaseModel):
    """`hubs` are the entities with the most facts."""

    name: str
    model: str
    dim: int
    epochs: int
    entities: int
    facts: int
    weighted: bool
    lower_is_better: bool
    splits: dict[str, int]
    relations: list[RelationCount]
    hubs: list[EntityHit]
    settings: dict[str, Any]
    metrics: Metrics
    compare: str | None


class EntityHits(BaseModel):
    query: str
    exact: bool
    entities: list[EntityHit]


class Node(BaseModel):
    name: str
    degree: int
    distance: int


class Edge(BaseModel):
    """`strength` is the weight as a share of its relation's range, in [0, 1]; `split` is the part it comes from."""

    head: str
    relation: str
    tail: str
    weight: float
    strength: float
    split: Literal["train", "valid", "test"]


class Neighbourhood(BaseModel):
    """Edges strongest first. `total` counts the facts that were to choose from."""

    entity: str
    degree: int
    depth: int
    total: int
    nodes: list[Node]
    edges: list[Edge]
    relations_out: list[str]
    relations_in: list[str]


class Facts(BaseModel):
    """A page of an entity's facts, strongest first."""

    entity: str
    total: int
    facts: list[Edge]


class Question(BaseModel):
    """A triple with one part left out (the others by name); with all three, its own place among tails is told."""

    model_config = ConfigDict(extra="forbid")
    head: Name | None = None
    relation: Name | None = None
    tail: Name | None = None
    top: Top = 10
    new_only: bool = False


class Link(BaseModel):
    """One completion; `expected_weight`, `low` and `high` are in the graph's units, None where the run cannot tell."""

    rank: int
    head: str
    relation: str
    tail: str
    score: float
    known: bool = False
    weight: float | None = None
    expected_weight: float | None = None
    confidence: float | None = None
    low: float | None = None
    high: float | None = None
    probability: float | None = None
    direction: Literal["out", "in", ""] = ""


class Links(BaseModel):
    links: list[Link]
    notes: list[str] = []


class Batch(BaseModel):
    model_config = ConfigDict(extra="forbid")
    questions: Annotated[list[Question], Field(min_length=1, max_length=limits.BATCH)]


class BatchAnswer(BaseModel):
    """One answer a question, in order: links, or the problem with it."""

    links: list[Link] = []
    problem: Problem | None = None


class BatchAnswers(BaseModel):
    answers: list[BatchAnswer]


class Triple(BaseModel):
    model_config = ConfigDict(extra="forbid")
    head: Name
    relation: Name
    tail: Name


class Weigh(BaseModel):
    model_config = ConfigDict(extra="forbid")
    triples: Annotated[list[Triple], Field(min_length=1, max_length=limits.TRIPLES)]
    coverage: Annotated[float, Field(gt=0, lt=1)] = 0.9


class WeighedTriple(BaseModel):
    head: str
    relation: str
    tail: str
    expected: float | None
    typical: float | None
    low: float | None
    high: float | None
    probability: float | None
    known: bool


class Weights(BaseModel):
    coverage: float
    triples: list[WeighedTriple]
    notes: list[str]


class Explained(BaseModel):
    """The explanation of the run, as text and as data."""

    text: str
    explanation: dict[str, Any]


class Side(BaseModel):
    """One run's answer to the compared question."""

    run: str
    model: str
    metrics: Metrics
    links: list[Link]
    problem: Problem | None = None


class Compared(BaseModel):
    """One completion in both runs; `moved` is how many places higher the second run has it, None if one lacks it."""

    name: str
    first: Link | None
    second: Link | None
    moved: int | None


class Comparison(BaseModel):
    missing: Literal["head", "relation", "tail"]
    first: Side
    second: Side
    rows: list[Compared]
    shared: int
