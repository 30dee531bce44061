"""The models of uncertain graphs side by side: errors of weights and ranks, beside what was published.

python benchmarks/uncertain.py --results docs/results/uncertain.jsonl                # the table of what that file holds
python benchmarks/uncertain.py --results more.jsonl --train --models beurre suke     # trains these, then the table
python benchmarks/uncertain.py --results more.jsonl --train --graphs nl27k --models passleaf-complex --leaky

Settings are the models' defaults but for those in SETTINGS, which keep a training within some ten minutes of one core.
Errors are those of the confidence itself: on the facts of test, and on UKGE's file, where every other triple is false.
Ranks are filtered; those of boxes are of 1,000 test triples drawn by chance.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import smoke

GRAPHS = ("nl27k", "ppi5k", "cn15k")
POOL = "pool:start=10,wait=5"
OWN: dict[str, Any] = {"negative_sampling": "per-triple", "num_negatives": 10}
SETTINGS: dict[str, dict[str, Any]] = {
    "gtranse": {
        "epochs": 150, "dim": 200, "lr": 0.003, "loss": "confidence-margin:margin=10,power=2",
        "negative_sampling": "shared", "num_negatives": 16,
    },
    "passleaf-complex": {"epochs": 40, "lr": 0.01, "semi_supervised": POOL, **OWN},
    "passleaf-rotate": {"epochs": 45, "lr": 0.01, "semi_supervised": POOL},
    "suke": {"epochs": 30, "lr": 0.01, **OWN},
    "beurre": {"epochs": 200, "lr": 0.003},
}  # fmt: skip
OF_GRAPH = {("cn15k", "passleaf-complex"): {"regularizer": "l2:2e-3", "regularizer_scope": "rows"}}
RANKED = {"beurre": 1000}
# (MSE, MAE) on facts and (MSE, MAE) with UKGE's negatives, and the filtered MRR of tails. unKR: its result page
# ("Filter", no confidence filter); UKGE and BEUrRE: the tables of their papers (BEUrRE's on a test file of its own).
UNKR, PAPER = "unKR", "paper"
PUBLISHED: dict[tuple[str, str], dict[str, Any]] = {
    ("nl27k", "gtranse"): {"source": UNKR, "mrr": 0.265},
    ("nl27k", "passleaf-complex"): {"source": UNKR, "facts": (0.0243, 0.0518), "mrr": 0.662},
    ("nl27k", "passleaf-rotate"): {"source": UNKR, "facts": (0.0159, 0.0633), "mrr": 0.616},
    ("nl27k", "beurre"): {
        "source": f"{UNKR}, {PAPER}",
        "facts": (0.0895, 0.2221),
        "ukge": (0.0201, 0.0689),
        "mrr": 0.242,
    },
    ("cn15k", "beurre"): {"source": PAPER, "ukge": (0.0749, 0.1988)},
    ("ppi5k", "gtranse"): {"source": UNKR, "mrr": 0.121},
    ("ppi5k", "passleaf-complex"): {"source": UNKR, "facts": (0.0035, 0.0227), "mrr": 0.702},
    ("ppi5k", "passleaf-rotate"): {"source": UNKR, "facts": (0.0035, 0.0277), "mrr": 0.470},
    ("ppi5k", "beurre"): {"source": UNKR, "facts": (0.0366, 0.1580), "mrr": 0.408},
}


def trained(graph: str, model: str, seed: int, more: dict[str, Any], leaky: bool = False) -> dict[str, Any]:
    """The figures of one model."""
    import torch

    import focuse

    torch.set_num_threads(1)
    data = smoke.load(graph)
    settings = {
        **SETTINGS.get(model, {}),
        **OF_GRAPH.get((graph, model), {}),
        **more,
        **({"filter_negatives": True} if leaky else {}),
    }
    started = time.process_time()
    with never_called_false(data.valid, data.test) if leaky else nullcontext():
        run = focuse.train(
            data.train,
            valid=data.valid,
            test=data.test,
            model=model,
            seed=seed,
            eval_start=0,
            progress=False,
            **settings,
        )
    seconds = time.process_time() - started
    row = {"graph": graph, "model": model, "seed": seed, "settings": settings, "seconds": round(seconds)}
    row |= {"leaky": True} if leaky else {}
    best = max(run.history, key=_better)
    row |= {"best_epoch": best["epoch"], "valid": round(abs(_better(best)), 5)}
    if run.scorer.model.confidence_head is not None:
        row["facts"] = _errors(run, run.splits.test)
        if graph != smoke.GRAPH:
            with_negatives = focuse.read(data.folder / "test_with_neg.tsv.gz").align(run.graph).graph
            row["ukge"] = _errors(run, with_negatives)
    return row | _ranks(run, RANKED.get(model))


@contextmanager
def never_called_false(*held: Any) -> Iterator[None]:
    """As unKR trains: facts of validation and test are left out of the corruptions, too, which gives them away."""
    from focuse.data.triple_index import build_triple_index

    def every(graphs: list[Any], device: Any = "cpu") -> Any:
        found = graphs if len(graphs) > 1 else [*graphs, *(part.align(graphs[0]).graph for part in held)]
        return build_triple_index(found, device)

    with patch("focuse.training.problem.build_triple_index", every):
        yield


def _better(look: dict[str, Any]) -> float:
    return float(look.get("valid_mrr", -look.get("valid_mse", np.inf)))


def _errors(run: Any, graph: Any) -> tuple[float, float]:
    """MSE and MAE of the model's own confidence."""
    from focuse.data.triple_index import id_tensors
    from focuse.evaluation.weight_evaluation import errors
    from focuse.models.base import confidence

    ids = (part.to(run.scorer.device) for part in id_tensors(graph))
    found = errors(confidence(run.scorer.model, run.scorer.score(*ids)).double().cpu().numpy(), graph.weight)
    return round(found.mse, 5), round(found.mae, 5)


