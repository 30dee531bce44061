"""The answers of the explorer: names, triples and predictions of one or two runs. It does not depend on HTTP."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future
from functools import cached_property

import numpy as np
import pyarrow as pa

from focuse.api import Run
from focuse.data.graph import Vocabulary
from focuse.evaluation.evaluate import Evaluation
from focuse.evaluation.metrics import FloatArray
from focuse.evaluation.preference import Prefer
from focuse.explorer import schemas
from focuse.explorer.guards import ModelQueue
from focuse.explorer.index import EdgeIndex, NameIndex, Rows
from focuse.explorer.schemas import ProblemError
from focuse.inference.weight_predictor import can_predict_weights
from focuse.results import ResultTable

SPLITS = ("train", "valid", "test")
HUBS = 12
MISSING_POOL = 200  # links per relation that are compared by probability
MAX_METRICS_WORK = 2e8  # scores that ranking the test split may take; beyond it, validation metrics are shown


class Explorer:
    """One run with its indexes. Methods that need the model must run in the thread of the model queue."""

    def __init__(self, run: Run, name: str) -> None:
        self.run, self.name = run, name
        self.edges = EdgeIndex([run.splits.train, run.splits.valid, run.splits.test])
        self.entity_names = NameIndex(run.graph.entities, self.edges.degree)
        self.relation_names = NameIndex(run.graph.relations, np.zeros(len(run.graph.relations)))

    # ---- names -------------------------------------------------------------------------------------------------------

    def entity(self, name: str) -> int:
        """Return the id of an entity; an unknown name is a problem that lists the nearest names."""
        return _id_of(name, "entity", self.entity_names)

    def relation(self, name: str | None) -> int | None:
        """Return the id of a relation, or None without a name."""
        return None if name is None else _id_of(name, "relation", self.relation_names)

    def find(self, query: str, limit: int) -> schemas.EntityHits:
        """Search entities by name."""
        found = self.entity_names.search(query, limit).tolist()
        exact = self.run.graph.entities.find(query)
        if exact >= 0:  # with its own spaces and capitals, before names that only fold to the same text
            found = [exact, *(entity for entity in found if entity != exact)][:limit]
        return schemas.EntityHits(entities=[self._hit(entity) for entity in found])

    def _hit(self, entity: int) -> schemas.EntityHit:
        return schemas.EntityHit(name=self.run.graph.entities[entity], degree=int(self.edges.degree[entity]))

    # ---- triples -----------------------------------------------------------------------------------------------------

    def neighborhood(self, asked: schemas.NeighborhoodQuery) -> schemas.Neighborhood:
        """Return the strongest edges near an entity."""
        entity, relation = self.entity(asked.entity), self.relation(asked.relation)
        rows, distances = self.edges.neighborhood(entity, asked.depth, asked.limit, relation)
        nodes = [schemas.Node(**self._hit(one).model_dump(), distance=steps) for one, steps in distances.items()]
        return schemas.Neighborhood(
            entity=asked.entity,
            degree=int(self.edges.degree[entity]),
            nodes=nodes,
            edges=self._edges(rows),
            relations_out=self._relations_of(entity, as_tail=False),
            relations_in=self._relations_of(entity, as_tail=True),
        )

    def _relations_of(self, entity: int, as_tail: bool) -> list[str]:
        names: list[str] = self.run.graph.relations.take(self.edges.relations_of(entity, as_tail)).to_pylist()
        return names

    def triples(self, asked: schemas.TriplesQuery) -> schemas.Triples:
        """Return a page of the triples of an entity."""
        rows = self.edges.rows_of(self.entity(asked.entity), self.relation(asked.relation))
        page = self._edges(rows[asked.offset : asked.offset + asked.limit])
        return schemas.Triples(entity=asked.entity, total=len(rows), triples=page)

    def _edges(self, rows: Rows) -> list[schemas.Edge]:
        """Return rows of the edge index with names."""
        edges, graph = self.edges, self.run.graph
        columns = {
            "head": graph.entities.take(edges.head[rows]),
            "relation": graph.relations.take(edges.relation[rows]),
            "tail": graph.entities.take(edges.tail[rows]),
            "weight": edges.weight[rows],
            "strength": np.round(edges.strength[rows].astype(float), 6),
            "split": np.array(SPLITS)[edges.split[rows]],
        }
        return [schemas.Edge(**row) for row in pa.table(columns).to_pylist()]

    @cached_property
    def relations(self) -> list[schemas.RelationCount]:
        """The relations with their number of triples and the range of their weights."""
        weights = pa.table({"relation": self.edges.relation, "weight": self.edges.weight}).group_by("relation")
        found = weights.aggregate([("weight", "count"), ("weight", "min"), ("weight", "max")])
        found = found.sort_by([("weight_count", "descending"), ("relation", "ascending")])
        names = [self.run.graph.relations[relation] for relation in found["relation"].to_pylist()]
        columns = [names, *(found[f"weight_{statistic}"].to_pylist() for statistic in ("count", "min", "max"))]
        fields = ("name", "triples", "lowest", "highest")
        return [schemas.RelationCount(**dict(zip(fields, row, strict=True))) for row in zip(*columns, strict=True)]

    @cached_property
    def hubs(self) -> list[schemas.EntityHit]:
        """The entities with the most triples."""
        return [self._hit(int(entity)) for entity in np.argsort(-self.edges.degree, kind="stable")[:HUBS]]

    # ---- questions to the model --------------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Compute the metrics, and fit the estimators that the first question would have to wait for."""
        _ = self.metrics
        if can_predict_weights(self.run):
            self.run.weight_predictor(full=True)
            self.run.discover(heads=self.run.graph.entities[0], top=1)

    @cached_property
    def metrics(self) -> schemas.Metrics:
        """Metrics of the test split if that is quick, otherwise the best of validation."""
        test = self.run.splits.test
        if len(test) and 2.0 * len(test) * len(self.run.graph.entities) <= MAX_METRICS_WORK:
            found = self.run.evaluate()
            orders = ("likely", "default", "strong") if self.preference else ()
            compared = {order: _figures(found.compared[order]) for order in orders}
            return schemas.Metrics(source="test", figures=_figures(found), compared=compared)
        stored = [row["valid_mrr"] for row in self.run.history if row.get("valid_mrr") is not None]
        if stored:
            return schemas.Metrics(source="validation", figures={"MRR": max(stored)})
        return schemas.Metrics(source="none", figures={})

    @property
    def preference(self) -> schemas.Preference | None:
        """How links are ordered by default, None if the run has no weight model."""
        if self.run.weight_model is None:
            return None
        chosen = self.run.preference
        return schemas.Preference(default=chosen.default, strong_exponent=chosen.strong)

    def predict(self, asked: schemas.Question) -> schemas.Links:
        """Return the best completions of a triple."""
        self._check(asked)
        parts = asked.head, asked.relation, asked.tail
        found = self.run.predict(*parts, asked.top, asked.new_only, prefer=asked.prefer)
        return schemas.Links(links=_links(found), ordered_by=found.ordered_by)

    def missing(self, asked: schemas.MissingQuery) -> schemas.Links:
        """Return the best links that an entity lacks, over all of its relations or one."""
        entity = self.entity(asked.entity)
        self.relation(asked.relation)
        self.run.exponent(asked.prefer)  # refuses a preference that the run does not have, also without relations
        found: list[schemas.Link] = []
        ordered_by = ""
        for direction in ("out", "in"):
            relations = [asked.relation] if asked.relation else self._relations_of(entity, direction == "in")
            if asked.direction in (direction, "both") and relations:
                heads, tails = ([asked.entity], None) if direction == "out" else (None, [asked.entity])
                pool = max(MISSING_POOL, 2 * asked.top)
                links = self.run.discover(heads, relations, tails, asked.top, rerank=pool, prefer=asked.prefer)
                found += _links(links)
                ordered_by = links.ordered_by
        best = [found[place] for place in self._order(found, asked.prefer)[: asked.top]]
        ranked = [link.model_copy(update={"rank": rank}) for rank, link in enumerate(best, 1)]
        return schemas.Links(links=ranked, ordered_by=ordered_by)

    def _order(self, links: Sequence[schemas.Link], prefer: Prefer) -> list[int]:
        """Return the places of the links of two searches, the best first."""
        names = [link.relation for link in links]
        columns = {
            name: np.array([getattr(link, name) for link in links], float) for name in ("probability", "weight_mean")
        }
        key: FloatArray | None = columns["probability"]
        if links and self.run.exponent(prefer):
            predictor = self.run.weight_predictor(full=True).preferring(self.run, prefer)
            key = predictor.shown_key(columns, np.array([self.run.graph.relations.find(name) for name in names]))
        # Scores of different relations cannot be compared; without probabilities, the order of discovery is kept.
        if key is None or np.isnan(key).any():
            key = -np.array([link.rank for link in links], float)
        return [int(place) for place in np.argsort(-key, kind="stable")]

    def predict_weights(self, asked: schemas.WeightsQuestion) -> schemas.PredictedWeights:
        """Predict the weights of triples; an unknown name is a problem of the whole request."""
        for triple in asked.triples:
            self._check(triple)
        triples = [(triple.head, triple.relation, triple.tail) for triple in asked.triples]
        found = self.run.predict_weights(triples, coverage=asked.coverage)
        rows = [schemas.PredictedWeight(**row) for row in found.to_dicts()]
        return schemas.PredictedWeights(coverage=found.coverage, triples=rows, notes=list(found.notes))

    def explain(self, triple: schemas.Triple) -> schemas.Explained:
        """Explain why a triple is predicted."""
        self._check(triple)
        found = self.run.explain(triple.head, triple.relation, triple.tail)
        return schemas.Explained(text=str(found), explanation=found.to_dict())

    def _check(self, triple: schemas.Triple | schemas.Question) -> None:
        """Refuse names that the graph does not have."""
        for name in (triple.head, triple.tail):
            if name is not None:
                self.entity(name)
        self.relation(triple.relation)

    def side(self, asked: schemas.Question) -> schemas.Side:
        """Return the answer of this run to a compared question; a name that only this run lacks is its problem."""
        found, problem = schemas.Links(links=[], ordered_by=""), None
        try:
            found = self.predict(asked)
        except ProblemError as refused:
            problem = refused.problem
        return schemas.Side(
            run=self.name, model=self.run.settings.model, metrics=self.metrics, problem=problem, **dict(found)
        )


