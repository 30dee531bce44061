"""`focuse train`: learn a graph, or go on with a run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from focuse.cli.files import Layout, Query
from focuse.cli.output import Json, emit, next_line
from focuse.errors import FocuseError, counted

NOT_SETTINGS = {"graph", "valid", "test", "valid_fraction", "test_fraction", "columns", "delimiter", "header"}
NOT_SETTINGS |= {"relation_weights", "out", "config", "resume", "as_json", "quiet", "inferred_triples", "rules"}
NOT_SETTINGS |= {"weight_columns", "lower_columns", "lower_is_better", "known_negatives", "node_attributes"}
NOT_SETTINGS |= {"callback", "track", "query"}


def command(
    context: typer.Context,
    graph: Annotated[
        str | None,
        typer.Argument(
            help="Head, relation, tail, weight: TSV, CSV (also .gz, .zst), Parquet, RDF, GraphML, or a data base."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write the run to.")] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file of settings: a study's best.toml, a run's run.toml. Options override it."),
    ] = None,
    valid: Annotated[str | None, typer.Option(help="Validation triples [default: 10 % of GRAPH].")] = None,
    test: Annotated[
        str | None, typer.Option(help="Test triples [default: 10 % of GRAPH, if no --valid is given either].")
    ] = None,
    valid_fraction: Annotated[float, typer.Option(help="Share of GRAPH held out where no --valid is given.")] = 0.1,
    test_fraction: Annotated[
        float, typer.Option(help="Share held out where neither --valid nor --test is given.")
    ] = 0.1,
    columns: Annotated[
        str | None, typer.Option(help="Columns to use, by heading or counted from 1: head,relation,tail[,weight].")
    ] = None,
    weight_columns: Annotated[
        str | None, typer.Option(help="Several weight columns, by heading or counted from 1; numbers may be missing.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Separator of a text file [default: found by looking].")] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether line 1 is a header [default: by looking].")
    ] = None,
    query: Query = None,
    relation_weights: Annotated[
        Path | None, typer.Option(help="File of relation and weight: one weight a relation instead of one an edge.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Scoring function, like complex, distmult, rotate or transe; list shows them all; pykeen:NAME; a "
            "plug-in's; or package.module:Class [default: complex].",
        ),
    ] = None,
    reciprocal: Annotated[
        bool | None,
        typer.Option(
            "--reciprocal/--no-reciprocal",
            help="Each relation has a second embedding, to ask for heads "
            "[default: no-reciprocal; CP, ConvE: reciprocal].",
        ),
    ] = None,
    dim: Annotated[int | None, typer.Option(help="Size k of the embeddings [default: 100].")] = None,
    init_std: Annotated[
        float | None, typer.Option(help="Standard deviation of initial embeddings; UKGE's is 0.3 [default: Xavier's].")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Most epochs to train [default: 50; UKGE: 100].")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Triples a batch [default: by the graph's size].")] = None,
    num_negatives: Annotated[
        int | None,
        typer.Option(help="Negatives shared by a batch, or per triple [default: 256, or 30; UKGE: 20]."),
    ] = None,
    negative_sampling: Annotated[
        str | None,
        typer.Option(
            help="shared (by a batch), per-triple or all (1-vs-all) [default: shared; distances and UKGE: per-triple]."
        ),
    ] = None,
    negative_distribution: Annotated[
        str | None,
        typer.Option(
            help="How entities of negatives are drawn: uniform, type (seen on that side of the relation; per-triple "
            "negatives only) or degree (by edges^¾) [default: uniform]."
        ),
    ] = None,
    corrupt_side: Annotated[
        str | None,
        typer.Option(
            help="Which side of per-triple negatives is corrupted: uniform, or bernoulli (Wang et al., 2014) "
            "[default: uniform]."
        ),
    ] = None,
    filter_negatives: Annotated[
        bool | None,
        typer.Option(
            "--filter-negatives/--no-filter-negatives", help="Leave known facts of train out of the negatives."
        ),
    ] = None,
    weight_mode: Annotated[
        str | None,
        typer.Option(
            help="How edge weights count: soft-labels, focuse (the paper's layer) or none "
            "[default: soft-labels; focuse where one of its settings is given] (--beta-decay-epochs, --beta, --loss …)."
        ),
    ] = None,
    label_exponent: Annotated[
        float | None,
        typer.Option(
            help="Exponent γ of soft labels w^γ: 0 ignores weights, 1 uses them unchanged, more favors high weights "
            "[default: chosen on validation]."
        ),
    ] = None,
    beta_decay_epochs: Annotated[
        int | None, typer.Option(help="FocusE: λ, epochs over which β falls to 0 [default: all epochs].")
    ] = None,
    nonlinearity: Annotated[
        str | None,
        typer.Option(help="softplus, shifted-softplus[:M], linear, sigmoid or tanh [default: auto, by the model]."),
    ] = None,
    beta: Annotated[float | None, typer.Option(help="FocusE: a fixed β instead of the decay.")] = None,
    beta_min: Annotated[float | None, typer.Option(help="FocusE: lowest value of β [default: 0].")] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="multiclass-nll, pairwise-nll, nll, bce, margin[:M], self-adversarial[:M,T], confidence-margin[:M,P]; "
            "squared-error for models of a confidence [default: multiclass-nll; GTransE: confidence-margin]."
        ),
    ] = None,
    reduction: Annotated[str | None, typer.Option(help="sum or mean over the batch [default: sum].")] = None,
    regularizer: Annotated[
        str | None,
        typer.Option(
            help="none, l1:γ, l2:γ, l3:γ or n3:γ (of complex moduli) [default: l3:1e-3; some models: their own]."
        ),
    ] = None,
    regularizer_scope: Annotated[
        str | None,
        typer.Option(
            help="touched (rows of the batch), tables (all rows) or rows (of its triples) [default: by the optimizer]."
        ),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(
            help="adam, adagrad, sgd, row-adam or row-adagrad "
            "[default: row-adagrad; distances: row-adam; some models: their own]."
        ),
    ] = None,
    lr: Annotated[
        float | None,
        typer.Option(
            help="Learning rate [default: 0.1 for adagrad, 0.01 for sgd, else 0.001; some models: their own]."
        ),
    ] = None,
    weight_scaling: Annotated[
        str | None,
        typer.Option(
            help="How weights are scaled to [0, 1]: relation, global, quantile or none [default: relation] "
            "(global where every relation has one weight)."
        ),
    ] = None,
    duplicates: Annotated[
        str | None, typer.Option(help="Repeated triples: keep, max, mean or last [default: keep].")
    ] = None,
    lower_is_better: Annotated[
        bool, typer.Option("--lower-is-better", help="Small weights are the strong ones (p-values, distances).")
    ] = False,
    lower_columns: Annotated[
        str | None, typer.Option(help="Weight columns of which the small numbers are the strong ones.")
    ] = None,
    column_importance: Annotated[
        str | None,
        typer.Option(
            help="Importance of weight columns, like confidence=2,recency=1 [default: learned from the graph]."
        ),
    ] = None,
    column_beta_decay_epochs: Annotated[
        str | None,
        typer.Option(
            help="FocusE: λ of single weight columns, like confidence=20,recency=50 [default: beta-decay-epochs]."
        ),
    ] = None,
    negative_weights: Annotated[
        str | None,
        typer.Option(help="Weights below 0: low (just small) or known-negative (false triples) [default: low]."),
    ] = None,
    zero_weights: Annotated[
        str | None,
        typer.Option(help="Weights of 0: low (just small) or known-negative (false triples) [default: low]."),
    ] = None,
    known_negatives: Annotated[
        Path | None, typer.Option(help="Triples known to be false: head, relation, tail[, strength of evidence].")
    ] = None,
    node_attributes: Annotated[
        Path | None,
        typer.Option(help="Numeric attributes of entities, for models that use them: entity, attribute, value."),
    ] = None,
    attribute_loss_weight: Annotated[
        float | None, typer.Option(help="TransEA: α, weight of the attribute loss [default: 0.3].")
    ] = None,
    inferred_triples: Annotated[
        Path | None, typer.Option(help="UKGE: triples inferred by rules, with their confidences.")
    ] = None,
    rules: Annotated[Path | None, typer.Option(help="UKGE: rules to ground over the training triples.")] = None,
    rule_loss_weight: Annotated[
        float | None, typer.Option(help="UKGE: weight of the loss of inferred triples [default: 0.2].")
    ] = None,
    rule_batch_size: Annotated[int | None, typer.Option(help="UKGE: inferred triples per batch [default: 64].")] = None,
    semi_supervised: Annotated[
        str | None,
        typer.Option(
            help="Models of a confidence: pool[:start=,wait=,growth=,share=,size=], corruptions learnt from with their "
            "estimated confidence, or none [default: none; PASSLEAF: pool]."
        ),
    ] = None,
    stop_metric: Annotated[
        str | None,
        typer.Option(help="Validation metric for early stopping: mrr, or mse for UKGE [default: auto, by the model]."),
    ] = None,
    eval_every: Annotated[int | None, typer.Option(help="Epochs between validations [default: 5].")] = None,
    patience: Annotated[
        int | None, typer.Option(help="Validations without gain before early stopping [default: 8].")
    ] = None,
    eval_start: Annotated[
        int | None,
        typer.Option(help="Epochs before the first validation [default: 0; FocusE: half of beta-decay-epochs]."),
    ] = None,
    valid_min_weight: Annotated[
        float | None, typer.Option(help="Early stopping validates on triples of at least this weight [default: 0.8].")
    ] = None,
    stop_fraction: Annotated[
        float | None,
        typer.Option(help="Fraction of validation used for early stopping; the rest calibrates [default: 0.5]."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same bits on CPU [default: 0].")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda [default: auto].")] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="How steps are computed: auto, reference, fused, partitioned (tables on disk), sharded by torchrun "
            "[default: auto]."
        ),
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(help="Memory to train in, like 6GB; larger tables are kept on disk [default: free memory]."),
    ] = None,
    partitions: Annotated[
        str | None,
        typer.Option(help="Parts of tables on disk, and how many in memory, like 32:8 [default: by the memory limit]."),
    ] = None,
    checkpoint_every: Annotated[
        str | None, typer.Option(help="Epochs (10) or seconds (60s) between checkpoints, 0: never [default: 60s].")
    ] = None,
    init_from: Annotated[
        Path | None,
        typer.Option(help="Initialize embeddings from this run, matched by name [default: random]."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with this run; --epochs may raise its epochs, --device move it.")
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(help="Follow it in tensorboard:FOLDER, mlflow[:URI] or wandb[:PROJECT]; may be repeated."),
    ] = None,
    callback: Annotated[
        list[str] | None, typer.Option(help="Your own package.module:Class of focuse.Callback; may be repeated.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Learn a weighted graph and write a run that can evaluate and predict.

    The weights decide what training focuses on. Ctrl-C saves; --resume goes on.
    """
    if model in ("list", "pykeen:list"):
        found = _models() if model == "list" else _interactions()
        width = max(map(len, found))
        return emit({"models": found}, "\n".join(f"{name:{width}}  {says}" for name, says in found.items()), as_json)
    given = {key: value for key, value in context.params.items() if key not in NOT_SETTINGS and value is not None}
    if lower_is_better or lower_columns:
        given["lower_is_better"] = lower_columns or True
    if resume is not None:
        typed = {name for name in context.params if _typed(context, name)}
        extra = sorted(typed - {"resume", "epochs", "device", "quiet", "as_json", "callback", "track"})
        if extra:
            names = ", ".join(name.replace("_", "-") for name in extra)
            raise FocuseError(
                f"--resume takes its settings from the run; leave out {names} (only --epochs and --device may change)"
            )
        from focuse.api import resume as go_on

        follow: dict[str, Any] = {"progress": not quiet, "callbacks": callback or (), "track": track or None}
        run, folder = go_on(resume, epochs=epochs, device=device, **follow), resume
    else:
        run, folder = _train(graph, out, context.params, given, quiet)
    data = _summary(run, folder)
    emit(data, _text(data), as_json)


