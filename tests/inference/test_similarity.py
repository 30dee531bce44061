"""Similar entities and analogies, compared with NumPy."""

import numpy as np
import pytest

import focuse
from focuse.errors import FocuseError
from focuse.inference.similarity import entity_rows


@pytest.fixture(scope="module")
def run(small: focuse.Graph) -> focuse.Run:
    return focuse.train(small, dim=8, epochs=3, progress=False)


def cosines(rows: np.ndarray) -> np.ndarray:
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return rows @ rows.T


def test_neighbors_agree_with_numpy(run: focuse.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("focuse.inference.similarity.BLOCK_SIMILARITIES", 100)
    rows = run.scorer.tables["entity"].double().cpu().numpy()
    alike = cosines(rows)
    np.fill_diagonal(alike, -np.inf)
    names = [str(name) for name in run.graph.entities]
    found = run.similar(names[:7], top=5)
    for place, name in enumerate(names[:7]):
        mine = [row for row in found if row.entity == name]
        order = np.argsort(-alike[place])[:5]
        assert [row.neighbor for row in mine] == [names[at] for at in order]
        assert np.allclose([row.similarity for row in mine], alike[place, order], atol=1e-5)
        assert [row.rank for row in mine] == [1, 2, 3, 4, 5]
    every = run.similar(names[0], top=1000)
    assert len(every) == len(names) - 1


def test_neighbors_of_several_entities_agree_with_numpy(run: focuse.Run) -> None:
    names = [str(name) for name in run.graph.entities]
    rows = run.scorer.tables["entity"].double().cpu().numpy()
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    middle = unit[[1, 4, 6]].mean(0)
    alike = unit @ (middle / np.linalg.norm(middle))
    alike[[1, 4, 6]] = -np.inf
    found = run.similar([names[1], names[4], names[6]], top=4, mean=True)
    assert [row.neighbor for row in found] == [names[at] for at in np.argsort(-alike)[:4]]
    some = names[3:7]
    between = run.similar(names[0], candidates=some)
    assert {row.neighbor for row in between} == set(some)
    alike = cosines(rows)
    for row in between:
        assert row.similarity == pytest.approx(alike[names.index(row.entity), names.index(row.neighbor)], abs=1e-5)


def test_non_finite_embeddings_are_refused() -> None:
    run = focuse.train([("a", "r", "b", 1.0), ("b", "r", "c", 1.0)], dim=4, epochs=1, progress=False)
    run.scorer.tables["entity"][0, 0] = float("nan")
    with pytest.raises(FocuseError, match="diverged"):
        run.similar("a")
    with pytest.raises(FocuseError, match="at least one entity"):
        run.similar([])


def test_models_with_encoders_and_attributes_have_entity_rows(small: focuse.Graph) -> None:
    numbers = [(str(name), "size", float(place)) for place, name in enumerate(small.entities)]
    for model, more in (
        ("literale-distmult", {"node_attributes": numbers}),
        ("kblrn", {"node_attributes": numbers}),
        ("kbgat", {}),
    ):
        run = focuse.train(small, model=model, dim=8, epochs=1, progress=False, **more)
        rows = entity_rows(run.scorer)
        assert rows.shape[0] == len(small.entities)
        assert len(run.similar("e1", top=3)) == 3
        assert len(run.discover(top=3)) == 3


# ---- analogies --------------------------------------------------------------------------------------------------


def test_analogy_uses_the_known_relation(run: focuse.Run) -> None:
    graph = run.graph
    a, kind, b = graph.entities[graph.head[0]], graph.relations[graph.relation[0]], graph.entities[graph.tail[0]]
    pair = (graph.head == graph.head[0]) & (graph.tail == graph.tail[0])
    c = next(str(name) for name in graph.entities if name not in (a, b))
    found = run.analogies(a, b, c, top=6)
    known = {link.relation for link in found.links if link.direction == "forward"}
    assert known == {graph.relations[r] for r in graph.relation[pair]}
    assert all(link.known for link in found.links)
    assert [row.rank for row in found] == list(range(1, len(found) + 1))
    strengths = [row.strength for row in found]
    assert strengths == sorted(strengths, reverse=True)
    assert not {a, c} & {row.entity for row in found}
    for row in found:
        ends = (c, row.entity) if row.direction == "forward" else (row.entity, c)
        told = run.predict_weight(ends[0], str(row.relation), ends[1])
        assert row.probability == pytest.approx(told.probability)
    if len(found.links) == 1 and found.links[0].direction == "forward":
        usual = set(graph.entities.take(graph.tail[graph.relation == graph.relations.id(kind)]).to_pylist())
        assert {row.entity for row in found} <= usual


def test_analogies_without_validation_have_no_probabilities(small: focuse.Graph) -> None:
    run = focuse.train(small, dim=4, epochs=1, progress=False, valid_fraction=0.0)
    found = run.analogies("e1", "e2", "e3", top=3)
    assert len(found) == 3
    assert {row.probability for row in found} == {None}


def test_analogies_without_memory_for_weights_have_strengths(
    small: focuse.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = focuse.train(small, dim=4, epochs=1, progress=False)
    monkeypatch.setattr("focuse.inference.similarity.can_predict_weights", lambda run: False)
    assert len(run.analogies("e1", "e2", "e3", top=np.int64(3))) == 3


def test_names_that_are_not_text_are_refused(run: focuse.Run) -> None:
    for ask in (lambda: run.similar(3), lambda: run.similar([None]), lambda: run.analogies("e1", "e2", 3)):
        with pytest.raises(FocuseError, match="give its name as text"):
            ask()
