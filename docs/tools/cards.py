"""Model cards: what each built-in model is, costs and reaches at one small budget.

python docs/tools/cards.py                               # writes docs/cards.md from the code and the results so far
python docs/tools/cards.py --train --workers 2           # trains the cells that are missing first
python docs/tools/cards.py --train --models complex --data ppi5k

A cell is a model on a data set with one weight mode. It is trained and judged by one process with one thread; finished
cells stay in docs/results/cards.jsonl, and a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import multiprocessing
import re
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

import focuse
from focuse.config import Config
from focuse.engines.base import fused_objective
from focuse.engines.fused_cpu import FusedCpuEngine
from focuse.engines.gpu import FusedGpuEngine
from focuse.engines.optimizers import make_optimizer
from focuse.errors import FocuseError
from focuse.models import Model
from focuse.models.checks import Trial
from focuse.models.registry import MODELS
from focuse.training.problem import make_objective

DOCS = Path(__file__).parent.parent
DATA = {"ppi5k": "PPI5K", "nl27k": "NL27K", "cn15k": "CN15K"}
WEIGHT_MODES = {"none": "plain", "focuse": "FocusE", "soft-labels": "labels"}
DIM = 32  # or the next that a model can have
BUDGET: dict[str, Any] = {
    "epochs": 5,
    "negative_sampling": "per-triple",
    "num_negatives": 10,
    "seed": 0,
    "device": "cpu",
}
# A look at validation decides nothing here, so it is a short one, at the end.
SHORT_LOOK: dict[str, Any] = {"eval_every": 1000, "stop_fraction": 0.05}
CONFIDENT: dict[str, Any] = {
    "epochs": 20,
    "seed": 0,
    "device": "cpu",
}  # their steps are small: a few epochs show nothing
SHARPNESS = 2.0
TEST = 2000  # test triples that are ranked, drawn once; known facts are those of the whole data set
SAMPLE = 500  # candidates of a model that is too dear for all entities
FIGURES = ("top", "all", "delta")
YEAR = re.compile(r"\(.*\b(19|20)\d\d\)")
ATTRIBUTES = 4  # numbers of an entity, where a model looks at some


# ---- cells ----------------------------------------------------------------------------------------------------------


def dim_of(kind: type[Model], least: int = DIM) -> int:
    """The first dimension from `least` on that a model can have."""
    for dim in range(least, 4 * least):
        try:
            kind().widths(dim)
        except FocuseError:
            continue
        return dim
    raise SystemExit(f"{kind.name}: none of the dims from {least} on")


def settings_of(kind: type[Model], data: str, weight_mode: str) -> dict[str, Any]:
    """What a cell is trained with; all else is the model's own default."""
    settings = {"model": kind.name, "dim": dim_of(kind), **SHORT_LOOK}
    if data == "cn15k":
        settings["weight_scaling"] = "none"  # as in the paper's experiments
    if kind.confidence_head is not None:
        return {**settings, **CONFIDENT}
    settings |= {**BUDGET, "weight_mode": weight_mode}
    return settings | ({"label_exponent": SHARPNESS} if weight_mode == "soft-labels" else {})


def weight_modes_of(kind: type[Model]) -> dict[str, str]:
    """What a model is trained with; one that takes the weights itself has its own way only."""
    own = kind.confidence_head is not None or kind.defaults.get("weight_mode") == "none"
    return {"none": "its own way"} if own else WEIGHT_MODES


