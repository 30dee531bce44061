"""The API: answers agree with the run, and errors are one clear problem."""

import csv
import io
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import focuse
from focuse.explorer import limits

ENTITY = "Person 3"


def problem(answer, status: int) -> dict:
    assert answer.status_code == status, answer.text
    told = answer.json()
    assert set(told) == {"error", "hint", "nearest"}
    assert told["error"]
    return told


# ---- what a run says --------------------------------------------------------------------------------------------


def test_health_and_run_describe_the_run(client, state) -> None:
    health = client.get("/api/health").json()
    run = state.first.run
    assert (health["status"], health["model"]) == ("ready", "complex")
    assert (health["entities"], health["facts"]) == (len(run.graph.entities), len(state.first.edges))
    told = client.get("/api/run").json()
    assert told["settings"]["dim"] == 8
    assert told["compare"] == "second"
    assert {row["name"]: row["facts"] for row in told["relations"]}.keys() == {"has skill", "knows"}
    assert sum(row["facts"] for row in told["relations"]) == sum(told["splits"].values()) == health["facts"]
    assert told["metrics"]["source"] == "test"
    assert told["metrics"]["figures"]["MRR"] == pytest.approx(run.evaluate().all.mrr)


def test_search_finds_entities_by_name(client) -> None:
    told = client.get("/api/entities", params={"q": "person 3", "limit": 3}).json()
    assert told["exact"]
    assert told["entities"][0]["name"] == ENTITY
    assert len(told["entities"]) == 3


def test_neighbourhood_has_the_weights_of_the_graph(client, served_graph) -> None:
    told = client.get("/api/neighbourhood", params={"entity": ENTITY, "limit": 5}).json()
    table = served_graph.to_pandas()
    weights = {(row.head, row.relation, row.tail): row.weight for row in table.itertuples()}
    assert len(told["edges"]) == 5
    for edge in told["edges"]:
        assert weights[edge["head"], edge["relation"], edge["tail"]] == edge["weight"]
    own = table[(table["head"] == ENTITY) | (table["tail"] == ENTITY)]
    assert told["degree"] == told["total"] == len(own)
    assert sorted((edge["weight"] for edge in told["edges"]), reverse=True)[0] == own["weight"].max()


def test_triples_of_an_entity_are_paginated(client) -> None:
    whole = client.get("/api/facts", params={"entity": ENTITY, "limit": 500}).json()
    pages = [client.get("/api/facts", params={"entity": ENTITY, "limit": 4, "offset": at}).json() for at in (0, 4)]
    assert pages[0]["facts"] + pages[1]["facts"] == whole["facts"][:8]
    assert whole["total"] == len(whole["facts"])


def test_predict_is_the_run_s_own_answer(client, state) -> None:
    question = {"head": ENTITY, "relation": "has skill", "top": 4, "new_only": True}
    told = client.post("/api/predict", json=question).json()["links"]
    expected = state.first.run.predict(head=ENTITY, relation="has skill", top=4, new_only=True)
    assert [{key: link[key] for key in asdict(row)} for link, row in zip(told, expected, strict=True)] == [
        asdict(row) for row in expected
    ]


def test_missing_links_are_new_and_best_first(client, served_graph) -> None:
    told = client.get("/api/missing", params={"entity": ENTITY, "top": 12}).json()["links"]
    facts = {tuple(row) for row in served_graph.to_pandas()[["head", "relation", "tail"]].itertuples(index=False)}
    assert len(told) == 12
    assert [link["rank"] for link in told] == list(range(1, 13))
    assert all((link["head"], link["relation"], link["tail"]) not in facts for link in told)
    assert all((link["head"] if link["direction"] == "out" else link["tail"]) == ENTITY for link in told)
    chances = [link["probability"] for link in told]
    assert chances == sorted(chances, reverse=True)
    one = client.get("/api/missing", params={"entity": ENTITY, "relation": "knows", "direction": "in"}).json()["links"]
    assert {(link["relation"], link["tail"]) for link in one} == {("knows", ENTITY)}


def test_without_probabilities_missing_links_come_in_the_run_s_order(served_graph) -> None:
    from focuse.explorer.explorer import Explorer

    run = focuse.train(
        served_graph, model="complex", dim=6, epochs=3, valid_fraction=0, test_fraction=0, progress=False
    )
    found = Explorer(run, "whole").missing(ENTITY, None, "out", 8)
    own = list(run.discover([ENTITY], ["has skill", "knows"], None, 8))
    assert own[0].probability is None
    assert [(link.relation, link.tail) for link in found] == [(link.relation, link.tail) for link in own]
    assert [link.score for link in found] != sorted((link.score for link in found), reverse=True)


