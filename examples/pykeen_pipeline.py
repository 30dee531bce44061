"""FocusE inside PyKEEN's own pipeline: the same model with and without edge weights."""

from __future__ import annotations

import gc
import logging

import numpy as np

from focuse.data.splits import split
from focuse.paper.demo import careers

SETTINGS = {
    "model": "ComplEx",
    "model_kwargs": {
        "embedding_dim": 16,
        "entity_initializer": "xavier_normal",
        "relation_initializer": "xavier_normal",
    },
    "optimizer_kwargs": {"lr": 0.03},
    "negative_sampler_kwargs": {"num_negs_per_pos": 5},
    "training_loop": "slcwa",
    "random_seed": 1,
    "device": "cpu",
}
EPOCHS, QUIET = 10, {"use_tqdm": False, "pin_memory": False}


def main() -> None:
    try:
        from pykeen.pipeline import pipeline
        from pykeen.triples import TriplesFactory

        from focuse.integrations.pykeen import EdgeWeights, FocusELoss
    except ImportError as error:
        print(f"skipped: {error}")
        return
    logging.disable(logging.WARNING)
    gc.freeze()  # PyKEEN collects garbage after every epoch
    graph = careers()
    parts = split(
        graph.select(np.isin(graph.relation, [0, 1])), valid_fraction=0.0, test_fraction=0.15
    )  # two relations are quick
    training = TriplesFactory.from_labeled_triples(names(parts.train))
    ids = {"entity_to_id": training.entity_to_id, "relation_to_id": training.relation_to_id}
    testing = TriplesFactory.from_labeled_triples(names(parts.test), **ids)
    weights = EdgeWeights.of(training, parts.train)
    heaviest, lightest = tenths(testing, parts.test)
    for name, fixed in (("plain", 1.0), ("FocusE", None)):  # with β = 1 weights have no say
        loss = FocusELoss(beta_decay_epochs=EPOCHS // 2, fixed_beta=fixed)
        result = pipeline(
            training=training,
            testing=testing,
            loss=loss,
            training_loop_kwargs={"loss_weighter": weights, "automatic_memory_optimization": False},
            training_kwargs={"num_epochs": EPOCHS, "batch_size": 256, "callbacks": loss.callback(), **QUIET},
            evaluation_kwargs={"use_tqdm": False},
            **SETTINGS,
        )
        top, bottom = (mrr(result.model, part, training, testing) for part in (heaviest, lightest))
        print(f"{name:6} MRR of the heaviest tenth {top:.3f}, of the lightest {bottom:.3f}: ΔMRR {top - bottom:+.3f}")


def names(graph: object) -> np.ndarray:
    """Triples by names, [n, 3]."""
    table = graph.to_arrow()
    return np.stack([table[name].to_numpy(zero_copy_only=False).astype(str) for name in table.column_names[:3]], axis=1)


def tenths(testing: object, graph: object) -> tuple[object, object]:
    """The heaviest and the lightest tenth of test's triples, by PyKEEN's ids."""
    from focuse.integrations.pykeen import EdgeWeights

    order = EdgeWeights.of(testing, graph).weight_triples(testing.mapped_triples).argsort()
    size = len(order) // 10
    return testing.mapped_triples[order[-size:]], testing.mapped_triples[order[:size]]


def mrr(model: object, triples: object, training: object, testing: object) -> float:
    """Filtered, both sides, by PyKEEN's evaluator."""
    from pykeen.evaluation import RankBasedEvaluator

    known = [training.mapped_triples, testing.mapped_triples]
    found = RankBasedEvaluator().evaluate(model, triples, additional_filter_triples=known, use_tqdm=False)
    return float(found.get_metric("both.realistic.inverse_harmonic_mean_rank"))


if __name__ == "__main__":
    main()
