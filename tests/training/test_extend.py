"""Runs are extended by edges and new entities."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import focuse
from focuse.data.weights import NORMALIZERS, fit_normalizer, with_more_relations
from focuse.errors import FocuseError
from focuse.training.callbacks import Reporter

ASKED: dict[str, Any] = {"dim": 8, "epochs": 4, "label_exponent": 1.0, "progress": False}
NEW = [("n1", "r0", "e1", 0.9), ("n1", "r1", "e2", 0.4), ("e3", "r2", "n2", 0.7), ("n2", "r0", "n1", 0.5)]


class Told(Reporter):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def told(run: Any, edges: Any, **options: Any) -> tuple[focuse.Run, str]:
    listening = Told()
    made = focuse.extend(run, edges, progress=listening, **options)
    return made, "\n".join(listening.notes)


@pytest.fixture(scope="module")
def base(small: focuse.Graph, tmp_path_factory: pytest.TempPathFactory) -> focuse.Run:
    return focuse.train(small, out=tmp_path_factory.mktemp("living") / "run", **ASKED)


def blocks(users: range, seed: int = 0) -> list[tuple[str, str, str, float]]:
    """Users of four groups like ten of the sixteen items of their own group, the more the nearer these are."""
    random = np.random.default_rng([seed, users.start])
    rows = []
    for user in users:
        liked = random.permutation(16)[:10]
        rows += [(f"u{user}", "likes", f"i{user % 4}.{item}", 0.5 + item / 32) for item in liked]
    return rows


def test_new_entity_with_few_edges_ranks_nearly_as_well_as_after_retraining() -> None:
    asked: dict[str, Any] = {"dim": 16, "epochs": 30, "label_exponent": 0.0, "progress": False, "test_fraction": 0.0}
    known, unseen = blocks(range(60)), blocks(range(100, 108))
    few = [row for place, row in enumerate(unseen) if place % 10 < 4]
    rest = [row for place, row in enumerate(unseen) if place % 10 >= 4]
    run = focuse.train(known, **asked)
    untrained, made, all_trained = (
        focuse.extend(run, few, epochs=epochs, train_known=train_known, progress=False)
        for epochs, train_known in ((0, False), (None, False), (None, True))
    )
    anew = focuse.train([*known, *few], **asked)
    entities = len(made.graph.entities)
    chance = float((1 / np.arange(1, entities)).mean())
    untrained.scorer.tables["entity"][len(run.graph.entities) :] = torch.randn(
        8, 32, generator=torch.Generator().manual_seed(0)
    )
    untrained.scorer.invalidate()
    first, new, every, full = (one.evaluate(rest).all.mrr for one in (untrained, made, all_trained, anew))
    assert first < 4 * chance
    assert new > 4 * chance
    assert new > 0.8 * full
    assert every > 0.8 * full


class TestOnlyNewNames:
    def test_extension_changes_only_new_rows(self, base: focuse.Run) -> None:
        before = {name: table.clone() for name, table in base.scorer.tables.items()}
        made = focuse.extend(base, NEW, progress=False)
        still = focuse.extend(base, NEW, epochs=0, progress=False)
        for name, table in before.items():
            assert torch.equal(made.scorer.tables[name][: len(table)], table)
            assert torch.equal(base.scorer.tables[name], table)
        rows = len(before["entity"])
        assert len(made.scorer.tables["entity"]) == rows + 2
        assert not torch.equal(made.scorer.tables["entity"][rows:], still.scorer.tables["entity"][rows:])

    def test_new_names_are_appended_in_order(self, base: focuse.Run) -> None:
        made = focuse.extend(base, [*NEW, ("n3", "new", "e1", 0.5), ("n3", "new", "e2", 0.2)], progress=False)
        assert list(made.graph.entities) == [*base.graph.entities, "n1", "n2", "n3"]
        assert list(made.graph.relations) == [*base.graph.relations, "new"]
        assert len(made.scorer.tables["relation"]) == len(base.graph.relations) + 1
        assert len(made.graph) == len(base.graph) + 6
        assert made.predict(head="n3", relation="new", top=3)

    def test_same_seed_gives_identical_tables(self, base: focuse.Run) -> None:
        one, two = (focuse.extend(base, NEW, progress=False).scorer.tables["entity"] for _ in range(2))
        assert torch.equal(one, two)

    def test_extended_run_can_be_loaded_and_evaluated(self, base: focuse.Run, tmp_path: Path) -> None:
        made = focuse.extend(base.path, NEW, out=tmp_path / "new", progress=False)
        found = focuse.load(tmp_path / "new")
        assert torch.equal(found.scorer.tables["entity"], made.scorer.tables["entity"])
        assert found.evaluate().to_dict() == made.evaluate().to_dict()
        assert str(found.predict(head="n1", relation="r0")) == str(made.predict(head="n1", relation="r0"))
        said = found.predict_weight("n1", "r0", "e5")
        assert 0 <= said.weight_mean <= 1
        assert said.weight_low <= said.weight_mean <= said.weight_high
        assert 0 <= said.probability <= 1
        assert found.evaluate_weights(estimator=False)
        assert found.extended == made.extended
        assert found.extended[0]["from"] == str(base.path)
        assert (found.extended[0]["added"], found.extended[0]["entities"]) == (4, 2)
        old = load_file(base.path / "model.safetensors")
        assert torch.equal(old["entity"], base.scorer.tables["entity"].cpu())
        more = focuse.resume(tmp_path / "new", epochs=made.settings.epochs + 1, progress=False)
        assert len(more.history) == len(base.history) + 1
        assert more.extended == made.extended

    def test_extended_run_can_be_extended_again(self, base: focuse.Run, tmp_path: Path) -> None:
        focuse.extend(base, NEW, out=tmp_path / "one", progress=False)
        two = focuse.extend(tmp_path / "one", [("n9", "r0", "n1", 0.3)], out=tmp_path / "two", progress=False)
        one = focuse.load(tmp_path / "one")
        assert torch.equal(two.scorer.tables["entity"][:-1], one.scorer.tables["entity"])
        assert list(two.graph.entities)[-3:] == ["n1", "n2", "n9"]
        assert [row["from"] for row in focuse.load(tmp_path / "two").extended] == [
            str(base.path),
            str(tmp_path / "one"),
        ]

    def test_edges_between_known_names_are_added_without_training(self, base: focuse.Run) -> None:
        facts = {tuple(row.values())[:3] for row in base.graph.to_arrow().to_pylist()}
        held = {tuple(row.values())[:3] for row in base.splits.valid.to_arrow().to_pylist()}
        held |= {tuple(row.values())[:3] for row in base.splits.test.to_arrow().to_pylist()}
        pairs = [("e1", "r0", f"e{i}") for i in range(40) if f"e{i}" in set(base.graph.entities)]
        edge = next(pair for pair in pairs if pair not in facts | held)
        made, notes = told(base, [(*edge, 0.5)])
        assert "1 edge is between known names" in notes
        assert torch.equal(made.scorer.tables["entity"], base.scorer.tables["entity"])
        fresh = made.predict(*edge[:2], top=40, new_only=True).to_dicts()
        assert f"'{edge[2]}'" in str(base.predict(*edge[:2], top=40, new_only=True).to_dicts())
        assert f"'{edge[2]}'" not in str(fresh)


def test_extension_of_known_names_continues_training_from_the_run(base: focuse.Run, tmp_path: Path) -> None:
    made = focuse.extend(base, NEW, train_known=True, epochs=2, out=tmp_path / "all", progress=False)
    assert [row["epoch"] for row in made.history] == [1, 2, 3, 4, 5, 6]
    old = base.scorer.tables["entity"]
    assert not torch.equal(made.scorer.tables["entity"][: len(old)], old)
    alike = torch.cosine_similarity(made.scorer.tables["entity"][: len(old)], old)
    assert float(alike.mean()) > 0.8
    found = focuse.load(tmp_path / "all")
    assert found.extended[0]["train_known"] is True
    assert focuse.resume(tmp_path / "all", epochs=8, progress=False).history[-1]["epoch"] == 8
    again = focuse.extend(found, [("n5", "r0", "e1", 0.5)], train_known=True, progress=False)
    assert again.extended[-1]["epochs"] == 1  # a fifth of the four that it was first trained for


def test_extension_stopped_early_records_its_actual_epochs(small: focuse.Graph, tmp_path: Path) -> None:
    run = focuse.train(small, dim=8, epochs=10, eval_every=1, patience=1, lr=0.0001, progress=False)
    before = run.history[-1]["epoch"]
    made = focuse.extend(run, NEW, train_known=True, epochs=500, out=tmp_path / "all", progress=False)
    trained = made.history[-1]["epoch"] - before
    assert 0 < trained < 500
    for found in (made, focuse.load(tmp_path / "all")):
        assert found.extended[-1]["epochs"] == trained
    again = focuse.extend(made, [("n5", "r0", "e1", 0.5)], train_known=True, progress=False)
    assert again.settings.epochs == made.history[-1]["epoch"] + -(-before // 5)


def test_beta_schedule_is_not_restarted_by_an_extension(small: focuse.Graph) -> None:
    run = focuse.train(small, dim=8, epochs=6, weight_mode="focuse", beta_decay_epochs=4, eval_every=6, progress=False)
    assert [row["beta"] for row in run.history] == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    made = focuse.extend(run, NEW, train_known=True, epochs=2, progress=False)
    assert [row["beta"] for row in made.history[6:]] == [0.0, 0.0]


class TestChangedTriples:
    def test_held_out_triples_stay_held_out(self, base: focuse.Run) -> None:
        held = base.splits.test.select(np.arange(1)).to_arrow().to_pylist()[0]
        made, notes = told(base, [*NEW, tuple(held.values())], train_known=True, epochs=1)
        assert "1 edge is in the run's test split and not trained on" in notes
        assert len(made.graph) == len(base.graph) + 4
        assert len(made.splits.test) == len(base.splits.test)

    def test_repeated_triple_gets_the_new_weight(self, base: focuse.Run) -> None:
        first = tuple(base.graph.select(np.arange(1)).to_arrow().to_pylist()[0].values())
        made, notes = told(base, [(*first[:3], 0.5), (*first[:3], 0.123)])
        assert "1 row repeats a (head, relation, tail); the last one is used" in notes
        assert "1 edge changes the weight of a training triple" in notes
        rows = [row["weight"] for row in made.graph.to_arrow().to_pylist() if tuple(row.values())[:3] == first[:3]]
        assert rows == [0.123]
        assert len(made.graph) == len(base.graph)
        assert (made.extended[0]["updated"], made.extended[0]["added"]) == (1, 0)

    def test_removed_triples_are_gone_with_a_note(self, base: focuse.Run, tmp_path: Path) -> None:
        gone = [tuple(row.values())[:3] for row in base.graph.select(np.arange(3)).to_arrow().to_pylist()]
        made, notes = told(base, None, remove=[*gone, ("e1", "r0", "nobody")])
        left = {tuple(row.values())[:3] for row in made.graph.to_arrow().to_pylist()}
        assert not left & set(gone)
        assert made.extended[0]["removed"] == 3
        assert "the embeddings still reflect them (use train_known to train them)" in notes
        assert "1 of 4 triples to remove are not in the run" in notes
        retrained, _ = told(base, None, remove=gone, train_known=True, epochs=1)
        assert len(retrained.graph) == len(base.graph) - 3


def test_weights_beyond_the_range_of_train_give_a_note(base: focuse.Run) -> None:
    notes = told(base, [("n1", "r0", "e1", 90), ("n1", "r0", "e2", 40)])[1]
    assert "2 of 2 weights are outside of the range of their relation in train" in notes
    assert "if the units differ, convert the weights first" in notes
    notes = told(base, [("n1", "r0", "e1"), ("n1", "r0", "e2")])[1]
    assert "each new edge gets the median weight" in notes


MODELS = (
    *("transe", "rotate", "distmult", "tucker", "conve", "convkb", "kbgat", "literale-distmult", "transea"),
    *("ukge-logi", "beurre", "pykeen:mure"),
)


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model_can_be_extended(small: focuse.Graph, name: str, tmp_path: Path) -> None:
    if name.startswith("pykeen"):
        pytest.importorskip("pykeen")
    more: dict[str, Any] = {}
    if name in ("literale-distmult", "transea"):
        more["node_attributes"] = [(entity, "size", place) for place, entity in enumerate(small.entities)]
    run = focuse.train(small, model=name, dim=8, epochs=2, progress=False, **more)
    if more:
        more["node_attributes"] = [("n1", "size", 3)]
    made = focuse.extend(run, [*NEW, ("n1", "new", "e1", 0.5)], out=tmp_path / "run", epochs=3, progress=False, **more)
    for key, table in run.scorer.tables.items():
        halves = 2 if key == "relation" and run.settings.reciprocal else 1  # relations, then their inverses
        for old, new in zip(table.chunk(halves), made.scorer.tables[key].chunk(halves), strict=True):
            assert torch.equal(new[: len(old)], old), key
    assert focuse.load(tmp_path / "run").predict(head="n1", relation="new", top=3)
    if more:
        scale = run.splits.attributes
        assert made.splits.attributes.values[-2, 0] == pytest.approx((3 - scale.mean[0]) / scale.deviation[0])
        assert not made.splits.attributes.present[-1].any()
    more = focuse.extend(made, [("n7", "r0", "e1", 0.5)], train_known=True, epochs=1, progress=False)
    assert len(more.history) == 3


def test_extension_needs_the_weight_columns_of_the_run(small: focuse.Graph, with_columns: Any) -> None:
    run = focuse.train(with_columns(small), column_importance={"fit": 1, "noise": 1, "distance": 1}, **ASKED)
    edges = with_columns(focuse.read(NEW))
    made = focuse.extend(run, edges, progress=False)
    assert made.graph.columns.names == ("fit", "noise", "distance")
    assert np.allclose(made.graph.columns.values[-4:], edges.columns.values)
    with pytest.raises(FocuseError, match="a single weight per edge"):
        focuse.extend(run, NEW, progress=False)


class TestFaults:
    @pytest.mark.parametrize(
        ("heading", "words"),
        [
            ("", r"none of its \d+ entities .*names like 'user 1' and 'artist 1'; .*headings 'user' and 'artist'"),
            ("listener,band,n\n", r"'listener 1', .*headings 'user' and 'artist', and --separate-ids"),
            ("user,artist,n\n", "all edges are known already"),
        ],
    )
    def test_edges_without_a_known_entity_are_refused(self, heading: str, words: str, tmp_path: Path) -> None:
        rows = [f"{user},{(user * step) % 50 + 1},{step}\n" for user in range(1, 40) for step in range(1, 8)]
        (tmp_path / "plays.csv").write_text("userID,artistID,weight\n" + "".join(rows), encoding="utf-8")
        run = focuse.train(tmp_path / "plays.csv", test_fraction=0.0, valid_fraction=0.0, **ASKED)
        assert run.graph.entities[0] == "user 1"
        more = "" if heading.startswith("user") else "99,3,1\n"
        (tmp_path / "new.csv").write_text(heading + "".join(rows[:30]) + more, encoding="utf-8")
        given = {"head": 1, "tail": 2, "relation": "none", "weight": 3, "relation_name": run.graph.relations[0]}
        edges = focuse.read(tmp_path / "new.csv", header=bool(heading), **given)
        with pytest.raises(FocuseError, match=words):
            focuse.extend(run, edges, progress=False)

    def test_edges_of_unknown_names_are_refused_with_similar_ones(self, base: focuse.Run) -> None:
        with pytest.raises(FocuseError, match=r"none of its 2 entities \('E1', 'n1'\) \(did you mean e1"):
            focuse.extend(base, [("E1", "r0", "n1", 0.5)], progress=False)

    def test_extension_without_new_edges_is_refused(self, base: focuse.Run, tmp_path: Path) -> None:
        known = base.graph.select(np.arange(5))
        for edges, words in (
            ([], "no rows"),
            (known, "all edges are known already"),
            (None, "nothing to change in the run"),
        ):
            with pytest.raises(FocuseError, match=words):
                focuse.extend(base, edges, out=tmp_path / "out", progress=False)
        assert not (tmp_path / "out").exists()

    def test_occupied_output_folder_is_refused(self, base: focuse.Run, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "file").write_text("mine", encoding="utf-8")
        with pytest.raises(FocuseError, match="exists and is not empty"):
            focuse.extend(base, NEW, out=tmp_path / "out", progress=False)
        with pytest.raises(FocuseError, match="not a run"):
            focuse.extend(tmp_path / "nowhere", NEW, progress=False)

    def test_inapplicable_settings_are_refused(self, base: focuse.Run) -> None:
        with pytest.raises(FocuseError, match="at least 1"):
            focuse.extend(base, NEW, train_known=True, epochs=0, progress=False)
        with pytest.raises(FocuseError, match="does not use node attributes"):
            focuse.extend(base, NEW, node_attributes=[("n1", "size", 1)], progress=False)
        with pytest.raises(FocuseError, match="would remove every edge of train"):
            focuse.extend(base, None, remove=base.graph, progress=False)
        with pytest.raises(FocuseError, match="none of the triples to remove is in the run"):
            focuse.extend(base, None, remove=[("nobody", "knows", "them")], progress=False)
        with pytest.raises(FocuseError, match=r"epochs 1\.5: give a whole number"):
            focuse.extend(base, NEW, epochs=1.5, progress=False)  # type: ignore[arg-type]

    def test_damaged_extension_record_is_reported(self, base: focuse.Run, tmp_path: Path) -> None:
        focuse.extend(base, NEW, out=tmp_path / "run", epochs=1, progress=False)
        for text in ("{", "{}", json.dumps([{"train_known": 1, "epochs": 2}])):
            (tmp_path / "run" / "extended.json").write_text(text, encoding="utf-8")
            with pytest.raises(FocuseError, match="damaged file"):
                focuse.load(tmp_path / "run")


FIRST = [("a", "r", "b", 0.2), ("a", "r", "c", 0.8), ("b", "s", "c", 0.5), ("b", "s", "a", 0.9)]
MORE = [("a", "new", "b", 0.1), ("b", "new", "c", 0.4), ("c", "new", "a", 0.3), ("a", "r", "d", 0.5)]


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("name", NORMALIZERS)
def test_known_relations_keep_their_scaling_and_new_relations_get_their_own(name: str, lower: bool) -> None:
    """Against a fit on both together, of which new relations are told by their own edges alone."""
    first, both = (
        focuse.read(FIRST).with_lower_is_better(lower),
        focuse.read([*FIRST, *MORE]).with_lower_is_better(lower),
    )
    old = fit_normalizer(name, first)
    made, whole = with_more_relations(old, both.select(np.arange(4, 8)), 2), fit_normalizer(name, both)
    weight, relation = both.weight[:4], both.relation[:4]
    assert np.array_equal(made.transform(weight, relation), old.transform(weight, relation))
    weight, relation = both.weight[4:7], both.relation[4:7]
    if name != "global":  # whose one range is the old graph's
        assert np.allclose(made.transform(weight, relation), whole.transform(weight, relation))
    share = made.transform(weight, relation)
    assert ((share >= 0) & (share <= 1)).all()
