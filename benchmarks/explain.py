"""Do explanations find the triples that a score depends on? Remove them, retrain, and measure the score.

    python benchmarks/explain.py [--graphs careers,ppi5k,nl27k] [--questions 6] [--seeds 2] [--out FILE.jsonl]

On small graphs (a third of the embedded careers graph; 150 entities of PPI5K and NL27K, from FOCUSE_DATA) a model is
trained, and for some held-out triples that it predicts, five training triples are removed: the strongest supporting
ones of the explanation, the strongest opposing ones, or others for comparison. Then the model is trained again with the
same initial values, shuffles and negatives, and the score and reciprocal rank are compared. In addition, single triples
are removed, to compare the estimated change of the score with that of retraining.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import smoke
import torch

import focuse
from focuse.data.datasets import careers
from focuse.engines.autograd import AutogradEngine
from focuse.engines.scorer import TableScorer
from focuse.inference.influence import Influence, TrainedObjective
from focuse.inference.similarity import entity_rows
from focuse.objective.randomness import EpochOrder
from focuse.training.callbacks import Reporter
from focuse.training.problem import TrainingProblem
from focuse.training.trainer import Placement, Trainer, build_engine

REMOVED = 5
SINGLE = 8  # triples per question that are removed one by one
SETTINGS: dict[str, Any] = {"dim": 16, "epochs": 30, "label_exponent": 2.0, "eval_every": 1000, "progress": False}
Ids = Any
WAYS = ("supporting", "opposing", "nearest", "highest weight", "same ends", "anywhere")


def small(name: str, entities: int = 150) -> focuse.Graph:
    """A third of the careers graph, or what lies around one entity of a benchmark graph."""
    if name == smoke.GRAPH:
        return smoke.graph()
    if name == "careers":
        whole = careers()
        return whole.select(np.arange(0, len(whole), 3))
    graph = focuse.datasets.load(name).train.merge_repeated("max")
    random = np.random.default_rng(0)
    degree = np.bincount(np.concatenate([graph.head, graph.tail]), minlength=len(graph.entities))
    chosen = np.array([np.argsort(-degree)[len(degree) // 20]])
    while len(chosen) < entities:
        touching = np.isin(graph.head, chosen) | np.isin(graph.tail, chosen)
        more = np.setdiff1d(np.concatenate([graph.head[touching], graph.tail[touching]]), chosen)
        chosen = np.concatenate([chosen, random.permutation(more)[: max(1, min(50, entities - len(chosen)))]])
    return focuse.read(graph.select(np.isin(graph.head, chosen) & np.isin(graph.tail, chosen)).to_arrow())


class Without(Placement):
    """A training in which some rows of train do not take part; initial values, shuffles and negatives stay."""

    def __init__(self, problem: TrainingProblem, engine: AutogradEngine, gone: Ids) -> None:
        super().__init__(problem, engine)
        self.kept = torch.ones(len(problem.triple_store), dtype=torch.bool)
        self.kept[torch.as_tensor(np.asarray(gone, np.int64))] = False

    def _order(self, epoch: int) -> EpochOrder:
        rows = torch.cat(list(super()._order(epoch).batches))
        rows = rows[self.kept[rows]]
        return EpochOrder(torch.split(rows, self.config.batch_size or len(self.kept)), len(rows))


def trained(run: focuse.Run, seed: int, gone: Ids = ()) -> TableScorer:
    """The run's training again, from another seed and without some rows."""
    problem = TrainingProblem.build(replace(run.settings, seed=seed), run.splits, run.normalizer)
    engine = build_engine(problem, None, Reporter())
    trainer = Trainer(Without(problem, engine, gone), Reporter())
    return TableScorer(problem.model, trainer.run().final())


def judged(engine: TableScorer, asked: tuple[int, int, int]) -> tuple[float, float]:
    """Score and reciprocal rank among all tails."""
    head, relation, tail = (torch.tensor([one]) for one in asked)
    scores = engine.score_all(head, relation, "tail")[0]
    return float(engine.score(head, relation, tail)), 1.0 / float((scores >= scores[asked[2]]).sum())


def chosen(
    way: str, run: focuse.Run, engine: TableScorer, asked: tuple[int, int, int], rows: Ids, change: Ids, random: Any
) -> Ids:
    """Five rows of train to remove."""
    graph, (head, relation, tail) = run.graph, asked
    if way == "supporting":
        return rows[np.argsort(change)[:REMOVED]]
    if way == "opposing":
        return rows[np.argsort(-change)[:REMOVED]]
    if way == "highest weight":
        return rows[np.argsort(-graph.weight[rows], kind="stable")[:REMOVED]]
    if way == "nearest":  # of the same relation first, by how close both ends are to the asked ones
        unit = entity_rows(engine)
        alike = ((unit @ unit[head])[graph.head[rows]] + (unit @ unit[tail])[graph.tail[rows]]).cpu().numpy()
        return rows[np.lexsort((-alike, graph.relation[rows] != relation))[:REMOVED]]
    pool = rows if way == "same ends" else np.arange(len(graph))
    return random.choice(pool, min(REMOVED, len(pool)), replace=False)