def test_weigh_and_batch_agree_with_the_run(client, state) -> None:
    triple = {"head": ENTITY, "relation": "has skill", "tail": "skill 3"}
    told = client.post("/api/weigh", json={"triples": [triple] * 2, "coverage": 0.8}).json()
    expected = state.first.run.predict_weight(*triple.values(), coverage=0.8)
    names = {"expected": "weight_mean", "typical": "weight_median", "low": "weight_low", "high": "weight_high"}
    for row in told["triples"]:
        assert {**row, **triple} == row
        assert {name: row[name] for name in names} == {name: getattr(expected, names[name]) for name in names}
        assert row["probability"] == expected.probability
    questions = [
        {"head": ENTITY, "relation": "knows", "top": 2},
        {"head": "Nobody", "relation": "knows"},
        {"head": ENTITY},
    ]
    answers = client.post("/api/batch", json={"questions": questions}).json()["answers"]
    assert len(answers[0]["links"]) == 2
    assert "no entity 'Nobody'" in answers[1]["problem"]["error"]
    assert "give two" in answers[2]["problem"]["error"]


def test_explain_agrees_with_the_run(client, state) -> None:
    told = client.post("/api/explain", json={"head": ENTITY, "relation": "has skill", "tail": "skill 3"}).json()
    found = state.first.run.explain(ENTITY, "has skill", "skill 3")
    assert told["text"] == str(found)
    assert told["svg"] == found.svg()
    assert told["explanation"]["supporting"]


def test_compare_asks_both_runs(client, state) -> None:
    told = client.get("/api/compare", params={"head": ENTITY, "relation": "has skill", "top": 6}).json()
    for place, explorer in (("first", state.first), ("second", state.second)):
        expected = explorer.run.predict(head=ENTITY, relation="has skill", top=6)
        assert [link["tail"] for link in told[place]["links"]] == [row.tail for row in expected]
    for row in told["rows"]:
        if row["moved"] is not None:
            assert row["moved"] == row["first"]["rank"] - row["second"]["rank"]
    assert told["shared"] == len(
        {x["tail"] for x in told["first"]["links"]} & {x["tail"] for x in told["second"]["links"]}
    )


def test_parallel_questions_have_the_same_answers(client) -> None:
    def ask(place: int) -> list[str]:
        question = {"head": f"Person {place % 4}", "relation": "has skill", "top": 3}
        return [link["tail"] for link in client.post("/api/predict", json=question).json()["links"]]

    alone = [ask(place) for place in range(4)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, range(24)))
    assert together == alone * 6


# ---- files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["=cmd()|'/C calc'!A0", "../../etc/passwd", "tab\tand\nline", "日本語 🎼"])
@pytest.mark.parametrize("form", ["csv", "tsv", "json"])
def test_exports_escape_hostile_names(client, name, form) -> None:
    answer = client.get("/api/export", params={"table": "facts", "entity": name, "format": form})
    assert answer.status_code == 200
    disposition = answer.headers["content-disposition"]
    assert disposition.startswith('attachment; filename="focuse-facts')
    assert ".." not in disposition
    if form == "json":
        rows = answer.json()
        assert all(name in (row["head"], row["tail"]) for row in rows)
    else:
        rows = list(csv.DictReader(io.StringIO(answer.text, newline=""), delimiter="," if form == "csv" else "\t"))
        shown = f"'{name}" if name.startswith("=") else name
        assert all(shown in (row["head"], row["tail"]) for row in rows)
    assert len(rows) == client.get("/api/facts", params={"entity": name}).json()["total"]


@pytest.mark.parametrize("table", ["missing", "predict", "compare"])
def test_answers_can_be_exported(client, table) -> None:
    asked = {"entity": ENTITY} if table == "missing" else {"head": ENTITY, "relation": "has skill"}
    rows = client.get("/api/export", params={"table": table, "format": "json", "top": 5, **asked}).json()
    assert len(rows) >= 5
    first = {"missing": "probability", "predict": "probability", "compare": "first_probability"}[table]
    assert rows[0][first] is not None
    problem(client.get("/api/export", params={"table": table}), 422)


# ---- what it refuses --------------------------------------------------------------------------------------------


def test_misspelled_name_is_404_with_the_nearest(client) -> None:
    told = problem(client.get("/api/neighbourhood", params={"entity": "Persn 3"}), 404)
    assert "Person 3" in told["nearest"]
    assert "did you mean" in told["hint"]
    told = problem(client.post("/api/predict", json={"head": ENTITY, "relation": "has skil"}), 404)
    assert told["nearest"] == ["has skill"]


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("neighbourhood", {"entity": ENTITY, "depth": 3}),
        ("neighbourhood", {"entity": ENTITY, "limit": limits.EDGES + 1}),
        ("neighbourhood", {"entity": ENTITY, "min_weight": "nan"}),
        ("neighbourhood", {}),
        ("entities", {"q": "x" * (limits.SEARCH + 1)}),
        ("missing", {"entity": ENTITY, "top": limits.TOP + 1}),
        ("missing", {"entity": ENTITY, "direction": "up"}),
        ("compare", {"head": ENTITY}),
        ("export", {"table": "passwords"}),
    ],
)
def test_values_beyond_the_limits_are_422(client, path, parameters) -> None:
    problem(client.get(f"/api/{path}", params=parameters), 422)