def cells(models: Iterable[str], data: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Every cell of these models and data sets."""
    names = list(data)
    for model in models:
        kind = MODELS[model]
        for name in names:
            for weight_mode in weight_modes_of(kind):
                yield {
                    "model": model,
                    "data": name,
                    "weight_mode": weight_mode,
                    "settings": settings_of(kind, name, weight_mode),
                }


def trained(cell: dict[str, Any]) -> dict[str, Any]:
    """The figures of one cell, or why it has none."""
    torch.set_num_threads(1)
    started, worked = time.perf_counter(), time.process_time()
    data = focuse.datasets.load(cell["data"])
    kept = np.random.default_rng(0).permutation(len(data.test))[:TEST]
    given = {"node_attributes": numbers_of(data.train)} if "attributes" in MODELS[cell["model"]].requires else {}
    try:
        run = focuse.train(data.train, valid=data.valid, test=data.test, progress=False, **cell["settings"], **given)
        sampled = {"candidates": SAMPLE} if MODELS[cell["model"]].defaults.get("expensive_to_rank") else {}
        found = run.evaluate(data.test.select(np.sort(kept)), **sampled)
    except FocuseError as error:
        return {**cell, "failed": str(error)}
    figures = {"top": found.top.mrr, "all": found.all.mrr, "delta": found.delta_mrr}
    return {
        **cell,
        **({"sample": SAMPLE} if sampled else {}),
        **{name: round(value, 4) for name, value in figures.items()},
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(time.process_time() - worked, 1),
    }


def numbers_of(train: focuse.Graph) -> list[tuple[str, str, float]]:
    """Numbers of entities for the models that want some; the data sets come with none, so these count train's facts."""
    rows: list[tuple[str, str, float]] = []
    for role, entity in (("head", train.head), ("tail", train.tail)):
        count = np.bincount(entity, minlength=len(train.entities))
        weight = np.bincount(entity, train.weight, minlength=len(train.entities)) / np.maximum(count, 1)
        for name, facts, mean in zip(train.entities, count, weight, strict=True):
            rows.append((name, f"facts as {role}, logarithm", math.log1p(facts)))
            rows += [(name, f"mean weight as {role}", float(mean))] if facts else []
    return rows


def train(path: Path, models: Iterable[str], data: Iterable[str], workers: int) -> None:
    """Train what the file lacks."""
    done = [_cell(row) for row in read(path)]
    wanted = [cell for cell in cells(models, data) if cell not in done]
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=1) as pool:
        for row in pool.imap_unordered(trained, wanted):
            with path.open("a", encoding="utf-8") as file:
                print(json.dumps(row, ensure_ascii=False), file=file)
            told = row.get("failed") or f"{row['seconds']} s ({row['cpu_seconds']} s of CPU)"
            print(row["model"], row["data"], row["weight_mode"], *_figures(row), told, flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _cell(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("model", "data", "weight_mode", "settings")}


# ---- what the code says ---------------------------------------------------------------------------------------------


class Work(TorchDispatchMode):
    """Counts the multiplications and other operations on numbers that torch is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        packet = func._overloadpacket
        if packet in flop_registry:
            self.count += flop_registry[packet](*args, **(kwargs or {}), out_val=out) // 2
        elif packet is torch.ops.aten._cdist_forward:
            self.count += out.numel() * args[0].shape[-1]
        elif not func.is_view:
            self.count += max(each.numel() for each in (*args, out) if isinstance(each, torch.Tensor))
        return out


def work_of(kind: type[Model], dim: int) -> float:
    """Operations to score one more candidate, once there is a query."""
    trial, counts = Trial.of(kind, dim, ATTRIBUTES), []
    relation = trial.relations(1)
    query = trial.model.query(trial.entities(1), relation, "tail")
    for size in (16, 48):
        rows = trial.entities(size)
        with Work() as work:
            trial.model.score_pool(query, relation, rows, "tail")
        counts.append(work.count)
    return (counts[1] - counts[0]) / 32


def growth_of(value: Callable[[int], float], dims: tuple[int, int, int]) -> str:
    """How it grows with k, whatever it begins with: '1', 'k', 'k²', …"""
    small, middle, large = (value(dim) for dim in dims)
    if middle == small:
        return "1"

    def apart(power: int) -> float:
        first, second, third = (float(dim) ** power for dim in dims)
        return abs((third - second) / (second - first) - (large - middle) / (middle - small))

    return {1: "k", 2: "k²", 3: "k³"}[min((1, 2, 3), key=apart)]


def formula_of(value: Callable[[int], int], dims: tuple[int, int, int]) -> str:
    """A number that depends on k, in words: '2k', 'k + 1', 'k³'."""
    found = [value(dim) for dim in dims]
    if found[0] == found[1] == found[2]:
        return f"{found[0]:,}"
    for power, sign in ((1, "k"), (2, "k²"), (3, "k³")):
        slope = (found[1] - found[0]) / (dims[1] ** power - dims[0] ** power)
        rest = found[0] - slope * dims[0] ** power
        if slope == int(slope) and rest == int(rest) and found[2] == slope * dims[2] ** power + rest:
            times = sign if slope == 1 else f"{int(slope)}{sign}"
            return times if not rest else f"{times} {'+' if rest > 0 else '−'} {abs(int(rest))}"
    return f"{found[0]:,} at k = {dims[0]}"


def engines_of(settings: Config, model: Model) -> tuple[bool, bool]:
    """Whether the fused engines of CPU and GPU train it by its default optimizer and loss, were they there."""
    objective = make_objective(
        settings, settings.make_focuse_layer(), 0.0 if settings.weight_mode == "soft-labels" else None
    )
    if fused_objective(objective) is None:
        return False, False
    tables = {"entity": torch.zeros(2, 2), "relation": torch.zeros(2, 2)}
    optimizer = make_optimizer(settings.optimizer, tables, 0.1)
    with (
        patch("focuse.engines.fused_cpu.library", lambda: object()),
        patch("focuse.engines.gpu.has_triton", lambda: True),
    ):
        on_cpu = FusedCpuEngine.unsupported_reason(model, torch.device("cpu"), optimizer, settings.reciprocal)
        return not on_cpu, not FusedGpuEngine.unsupported_reason(
            model, torch.device("cuda"), optimizer, settings.reciprocal
        )


def paper_of(kind: type[Model]) -> tuple[str, list[str]]:
    """What the documentation says of a model's paper, and the paragraphs of equations behind it.

    The paper of an encoder comes before that of the model it is for, and a variant has its base's.
    """
    for one in (kind, type(kind.encoder), *kind.__mro__[1:]):
        parts = inspect.cleandoc(one.__doc__ or "").split("\n\n")
        for place, part in enumerate(parts):
            if YEAR.search(part):
                return part, [each for each in parts[place + 1 :] if "=" in each]
    raise SystemExit(f"{kind.name}: its documentation names no paper")


def facts_of(kind: type[Model]) -> dict[str, Any]:
    """What a card says of a model without training it."""
    settings = Config.from_kwargs(model=kind.name, dim=dim_of(kind))
    model = Trial.of(kind, dim_of(kind), ATTRIBUTES).model  # in a graph, with as many numbers as the cells have
    dims = tuple(dim_of(kind, least) for least in (DIM, 2 * DIM, 3 * DIM))
    first, equations = paper_of(kind)
    on_cpu, on_gpu = engines_of(settings, settings.make_model())

    def shared(dim: int) -> int:
        start = model.init_parameters(dim, torch.Generator().manual_seed(0))
        return sum(value.numel() for name, value in start.items() if name not in model.buffers)

    return {
        "summary": inspect.cleandoc(kind.__doc__ or "").splitlines()[0],
        "paper": " ".join(first.split()),
        "equation": inspect.cleandoc(equations[0]) if equations else "",
        "entity": formula_of(lambda dim: model.widths(dim)[0], dims),
        "relation": formula_of(lambda dim: model.widths(dim)[1], dims),
        "shared": formula_of(shared, dims),
        "work": work_of(kind, dims[0]),
        "growth": growth_of(lambda dim: work_of(kind, dim), dims),
        "dim": dims[0],
        "fused": {(True, True): "CPU, GPU", (True, False): "CPU", (False, True): "GPU"}.get((on_cpu, on_gpu), "–"),
        "loops": kind.fused is not None,
        "reciprocal": settings.reciprocal,
    }


# ---- the page -------------------------------------------------------------------------------------------------------


def page(rows: list[dict[str, Any]]) -> str:
    """docs/cards.md. Cells that no row has, or that were trained with other settings, print as –."""
    known = {(row["model"], row["data"], row["weight_mode"]): row for row in rows if _cell(row) in list(_asked(row))}
    facts = {name: facts_of(kind) for name, kind in MODELS.items()}
    parts = [_opening(), _overview(facts, known), *(_card(name, facts[name], known) for name in MODELS)]
    return "\n\n".join(parts) + "\n"


def _asked(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return cells([row["model"]], [row["data"]]) if row["model"] in MODELS and row["data"] in DATA else iter(())


def _opening() -> str:
    text = f"""
        What each built-in [model](models.md) is, costs, and reaches at one small budget. Made from the code and from
        [results/cards.jsonl](results/cards.jsonl) by `docs/tools/cards.py`, which also trains what is missing.

        The budget is the same for all, so that a column can be read downwards; it is far from what a model reaches when
        it is trained to the end (see [reproduction](reproduction.md) and [weights](focus.md)). k = {DIM}, or the next
        that a model can have; {BUDGET["epochs"]} epochs; {BUDGET["num_negatives"]} negatives per triple; one seed;
        the model's own defaults otherwise. FocusE is the paper's layer, labels have the label exponent {SHARPNESS:g}.
        Models of confidence learn the weights in their own way, for {CONFIDENT["epochs"]} epochs. MRR is filtered, over
        {TEST:,} test triples and both sides, ties at their worst; its heaviest tenth is {TEST // 10} of them, so that
        small differences may be chance. Seconds are those of one core, for all cells of a line together.

        A cell is `focuse train train.tsv.gz --valid valid.tsv.gz --test test.tsv.gz
        --model NAME --weight-mode none --dim {DIM} --epochs {BUDGET["epochs"]} --negative-sampling per-triple
        --num-negatives {BUDGET["num_negatives"]} --out RUN` (CN15K: `--weight-scaling none`), but for the sample of
        test. Models that look at numbers of entities get four here that say little, as the data sets have none: how
        many facts of train an entity heads and ends, and their mean weights. A model that is too expensive to be
        ranked against all entities meets {SAMPLE} drawn ones (“sampled”), which makes its figures higher:
        compare them with no other's.
    """
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(["# Model cards", *map(_filled, paragraphs)])


def _filled(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)


def _overview(facts: dict[str, dict[str, Any]], known: dict[tuple[str, str, str], dict[str, Any]]) -> str:
    heads = ["model", "an entity", "a relation", "shared", "a candidate", "fused", *DATA.values()]
    about = """Numbers that an entity, a relation and all triples together hold; operations that one more candidate
        costs at that k, and how they grow; engines that train it in fused steps
        (on a GPU all others are [recorded](performance.md#on-a-gpu)); top-10 % MRR / ΔMRR with labels
        (models that take the weights themselves: in their own way)."""
    lines = [_filled(about), "", f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for name, fact in facts.items():
        weight_mode = "soft-labels" if "soft-labels" in weight_modes_of(MODELS[name]) else "none"
        reached = [_pair(known.get((name, data, weight_mode))) for data in DATA]
        cost = f"{fact['work']:,.0f} (∝ {fact['growth']})"
        shown = [
            f"[`{name}`](#{name})",
            fact["entity"],
            fact["relation"],
            fact["shared"],
            cost,
            fact["fused"],
            *reached,
        ]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


def _card(name: str, fact: dict[str, Any], known: dict[tuple[str, str, str], dict[str, Any]]) -> str:
    kind = MODELS[name]
    modes = weight_modes_of(kind)
    loops = "native loops rank it" if fact["loops"] else "torch ranks it"
    fused = "the reference engine trains it" if fact["fused"] == "–" else f"fused steps train it ({fact['fused']})"
    about = [
        f"similarity {kind.similarity or 'of its own'}; {fused}, {loops}",
        f"one candidate takes {fact['work']:,.0f} operations at k = {fact['dim']}, and grows as {fact['growth']}",
        f"numbers: {fact['entity']} an entity, {fact['relation']} a relation, {fact['shared']} shared",
        "relations have a reciprocal of their own" if fact["reciprocal"] else "one row a relation",
    ]
    about += [f"k = {fact['dim']} here: it cannot have {DIM}"] if fact["dim"] != DIM else []
    about += [f"requires {' and '.join(sorted(kind.requires))}"] if kind.requires else []
    about += ["too expensive for all entities: sampled"] if kind.defaults.get("expensive_to_rank") else []
    equation = [f"    {line}" for line in fact["equation"].splitlines()]
    lines = [f"## {name}", "", fact["paper"], "", *equation, *([""] if equation else []), fact["summary"], ""]
    lines += [*(f"- {line}" for line in about), ""]
    heads = [f"{mode}: top 10 % | {mode}: all | {mode}: ΔMRR" for mode in modes.values()]
    lines += [f"| | {' | '.join(heads)} | seconds |", "| --- " * (2 + 3 * len(modes)) + "|"]
    for data, title in DATA.items():
        found = [known.get((name, data, mode), {}) for mode in modes]
        figures = [figure for row in found for figure in _figures(row)]
        seconds = (
            "–" if any("cpu_seconds" not in row for row in found) else f"{sum(r['cpu_seconds'] for r in found):.0f}"
        )
        lines.append(f"| {title} | {' | '.join([*figures, seconds])} |")
    failed = {row["failed"]: None for place, row in known.items() if place[0] == name and "failed" in row}
    return "\n".join([*lines, *(line for why in failed for line in ("", f"Not trained: {why}"))])


def _figures(row: dict[str, Any]) -> list[str]:
    return ["–" if name not in row else f"{row[name]:.3f}".replace("0.", ".", 1) for name in FIGURES]


def _pair(row: dict[str, Any] | None) -> str:
    top, _, delta = _figures(row or {})
    mark = " sampled" if "sample" in (row or {}) else ""
    return "–" if top == "–" else f"{top} / {delta}{mark}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=DOCS / "results" / "cards.jsonl")
    parser.add_argument("--page", type=Path, default=DOCS / "cards.md")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    options = parser.parse_args()
    if options.train:
        train(options.results, options.models, options.data, options.workers)
    options.page.write_text(page(read(options.results)), encoding="utf-8")


if __name__ == "__main__":
    main()