def _ranks(run: Any, count: int | None) -> dict[str, Any]:
    """Filtered MRR: of tails, of both sides, of the heaviest tenth, and ΔMRR."""
    from focuse.data.graph import AlignedGraph
    from focuse.data.triple_index import build_triple_index
    from focuse.evaluation.evaluate import evaluate
    from focuse.evaluation.ranking import rank_graph

    splits = run.splits
    learnt = [splits.train, splits.valid, splits.test]
    known, test = build_triple_index(learnt, str(run.scorer.device)), splits.test
    if count is not None and count < len(test):
        test = test.select(np.sort(np.random.default_rng(0).choice(len(test), count, replace=False)))
    found = evaluate(run.scorer, AlignedGraph(test), splits.train, known, "worst", "per-side", True, splits.valid)
    tails = 1 / rank_graph(run.scorer, test, known).filtered.ranks()[:, 0]
    figures = {"mrr": tails.mean(), "both": found.all.mrr, "top": found.top.mrr, "delta": found.delta_mrr}
    return {"ranked": len(test), **{name: round(float(value), 4) for name, value in figures.items()}}


def table(rows: list[dict[str, Any]]) -> str:
    """One line a graph and model, published figures behind ours."""
    lines = [
        "| graph | model | facts: MSE / MAE | published | UKGE's test: MSE / MAE | published | MRR of tails | "
        "published | top 10 % MRR / ΔMRR | minutes | published by |",
        "| --- " * 11 + "|",
    ]
    for row in sorted(rows, key=lambda row: (row["graph"], list(SETTINGS).index(row["model"]))):
        told = PUBLISHED.get((row["graph"], row["model"]), {})
        penalty = row["settings"].get("regularizer")
        marks = [*(["leaky"] if row.get("leaky") else []), *([penalty] if penalty else [])]
        cells = [row["graph"], ", ".join([f"`{row['model']}`", *marks])]
        for name in ("facts", "ukge"):
            cells += [_pair(row.get(name), 4), _pair(told.get(name), 4)]
        cells += [_short(row["mrr"]), _short(told["mrr"]) if "mrr" in told else "–"]
        gpu = " (GPU)" if row["settings"].get("device") == "cuda" else ""
        cells += [f"{_short(row['top'])} / {_short(row['delta'])}", f"{row['seconds'] / 60:.1f}{gpu}"]
        cells += [told.get("source", "–")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def rivals(rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> str:
    """Top-10 % MRR / ΔMRR a graph: models of uncertain graphs, and ComplEx by weight mode of benchmarks/focus.py."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in others:
        usual = {"model": "complex", "negative_sampling": "shared", "regularizer": "l3:1e-3"}
        if all(row["settings"].get(name, value) == value for name, value in usual.items()):
            name = f"`complex`, weight mode {row['weight_mode']}"
            found.setdefault((name, row["graph"]), []).append((row["top"], row["delta"]))
    for row in rows:
        if row["settings"] == {**SETTINGS[row["model"]], **OF_GRAPH.get((row["graph"], row["model"]), {}), **on(row)}:
            found.setdefault((f"`{row['model']}`", row["graph"]), []).append((row["top"], row["delta"]))
    lines = [f"| model | {' | '.join(GRAPHS)} |", "| --- " * (len(GRAPHS) + 1) + "|"]
    for name in dict.fromkeys(name for name, _ in found):
        cells = [found.get((name, graph)) for graph in GRAPHS]
        shown = [
            "–" if not cell else " / ".join(_short(float(value)) for value in np.mean(cell, axis=0)) for cell in cells
        ]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines)


def on(row: dict[str, Any]) -> dict[str, Any]:
    """Where it was trained, as its settings say it."""
    return {name: row["settings"][name] for name in ("device",) if name in row["settings"]}


def _pair(values: Any, digits: int) -> str:
    return "–" if values is None else " / ".join(_short(value, digits) for value in values)


def _short(value: float, digits: int = 3) -> str:
    """A number below 1 as tables have it, without the 0 before its point."""
    return f"{value:.{digits}f}".replace("0.", ".", 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--graphs", nargs="+", default=GRAPHS)
    parser.add_argument("--models", nargs="+", default=list(SETTINGS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside", type=Path, help="results of benchmarks/focus.py, for a second table with these")
    parser.add_argument("--leaky", action="store_true", help="facts of validation and test are never called false")
    parser.add_argument("--with", dest="more", default="{}", help="further settings, as JSON")
    options = smoke.parse(parser)
    if options.smoke:
        less = {"dim": 4, "epochs": 1, "semi_supervised": "none"}
        print(table([trained(smoke.GRAPH, model, 0, less, leaky=model == "suke") for model in SETTINGS]))
        return
    if options.train:
        for graph in options.graphs:
            for model in options.models:
                row = trained(graph, model, options.seed, json.loads(options.more), options.leaky)
                print(json.dumps(row), flush=True)
                with options.results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    rows = read(options.results)
    print(table(rows))
    if options.beside:
        print(f"\n{rivals(rows, read(options.beside))}")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
