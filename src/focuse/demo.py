"""`focuse demo`: compare a model without weights, with FocusE and with soft labels on the embedded careers graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from focuse.api import Run, train
from focuse.data.datasets import careers
from focuse.evaluation.evaluate import Evaluation
from focuse.report.charts import violins
from focuse.report.page import comparison_page
from focuse.results import format_table
from focuse.storage.atomic import replace_file

# Chosen on validation triples of other seeds than the tested ones; all models get the same.
# The loss of the first two is equation 5 of the paper exactly as printed.
SETTINGS: dict[str, Any] = {
    "model": "complex",
    "dim": 50,
    "epochs": 24,
    "negative_sampling": "per-triple",
    "optimizer": "sparse-adam",
    "regularizer": "l3:1e-2",
    "lr": 3e-3,
    "batch_size": 512,
    "eval_every": 2,
}
# Soft labels have their own loss and no decay. The model without weights is validated from the same epoch on.
PLAIN = {**SETTINGS, "weight_mode": "none", "loss": "pairwise-nll", "eval_start": 8}
FOCUSED = {**SETTINGS, "weight_mode": "focuse", "loss": "pairwise-nll", "beta_decay_epochs": 16}
LABELS = {**SETTINGS, "weight_mode": "soft-labels", "label_exponent": 2.0}
MODELS: dict[str, dict[str, Any]] = {"plain ComplEx": PLAIN, "FocusE ComplEx": FOCUSED, "ComplEx, labels": LABELS}
SENTENCES = {
    "requires skill": "{head} should also have the skill {tail!r}",
    "performs task": "{head} is likely to {tail}",
    "uses tool": "{head} will find use for the tool {tail!r}",
    "leads to": "working as {head} can lead to {tail}",
}


@dataclass(frozen=True)
class Demo:
    """The trained runs, their evaluations, and predictions of the last run as sentences."""

    runs: dict[str, Run]
    evaluations: dict[str, Evaluation]
    sentences: list[str]

    def __str__(self) -> str:
        """Return a table of the evaluations and the numbered sentences."""
        rows = [
            [name, *(f"{value:.3f}" for value in (one.top.mrr, one.bottom.mrr, one.delta_mrr, one.delta_median))]
            for name, one in self.evaluations.items()
        ]
        table = format_table(["", "top 10 % MRR", "bottom 10 % MRR", "ΔMRR", "ΔM"], rows)
        lines = [table, "", f"Ten links that are not in the graph yet, predicted by {list(self.runs)[-1]}:"]
        return "\n".join(lines + [f"  {number:2}. {text}" for number, text in enumerate(self.sentences, 1)])

    def to_dict(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        keys = {name: name.lower().replace(",", "").replace(" ", "_") for name in self.evaluations}
        found = {keys[name]: one.to_dict() for name, one in self.evaluations.items()}
        return {**found, "predictions": self.sentences}

    def write(self, folder: Path) -> Path:
        """Write report.html, and its chart as violins.svg, and return the path of the page."""
        graph = next(iter(self.runs.values())).graph
        page = comparison_page(
            "focuse: careers",
            f"{len(graph):,} training links between jobs, skills, tasks and tools, each with an importance "
            "from 0 to 1. The same model was trained three times: without the importance, with FocusE, and with "
            "the importance as a soft label.",
            self.evaluations,
            self.sentences,
            {name: run.settings.to_dict() for name, run in self.runs.items()},
        )
        for name, text in (("violins.svg", violins(self.evaluations)), ("report.html", page)):
            with replace_file(folder / name) as temporary:
                temporary.write_text(text, encoding="utf-8")
        return folder / "report.html"


def demo(seed: int = 0, progress: bool = True, note: Callable[[str], None] = lambda text: None) -> Demo:
    """Train the models on the careers graph and compare them."""
    graph = careers()
    note(f"careers: {len(graph):,} links, {len(graph.entities):,} entities, {len(graph.relations)} relations")
    runs = {}
    for name, settings in MODELS.items():
        note(f"training {name} …")
        runs[name] = train(graph, seed=seed, progress=progress, **settings)
    evaluations = {name: run.evaluate() for name, run in runs.items()}
    return Demo(runs, evaluations, sentences(list(runs.values())[-1]))


def sentences(run: Run, count: int = 10) -> list[str]:
    """Return the best new link of each of `count` jobs as a sentence; the relations alternate."""
    graph = run.graph
    jobs = np.unique(graph.head[graph.relation == graph.relations.id("requires skill")])
    chosen = jobs[np.linspace(0, len(jobs) - 1, count).astype(int)]
    words = []
    for number, job in enumerate(chosen):
        relation = list(SENTENCES)[number % len(SENTENCES)]
        new = run.predict(head=graph.entities[job], relation=relation, top=2, new_only=True)
        best = next(link for link in new if link.tail != link.head)  # no job leads to itself
        words.append(SENTENCES[relation].format(head=best.head, tail=best.tail))
    return words
