"""PyKEEN, trained and timed in its own environment: pykeen 1.11.1. It knows no weights and merges repeated triples."""

from __future__ import annotations

import time

import common

RANKED_AT_ONCE = 256
# ComplEx as PyKEEN ships it among its experiments (trouillon2016_complex_fb15k): with its general defaults (normal
# first values, Adam at 1e-3) it is at chance after tens of epochs.
PUBLISHED = {
    "entity_initializer": "xavier_uniform",
    "relation_initializer": "xavier_uniform",
    "regularizer_kwargs": {"weight": 0.01, "p": 2.0, "normalize": False, "apply_only_once": False},
}


def main() -> None:
    chosen = common.arguments(__doc__)
    if chosen.focus == "on":
        raise SystemExit("PyKEEN has no FocusE")
    import numpy as np
    import torch
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.models import ComplEx, DistMult, TransE
    from pykeen.training import SLCWATrainingLoop
    from pykeen.training.callbacks import TrainingCallback
    from pykeen.triples import TriplesFactory
    from pykeen.version import get_version

    torch.set_num_threads(chosen.threads)
    torch.manual_seed(chosen.seed)
    np.random.seed(chosen.seed)
    data = common.Data(chosen)
    places = {
        "entity_to_id": {name: place for place, name in enumerate(data.entities)},
        "relation_to_id": {name: place for place, name in enumerate(data.relations)},
    }
    parts = {
        name: TriplesFactory.from_labeled_triples(common.triples(getattr(data, name)), **places)
        for name in ("train", "valid", "test")
    }
    clock = common.Clock(chosen)

    class Follower(TrainingCallback):
        """Tells the clock, and takes the embeddings out."""

        def post_epoch(self, epoch: int, epoch_loss: float, **_: object) -> None:
            if clock.stop():
                clock.save(*tables(model), data)

    published = chosen.recipe == "published" and chosen.model == "complex"
    # What the recipe does not say (the loss among it) is PyKEEN's own choice for the model.
    kind = {"complex": ComplEx, "distmult": DistMult, "transe": TransE}[chosen.model]
    more_of_it = PUBLISHED if published else {}
    model = kind(triples_factory=parts["train"], embedding_dim=chosen.dim, random_seed=chosen.seed, **more_of_it)
    optimizer = torch.optim.Adagrad if published else torch.optim.Adam
    chosen.lr = chosen.lr or (0.5 if published else 1e-3)
    loop = SLCWATrainingLoop(
        model=model,
        triples_factory=parts["train"],
        optimizer=optimizer(model.get_grad_params(), lr=chosen.lr),
        negative_sampler="basic",
        negative_sampler_kwargs={"num_negs_per_pos": chosen.negatives},
    )
    size = data.batch_size(chosen)
    clock.start()
    loop.train(
        triples_factory=parts["train"],
        num_epochs=chosen.epochs,
        batch_size=size,
        callbacks=Follower(),
        use_tqdm=False,
        use_tqdm_batch=False,
    )
    more = {"settings": {"batch_size": size, "loss": type(model.loss).__name__, "optimizer": optimizer.__name__}}
    if chosen.rank:
        asked = TriplesFactory.from_labeled_triples(common.triples(data.ranked), **places).mapped_triples
        start = time.perf_counter()
        found = RankBasedEvaluator(filtered=True).evaluate(
            model=model,
            mapped_triples=asked,
            batch_size=RANKED_AT_ONCE,
            use_tqdm=False,
            additional_filter_triples=[part.mapped_triples for part in parts.values()],
        )
        more["ranking_seconds"] = round(time.perf_counter() - start, 3)
        more["ranked"] = len(asked)
        more["mrr"] = float(found.get_metric("both.pessimistic.inverse_harmonic_mean_rank"))
    packages = {"torch": torch.__version__, "numpy": np.__version__}
    rows = parts["train"].num_triples
    common.report("PyKEEN", get_version(), chosen, data, clock, rows, packages=packages, **more)


def tables(model: object) -> list[object]:
    """Entities and relations as arrays; complex numbers as their real parts and then their imaginary ones."""
    import numpy as np
    import torch

    found = []
    for representations in (model.entity_representations, model.relation_representations):
        with torch.no_grad():
            table = representations[0](None).cpu().numpy()
        if np.iscomplexobj(table):
            table = np.concatenate([table.real, table.imag], axis=1)
        found.append(table)
    return found


if __name__ == "__main__":
    main()
