"""Rules over an uncertain graph: mine them, ground them, and keep what they infer beyond the graph.

    python examples/rules.py [GRAPH]

Without GRAPH a small one about athletes is used.
"""

import sys

import focuse
from focuse.rules.grammar import parse_rules
from focuse.rules.grounding import ground, inferred
from focuse.rules.mining import mine

ATHLETES = [
    ("Kobe", "playsForTeam", "Lakers", 0.95),
    ("Kobe", "playsSport", "basketball", 1.0),
    ("Shaq", "playsForTeam", "Lakers", 0.80),
    ("Shaq", "playsSport", "basketball", 0.90),
    ("Babe", "playsForTeam", "Yankees", 0.98),
    ("Babe", "playsSport", "baseball", 0.95),
    ("Messi", "playsForTeam", "Barcelona", 1.0),
    ("Messi", "playsSport", "football", 0.97),
    ("Lakers", "teamPlaysSport", "basketball", 0.99),
    ("Yankees", "teamPlaysSport", "baseball", 0.97),
]
RULES = """
# An athlete's team plays the athlete's sport.
playsForTeam(x, y) & playsSport(x, z) -> teamPlaysSport(y, z) : 0.9
"""


def main() -> None:
    if len(sys.argv) > 1:
        graph = focuse.read(sys.argv[1])
        rules = [proposal.rule for proposal in mine(graph).rules[:5]]
    else:
        graph, rules = focuse.read(ATHLETES), parse_rules(RULES)
        for proposal in mine(graph, minimum_support=2):
            print(f"mined: {proposal.rule} ({proposal.support} of {proposal.pairs} pairs)")
    for found in ground(graph, rules):
        print(f"{found.rule}: {found.num_triples} triples, {found.num_new} new, hit ratio {found.hit_ratio:.2f}")
    for row in inferred(graph, rules).to_arrow().slice(0, 5).to_pylist():
        print(f"inferred: {row['head']} {row['relation']} {row['tail']}, {row['weight']:.2f}")


if __name__ == "__main__":
    main()