def questions(run: focuse.Run, count: int) -> list[tuple[int, int, int]]:
    """Held-out triples that the run predicts: of the best third by reciprocal rank."""
    test = run.splits.test
    triples = list(zip(test.head.tolist(), test.relation.tolist(), test.tail.tolist(), strict=True))
    ranked = sorted(triples, key=lambda one: (-judged(run.scorer, one)[1], one))
    best = ranked[: max(count, len(ranked) // 3)]
    return [best[place] for place in np.random.default_rng(0).permutation(len(best))[:count]]


def measure(name: str, count: int, seeds: int, single: int = SINGLE) -> list[dict[str, Any]]:
    """One row per way of choosing, and one on single triples."""
    run = focuse.train(small(name), model="complex", seed=0, **SETTINGS)
    falls: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    pairs: list[tuple[float, float, int]] = []
    took: list[float] = []
    bases = [trained(run, seed) for seed in range(seeds)]
    for number, asked in enumerate(questions(run, count)):
        for seed, base in enumerate(bases):
            random = np.random.default_rng([number, seed])
            learnt = TrainedObjective.build(run)
            started = time.perf_counter()
            rows, change = Influence(learnt, base, *asked).changes()
            took.append(time.perf_counter() - started)
            before = judged(base, asked)
            for way in WAYS:
                after = judged(trained(run, seed, chosen(way, run, base, asked, rows, change, random)), asked)
                falls[way].append((after[0] - before[0], after[1] - before[1]))
            for place in random.permutation(len(rows))[:single]:
                after = judged(trained(run, seed, rows[[place]]), asked)
                pairs.append((float(change[place]), after[0] - before[0], number * seeds + seed))
    common = {"graph": name, "edges": len(run.graph), "entities": len(run.graph.entities), "questions": count}
    common |= {"seeds": seeds, "mrr": round(run.evaluate().all.mrr, 3), "seconds": round(float(np.median(took)), 3)}
    rows_ = [
        common
        | {"removed": way, "score": _mean(part, 0), "score_error": _error(part, 0), "reciprocal_rank": _mean(part, 1)}
        for way, part in falls.items()
    ]
    return [*rows_, common | {"removed": "one by one", **followed(pairs)}]


def followed(pairs: list[tuple[float, float, int]]) -> dict[str, float]:
    """How far estimates follow what retraining shows: rank correlation within questions, sign, slope."""
    from scipy.stats import spearmanr  # type: ignore[import-untyped, unused-ignore]

    guess, truth, group = (np.array(column) for column in zip(*pairs, strict=True))
    within = [spearmanr(guess[group == one], truth[group == one])[0] for one in np.unique(group)]
    big = np.abs(guess) >= np.median(np.abs(guess))
    return {
        "triples": len(pairs),
        "spearman": round(float(np.nanmean(within)), 3),
        "pearson": round(float(np.corrcoef(guess, truth)[0, 1]), 3),
        "same_sign_of_larger_half": round(float((np.sign(guess[big]) == np.sign(truth[big])).mean()), 3),
        "slope": round(float(guess @ truth / (guess @ guess)), 3),
    }


def _mean(part: list[tuple[float, float]], place: int) -> float:
    return round(float(np.mean([one[place] for one in part])), 4)


def _error(part: list[tuple[float, float]], place: int) -> float:
    """The standard error of that mean."""
    values = [one[place] for one in part]
    return round(float(np.std(values, ddof=1) / len(values) ** 0.5), 4)


def shown(rows: list[dict[str, Any]]) -> str:
    """A Markdown table."""
    lines = ["| graph | five triples removed | Δ score | ± | Δ reciprocal rank |", "| --- | --- | ---: | ---: | ---: |"]
    for row in rows:
        if "score" in row:
            figures = f"{row['score']:+.3f} | {row['score_error']:.3f} | {row['reciprocal_rank']:+.3f}"
            lines.append(f"| {row['graph']} | {row['removed']} | {figures} |")
    lines += [
        "",
        "| graph | single triples | Spearman | Pearson | same sign | slope |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        if "spearman" in row:
            figures = " | ".join(
                f"{row[key]:.2f}" for key in ("spearman", "pearson", "same_sign_of_larger_half", "slope")
            )
            lines.append(f"| {row['graph']} | {row['triples']} | {figures} |")
    return "\n".join(lines)


def timed(folder: Path, count: int) -> str:
    """Processor seconds of a run's explanations; the first one also mines rules and fits estimators."""
    run, clock, test, found = focuse.load(folder), time.process_time, focuse.load(folder).splits.test, []
    for row in range(count + 1):
        names = test.entities[test.head[row]], test.relations[test.relation[row]], test.entities[test.tail[row]]
        started = clock()
        run.explain(*names)
        found.append(clock() - started)
    first, *others = found
    return f"{run!r}: first {first:.2f} s, then {np.median(others):.2f} s per explanation (slowest {max(others):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default="careers,ppi5k,nl27k")
    parser.add_argument("--questions", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--run", type=Path, help="only take the time of this run's explanations")
    asked = smoke.parse(parser, graphs=smoke.GRAPH, questions=1, seeds=2)
    if asked.smoke:
        SETTINGS.update(dim=4, epochs=1)
        with tempfile.TemporaryDirectory() as folder:
            smoke.train(Path(folder) / "run")
            print(timed(Path(folder) / "run", 1))
    if asked.run is not None:
        print(timed(asked.run, asked.questions))
        return
    found: list[dict[str, Any]] = []
    for name in asked.graphs.split(","):
        found += measure(name, asked.questions, asked.seeds, 2 if asked.smoke else SINGLE)
        print(shown(found), flush=True)
        if asked.out is not None:
            asked.out.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")


if __name__ == "__main__":
    main()
