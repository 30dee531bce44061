"""Commands that train: `focuse train`, `focuse tune` and `focuse demo`."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from focuse.cli.options import (
    AsJson,
    GraphFile,
    Layout,
    NodeAttributes,
    Quiet,
    RelationWeights,
    Test,
    TestFraction,
    Valid,
    ValidFraction,
    option,
    read_for,
    setting_option,
)
from focuse.cli.output import emit, next_line
from focuse.errors import FocuseError, Stopped, counted

TRACKERS = ("tensorboard:", "mlflow", "wandb")
CHANGED_BY_RESUME = {"resume", "epochs", "device", "quiet", "as_json", "callback", "track"}


def train(
    context: typer.Context,
    layout: Layout,
    graph: Annotated[str | None, GraphFile] = None,
    out: Annotated[
        Path | None, option("Folder to write the run to. Default: a new one in runs, named after the file.", "Output")
    ] = None,
    resume: Annotated[Path | None, option("Run to continue; only --epochs and --device may change.", "Output")] = None,
    config: Annotated[Path | None, option("TOML of settings, like a run.toml; options override it.", "Input")] = None,
    valid: Valid = None,
    test: Test = None,
    valid_fraction: ValidFraction = None,
    test_fraction: TestFraction = None,
    relation_weights: RelationWeights = None,
    known_negatives: Annotated[
        Path | None, option("Triples known to be false: head, relation, tail[, strength of the evidence].", "Input")
    ] = None,
    node_attributes: NodeAttributes = None,
    inferred_triples: Annotated[Path | None, option("Inferred triples, for confidence models.", "Input")] = None,
    rules: Annotated[Path | None, option("Rules to apply to train, for confidence models.", "Input")] = None,
    track: Annotated[
        list[str] | None,
        option("tensorboard:FOLDER, mlflow[:URI] or wandb[:PROJECT]; may be repeated.", "Output", TRACKERS),
    ] = None,
    callback: Annotated[list[str] | None, option("A focuse.Callback, module:Class; may be repeated.", "Output")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Train embeddings of a graph with edge weights and write a run, which can be evaluated and predicts links.

    At the end, it prints how good the run is next to a ranking by frequency, and the five most probable new links.
    The folder of the run exists from the beginning; whenever the command is stopped, --resume continues.
    """
    if settings["model"] in ("list", "pykeen:list"):
        return _list_models(settings["model"], as_json)
    given = {name: value for name, value in settings.items() if value is not None}
    progress: dict[str, Any] = {"progress": not quiet, "callbacks": callback or ()}
    if resume is not None:
        run = _resume(context, resume, given, {**progress, "track": track or None})
    elif graph is None:
        raise FocuseError("train needs a GRAPH: focuse train GRAPH (or --resume RUN)")
    else:
        from focuse import api
        from focuse.training.request import FileSource

        extra: dict[str, Any] = {
            "known_negatives": known_negatives,
            "node_attributes": node_attributes,
            "inferred_triples": inferred_triples,
            "rules": rules,
        }
        given = given if config is None else _settings(config, given, extra, layout)
        # Graphs are read when they are needed: of several processes on a machine, one reads them.
        options = layout.read_options(relation_weights)
        commands = (("train", graph), ("describe", valid), ("describe", test))
        read = [path and FileSource(path, options, partial(read_for, command)) for command, path in commands]
        more = {"valid_fraction": valid_fraction, "test_fraction": test_fraction, "track": track or (), **extra}
        with nullcontext(out) if out is not None else _new_folder(graph) as folder:
            run = api.train(read[0], valid=read[1], test=read[2], out=folder, **progress, **more, **given)
    try:
        _report(run, as_json)
    except KeyboardInterrupt:
        command = next_line(run.settings.model, "train", "--resume", str(run.folder)).removeprefix("next: ")
        raise Stopped(f"stopped; the training is complete, continue with: {command}") from None


