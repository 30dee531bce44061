"""One run to explore: its names, its facts, and questions to its model. Knows nothing of HTTP."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np

from focuse.api import Run
from focuse.errors import FocuseError
from focuse.explorer import limits, schemas
from focuse.explorer.edges import Edges
from focuse.explorer.names import Search
from focuse.explorer.problems import Refused

PARTS = ("train", "valid", "test")
HUBS = 12
TriplePart = Literal["head", "relation", "tail"]
POOL = 200  # links a relation that are compared by probability: an answer in a second beside a million entities


class Explorer:
    """What the endpoints ask. Names and facts are read-only; methods under 'model' belong into the worker's thread."""

    def __init__(self, run: Run, name: str) -> None:
        self.run, self.name = run, name
        self.edges = Edges([run.splits.train, run.splits.valid, run.splits.test])
        self.search = Search(run.graph.entities, self.edges.degree)

    # ---- names ----------------------------------------------------------------------------------------------------

    def entity(self, name: str) -> int:
        """The place of an entity; 404 with the nearest names if there is none."""
        place = self.run.graph.entities.find(name)
        if place < 0:
            near = [self.run.graph.entities[int(i)] for i in self.search(name[: limits.SEARCH], 5)]
            raise Refused(404, f"the graph has no entity {name!r}", _did_you_mean(near), near)
        return place

    def relation(self, name: str) -> int:
        place = self.run.graph.relations.find(name)
        if place < 0:
            names = self.run.graph.relations
            near = [names[int(i)] for i in Search(names, np.zeros(len(names)))(name[: limits.SEARCH], 5)]
            hint = _did_you_mean(near) or "GET /api/run lists the relations"
            raise Refused(404, f"the graph has no relation {name!r}", hint, near)
        return place

    def find(self, query: str, limit: int) -> schemas.EntityHits:
        found = self.search(query, limit).tolist()
        own = self.run.graph.entities.find(query)
        if own >= 0:  # the very name, with its spaces and capitals, before others that read alike
            found = [own, *(place for place in found if place != own)][:limit]
        hits = [self._hit(int(place)) for place in found]
        exact = bool(hits) and hits[0].name.casefold() == query.strip().casefold()
        return schemas.EntityHits(query=query, exact=exact, entities=hits)

    def _hit(self, place: int) -> schemas.EntityHit:
        return schemas.EntityHit(name=self.run.graph.entities[place], degree=int(self.edges.degree[place]))

    # ---- facts ----------------------------------------------------------------------------------------------------

    def neighbourhood(
        self, entity: str, depth: int, limit: int, relation: str | None, least: float | None
    ) -> schemas.Neighbourhood:
        place = self.entity(entity)
        kind = None if relation is None else self.relation(relation)
        found = self.edges.around(place, depth, limit, kind, least)
        names = self.run.graph.entities.take(found.entities).to_pylist()
        nodes = [
            schemas.Node(name=name, degree=int(self.edges.degree[one]), distance=int(steps))
            for name, one, steps in zip(names, found.entities, found.distance, strict=True)
        ]
        relations = self.run.graph.relations
        return schemas.Neighbourhood(
            entity=entity,
            degree=int(self.edges.degree[place]),
            depth=depth,
            total=found.total,
            nodes=nodes,
            edges=[schemas.Edge(**row) for row in self.rows(found.rows)],
            relations_out=relations.take(self.edges.relations_of(place, tails=False)).to_pylist(),
            relations_in=relations.take(self.edges.relations_of(place, tails=True)).to_pylist(),
        )

    def facts(self, entity: str, relation: str | None, offset: int, limit: int) -> schemas.Facts:
        rows = self.edges.of(self.entity(entity), None if relation is None else self.relation(relation))
        page = self.rows(rows[offset : offset + limit])
        return schemas.Facts(entity=entity, total=len(rows), facts=[schemas.Edge(**row) for row in page])

    def rows(self, rows: Any) -> list[dict[str, Any]]:
        """Facts by name, a dict a row."""
        edges, names = self.edges, self.run.graph
        columns = {
            "head": names.entities.take(edges.head[rows]).to_pylist(),
            "relation": names.relations.take(edges.relation[rows]).to_pylist(),
            "tail": names.entities.take(edges.tail[rows]).to_pylist(),
            "weight": edges.weight[rows].tolist(),
            "strength": np.round(edges.share[rows].astype(float), 6).tolist(),
            "split": [PARTS[part] for part in edges.part[rows]],
        }
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    @cached_property
    def relations(self) -> list[schemas.RelationCount]:
        names, count = (
            self.run.graph.relations,
            np.bincount(self.edges.relation, minlength=len(self.run.graph.relations)),
        )
        low, high = np.full(len(names), np.inf), np.full(len(names), -np.inf)
        np.minimum.at(low, self.edges.relation, self.edges.weight)
        np.maximum.at(high, self.edges.relation, self.edges.weight)
        return [
            schemas.RelationCount(
                name=names[int(place)],
                facts=int(count[place]),
                lowest=float(low[place]) if count[place] else None,
                highest=float(high[place]) if count[place] else None,
            )
            for place in np.argsort(-count, kind="stable")
        ]

    @cached_property
    def hubs(self) -> list[schemas.EntityHit]:
        degree = self.edges.degree
        most = np.argpartition(-degree, min(HUBS, len(degree) - 1))[:HUBS] if len(degree) else np.empty(0, int)
        return [self._hit(int(place)) for place in most[np.lexsort((most, -degree[most]))]]

    # ---- model ----------------------------------------------------------------------------------------------------

    def warm(self) -> None:
        """Fit what the first question would have to wait for."""
        self.run.weight_predictor(full=True)
        self.run.discover(heads=self.run.graph.entities[0], top=1)  # its probabilities, and who stands where
        _ = self.metrics

    @cached_property
    def metrics(self) -> schemas.Metrics:
        """Of the test split where that is quick, else the best of validation, as training stored it."""
        test = self.run.splits.test
        if len(test) and 2.0 * len(test) * len(self.run.graph.entities) <= limits.METRICS_WORK:
            made = self.run.evaluate().to_dict()
            told = {"MRR": made["all"]["mrr"], "ΔMRR": made["delta_mrr"], "MRR top 10\u00a0%": made["top"]["mrr"]}
            told |= {f"Hits@{count}": made["all"][f"hits@{count}"] for count in (1, 3, 10)}
            return schemas.Metrics(
                source="test", figures={key: value for key, value in told.items() if value is not None}
            )
        stored = [row["valid_mrr"] for row in self.run.history if row.get("valid_mrr") is not None]
        if stored:
            return schemas.Metrics(source="validation", figures={"MRR": max(stored)})
        return schemas.Metrics(source="none", figures={})

    def predict(self, asked: schemas.Question) -> list[schemas.Link]:
        """The best completions of a triple with one part left out."""
        if [asked.head, asked.relation, asked.tail].count(None) > 1:
            hint = 'the third is ranked, as in {"head": "NAME", "relation": "NAME"}; of all three the own place is told'
            raise Refused(422, "give two of head, relation and tail", hint)
        for name in (asked.head, asked.tail):
            if name is not None:
                self.entity(name)
        if asked.relation is not None:
            self.relation(asked.relation)
        found = self.run.predict(asked.head, asked.relation, asked.tail, asked.top, asked.new_only)
        return [schemas.Link(**vars(row)) for row in found]

    def missing(self, entity: str, relation: str | None, direction: str, top: int) -> list[schemas.Link]:
        """The best links that an entity lacks, over all relations or one: as head ('out'), as tail ('in'), or both."""
        place = self.entity(entity)
        if relation is not None:
            self.relation(relation)
        found: list[schemas.Link] = []
        for side in ("out", "in"):
            if direction in (side, "both"):
                kinds = self.run.graph.relations.take(self.edges.relations_of(place, tails=side == "in")).to_pylist()
                if relation is not None:
                    kinds = [relation]
                found += [
                    link.model_copy(update={"direction": side}) for link in self._lacking(entity, side, kinds, top)
                ]
        # Scores of different relations do not compare: without probabilities the run's own order counts.
        found.sort(key=lambda link: link.rank if link.probability is None else -link.probability)
        return [link.model_copy(update={"rank": rank}) for rank, link in enumerate(found[:top], 1)]

    def _lacking(self, entity: str, side: str, relations: list[str], top: int) -> list[schemas.Link]:
        """One direction, by the run's own discovery."""
        if not relations:
            return []
        heads, tails = ([entity], None) if side == "out" else (None, [entity])
        found = self.run.discover(heads, relations, tails, top, pool=max(POOL, 2 * top))
        return [schemas.Link(**row.to_dict()) for row in found]

    def weigh(self, asked: schemas.Weigh) -> schemas.Weights:
        rows = [(triple.head, triple.relation, triple.tail) for triple in asked.triples]
        for head, relation, tail in rows:  # the first unknown name is told, instead of rows left out
            self.entity(head), self.relation(relation), self.entity(tail)
        found = self.run.predict_weights(rows, coverage=asked.coverage)
        names = {"expected": "weight_mean", "typical": "weight_median", "low": "weight_low", "high": "weight_high"}
        triples = [
            schemas.WeighedTriple(**row, **{name: row[column] for name, column in names.items()})
            for row in found.to_dicts()
        ]
        return schemas.Weights(coverage=found.coverage, triples=triples, notes=list(found.notes))

    def explain(self, triple: schemas.Triple) -> schemas.Explained:
        self.entity(triple.head), self.relation(triple.relation), self.entity(triple.tail)
        found = self.run.explain(triple.head, triple.relation, triple.tail)
        return schemas.Explained(text=str(found), explanation=found.to_dict(), svg=found.svg())

    def side(self, asked: schemas.Question) -> schemas.Side:
        """This run's half of a comparison; a name that it does not have is its problem alone."""
        links, problem = [], None
        try:
            links = self.predict(asked)
        except Refused as refused:
            problem = refused.problem
        except FocuseError as error:
            problem = schemas.Problem(error=str(error))
        return schemas.Side(
            run=self.name, model=self.run.settings.model, metrics=self.metrics, links=links, problem=problem
        )


