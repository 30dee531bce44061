"""Today's spelling of the public API, in one place: a rename of the library is an edit of this file alone.

The cases and the JSON files use the field's words (weight mode, soft labels, per-triple negatives, 1-vs-all). The
tables below say which keyword and which value of `focuse.train` each of those words is today, and the functions below
them say where a loss, a metric or an embedding is found in what the API returns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import focuse
from focuse.config import SETTINGS, merge_settings

Error = focuse.FocuseError

# Words of the cases -> keywords of `focuse.train` (and, with dashes, of the command line).
KEYWORDS = {
    "model": "model",
    "reciprocal_relations": "reciprocal",
    "dimension": "dim",
    "epochs": "epochs",
    "batch_size": "batch_size",
    "engine": "engine",
    "partitions": "partitions",
    "device": "device",
    "seed": "seed",
    "weight_mode": "weight_mode",
    "label_sharpness": "label_exponent",
    "weight_decay_epochs": "beta_decay_epochs",
    "nonlinearity": "nonlinearity",
    "negatives": "negative_sampling",
    "negatives_count": "num_negatives",
    "negatives_entities": "negative_distribution",
    "negatives_sides": "corrupt_side",
    "filtered_negatives": "filter_negatives",
    "loss": "loss",
    "loss_reduction": "reduction",
    "regularizer": "regularizer",
    "regularizer_scope": "regularizer_scope",
    "optimizer": "optimizer",
    "learning_rate": "lr",
    "weight_normalization": "weight_scaling",
    "column_importance": "column_importance",
    "columns_lower_is_better": "lower_is_better",
    "negative_weights": "negative_weights",
    "zero_weights": "zero_weights",
    "semi_supervised_pool": "semi_supervised",
    "rules_loss_weight": "rule_loss_weight",
    "rules_batch_size": "rule_batch_size",
    "attribute_loss_share": "attribute_loss_weight",
    "validation_every": "eval_every",
    "validation_patience": "patience",
    "validation_burn_in": "eval_start",
    "checkpoint_every": "checkpoint_every",
    "valid_fraction": "valid_fraction",
    "test_fraction": "test_fraction",
    "false_triples": "known_negatives",
    "inferred_triples": "inferred_triples",
    "rules_file": "rules",
    "node_numbers": "node_attributes",
    "start_run": "init_from",
    "folder": "out",
    "progress": "progress",
    "deadline": "deadline",
}

# Values that a rename may touch, by the word of their keyword; a value that is not listed is passed on as it is.
VALUES: dict[str, dict[str, Any]] = {
    "engine": {
        "autograd": "torch",
        "fused": "native",
        "automatic": "auto",
        "partitioned": "partitioned",
        "sharded": "sharded",
    },
    "weight_mode": {"focuse": "focuse", "soft-labels": "soft-labels", "unweighted": "none"},
    "negatives": {"per-triple": "per-triple", "shared": "shared", "1-vs-all": "all"},
    "negatives_entities": {"uniform": "uniform", "by-type": "type", "by-degree": "degree"},
    "negatives_sides": {"fair": "uniform", "bernoulli": "bernoulli"},
    "loss": {
        "softmax": "multiclass-nll",
        "pairwise": "pairwise-nll",
        "logistic": "nll",
        "binary-cross-entropy": "bce",
        "margin": "margin:2",
        "self-adversarial": "self-adversarial:margin=2,temperature=0.5",
        "weighted-margin": "confidence-margin:margin=2,power=1",
        "squared-error": "squared-error",
    },
    "loss_reduction": {"sum": "sum", "mean": "mean"},
    "regularizer": {"none": "none", "l1": "l1:1e-3", "l2": "l2:1e-2", "l3": "l3:1e-2", "n3": "n3:1e-2"},
    "regularizer_scope": {"tables": "tables", "touched-rows": "touched", "rows-of-triples": "rows"},
    "optimizer": {"adam": "adam", "row-adam": "sparse-adam", "row-adagrad": "sparse-adagrad"},
    "negative_weights": {"weak": "low", "false": "known-negative"},
    "zero_weights": {"weak": "low", "negatives": "known-negative"},
    "semi_supervised_pool": {"early": "pool:start=1,wait=1,growth=0.3,size=500"},
    "partitions": {"one": "1:1", "three-of-four": "4:3"},
}


def load_library() -> None:
    """Import all that a training needs; names of `focuse` are looked up on first use."""
    _ = focuse.train


def keywords(words: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of `focuse.train` for settings in the field's words."""
    found = {KEYWORDS[word]: _value(word, value) for word, value in words.items()}
    # Cases share settings, some of which have no effect with others.
    effective = merge_settings({name: value for name, value in found.items() if name in SETTINGS}, {})
    return {name: value for name, value in found.items() if name not in SETTINGS or name in effective}


