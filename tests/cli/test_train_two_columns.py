"""A table of two endpoints and a number, from the first command to a prediction: no relation is named anywhere."""

import json

import numpy as np
import pytest

OPTIONS = ("--dim", "8", "--epochs", "3", "--label-exponent", "1", "--engine", "torch", "--device", "cpu", "--quiet")


@pytest.fixture(scope="module")
def links(tmp_path_factory):
    """Users and artists whose ids overlap, with play counts."""
    random = np.random.default_rng(0)
    pairs = {(int(user), int(artist)) for user, artist in random.integers(1, 25, (300, 2))}
    lines = [f"{user}\t{artist}\t{5 * user + artist}" for user, artist in sorted(pairs)]
    path = tmp_path_factory.mktemp("links") / "user_artists.dat"
    path.write_text("userID\tartistID\tplays\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def run(links, command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "plays"
    command("train", links, "--out", folder, *OPTIONS, check=True)
    return folder


def test_describe_says_how_the_table_is_read(links, command):
    done = command("describe", links, check=True)
    assert "first edge: user 1 | plays | artist " in done.stdout
    assert "read columns as head 'userID', tail 'artistID', weight 'plays'" in done.stdout
    assert "kept apart, as 'user 1' and 'artist " in done.stdout
    merged = json.loads(command("describe", links, "--same-ids", "--json", check=True).stdout)
    apart = json.loads(command("describe", links, "--json", check=True).stdout)
    assert merged["entities"] < apart["entities"] == 2 * merged["entities"]


def test_the_relation_need_not_be_named(run, command):
    answers = json.loads(command("predict", run, "--head", "user 1", "--scores-only", "--json", check=True).stdout)
    assert {row["relation"] for row in answers["rows"]} == {"plays"}
    heads = json.loads(command("predict", run, "--tail", "artist 2", "--scores-only", "--json", check=True).stdout)
    assert len(heads["rows"]) == 10
    explained = json.loads(
        command("explain", run, "--head", "user 1", "--tail", "artist 2", "--json", check=True).stdout
    )
    assert [explained[part] for part in ("head", "relation", "tail")] == ["user 1", "plays", "artist 2"]


def test_users_are_no_answers_where_artists_are_asked(run, command):
    asked = ("predict", run, "--scores-only", "--json", "--top", "100")
    tails = json.loads(command(*asked, "--head", "user 1", check=True).stdout)["rows"]
    assert {row["tail"].split()[0] for row in tails} == {"artist"}
    heads = json.loads(command(*asked, "--tail", "artist 1", check=True).stdout)["rows"]
    assert {row["head"].split()[0] for row in heads} == {"user"}
    third = tails[2]
    whole = json.loads(command(*asked, "--head", "user 1", "--tail", third["tail"], check=True).stdout)["rows"]
    assert [row["rank"] for row in whole] == [3]


def test_queries_of_two_columns(run, command, refused, tmp_path):
    (tmp_path / "queries.csv").write_text("artistID,userID\n?,user 1\nartist 4,?\n")
    asked = ("predict", run, "--queries", tmp_path / "queries.csv", "--top", "1", "--scores-only", "--json")
    first, second = json.loads(command(*asked, check=True).stdout)["rows"]
    assert (first["head"], first["relation"]) == ("user 1", "plays")
    assert (second["relation"], second["tail"]) == ("plays", "artist 4")
    (tmp_path / "ids.csv").write_text("1,?\n")
    message = refused("predict", run, "--queries", tmp_path / "ids.csv")
    assert "no entity '1'" in message
    assert "user 1" in message
    assert "artist 1" in message


def test_another_table_without_relations_is_about_the_same_relation(run, command, tmp_path):
    # Neither its name nor its heading is that of the relation in train.
    (tmp_path / "more.csv").write_text("userID,artistID\n1,2\n3,4\n")
    done = command("predict-weights", run, tmp_path / "more.csv", "--json", check=True)
    assert [row["relation"] for row in json.loads(done.stdout)["rows"]] == ["plays", "plays"]
    shown = json.loads(command("evaluate", run, tmp_path / "more.csv", "--json", check=True).stdout)
    assert shown["unseen_rows"] == 0
    assert shown["all"]["n"] == 2


def test_a_table_without_relations_is_refused_by_a_run_with_several(trained, refused, tmp_path):
    (tmp_path / "more.csv").write_text("from,to\ne1,e2\ne2,e3\n")
    message = refused("evaluate", trained.folder, tmp_path / "more.csv")
    assert "read without relations" in message
    assert "relation_name" in message


def test_a_refused_training_proposes_a_training(refused, tmp_path):
    rows = "\n".join(f"P{n % 40},Q{n % 37},{n / 7},{n / 3}" for n in range(200))
    (tmp_path / "wide.csv").write_text(f"person,place,hours,euros\n{rows}\n")
    message = refused("train", tmp_path / "wide.csv")
    assert f"For example: focuse train {tmp_path / 'wide.csv'} --head person --tail place --weight hours" in message


def test_an_entity_is_no_new_link_of_itself(tmp_path, command):
    random = np.random.default_rng(1)
    pairs = {(int(a), int(b)) for a, b in random.integers(0, 30, (400, 2)) if a != b}
    (tmp_path / "knows.csv").write_text("from,to,weight\n" + "\n".join(f"p{a},p{b},0.5" for a, b in sorted(pairs)))
    command("train", tmp_path / "knows.csv", "--out", tmp_path / "run", *OPTIONS, check=True)
    asked = ("predict", tmp_path / "run", "--head", "p1", "--top", "99", "--scores-only", "--json")
    rows = json.loads(command(*asked, "--new-only", check=True).stdout)["rows"]
    assert "p1" not in {row["tail"] for row in rows}
    assert "p1" in {row["tail"] for row in json.loads(command(*asked, check=True).stdout)["rows"]}
