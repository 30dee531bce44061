"""The pictures of the manual: `python docs/tools/figures.py` writes docs/images/concept-*.svg and equation-*.svg.

Those of the layer follow from focuse.objective.focuse alone. The others need trainings (a minute), and one the
benchmark graphs in FOCUSE_DATA; `--quick` draws the first kind only. A last word names another folder to write to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import curves
import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from focuse.api import Run, train
from focuse.data import datasets
from focuse.data.datasets import careers
from focuse.data.statistics import leakage
from focuse.data.triple_index import build_triple_index
from focuse.demo import FOCUSED, LABELS, PLAIN
from focuse.evaluation.ranking import rank_graph
from focuse.report.charts import BOTTOM_COLOR, TOP_COLOR, figure_svg

IMAGES = Path(__file__).parent.parent / "images"
GREY, GREEN = "#8a8a8a", "#4c9a6a"
COLOURS = {"plain ComplEx": GREY, "FocusE ComplEx": BOTTOM_COLOR, "ComplEx, labels": TOP_COLOR}
EQUATIONS = {
    "equation-1": r"$f(t) = -\,\|\mathbf{e}_s + \mathbf{r}_p - \mathbf{e}_o\|_n$",
    "equation-2": r"$g(t) = \sigma(f(t)) = \ln(1 + e^{f(t)}) \geq 0$",
    "equation-3": r"$\alpha^{+} = \beta + (1 - w)(1 - \beta) \qquad \alpha^{-} = \beta + w\,(1 - \beta)$",
    "equation-4": r"$h(t) = \alpha\,g(t)$",
    "equation-5": r"$L = -\sum_{t^{+},\,t^{-}} \log\,\frac{e^{h(t^{+})}}{e^{h(t^{+})} + e^{h(t^{-})}}$",
    "equation-decay": r"$\beta_{epoch} = \max\,\left(1 - \frac{epoch}{\lambda},\;0\right)$",
    "equation-label": r"$L = -[\,q\,\ln p + (1 - q)\,\ln(1 - p)\,] \qquad q = w^{\gamma} \qquad "
    r"\frac{\partial L}{\partial f^{+}} = p - q$",
}


def panels(*titles: str, height: float = 3.1, rows: int = 1) -> tuple[Figure, list[Any]]:
    """Empty panels in one row, or several."""
    columns = len(titles) // rows
    figure = Figure(figsize=(3.45 * columns, height * rows), layout="constrained", facecolor="white")
    axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title, fontsize=10.5)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    return figure, axes


def shade(part: float) -> Any:
    """Light facts are blue, heavy ones orange."""
    return LinearSegmentedColormap.from_list("weight", [BOTTOM_COLOR, "#9a5b8f", TOP_COLOR])(part)


def layer() -> Figure:
    """What the layer does to scores."""
    figure, (first, fourth, second, third) = panels(
        "scores become positive", "h at β = 0", "α⁺, of the positive", "α⁻, of its corruptions", height=2.7, rows=2
    )
    scores = np.linspace(-12, 8, 201)
    names = {"softplus": TOP_COLOR, "shifted-softplus": BOTTOM_COLOR, "linear": GREY}
    for name, values in curves.softplus(scores).items():
        first.plot(scores, values, color=names[name], label=name, lw=1.2 if name == "linear" else 2)
    first.set(xlabel="score f", ylabel="g(f)", ylim=(-4, 17))
    first.legend(fontsize=8, frameon=False)
    weight = np.linspace(0, 1, 101)
    for beta in curves.BETAS:
        for axis, values in zip((second, third), curves.factors(weight, beta), strict=True):
            axis.plot(weight, values, color=colormaps["viridis"](0.9 * beta), label=f"β = {beta:g}")
    for axis in (second, third):
        axis.set(xlabel="weight w", ylim=(-0.04, 1.06))
    second.legend(fontsize=8, frameon=False)
    scores = np.linspace(-3, 5, 101)
    for part in (0.2, 0.9):
        up, down = (factor[0] * curves.softplus(scores)["softplus"] for factor in curves.factors(np.array([part]), 0.0))
        fourth.plot(scores, up, color=shade(part), label=f"w = {part:g}, positive")
        fourth.plot(scores, down, color=shade(part), ls=":", label="… corruption")
    fourth.set(xlabel="score f", ylabel="h(f)")
    fourth.legend(fontsize=7.5, frameon=False)
    return figure


def pull() -> Figure:
    """How hard a step moves facts of different weight, over the epochs."""
    figure, axes = panels("paper's layer: pull on the fact", "… push on its corruptions", "labels: pull on the fact")
    epochs = 131
    paper, labels = curves.pulls(curves.WEIGHTS, epochs), curves.pulls(curves.WEIGHTS, epochs, "label")
    for axis, values in zip(axes, (*paper, labels[0]), strict=True):
        for place, weight in enumerate(curves.WEIGHTS):
            axis.plot(values[:, place], color=shade(weight), lw=2, label=f"w = {weight:g}")
        axis.axvline(curves.DECAY, color=GREY, lw=0.8, ls=":")
        axis.axhline(0, color=GREY, lw=0.8)
        axis.set(xlabel="epoch (β reaches 0 at 100)", ylim=(-0.12, 1.05))
    axes[0].set_ylabel("−∂L/∂f")
    axes[0].legend(fontsize=8, frameon=False)
    return figure


def dial() -> Figure:
    """Labels: where a fact is pulled to, and the label exponent."""
    figure, (first, second, third) = panels("slope by score", "q = w^γ: the dial", "share over steps")
    scores = np.linspace(-4, 12, 161)
    for place, weight in enumerate(curves.WEIGHTS):
        first.plot(
            scores, curves.slopes(scores, curves.WEIGHTS)[:, place], color=shade(weight), label=f"w = {weight:g}"
        )
    first.axhline(0, color=GREY, lw=0.8)
    first.set(xlabel="score f⁺ of the fact", ylabel="∂L/∂f⁺ = p − q")
    first.legend(fontsize=7.5, frameon=False)
    weight = np.linspace(0, 1, 101)
    for place, (label_exponent, values) in enumerate(curves.labels(weight).items()):
        second.plot(weight, values, color=colormaps["viridis"](place / 6), label=f"γ = {label_exponent:g}")
    second.set(xlabel="weight w", ylabel="label q")
    second.legend(fontsize=7, frameon=False, loc=(0.02, 0.5), labelspacing=0.2, handlelength=1.2)
    weights = (0.1, 0.5, 0.9, 1.0)
    shares = curves.followed(weights, 160, "label")
    for place, one in enumerate(weights):
        third.plot(shares[:, place], color=shade(one), lw=2, label=f"w = {one:g}")
    third.set(xlabel="gradient step", ylabel="share p among rivals", ylim=(0, 1.03))
    third.legend(fontsize=7.5, frameon=False, loc=(0.68, 0.16))
    return figure


def tenths(runs: dict[str, Run]) -> Figure:
    """MRR by tenths of weight, and what ΔMRR is."""
    figure, (axis, other) = panels("MRR by tenths of weight", "ΔMRR: the last minus the first", height=3.3)
    bars = {}
    for name, run in runs.items():
        values = mrr_by_tenth(run)
        bars[name] = run.evaluate().delta_mrr
        axis.plot(range(1, 11), values, color=COLOURS[name], marker="o", ms=3.5, label=name)
    axis.set(xlabel="tenth of the test links, light to heavy", ylabel="MRR", xticks=range(1, 11))
    axis.legend(fontsize=8, frameon=False)
    drawn = other.bar(range(len(bars)), bars.values(), color=[COLOURS[name] for name in bars])
    other.bar_label(drawn, fmt="%.2f", fontsize=8)
    other.set_xticks(range(len(bars)), [name.replace(" ", "\n", 1) for name in bars], fontsize=8)
    other.axhline(0, color=GREY, lw=0.8)
    return figure


def mrr_by_tenth(run: Run) -> np.ndarray:
    """Filtered MRR of ten equal parts of test, light to heavy, rows tied at a cut as they stand; [10]."""
    test = run.splits.test
    known = build_triple_index([run.splits.train, run.splits.valid, test])
    reciprocal = (1 / rank_graph(run.scorer, test, known).filtered.ranks("worst", "per-side")).mean(1)
    order = np.argsort(test.weight, kind="stable")
    return np.array([reciprocal[part].mean() for part in np.array_split(order, 10)])


def numbers(run: Run) -> Figure:
    """One question's answers: score, expected weight with its interval, probability, confidence."""
    links = run.predict(head="Ward Nurse", relation="requires skill", top=60)
    places = np.array([link.rank for link in links])
    figure, (first, second, third) = panels("the score orders", "if it is a fact, what does it weigh?", "is it a fact?")
    known = np.array([link.known for link in links])
    score = np.array([link.score for link in links])
    first.scatter(places[known], score[known], s=14, color=TOP_COLOR, label="in the graph")
    first.scatter(places[~known], score[~known], s=14, color=GREY, label="new")
    first.set(ylabel="score f")
    expected, low, high = (
        np.array([getattr(link, name) for link in links]) for name in ("weight_mean", "weight_low", "weight_high")
    )
    second.fill_between(places, low, high, color=BOTTOM_COLOR, alpha=0.2, lw=0, label="90 % interval", step="mid")
    second.scatter(places[~known], expected[~known], s=12, color=GREY, label="expected weight, new")
    second.scatter(places[known], [link.weight for link in links if link.known], s=12, color=TOP_COLOR, label="its own")
    second.set(ylim=(0, 1.05))
    third.plot(places, [link.probability for link in links], color=GREEN, label="probability")
    third.plot(places, [link.confidence for link in links], color=BOTTOM_COLOR, label="confidence")
    third.set(ylim=(0, 1.05))
    for axis in (first, second, third):
        axis.set_xlabel("rank among all skills, tasks, …")
        axis.legend(fontsize=8, frameon=False)
    return figure