def flags(words: dict[str, Any]) -> list[str]:
    """Return the same settings as options of the command `focuse train`."""
    given = keywords(words).items()
    return [part for name, value in given for part in ("--" + name.replace("_", "-"), str(value))]


def _value(word: str, value: Any) -> Any:
    known = VALUES.get(word, {})
    return known.get(value, value) if isinstance(value, str) else value


def train(graph: Any, words: dict[str, Any]) -> focuse.Run:
    """Train a run with settings in the field's words."""
    return focuse.train(graph, **keywords({"progress": False, **words}))


def resume(folder: Path, **words: Any) -> focuse.Run:
    """Go on with the run in a folder."""
    return focuse.resume(folder, **keywords({"progress": False, **words}))


def load(folder: Path) -> focuse.Run:
    """Load the run in a folder to a CPU, also where there is a GPU."""
    return focuse.load(folder, **keywords({"device": "cpu"}))


def extend(run: focuse.Run, edges: Any, warm: bool, epochs: int) -> focuse.Run:
    """Extend a run by edges; all rows train on if `warm`, else those of new names alone."""
    return focuse.extend(run, edges, train_known=warm, epochs=epochs, progress=False)


# ---- where the numbers are ------------------------------------------------------------------------------------------


def losses(run: focuse.Run) -> list[float]:
    """Return the mean training loss of each epoch."""
    return [row["loss"] for row in run.history]


def validation(run: focuse.Run) -> dict[str, float]:
    """Return what validation found, by the number of the epoch."""
    names = ("valid_mrr", "valid_mse")
    return {str(row["epoch"]): row[name] for row in run.history for name in names if name in row}


def chosen_sharpness(run: focuse.Run) -> float:
    """Return the label exponent of the soft labels that a run was trained with."""
    return float(run.settings.label_exponent)


def metrics(run: focuse.Run, **options: Any) -> dict[str, float]:
    """Return the ranking metrics of the test triples; options are those of `run.evaluate`."""
    found = run.evaluate(**options)
    told = {}
    for part, figures in (("all", found.all), ("heaviest", found.top), ("lightest", found.bottom)):
        told |= {f"{part} MRR": figures.mrr, f"{part} mean rank": figures.mr}
        told |= {f"{part} Hits@{k}": share for k, share in figures.hits.items()}
    told |= {"weighted MRR": found.weighted.mrr, "delta MRR": found.delta_mrr, "delta median": found.delta_median}
    if found.order is not None:
        told["concordance within relations"] = found.order.relation.share
    if found.suggestions is not None:
        told["precision of the first suggestions"] = found.suggestions.first[0].precision
    return {name: float(value) for name, value in told.items()}


RAW, JOINT, SAMPLED = {"filtered": False}, {"protocol": "combined", "ties": "mean"}, {"sample_candidates": 12}


def predictions(run: focuse.Run, head: str, relation: str, top: int) -> list[dict[str, Any]]:
    """Return the best tails of a question by score among all entities, with predicted weights and probabilities."""
    best = [one.tail for one in run.predict(head=head, relation=relation, top=top, any_type=True, weights=False)]
    asked = {one.tail: one for one in run.predict(head=head, relation=relation, top=top, candidates=best)}
    return [
        {
            "tail": one.tail,
            "known": one.known,
            "score": one.score,
            "weight": one.weight_mean,
            "low": one.weight_low,
            "high": one.weight_high,
            "probability": one.probability,
            "confidence": one.confidence,
        }
        for one in map(asked.__getitem__, best)
    ]


def explanation(run: focuse.Run, head: str, relation: str, tail: str, rules: Path) -> dict[str, Any]:
    """Return the triples that support or oppose a prediction, with the change of its score, and similar triples."""
    found = run.explain(head, relation, tail, top=3, rules=rules)
    return {
        "rank": found.prediction.rank,
        "score": found.prediction.score,
        "for": [[one.head, one.relation, one.tail, one.change] for one in found.supporting],
        "against": [[one.head, one.relation, one.tail, one.change] for one in found.opposing],
        "similar": [[one.head, one.relation, one.tail, one.similarity] for one in found.similar],
        "rules": [[one.confidence, one.body, one.implied] for one in found.rules],
    }


def discoveries(run: focuse.Run, top: int) -> list[list[Any]]:
    """Return the most probable links that the graph lacks."""
    return [[one.head, one.relation, one.tail, one.probability] for one in run.discover(top=top)]


def embeddings(run: focuse.Run, folder: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the final embeddings of entities and relations, as `run.export` writes them."""
    path = folder / "embeddings.npz"
    run.export(path, what="both")
    with np.load(path) as found:
        return {name: found[name] for name in found.files if found[name].dtype.kind == "f"}
