"""The part of a `Run` that looks at the whole graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from focuse.data.graph import Graph
from focuse.data.splits import Splits
from focuse.data.triple_index import TripleIndex, build_triple_index
from focuse.engines.scorer import TableScorer
from focuse.inference.discovery.analogies import Analogies, find_analogies
from focuse.inference.discovery.batch import Answers, Many, predict_batch
from focuse.inference.discovery.chances import fit_chances
from focuse.inference.discovery.clusters import Clusters, find_clusters
from focuse.inference.discovery.discover import LIMIT, Wish, at_rate, discover
from focuse.inference.discovery.discoveries import Discoveries
from focuse.inference.discovery.duplicates import Duplicates, find_duplicates
from focuse.inference.discovery.likeness import check_measure
from focuse.inference.discovery.neighbours import Neighbours, find_neighbours, index_of
from focuse.inference.discovery.queries import read_queries
from focuse.inference.discovery.scope import SAMPLE, Ids, Names, Scope, find_names, of_types
from focuse.inference.fitted import FittedCache
from focuse.inference.weight_predictor import WeightPredictor, column_predictor, storable_folder

if TYPE_CHECKING:
    from focuse.api import Run


class DiscoveryMethods:
    """What a `Run` finds: missing links, entities alike, groups, near-duplicates and analogies."""

    splits: Splits
    scorer: TableScorer
    tables_checksum: str
    fitted: FittedCache

    def weight_predictor(self, full: bool = False) -> WeightPredictor:
        """The run's weights."""
        raise NotImplementedError

    def discover(
        self,
        heads: Names = None,
        relations: Names = None,
        tails: Names = None,
        top: int = 100,
        *,
        min_probability: float = 0.0,
        per_relation: int | None = None,
        per_head: int | None = None,
        types: Any = None,
        head_types: Names = None,
        tail_types: Names = None,
        anywhere: bool = False,
        candidates: str = "exhaustive",
        sample: int = SAMPLE,
        seed: int = 0,
        pool: int | None = None,
        limit: float = LIMIT,
        base_rate: float | None = None,
        column: str | None = None,
        progress: bool = False,
    ) -> Discoveries:
        """The most probable links that the graph lacks: of all, or between some heads and tails, by some relations.

        Every such link is scored; the `pool` best of each relation are ordered by probability (equal ones by the
        evidence behind it), and the `top` of these come back with what each would weigh. Facts of train, valid and
        test and triples known to be false are left out, as are links of an entity with itself by relations that have
        none in train. Entities stand only where train has them, as a head or a tail of that relation, unless
        `anywhere`. `head_types` and `tail_types` take entities of some types (`types`: a mapping, a file of lines
        entity, tab, type, or what stands before ':' in names). At most `per_relation` links of a relation and
        `per_head` of a head. Where there are more links than `limit`, `candidates` 'popular', 'rare' or 'sampled' take
        `sample` entities a relation and side, 'neighbourhood' entities at most two steps apart.

        `run.discover(relations="requires skill", top=20, min_probability=0.9)`
        """
        names = self.splits.train
        asked = find_names(relations, names.relations, "relation")
        scope = Scope(
            names,
            np.arange(len(names.relations)) if asked is None else asked,
            _both(find_names(heads, names.entities, "entity"), of_types(head_types, types, names.entities)),
            _both(find_names(tails, names.entities, "entity"), of_types(tail_types, types, names.entities)),
            anywhere,
            candidates,
            sample,
            seed,
            self.fitted.relation_ends,  # who stands where: sorted once a run
        )
        wish = Wish(top, min_probability, per_relation, per_head, pool, limit)
        wish.check()
        predictor = at_rate(self._looking(anywhere), base_rate)
        teller = None if column is None else column_predictor(cast("Run", self), column)
        return discover(self.scorer, self._known(), scope, predictor, wish, teller, progress)

    def predict_batch(
        self,
        queries: Any,
        top: int = 10,
        new_only: bool = False,
        *,
        among: Names = None,
        weights: bool = True,
        progress: bool = False,
    ) -> Answers:
        """What `predict` says to each of many half-known triples, scored in blocks.

        `queries` is a file (TSV, CSV, Parquet), a frame or rows of head, relation and tail, one of them empty, '?' or
        None. `among` takes answers from some entities only. Without `weights` answers have scores alone, which is much
        faster. `write` makes a file: a row an answer, with the number of its query.

        `run.predict_batch([("Ward Nurse", "requires skill", None)], top=3)`
        """
        names = self.splits.train
        asked = read_queries(queries, names)
        many = Many(self.scorer, self._facts()[:3], top, new_only, find_names(among, names.entities, "entity"))
        return predict_batch(many, asked, self.weight_predictor(full=True) if weights else None, progress)

    def similar(
        self,
        entity: str | Sequence[str],
        top: int = 10,
        *,
        among: Names = None,
        measure: str = "cosine",
        together: bool = False,
        approximate: bool = False,
    ) -> Neighbours:
        """The entities whose embeddings are most like that of one, or of each of several.

        `together` asks for what is like all of them (their mean), `among` looks at some entities only: those of a list
        with each other. `measure` is 'cosine' or 'euclidean'. `approximate` searches an index that is made once and
        kept in the run's folder (focuse[ann]): for millions of entities.

        `run.similar("Head Chef", top=3)`
        """
        some = find_names(among, self.splits.train.entities, "entity")
        index = None
        if approximate and some is None:
            indexes, folder = self.fitted.similarity_indexes, storable_folder(cast("Run", self))
            if check_measure(measure) not in indexes:
                indexes[measure] = index_of(self.scorer, measure, folder, self.tables_checksum)
            index = indexes[measure]
        asked = [entity] if isinstance(entity, str) else list(entity)
        return find_neighbours(self.scorer, self.splits.train, asked, top, some, measure, together, index)

    def clusters(
        self, count: int | None = None, *, method: str = "kmeans", smallest: int = 5, seed: int = 0
    ) -> Clusters:
        """Groups of entities with like embeddings, each with its central entities and what is typical of it.

        `count` clusters by k-means (None: the best separated number of a few), or by method 'hdbscan' as many as there
        are with at least `smallest` members; `write` makes a file of all assignments.

        `run.clusters(8).members(1)`
        """
        return find_clusters(self.scorer, self.splits.train, count, method, smallest, seed)

    def duplicates(
        self,
        similarity: float | None = None,
        overlap: float | None = None,
        top: int = 100,
        *,
        compare_names: bool = False,
    ) -> Duplicates:
        """Pairs of entities that may be one: embeddings that nearly coincide, and nearly the same edges.

        `similarity` and `overlap` are the least that both must have, in [0, 1]; left out, they are far above what
        pairs by chance have. `compare_names` also says how alike the names are.
        """
        return find_duplicates(self.scorer, self.splits.train, similarity, overlap, top, compare_names)

    def analogies(
        self, a: str, b: str, c: str, top: int = 10, *, method: str = "relations", new_only: bool = False
    ) -> Analogies:
        """A is to B as C is to what? By the relations that link A to B, or by method 'offset' nearest to B − A + C.

        `new_only` leaves out answers that the graph has already.
        """
        facts = self._facts()[:3]
        predictor = self.weight_predictor(full=method == "relations")
        found = find_analogies(self.scorer, facts, predictor, (a, b, c), top, method)
        return found.new_only() if new_only else found

    def _looking(self, anywhere: bool) -> WeightPredictor:
        """The run's predictor, its probabilities those of links that are looked at."""
        predictor, found = self.weight_predictor(full=True), self.fitted.discovery_probabilities
        if anywhere not in found:
            found[anywhere] = fit_chances(predictor, anywhere)
        return predictor if found[anywhere] is None else replace(predictor, probability=found[anywhere])

    def _known(self) -> TripleIndex:
        """What is known to be true or false, ready for look-ups; sorted once a run."""
        if self.fitted.known_triples is None:
            self.fitted.known_triples = build_triple_index(self._facts(), self.scorer.device)
        return self.fitted.known_triples

    def _facts(self) -> list[Graph]:
        """Graphs of what is known to be true or false, train first."""
        parts = [self.splits.train, self.splits.valid, self.splits.test, self.splits.known_negatives]
        return [part for part in parts if part is not None]


def _both(first: Ids | None, second: Ids | None) -> Ids | None:
    """What is in both, where both are given."""
    if first is None or second is None:
        return first if second is None else second
    return np.intersect1d(first, second)