def filtering(run: Run) -> Figure:
    """A test link, the known facts above it, and what filtered ranks leave out."""
    test = run.splits.test
    known = build_triple_index([run.splits.train, run.splits.valid, test])
    ranking = rank_graph(run.scorer, test, known)
    raw, filtered = (part.ranks("worst", "per-side")[:, 0] for part in (ranking.raw, ranking.filtered))
    wanted = np.flatnonzero((raw <= 13) & (filtered >= 3))  # ranks that fit on the picture
    row = int(wanted[np.argmax(raw[wanted] - filtered[wanted])])
    head, relation = test.entities[test.head[row]], test.relations[test.relation[row]]
    tail = test.entities[test.tail[row]]
    links = run.predict(head=head, relation=relation, top=14)
    title = f"{head} – {relation} – ?      raw rank {raw[row]:.0f}, filtered rank {filtered[row]:.0f}"
    figure, (axis,) = panels(title)
    figure.set_size_inches(7.4, 3.7)
    kinds = ["the test link" if link.tail == tail else "known: no rival" if link.known else "rival" for link in links]
    colours = {"the test link": TOP_COLOR, "known: no rival": "#d5dbe0", "rival": BOTTOM_COLOR}
    for kind, colour in colours.items():
        places = [place for place, found in enumerate(kinds) if found == kind]
        axis.barh(places, [links[place].score for place in places], color=colour, label=kind)
    axis.set_yticks(range(len(links)), [f"{link.tail}  {link.rank}" for link in links], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel("score f")
    axis.legend(fontsize=8, frameon=False, loc="lower right")
    return figure


def leaks() -> Figure | None:
    """How much of the benchmarks' test triples can be looked up in train; None where they are not at hand."""
    if any(datasets.find(name) is None for name in ("ppi5k", "nl27k", "cn15k")):
        return None
    figure, (axis,) = panels("share of test triples with … in train", height=2.6)
    figure.set_size_inches(7.4, 2.7)
    parts = {"the same triple": TOP_COLOR, "the edge back": BOTTOM_COLOR, "neither": "#d5dbe0"}
    for place, name in enumerate(("ppi5k", "nl27k", "cn15k")):
        data = datasets.load(name)
        found = leakage(data.train, data.test)
        shares = [found.same_triple, found.inverse_edge, found.neither_duplicate_nor_inverse]
        for offset, (part, count) in enumerate(zip(parts, shares, strict=True)):
            drawn = axis.barh(place + 0.26 * (offset - 1), count / found.rows, 0.24, color=parts[part], label=part)
            axis.bar_label(drawn, fmt=lambda share: f"{share:.0%}", fontsize=8, padding=3)
    axis.set_yticks(range(3), ["PPI5K", "NL27K", "CN15K"])
    axis.set(xlim=(0, 1.12))
    axis.invert_yaxis()
    axis.legend(*(list(one)[:3] for one in axis.get_legend_handles_labels()), fontsize=8, frameon=False)
    return figure


def equation(text: str) -> Figure:
    """An equation in black on white."""
    figure = Figure(figsize=(0.01, 0.01), facecolor="white")
    figure.text(0, 0, text, fontsize=15)
    return figure


def pictures(quick: bool) -> Iterator[tuple[str, Callable[[], Figure | None]]]:
    """Every picture's name and how it is drawn."""
    yield from (("concept-layer", layer), ("concept-pull", pull), ("concept-labels", dial))
    for name, text in EQUATIONS.items():
        yield name, lambda text=text: equation(text)  # type: ignore[misc]
    if quick:
        return
    graph = careers()
    models = {"plain ComplEx": PLAIN, "FocusE ComplEx": FOCUSED, "ComplEx, labels": LABELS}
    runs = {name: train(graph, seed=0, progress=False, **settings) for name, settings in models.items()}
    labelled = runs["ComplEx, labels"]
    yield "concept-deciles", lambda: tenths(runs)
    yield "concept-numbers", lambda: numbers(labelled)
    yield "concept-filtered", lambda: filtering(labelled)
    yield "concept-leaks", leaks


def main(quick: bool, folder: Path = IMAGES) -> None:
    """Draw them all."""
    matplotlib.rcParams.update({"mathtext.fontset": "stix", "svg.fonttype": "path"})
    for name, draw in pictures(quick):
        figure = draw()
        if figure is None:
            print(f"{name}: left as it is, its graphs are not at hand (FOCUSE_DATA)")
            continue
        tight = {"savefig.bbox": "tight", "savefig.pad_inches": 0.08} if name.startswith("equation") else {}
        with matplotlib.rc_context(tight):
            (folder / f"{name}.svg").write_text(figure_svg(figure), encoding="utf-8")
        print(name)


if __name__ == "__main__":
    main("--quick" in sys.argv[1:], Path(sys.argv[-1]) if sys.argv[-1][:2] != "--" and len(sys.argv) > 1 else IMAGES)
