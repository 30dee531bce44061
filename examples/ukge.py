"""The number itself: UKGE learns how sure each fact is, and a rule vouches for facts that nobody has stated."""

import focuse
from focuse.experiments.demo import careers
from focuse.ukge import parse_rules

SETTINGS = {"model": "ukge-rect", "dim": 32, "epochs": 8, "lr": 1e-2, "check_every": 2, "burn_in": 0}
RULE = '"performs task"(x, y) & "needs skill"(y, z) -> "requires skill"(x, z) : 0.9'


def main() -> None:
    graph = careers()
    plain = focuse.train(graph, progress=False, **SETTINGS)
    ruled = focuse.train(graph, rules=parse_rules(RULE), progress=False, **SETTINGS)
    inferred = ruled.splits.inferred
    print(f"{len(inferred)} triples inferred by {RULE}")
    for name, run in (("without", plain), ("with", ruled)):
        mean = run.weigher().own(inferred.head, inferred.relation, inferred.tail).mean()
        lowest = min(row["valid_mse"] for row in run.history if "valid_mse" in row)
        print(f"{name:7} the rule: validation MSE {lowest:.4f}, mean confidence in these triples {mean:.2f}")


if __name__ == "__main__":
    main()