def _several_processes() -> bool:
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def _new_folder(graph: str) -> Iterator[Path]:
    """Create an empty folder in `runs` that is named after a file, and remove it if no run is written to it."""
    if _several_processes():
        raise FocuseError("several processes need the same folder: give --out RUN")
    stem = Path(re.sub(r"\.(gz|zst)$", "", graph)).stem
    name = re.sub(r"[^\w.-]+", "-", stem).strip("-.") or "graph"
    for number in count(1):
        folder = Path("runs", name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)  # at once, so that another training of the same file takes another folder
            break
        except FileExistsError:
            continue
    try:
        yield folder
    finally:
        with suppress(OSError):  # it is not empty, or the training has removed it
            folder.rmdir()
        if not folder.exists():
            with suppress(OSError):
                os.removedirs(folder.parent)


def _list_models(model: str, as_json: bool) -> None:
    """Print all models with the first line of their description."""
    if model == "list":
        from focuse.models.registry import MODELS, plug_ins

        found = {name: (kind.__doc__ or "").splitlines()[0] for name, kind in MODELS.items()}
        points = sorted(plug_ins().items())
        found |= {name: f"from a plug-in: {point.value}" for name, point in points if name not in MODELS}
        found["pykeen:NAME"] = "an interaction of PyKEEN (extra pykeen); 'pykeen:list' shows them"
    else:
        from focuse.integrations.pykeen_models import interactions

        kinds = interactions().items()
        found = {f"pykeen:{name}": (kind.__doc__ or "").strip().splitlines()[0] for name, kind in kinds}
    width = max(map(len, found))
    emit({"models": found}, "\n".join(f"{name:{width}}  {text}" for name, text in found.items()), as_json)


