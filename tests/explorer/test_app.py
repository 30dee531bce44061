"""The API: answers agree with the run, and errors are one clear problem."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import focuse
from focuse.explorer import guards, schemas
from focuse.explorer.service import Explorer, Service

ENTITY = "Person 3"


def problem(answer, status: int) -> dict:
    assert answer.status_code == status, answer.text
    told = answer.json()
    assert set(told) == {"error", "hint", "nearest"}
    assert told["error"]
    return told


# ---- what a run says --------------------------------------------------------------------------------------------


def test_health_and_run_describe_the_run(client, service) -> None:
    health = client.get("/api/health").json()
    run = service.first.run
    assert (health["status"], health["model"]) == ("ready", "complex")
    assert (health["entities"], health["triples"]) == (len(run.graph.entities), len(service.first.edges))
    told = client.get("/api/run").json()
    assert told["settings"]["dim"] == 8
    assert told["compare"] == "second"
    assert {row["name"]: row["triples"] for row in told["relations"]}.keys() == {"has skill", "knows"}
    assert sum(row["triples"] for row in told["relations"]) == sum(told["splits"].values()) == health["triples"]
    assert told["metrics"]["source"] == "test"
    assert told["metrics"]["figures"]["MRR"] == pytest.approx(run.evaluate().all.mrr)


def test_a_run_too_large_for_the_estimator_is_ready(run_folders, monkeypatch) -> None:
    for module in ("inference.weight_predictor", "inference.predict", "explorer.service"):
        monkeypatch.setattr(f"focuse.{module}.can_predict_weights", lambda run: False)
    service = Service([Explorer(focuse.load(run_folders[0]), "first")])
    service.warming[0].exception(60)
    assert service.health("1").status == "ready"
    assert service.summary().metrics.source == "test"


def test_search_finds_entities_by_name(client) -> None:
    told = client.get("/api/entities", params={"q": "person 3", "limit": 3}).json()
    assert told["entities"][0]["name"] == ENTITY
    assert len(told["entities"]) == 3


def test_neighborhood_has_the_weights_of_the_graph(client, served_graph) -> None:
    told = client.get("/api/neighborhood", params={"entity": ENTITY, "limit": 5}).json()
    table = served_graph.to_pandas()
    weights = {(row.head, row.relation, row.tail): row.weight for row in table.itertuples()}
    assert len(told["edges"]) == 5
    for edge in told["edges"]:
        assert weights[edge["head"], edge["relation"], edge["tail"]] == edge["weight"]
    own = table[(table["head"] == ENTITY) | (table["tail"] == ENTITY)]
    assert told["degree"] == len(own)
    assert sorted((edge["weight"] for edge in told["edges"]), reverse=True)[0] == own["weight"].max()


def test_triples_of_an_entity_are_paginated(client) -> None:
    whole = client.get("/api/triples", params={"entity": ENTITY, "limit": 500}).json()
    pages = [client.get("/api/triples", params={"entity": ENTITY, "limit": 4, "offset": at}).json() for at in (0, 4)]
    assert pages[0]["triples"] + pages[1]["triples"] == whole["triples"][:8]
    assert whole["total"] == len(whole["triples"])


def test_predict_is_the_answer_of_the_run(client, service) -> None:
    question = {"head": ENTITY, "relation": "has skill", "top": 4, "new_only": True}
    found = client.post("/api/predict", json=question).json()["links"]
    expected = service.first.run.predict(head=ENTITY, relation="has skill", top=4, new_only=True)
    assert [(link["tail"], link["score"], link["probability"]) for link in found] == [
        (row.tail, row.score, row.probability) for row in expected
    ]
    assert [(link["weight_mean"], link["weight_low"], link["weight_high"]) for link in found] == [
        (row.weight_mean, row.weight_low, row.weight_high) for row in expected
    ]


def test_missing_links_are_new_and_best_first(client, served_graph) -> None:
    told = client.get("/api/missing", params={"entity": ENTITY, "top": 12, "prefer": "likely"}).json()["links"]
    triples = {tuple(row) for row in served_graph.to_pandas()[["head", "relation", "tail"]].itertuples(index=False)}
    assert len(told) == 12
    assert [link["rank"] for link in told] == list(range(1, 13))
    assert all((link["head"], link["relation"], link["tail"]) not in triples for link in told)
    assert all(ENTITY in (link["head"], link["tail"]) for link in told)
    chances = [link["probability"] for link in told]
    assert chances == sorted(chances, reverse=True)
    one = client.get("/api/missing", params={"entity": ENTITY, "relation": "knows", "direction": "in"}).json()["links"]
    assert {(link["relation"], link["tail"]) for link in one} == {("knows", ENTITY)}


def test_without_probabilities_missing_links_come_in_the_run_s_order(served_graph) -> None:
    from focuse.explorer.service import Explorer

    run = focuse.train(
        served_graph, model="complex", dim=6, epochs=3, valid_fraction=0, test_fraction=0, progress=False
    )
    found = Explorer(run, "whole").missing(schemas.MissingQuery(entity=ENTITY, direction="out", top=8)).links
    own = list(run.discover([ENTITY], ["has skill", "knows"], None, 8))
    assert own[0].probability is None
    assert [(link.relation, link.tail) for link in found] == [(link.relation, link.tail) for link in own]
    assert [link.score for link in found] != sorted((link.score for link in found), reverse=True)


def test_predicted_weights_agree_with_the_run(client, service) -> None:
    triple = {"head": ENTITY, "relation": "has skill", "tail": "skill 3"}
    found = client.post("/api/predict-weights", json={"triples": [triple] * 2, "coverage": 0.8}).json()["triples"]
    expected = service.first.run.predict_weight(*triple.values(), coverage=0.8)
    assert found == [expected._asdict()] * 2


def test_explain_agrees_with_the_run(client, service) -> None:
    told = client.post("/api/explain", json={"head": ENTITY, "relation": "has skill", "tail": "skill 3"}).json()
    found = service.first.run.explain(ENTITY, "has skill", "skill 3")
    assert told["text"] == str(found)
    assert told["explanation"]["supporting"]


def test_compare_asks_both_runs(client, service) -> None:
    told = client.post("/api/compare", json={"head": ENTITY, "relation": "has skill", "top": 6}).json()
    for place, explorer in (("first", service.first), ("second", service.second)):
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


# ---- what it refuses --------------------------------------------------------------------------------------------


def test_misspelled_name_is_404_with_the_nearest(client) -> None:
    told = problem(client.get("/api/neighborhood", params={"entity": "Persn 3"}), 404)
    assert "Person 3" in told["nearest"]
    assert "did you mean" in told["hint"]
    told = problem(client.post("/api/predict", json={"head": ENTITY, "relation": "has skil"}), 404)
    assert told["nearest"] == ["has skill"]


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("neighborhood", {"entity": ENTITY, "depth": 3}),
        ("neighborhood", {"entity": ENTITY, "limit": schemas.MAX_EDGES + 1}),
        ("neighborhood", {"entity": ENTITY, "limit": "1_0"}),
        ("neighborhood", {"entity": ENTITY, "secret": "1"}),
        ("neighborhood", {}),
        ("triples", {"entity": ENTITY, "offset": "true"}),
        ("triples", {"entity": ""}),
        ("entities", {"q": "x" * (schemas.MAX_SEARCH + 1)}),
        ("missing", {"entity": ENTITY, "top": schemas.MAX_TOP + 1}),
        ("missing", {"entity": ENTITY, "direction": "up"}),
        ("missing", {"entity": ENTITY, "prefer": "1.5"}),
        ("missing", {"entity": ENTITY, "prefer": "nan"}),
        ("missing", {"entity": ENTITY, "prefer": "null"}),
        ("missing", {"entity": ENTITY, "prefer": ""}),
    ],
)
def test_invalid_parameters_are_422(client, path, parameters) -> None:
    problem(client.get(f"/api/{path}", params=parameters), 422)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"head": ENTITY},
        {"head": ENTITY, "relation": None, "tail": None},
        {"head": ENTITY, "relation": "knows", "top": 0},
        {"head": ENTITY, "relation": "knows", "top": "5"},
        {"head": ENTITY, "relation": "knows", "top": True},
        {"head": ENTITY, "relation": "knows", "new_only": 0},
        {"head": ENTITY, "relation": "knows", "secret": 1},
        {"head": ENTITY, "relation": "knows", "prefer": -0.1},
        {"head": ENTITY, "relation": "knows", "prefer": True},
        {"head": ENTITY, "relation": "knows", "prefer": "0.5"},
        {"head": ENTITY, "relation": "knows", "prefer": "weak"},
        {"head": ENTITY, "relation": "knows", "prefer": [1]},
        {"head": 5, "relation": "knows"},
        {"head": "\ud800", "relation": "knows"},
        [],
        "text",
    ],
)
def test_invalid_questions_are_422(client, body) -> None:
    content = json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    problem(client.post("/api/predict", content=content, headers=headers), 422)
    problem(client.post("/api/compare", content=content, headers=headers), 422)


def test_question_with_one_part_gets_a_hint(client) -> None:
    error = client.post("/api/predict", json={"head": ENTITY}).json()["error"]
    assert error == "body: give two of head, relation and tail; the third is ranked"


def test_integral_number_is_an_integer_as_in_json_schema(client) -> None:
    question = {"head": ENTITY, "relation": "knows", "top": 2.0}
    assert len(client.post("/api/predict", json=question).json()["links"]) == 2


def test_too_many_triples_or_bytes_are_refused(client) -> None:
    triples = [{"head": ENTITY, "relation": "knows", "tail": ENTITY}] * (schemas.MAX_TRIPLES + 1)
    problem(client.post("/api/predict-weights", json={"triples": triples}), 422)
    headers = {"content-type": "application/json"}
    problem(client.post("/api/predict", content=b" " * (guards.MAX_BODY + 1), headers=headers), 413)
    problem(client.post("/api/predict", content=b"{", headers=headers), 422)


def test_longest_valid_request_fits_into_the_body_limit(client) -> None:
    """Whatever its characters are: a character outside the basic plane takes 12 bytes as an escape."""
    name = "\U0001f3bc" * schemas.MAX_NAME
    triples = [{"head": name, "relation": name, "tail": name}] * schemas.MAX_TRIPLES
    content = json.dumps({"triples": triples, "coverage": 0.9}).encode()
    answer = client.post("/api/predict-weights", content=content, headers={"content-type": "application/json"})
    problem(answer, 404)


def test_compare_without_a_second_run_is_refused(service) -> None:
    from starlette.testclient import TestClient

    from focuse.explorer.app import make_app
    from focuse.explorer.service import Service

    alone = TestClient(make_app(Service([service.first])), base_url="http://127.0.0.1")
    problem(alone.post("/api/compare", json={"head": ENTITY, "relation": "knows"}), 404)


def test_body_that_is_not_json_is_refused(client) -> None:
    answer = client.post("/api/predict", content=b'{"head": ', headers={"content-type": "application/json"})
    assert problem(answer, 422)["error"].startswith("body: not JSON")


anything = st.one_of(st.none(), st.text(max_size=30), st.integers(), st.floats(), st.booleans())
NAMES = st.sampled_from([ENTITY, "skill 1", "has skill", "knows", "", "../..", "\ud800"])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.dictionaries(
        st.sampled_from(["head", "relation", "tail", "top", "new_only", "prefer", "x"]), anything | NAMES
    )
)
def test_any_json_body_is_answered_without_a_server_error(client, body) -> None:
    text = json.dumps(body).encode()
    for path in ("predict", "explain", "predict-weights", "compare"):
        answer = client.post(f"/api/{path}", content=text, headers={"content-type": "application/json"})
        assert answer.status_code in (200, 404, 422), (path, body, answer.text)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(["entities", "neighborhood", "triples", "missing"]),
    parameters=st.dictionaries(
        st.sampled_from(["q", "entity", "relation", "limit", "depth", "top", "offset", "direction", "prefer", "x"]),
        st.one_of(st.text(max_size=20), st.integers(-5, 400).map(str), st.sampled_from([ENTITY, "knows", "triples"])),
    ),
)
def test_any_parameter_is_answered_without_a_server_error(client, path, parameters) -> None:
    answer = client.get(f"/api/{path}", params=parameters)
    assert answer.status_code in (200, 404, 422), (path, parameters, answer.text)
