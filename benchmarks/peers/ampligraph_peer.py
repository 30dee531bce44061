"""AmpliGraph, trained and timed in its own environment: ampligraph 2.2.0 on TensorFlow 2.15."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import common

NAMES = {"complex": "ComplEx", "distmult": "DistMult", "transe": "TransE"}
RANKED_AT_ONCE = 100
RATE, PENALTY = 1e-3, 1e-3


def main() -> None:
    chosen = common.arguments(__doc__)
    chosen.lr = chosen.lr or RATE
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    here = Path.cwd()
    os.chdir(tempfile.gettempdir())  # it writes a log into the working directory
    import ampligraph
    import numpy as np
    import tensorflow as tf
    from ampligraph.evaluation import mrr_score
    from ampligraph.latent_features import ScoringBasedEmbeddingModel
    from ampligraph.latent_features.regularizers import get as regularizer

    os.chdir(here)
    tf.config.threading.set_intra_op_parallelism_threads(chosen.threads)
    tf.config.threading.set_inter_op_parallelism_threads(chosen.threads)
    tf.keras.utils.set_random_seed(chosen.seed)
    data = common.Data(chosen)
    clock = common.Clock(chosen)

    class Follower(tf.keras.callbacks.Callback):
        """Tells the clock, and takes the embeddings out."""

        def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
            clock.start()

        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            if clock.stop():
                entity = self.model.get_embeddings(np.asarray(data.entities), "e")
                clock.save(entity, self.model.get_embeddings(np.asarray(data.relations), "r"), data)

    # The experiments of the FocusE paper: multiclass NLL, Adam, L3 of weight 1e-3, 64 batches an epoch.
    model = ScoringBasedEmbeddingModel(
        eta=chosen.negatives, k=chosen.dim, scoring_type=NAMES[chosen.model], seed=chosen.seed
    )
    model.compile(
        optimizer=tf.keras.optimizers.legacy.Adam(learning_rate=chosen.lr),
        loss="multiclass_nll",
        entity_relation_regularizer=regularizer("LP", {"p": 3, "lambda": PENALTY}),
    )
    focused = chosen.focus == "on"
    size = data.batch_size(chosen)
    model.fit(
        weighed(data.train) if focused else common.triples(data.train),
        batch_size=size,
        epochs=chosen.epochs,
        verbose=False,
        callbacks=[Follower()],
        focusE=focused,
        # A β that decays is frozen at its first value when the step is traced, and weights then have no effect.
        focusE_params={"non_linearity": "softplus", "stop_epoch": 0, "structural_wt": 0.001},
    )
    more = {"settings": {"batch_size": size, "loss": "multiclass_nll", "regularizer": f"l3:{PENALTY:g}"}}
    if chosen.rank:
        filters = {name: common.triples(getattr(data, name)) for name in ("train", "valid", "test")}
        asked = weighed(data.ranked) if focused else common.triples(data.ranked)  # it wants what it was trained on
        start = time.perf_counter()
        ranks = model.evaluate(
            asked,
            batch_size=RANKED_AT_ONCE,
            verbose=False,
            use_filter=filters,
            corrupt_side="s,o",
            ranking_strategy="worst",
        )
        more |= {"ranking_seconds": round(time.perf_counter() - start, 3), "mrr": float(mrr_score(ranks))}
    packages = {"tensorflow": tf.__version__, "numpy": np.__version__}
    common.report("AmpliGraph", ampligraph.__version__, chosen, data, clock, len(data.train), packages=packages, **more)


def weighed(part: object) -> object:
    """Names and weights [n, 4]; AmpliGraph does not normalize weights, so they are made min-max by relation here."""
    import numpy as np

    groups = part.groupby("relation")["weight"]
    low, high = groups.transform("min"), groups.transform("max")
    span = (high - low).where(high > low, 1.0)
    weight = np.where(high > low, (part["weight"] - low) / span, 1.0).astype(np.float32)
    return np.concatenate([common.triples(part).astype(object), weight.astype(object)[:, None]], axis=1)


if __name__ == "__main__":
    main()