def _did_you_mean(names: list[str]) -> str:
    return f"did you mean {' or '.join(names[:3])}?" if names else ""


# ---- the same question to two runs, row by row -----------------------------------------------------------------------


def compare(first: Explorer, second: Explorer, asked: schemas.Question) -> schemas.Comparison:
    """Both answers, and every completion that either has, in the first run's order, then the second's."""
    missing = missing_part(asked)
    sides = first.side(asked), second.side(asked)
    problems = [side.problem for side in sides]
    if problems[0] is not None and problems[1] is not None:
        raise Refused(404, problems[0].error, problems[0].hint, problems[0].nearest)
    ranked: list[dict[str, schemas.Link]] = [{getattr(link, missing): link for link in side.links} for side in sides]
    names = list(dict.fromkeys([*ranked[0], *ranked[1]]))
    rows = [_compared_row(name, ranked[0].get(name), ranked[1].get(name)) for name in names]
    shared = sum(row.moved is not None for row in rows)
    return schemas.Comparison(missing=missing, first=sides[0], second=sides[1], rows=rows, shared=shared)


def missing_part(asked: schemas.Question) -> TriplePart:
    """The part that is left out; 422 unless it is exactly one."""
    parts: tuple[TriplePart, ...] = ("head", "relation", "tail")
    left_out = [part for part in parts if getattr(asked, part) is None]
    if len(left_out) != 1:
        raise Refused(422, "give two of head, relation and tail", "the third is ranked")
    return left_out[0]


def _compared_row(name: str, first: schemas.Link | None, second: schemas.Link | None) -> schemas.Compared:
    moved = None if first is None or second is None else first.rank - second.rank
    return schemas.Compared(name=name, first=first, second=second, moved=moved)