def _figures(found: Evaluation) -> dict[str, float]:
    """Return the metrics that the page shows, without those that are unknown."""
    told = found.to_dict()
    figures = {"MRR": told["all"]["mrr"], "ΔMRR": told["delta_mrr"], "MRR top 10\u00a0%": told["top"]["mrr"]}
    figures |= {f"Hits@{count}": told["all"][f"hits@{count}"] for count in (1, 3, 10)}
    return {key: value for key, value in figures.items() if value is not None}


def _id_of(name: str, kind: str, index: NameIndex) -> int:
    names: Vocabulary = index.names
    found = names.find(name)
    if found < 0:
        nearest = [names[int(one)] for one in index.search(name[: schemas.MAX_SEARCH], 5)]
        hint = f"did you mean {' or '.join(nearest[:3])}?" if nearest else ""
        raise ProblemError(404, f"the graph has no {kind} {name!r}", hint, nearest)
    return found


def _links(results: ResultTable) -> list[schemas.Link]:
    return [schemas.Link(**row) for row in results.to_dicts()]


class Service:
    """One run, or two to compare, and the queue of questions to their models.

    Estimators that the first questions need are fitted at once, before any question.
    """

    def __init__(self, explorers: Sequence[Explorer], queue: ModelQueue | None = None) -> None:
        self.first = explorers[0]
        self.second = explorers[1] if len(explorers) > 1 else None
        self.queue = queue or ModelQueue()
        self.warming: list[Future[None]] = [self.queue.submit(explorer.warm_up) for explorer in explorers]

    def health(self, version: str) -> schemas.Health:
        """Return whether the server is ready, and what it serves."""
        faults = [str(future.exception()) for future in self.warming if future.done() and future.exception()]
        warm = all(future.done() for future in self.warming)
        run = self.first.run
        return schemas.Health(
            status="warming" if not warm else "failed" if faults else "ready",
            problem=faults[0] if faults else "",
            version=version,
            model=run.settings.model,
            entities=len(run.graph.entities),
            relations=len(run.graph.relations),
            triples=len(self.first.edges),
            waiting=self.queue.waiting,
        )

    def summary(self) -> schemas.RunSummary:
        """Return what was trained, on which data and with which result."""
        run, settings = self.first.run, self.first.run.settings
        splits = zip(SPLITS, (run.splits.train, run.splits.valid, run.splits.test), strict=True)
        return schemas.RunSummary(
            name=self.first.name,
            model=settings.model,
            dim=settings.dim,
            epochs=len(run.history),
            entities=len(run.graph.entities),
            triples=len(self.first.edges),
            weighted=run.graph.weighted,
            lower_is_better=run.graph.lower_is_better,
            splits={name: len(graph) for name, graph in splits},
            relations=self.first.relations,
            hubs=self.first.hubs,
            settings=json.loads(json.dumps(settings.to_dict(), default=str)),
            # Ranking belongs to the thread of the model: metrics are shown once they have been computed there.
            metrics=self.first.__dict__.get("metrics", schemas.Metrics(source="pending", figures={})),
            preference=self.first.preference,
            compare=None if self.second is None else self.second.name,
            compare_preference=None if self.second is None else self.second.preference,
        )

    def compare(self, asked: schemas.Question) -> schemas.Comparison:
        """Ask both runs; the completions are in the order of the first run, then of the second.

        `prefer` is asked of the runs that have a weight model, of both if neither has one: they refuse it.
        """
        if self.second is None:
            raise ProblemError(404, "there is no second run", "start with: focuse serve RUN --compare OTHER_RUN")
        plain = asked.model_copy(update={"prefer": None})
        runs = self.first, self.second
        any_weights = any(one.preference for one in runs)
        sides = [one.side(asked if one.preference or not any_weights else plain) for one in runs]
        problem = sides[0].problem
        if problem and sides[1].problem:
            raise ProblemError(404, problem.error, problem.hint, problem.nearest)
        missing = (asked.missing or ["tail"])[0]
        first, second = ({getattr(link, missing): link for link in side.links} for side in sides)
        rows = [_compared(name, first.get(name), second.get(name)) for name in dict.fromkeys([*first, *second])]
        shared = sum(row.moved is not None for row in rows)
        return schemas.Comparison(missing=missing, first=sides[0], second=sides[1], rows=rows, shared=shared)


def _compared(name: str, first: schemas.Link | None, second: schemas.Link | None) -> schemas.ComparedLink:
    moved = None if first is None or second is None else first.rank - second.rank
    return schemas.ComparedLink(name=name, first=first, second=second, moved=moved)
