"""Words that options take, for completion in a shell: as plain text, since asking the models would load torch.

`tests/cli/test_completion.py` compares each with the registry that it is of.
"""

from __future__ import annotations

MODELS = [
    "beurre", "complex", "conve", "convkb", "cp", "distmult", "gtranse", "hole", "kbgat", "kblrn", "literale-complex",
    "literale-distmult", "pairre", "passleaf-complex", "passleaf-rotate", "quate", "rescal", "rotate", "simple", "suke",
    "transe", "transe-l2", "transea", "tucker", "ukge-logi", "ukge-rect",
]  # fmt: skip
DEVICES = ["auto", "cpu", "cuda"]

# By the name of the parameter; what holds of one command only has that in front.
CHOICES: dict[str, list[str]] = {
    "model": [*MODELS, "list", "pykeen:list"],
    "reproduce model": ["transe", "distmult", "complex", "ukge-rect", "ukge-logi"],
    "negative_sampling": ["per-triple", "shared", "all"],
    "negative_distribution": ["uniform", "type", "degree"],
    "corrupt_side": ["uniform", "bernoulli"],
    "weight_mode": ["soft-labels", "focuse", "none"],
    "nonlinearity": ["auto", "softplus", "shifted-softplus", "linear", "sigmoid", "tanh"],
    "loss": [
        "multiclass-nll", "pairwise-nll", "nll", "bce", "margin", "self-adversarial", "confidence-margin",
        "squared-error",
    ],
    "reduction": ["sum", "mean"],
    "regularizer": ["none", "l1:", "l2:", "l3:", "n3:"],
    "regularizer_scope": ["tables", "touched", "rows"],
    "optimizer": ["adam", "adagrad", "sgd", "row-adam", "row-adagrad"],
    "weight_scaling": ["relation", "global", "quantile", "none"],
    "duplicates": ["keep", "max", "mean", "last"],
    "negative_weights": ["low", "known-negative"],
    "zero_weights": ["low", "known-negative"],
    "semi_supervised": ["none", "pool"],
    "stop_metric": ["auto", "mrr", "mse"],
    "device": DEVICES,
    "engine": [
        *("auto", "reference", "fused", "partitioned"),
        *("sharded", "sharded:torchrec", "sharded:plain", "sharded:host"),
    ],
    "track": ["tensorboard:", "mlflow", "wandb", "none"],
    "ties": ["worst", "mean", "best"],
    "protocol": ["per-side", "combined"],
    "method": ["isotonic", "platt"],
    "sampler": ["tpe", "grid"],
    "pruner": ["median", "hyperband", "none"],
    "shape": ["symmetry", "inverse", "transitivity", "composition"],
    "part": ["tables", "figure3", "all"],
    "kind": ["plain", "focuse", "ukge"],
    "reproduce data": ["ppi5k", "nl27k", "cn15k", "onet20k", "onet-importance"],
    "datasets name": ["ppi5k", "nl27k", "cn15k", "onet20k", "onet-importance"],
    "shell": ["bash", "zsh", "fish", "powershell"],
}  # fmt: skip

# Parameters that name something in a run, and the file of its folder that holds those names.
ENTITIES, RELATIONS = "entities.parquet", "relations.parquet"
NAMES = dict.fromkeys(["head", "tail", "heads", "tails", "entity", "entities"], ENTITIES)
NAMES |= dict.fromkeys(["relation", "relations"], RELATIONS)
RUNS = {"run", "resume", "init_from"}
# A graph may be a file or a data base: text to the command, but most often a file.
GRAPHS = {"graph", "valid", "test", "file", "triples", "source", "negatives_file", "ndcg_queries", "queries", "edges"}
