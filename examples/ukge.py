"""The number itself: UKGE learns how sure each fact is, and a rule vouches for facts that nobody has stated."""

import focuse
from focuse.data.datasets import careers
from focuse.data.triple_index import id_tensors
from focuse.models.base import confidence
from focuse.rules.grammar import parse_rules

SETTINGS = {"model": "ukge-rect", "dim": 16, "epochs": 5, "lr": 2e-2, "eval_every": 1, "eval_start": 0}
RULE = '"performs task"(x, y) & "needs skill"(y, z) -> "requires skill"(x, z) : 0.9'


def main() -> None:
    graph = careers()
    plain = focuse.train(graph, progress=False, **SETTINGS)
    ruled = focuse.train(graph, rules=parse_rules(RULE), progress=False, **SETTINGS)
    print(f"{len(ruled.splits.inferred)} triples inferred by {RULE}")
    for name, run in (("without", plain), ("with", ruled)):
        sure = confidence(run.scorer.model, run.scorer.score(*id_tensors(ruled.splits.inferred)))
        lowest = min(row["valid_mse"] for row in run.history)
        print(f"{name:7} the rule: validation MSE {lowest:.4f}, mean confidence in these triples {sure.mean():.2f}")


if __name__ == "__main__":
    main()