def _models() -> dict[str, str]:
    """Every model with its equation, built in or a plug-in's."""
    from focuse.models.registry import MODELS, plug_ins

    found = {name: (kind.__doc__ or "").splitlines()[0] for name, kind in MODELS.items()}
    points = sorted(plug_ins().items())
    found |= {name: f"of a plug-in: {each[0].value}" for name, each in points if name not in MODELS}
    return {**found, "pykeen:NAME": "an interaction of PyKEEN (extra pykeen); pykeen:list shows them."}


def _interactions() -> dict[str, str]:
    from focuse.integrations.pykeen_models import interactions

    return {f"pykeen:{name}": (kind.__doc__ or "").strip().splitlines()[0] for name, kind in interactions().items()}


def _typed(context: typer.Context, name: str) -> bool:
    """Whether the user gave it; False for a default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _train(graph: str | None, out: Path | None, options: dict[str, Any], given: dict[str, Any], quiet: bool) -> Any:
    if graph is None or out is None:
        raise FocuseError("train needs a GRAPH and a folder: focuse train GRAPH --out RUN (or --resume RUN)")
    from focuse.api import train
    from focuse.config import Config, merged, read_config, read_toml
    from focuse.training.preparation import check_node_attributes

    if options["config"] is not None:
        given = merged(read_config(options["config"], given.get("model")), given)
        sources = read_toml(options["config"]).get("sources")
        sources = sources if isinstance(sources, dict) else {}
        again = options["inferred_triples"] or options["rules"] or given.get("rule_loss_weight") == 0
        if "inferred" in sources and not again:
            raise FocuseError(
                f"{options['config']}: that run learnt from inferred triples; give --inferred-triples or --rules "
                "again, or --rule-loss-weight 0 to do without"
            )
        taken = "known-negative" in (given.get("negative_weights"), given.get("zero_weights"))
        if "false" in sources and not (options["known_negatives"] or taken):
            raise FocuseError(
                f"{options['config']}: that run learnt from known negatives; give --known-negatives again"
            )
    check_node_attributes(
        Config.from_kwargs(**given), options["node_attributes"] is not None
    )  # before a long file is read
    layout = Layout(*(options[name] for name in ("columns", "delimiter", "header", "weight_columns", "query")))
    weights = options["relation_weights"]
    # Read when it is time: of several processes on a machine the first does it.
    whole, valid, test = (
        None if source is None else partial(layout.read, source, weights)
        for source in (graph, options["valid"], options["test"])
    )
    names = ("valid_fraction", "test_fraction", "inferred_triples", "rules", "known_negatives", "node_attributes")
    more = {name: options[name] for name in names}
    more |= {"callbacks": options["callback"] or (), "track": options["track"] or ()}
    return train(whole, valid=valid, test=test, **more, out=out, progress=not quiet, **given), out


def _summary(run: Any, folder: Path) -> dict[str, Any]:
    from focuse.training.validation import best_epoch_row

    best = best_epoch_row(run.history) or {}
    return {
        "run": str(folder),
        "epochs": len(run.history),
        "finished": None if run.last is None else run.last.progress.finished,
        "best_epoch": best.get("epoch"),
        "valid_mrr": best.get("valid_mrr"),
        "valid_mse": best.get("valid_mse"),
        "seconds": round(sum(row["seconds"] for row in run.history), 3),
        "train_rows": len(run.splits.train),
        "valid_rows": len(run.splits.valid),
        "test_rows": len(run.splits.test),
        "false_rows": 0 if run.splits.known_negatives is None else len(run.splits.known_negatives),
        "numbers": None if run.splits.attributes is None else list(run.splits.attributes.names),
        "columns": None if run.splits.merger is None else run.splits.merger.to_dict(),
        "settings": run.settings.to_dict(),
    }


def _text(data: dict[str, Any]) -> str:
    done, seen = counted(data["epochs"], "epochs"), counted(data["train_rows"], "triples")
    lines = [f"{data['run']}: {done} in {data['seconds']:.1f} s on {seen}"]
    if (data["finished"] or "").startswith("stopped by"):  # a callback's wish, which nothing else of the text tells
        lines.append(f"{data['finished']} at epoch {data['epochs']} of {data['settings']['epochs']}; --resume goes on")
    if data["test_rows"]:
        lines.append(next_line(data["settings"]["model"], "evaluate", data["run"]))
    return "\n".join(lines)
