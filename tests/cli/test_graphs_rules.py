"""`focuse rules ground` and `focuse rules mine`."""

from __future__ import annotations

import json
import re

import pytest

from focuse.cli.main import app
from focuse.data.readers import read
from focuse.errors import FocuseError
from focuse.rules.grammar import read_rules
from focuse.rules.grounding import inferred

ROWS = [
    ("kobe", "playsFor", "lakers", 0.9),
    ("kobe", "plays", "basketball", 1.0),
    ("shaq", "playsFor", "lakers", 0.8),
    ("shaq", "plays", "basketball", 0.9),
    ("babe", "playsFor", "yankees", 1.0),
    ("babe", "plays", "baseball", 0.7),
    ("lakers", "teamPlays", "basketball", 0.6),
]
SHARED = (
    "--limit --weight-scaling --head --relation --tail --weight --columns --weight-columns --relation-name --same-ids "
    "--undirected --missing-weight --delimiter --header --json --help"
)
RULE = "playsFor(x,y) & plays(x,z) -> teamPlays(y,z) : 0.9\n"


@pytest.fixture
def files(tmp_path):
    graph, rules = tmp_path / "athletes.tsv", tmp_path / "rules.txt"
    read(ROWS).write(graph)
    rules.write_text(f"# athletes\n{RULE}", encoding="utf-8")
    return graph, rules


@pytest.fixture
def rules_command(capsys):
    """`rules_command("mine", …)`: in this process, what it prints and what it notes."""

    def run(*arguments):
        app(["rules", *map(str, arguments)], standalone_mode=False)
        return capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("ground", "--out --minimum --keep-known"),
        (
            "mine",
            "--out --support --confidence --shape --top",
        ),
    ],
)
def test_help_describes_every_option(command, name, flags):
    shown = command("rules", name, "--help", check=True).stdout
    assert re.match(rf"Usage: .*focuse rules {name} \[OPTIONS\]", shown)
    found = re.findall(r"^  (?:-h, )?(--[\w-]+)(.*(?:\n {10,}.*)*)", shown, re.MULTILINE)
    assert {flag for flag, _ in found} == {*flags.split(), *SHARED.split()}
    assert all(len(re.sub(r"^( / --[\w-]+)? *(<\w+>|TEXT|PATH)?", "", text).split()) >= 3 for _, text in found[:-1])
    assert max(map(len, shown.splitlines())) <= 80


def test_grounding_prints_a_line_per_rule_and_writes_new_triples(command, files, tmp_path):
    graph, rules = files
    out = tmp_path / "soft.tsv"
    done = command("rules", "ground", graph, rules, "--out", out, check=True)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].split()[:4] == ["rule", "groundings", "triples", "new"]
    assert lines[1].split()[-6:] == ["3", "2", "1", "0.500", "0.700", "0.367"]
    assert lines[-1] == f"1 inferred triple written to {out}"
    assert out.read_text().startswith("yankees\tteamPlays\tbaseball\t0.6")
    expected = inferred(read(graph), read_rules(rules))
    assert read(out).weight.tolist() == expected.weight.tolist()


def test_grounding_is_printed_as_json(rules_command, files, tmp_path):
    graph, rules = files
    out = tmp_path / "soft.tsv"
    data = json.loads(rules_command("ground", graph, rules, "--keep-known", "--json", "--out", out).out)
    [row] = data["rules"]
    assert row["rule"] == "playsFor(x, y) & plays(x, z) -> teamPlays(y, z) : 0.9"
    assert (row["line"], row["groundings"], row["triples"], row["new"]) == (2, 3, 2, 1)
    assert (row["hit_ratio"], row["minimum"], row["capped"]) == (0.5, 0.5, False)
    assert row["mean_confidence"] == pytest.approx(0.7)
    assert (data["inferred"], data["out"]) == (2, str(out))
    assert len(read(out)) == 2


def test_raised_minimum_is_noted_on_stderr(rules_command, files):
    done = rules_command("ground", *files, "--limit", "2", "--json")
    assert "exceed the limit of 2; groundings kept: 1, each of at least 0.800001" in done.err
    assert len(done.err.splitlines()) == 1
    assert json.loads(done.out)["rules"][0]["capped"] is True