@pytest.mark.parametrize(
    "body",
    [
        {"head": ENTITY},
        {"head": ENTITY, "relation": "knows", "top": 0},
        {"head": ENTITY, "relation": "knows", "secret": 1},
        {"head": 5, "relation": "knows"},
        [],
        "text",
    ],
)
def test_invalid_questions_are_422(client, body) -> None:
    problem(client.post("/api/predict", json=body), 422)


def test_question_with_one_part_gets_a_hint(client) -> None:
    told = client.post("/api/predict", json={"head": ENTITY}).json()
    assert told["error"] == "give two of head, relation and tail"
    assert "the third is ranked" in told["hint"]


def test_too_many_questions_or_bytes_are_refused(client) -> None:
    questions = [{"head": ENTITY, "relation": "knows"}] * (limits.BATCH + 1)
    problem(client.post("/api/batch", json={"questions": questions}), 422)
    problem(
        client.post(
            "/api/batch", content=b" " * (limits.Limits().body + 1), headers={"content-type": "application/json"}
        ),
        413,
    )
    problem(client.post("/api/predict", content=b"{", headers={"content-type": "application/json"}), 422)


def test_compare_without_a_second_run_is_refused(state) -> None:
    from starlette.testclient import TestClient

    from focuse.explorer.app import make_app
    from focuse.explorer.state import State

    alone = TestClient(make_app(State(state.first)), base_url="http://127.0.0.1")
    problem(alone.get("/api/compare", params={"head": ENTITY, "relation": "knows"}), 404)


def test_body_that_is_not_json_is_refused(client) -> None:
    answer = client.post("/api/predict", content=b'{"head": ', headers={"content-type": "application/json"})
    assert problem(answer, 422)["error"].startswith("body: not JSON")


anything = st.one_of(st.none(), st.text(max_size=30), st.integers(), st.floats(), st.booleans())
NAMES = st.sampled_from([ENTITY, "skill 1", "has skill", "knows", "", "../..", "\ud800"])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.dictionaries(st.sampled_from(["head", "relation", "tail", "top", "new_only", "x"]), anything | NAMES))
def test_any_json_body_is_answered_without_a_server_error(client, body) -> None:
    import json

    text = json.dumps(body).encode()
    for path in ("predict", "explain", "predict-weights", "batch"):
        answer = client.post(f"/api/{path}", content=text, headers={"content-type": "application/json"})
        assert answer.status_code in (200, 404, 422), (path, body, answer.text)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(["entities", "neighbourhood", "facts", "missing", "compare", "export"]),
    parameters=st.dictionaries(
        st.sampled_from(
            ["q", "entity", "head", "relation", "tail", "limit", "depth", "top", "table", "format", "min_weight"]
        ),
        st.one_of(st.text(max_size=20), st.integers(-5, 400).map(str), st.sampled_from([ENTITY, "has skill", "facts"])),
    ),
)
def test_any_parameter_is_answered_without_a_server_error(client, path, parameters) -> None:
    answer = client.get(f"/api/{path}", params=parameters)
    assert answer.status_code in (200, 404, 422), (path, parameters, answer.text)


def test_many_requests_of_one_client_leave_room_for_another(state) -> None:
    from starlette.testclient import TestClient

    from focuse.explorer.app import make_app

    app, hold, begun = make_app(state), threading.Event(), threading.Event()
    greedy, other = (TestClient(app, "http://127.0.0.1", client=(host, 1)) for host in ("10.0.0.1", "10.0.0.2"))
    asked = {"url": "/api/missing", "params": {"entity": ENTITY, "top": 3}}
    busy = state.worker.submit(lambda: (begun.set(), hold.wait(10)), "dear")
    try:
        assert begun.wait(10)
        crowd = [state.worker.submit(lambda: None, "dear", client="10.0.0.1") for _ in range(limits.DEAR)]
        assert problem(greedy.get(**asked), 429)["error"] == "the model is busy"
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(other.get, **asked)
            while state.worker.waiting == len(crowd) and not answer.done():
                time.sleep(0.01)
            hold.set()
            assert len(answer.result(10).json()["links"]) == 3
        assert greedy.get(**asked).status_code == 200
    finally:
        hold.set()
        busy.result(10)