def _resume(context: typer.Context, folder: Path, given: dict[str, Any], options: dict[str, Any]) -> Any:
    """Resume a run; of its settings, only the number of epochs and the device may change."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    typed = {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
    if extra := sorted(typed - CHANGED_BY_RESUME):
        names = ", ".join(name.replace("_", "-") for name in extra)
        raise FocuseError(
            f"--resume takes its settings from the run; remove {names} (only --epochs and --device may change)"
        )
    try:
        from focuse import api

        return api.resume(folder, epochs=given.get("epochs"), device=given.get("device"), **options)
    except KeyboardInterrupt:  # while modules are imported, or the run is read
        program = "torchrun … -m focuse" if _several_processes() else "focuse"
        command = f"{program} train --resume {shlex.quote(str(folder))}"
        raise Stopped(f"stopped before the training went on; continue with: {command}") from None


def _settings(path: Path, given: dict[str, Any], extra: dict[str, Any], layout: Layout) -> dict[str, Any]:
    """Return the given settings with those of a file; what trained its run besides the graph must be given again."""
    from focuse.config import merge_settings
    from focuse.storage.metadata import read_config, read_toml

    given = merge_settings(read_config(path, given.get("model")), given)
    stored = read_toml(path)
    sources = stored["sources"] if isinstance(stored.get("sources"), dict) else {}
    if "weight_columns" in stored and not (layout.weight_columns or layout.columns):
        raise FocuseError(f"{path}: that run was trained on several weights; give --weight-columns again")
    if "inferred" in sources and not (
        extra["inferred_triples"] or extra["rules"] or given.get("rule_loss_weight") == 0
    ):
        raise FocuseError(
            f"{path}: that run was trained with inferred triples; give --inferred-triples or --rules again, or "
            "--rule-loss-weight 0 to train without them"
        )
    # Those that the weights of train mark have the source of train alone.
    marked = "known-negative" in (given.get("negative_weights"), given.get("zero_weights"))
    own_source = sources.get("train") if marked else None
    if sources.get("false") not in (None, own_source) and not extra["known_negatives"]:
        raise FocuseError(f"{path}: that run was trained with known negatives; give --known-negatives again")
    return given


def _report(run: Any, as_json: bool) -> None:
    """Print a finished training and the first answers of its run."""
    from focuse.data.out_of_core import LARGE_GRAPH
    from focuse.data.weight_check import check_weights

    data = _data(run)
    if not as_json:  # at once, because the answers take seconds
        emit(data, _text(data), as_json)
    # They would take longer for a graph that is processed in chunks or trained by several processes.
    answered = not _several_processes() and len(run.graph) < LARGE_GRAPH
    summary = run.summary() if answered else None
    following = _next_line(run, data, summary)
    warnings = [str(each) for each in check_weights(run.graph) if each.kind == "lower-is-better"]
    text = "\n".join([*([] if summary is None else [str(summary)]), *warnings, following])
    answers = {"quality": None, "new_links": None} if summary is None else summary.to_dict()
    emit({**data, **answers, "next": following.removeprefix("next: ")}, text, as_json)


def _next_line(run: Any, data: dict[str, Any], summary: Any) -> str:
    """Return the next command: to train on, to complete triples like the best new link, or to evaluate the run."""
    model, folder, epochs = run.settings.model, data["run"], len(run.history)
    if summary is None or not len(summary.new_links):
        return next_line(model, "evaluate" if data["test_rows"] else "discover", folder)
    quality, link = summary.quality, summary.new_links[0]
    if quality is not None and not quality.useful and data["best_epoch"] == epochs:  # it was still improving
        return next_line(model, "train", "--resume", folder, "--epochs", str(2 * epochs))
    if not (link.head + link.relation).isprintable():  # a terminal would not print the name as it is
        return next_line(model, "discover", folder)
    words = ["--head", link.head, *(["--relation", link.relation] if len(run.graph.relations) > 1 else [])]
    return next_line(model, "predict", folder, *words, "--new-only")


def _data(run: Any) -> dict[str, Any]:
    from focuse.data.statistics import leakage_note
    from focuse.training.validation import best_epoch_row

    best, splits = best_epoch_row(run.history) or {}, run.splits
    return {
        "run": str(run.folder),
        "epochs": len(run.history),
        "finished": None if run.last is None else run.last.progress.finished,
        "best_epoch": best.get("epoch"),
        "valid_mrr": best.get("valid_mrr"),
        "valid_mse": best.get("valid_mse"),
        "seconds": round(sum(row["seconds"] for row in run.history), 3),
        "train_rows": len(splits.train),
        "valid_rows": len(splits.valid),
        "test_rows": len(splits.test),
        "leakage": leakage_note(splits.train, *((splits.test,) if len(splits.test) else (splits.valid, "validation"))),
        "known_negatives": 0 if splits.known_negatives is None else len(splits.known_negatives),
        "node_attributes": None if splits.attributes is None else list(splits.attributes.names),
        "weight_columns": None if splits.merger is None else splits.merger.to_dict(),
        "settings": run.settings.to_dict(),
        "provenance": run.settings.names_by_provenance(),
    }


def _text(data: dict[str, Any]) -> str:
    epochs, triples = counted(data["epochs"], "epochs"), counted(data["train_rows"], "triples")
    lines = [f"{data['run']}: {epochs} in {data['seconds']:.1f} s on {triples}"]
    if (data["finished"] or "").startswith("stopped by"):  # a callback
        total = data["settings"]["epochs"]
        lines.append(f"{data['finished']} at epoch {data['epochs']} of {total}; --resume continues")
    if data["leakage"]:
        lines.append(data["leakage"])
    return "\n".join(lines)


def tune(
    graph: Annotated[str, GraphFile],
    layout: Layout,
    out: Annotated[Path, option("Folder of the study; an existing study is continued or shared.", "Output")],
    valid: Valid = None,
    test: Test = None,
    valid_fraction: ValidFraction = None,
    test_fraction: TestFraction = None,
    relation_weights: RelationWeights = None,
    node_attributes: NodeAttributes = None,
    search: Annotated[
        list[str] | None,
        option("Values to try, like lr=1e-4,1e-3 or loss=a:1,2;b; may be repeated.", "Search"),
    ] = None,
    fix: Annotated[list[str] | None, option("Value of a setting, like dim=200; may be repeated.", "Search")] = None,
    sampler: Annotated[str, option("tpe (adaptive) or grid (all combinations).", "Search", ("tpe", "grid"))] = "tpe",
    pruner: Annotated[str, option("Stops bad trials early: median or none.", "Search", ("median", "none"))] = "median",
    trials: Annotated[int | None, option("Number of trials. Default: 50, or the whole grid.", "Search")] = None,
    time_limit: Annotated[str | None, option("End after this time: 90s, 30m, 2h. Default: none.", "Search")] = None,
    storage: Annotated[str | None, option("URL of a database. Default: a SQLite file in OUT.", "Output")] = None,
    model: Annotated[str | None, setting_option("model")] = None,
    weight_mode: Annotated[str | None, setting_option("weight_mode")] = None,
    seed: Annotated[int | None, setting_option("seed")] = None,
    device: Annotated[str | None, setting_option("device")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Search the settings with the best validation result and write them to OUT/best.toml.

    By default, values around those of train are tried. After Ctrl-C, the same command continues; several commands can
    share a study.
    """
    from focuse.tuning import parse_fix, parse_search, tune

    settings = {"model": model, "weight_mode": weight_mode, "seed": seed, "device": device}
    given = {name: value for name, value in settings.items() if value is not None}
    fixed = parse_fix(fix or [])
    if twice := sorted(set(fixed) & set(given)):
        raise FocuseError(f"{', '.join(twice)}: given twice; use --fix or the option, not both")
    read: list[Any] = [source and layout.read(source, relation_weights) for source in (graph, valid, test)]
    found = tune(
        read[0], out, search=parse_search(search or []), fix=fixed | given, sampler=sampler, pruner=pruner,
        trials=trials, time_limit=time_limit, storage=storage, valid=read[1], test=read[2],
        valid_fraction=valid_fraction, test_fraction=test_fraction, node_attributes=node_attributes, progress=not quiet,
    )  # fmt: skip
    inputs = {
        "valid": valid, "test": test, "valid-fraction": valid_fraction, "test-fraction": test_fraction,
        "relation-weights": relation_weights, "node-attributes": node_attributes,
    }  # fmt: skip
    more = [word for name, value in inputs.items() if value is not None for word in (f"--{name}", str(value))]
    command = ["train", graph, *more, *layout.arguments(), "--config", found.config, "--out", "RUN"]
    done = f"{out}: {len(found)} of {found.trials} trials done; best: trial {found.best['trial']}"
    next_command = next_line(str(found.best["settings"]["model"]), *command)
    emit(found.to_json(), f"{found}\n{done}\n{next_command}", as_json)


def demo(
    out: Annotated[Path, option("Folder for the report.")] = Path("demo"),
    seed: Annotated[int, option("The same seed gives the same result on a CPU.")] = 0,
    graph_only: Annotated[bool, option("Only write the embedded graph as OUT/careers.tsv and stop.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train ComplEx with a weight model, with FocusE and with soft labels on an embedded careers graph; no download.

    Prints a comparison and ten predictions as sentences, and writes an HTML page.
    """
    from focuse.config import Config
    from focuse.data.datasets import careers
    from focuse.demo import demo as run_demo

    Config.from_kwargs(seed=seed)  # before anything is written
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FocuseError(f"{out}: {error.strerror or error}; choose another folder") from None
    if graph_only:
        careers().write(out / "careers.tsv")
        emit({"graph": str(out / "careers.tsv")}, f"graph: {out / 'careers.tsv'}", as_json)
        return
    shown = run_demo(seed, progress=not quiet, note=lambda text: None if quiet else typer.echo(text, err=True))
    page = shown.write(out)
    emit({**shown.to_dict(), "report": str(page)}, f"{shown}\n\nreport: {page}", as_json)