def test_a_rule_that_does_not_parse_is_shown_with_a_caret(command, files):
    graph, rules = files
    rules.write_text("# one\nplaysFor(x,y) & plays(x z) -> teamPlays(y,z)\n", encoding="utf-8")
    done = command("rules", "ground", graph, rules)
    assert (done.returncode, done.stdout) == (2, "")
    message, line, caret = done.stderr.splitlines()
    assert message == f"focuse: {rules}, line 2, column 25: expected ','"
    assert line == "  playsFor(x,y) & plays(x z) -> teamPlays(y,z)"
    assert line[caret.index("^")] == "z"


def test_invalid_options_are_refused(files, tmp_path):
    graph, rules = files

    def refused(*arguments):
        with pytest.raises(FocuseError) as caught:
            app(["rules", *map(str, arguments)], standalone_mode=False)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "lower the minimum" in refused("ground", graph, rules, "--minimum", "1")
    assert "No such file" in refused("ground", graph, tmp_path / "none.txt")
    assert "unknown shape 'circle'" in refused("mine", graph, "--shape", "circle")
    nothing = tmp_path / "nothing.txt"
    assert "no rules to write" in refused("mine", graph, "--out", nothing)
    assert not nothing.exists()
    rules.write_text("plays(x, y) -> playsfor(x, y)")
    assert "did you mean playsFor" in refused("ground", graph, rules)
    rules.write_text("plays(x, y) -> plays(x, y)")
    out = tmp_path / "soft.tsv"
    assert "--keep-known writes them" in refused("ground", graph, rules, "--out", out)
    assert not out.exists()
    read([("a", "plays", "b", 7.0)]).write(graph)
    assert "'relation', 'global' or 'quantile'" in refused("ground", graph, rules)


def test_mined_rules_are_shown_and_written(rules_command, files, tmp_path):
    graph, _ = files
    out = tmp_path / "mined.txt"
    options = ["--support", "1", "--confidence", "0.4", "--shape", "composition", "--shape", "symmetry"]
    lines = rules_command("mine", graph, "--out", out, "--top", "2", *options).out.splitlines()
    assert lines[0].split() == ["rule", "shape", "support", "pairs", "confidence", "soft_confidence"]
    assert len(lines) == 5
    rules = read_rules(out)
    assert lines[-1] == f"{len(rules)} rules, the best 2 shown, all written to {out}"
    athlete = next(rule for rule in rules if rule.head.relation == "teamPlays")
    assert str(athlete) == "playsFor(y, x) & plays(y, z) -> teamPlays(x, z) : 0.5"
    data = json.loads(rules_command("mine", graph, "--json", *options).out)
    assert (data["found"], len(data["rules"])) == (len(rules), len(rules))
    assert {"rule", "shape", "support", "pairs", "confidence", "soft_confidence"} == set(data["rules"][0])


def test_files_of_another_layout_are_read(rules_command, tmp_path):
    graph = tmp_path / "edges.csv"
    graph.write_text("w;from;to;kind\n50;a;b;r\n100;b;c;r\n0;c;d;r\n100;b;a;r\n")
    rules = tmp_path / "rules.txt"
    rules.write_text("r(x, y) -> r(y, x)")
    layout = ["--columns", "from,kind,to,w", "--delimiter", ";", "--header", "--weight-scaling", "global", "--json"]
    data = json.loads(rules_command("ground", graph, rules, *layout).out)
    assert data["rules"][0]["triples"] == 3
    data = json.loads(rules_command("mine", graph, "--support", "2", *layout).out)
    assert data["rules"][0]["rule"] == "r(x, y) -> r(y, x) : 0.5"


def test_graph_file_is_not_overwritten(rules_command, files):
    graph, rules = files
    before = graph.read_bytes()
    with pytest.raises(FocuseError, match="this file is also read"):
        rules_command("ground", graph, rules, "--out", graph)
    with pytest.raises(FocuseError, match="this file is also read"):
        rules_command("mine", graph, "--out", graph)
    assert graph.read_bytes() == before


def test_finding_no_rules_gives_advice(rules_command, files):
    assert rules_command("mine", files[0], "--support", "1000").out == (
        "no rules hold so often; lower --support or --confidence\n"
    )
