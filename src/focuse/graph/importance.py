"""How much of a weight column a graph's structure can tell: the importance that a column gets if none is given.

Training sees nothing of an edge but its two entities and its relation. A column that does not depend on them can be
learnt by no model; mixed into the others it would only blur them. So each column is judged by how well the edges held
out can be predicted from the others, with effects of the relation, the head, the tail, the two pairs of them and the
two entities together (which holds inverse edges and other relations of the same pair). Each effect is a mean of its
group, shrunken by how much groups differ at all beyond chance (empirical Bayes): of pure noise nothing is left.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from focuse.graph.graph import Graph, Weights

FOLDS = 5
SWEEPS = 2  # times that all effects are fitted, each to what the others leave
MOST_ROWS = 500_000
# Shares of variance below these count as chance: of noise in n rows more than 12 / n is told once in a hundred times.
LEAST, CHANCE = 0.01, 12.0
TELLING = 0.05  # shares below this are too small to set one column above another
STREAM = 0x1A90  # place of the random stream that makes folds

Groups = list[tuple[npt.NDArray[np.intp], int]]  # of an effect: the group of each row, and how many there are


def learn_importance(columns: list[tuple[Graph, Weights]], seed: int = 0) -> tuple[Weights, Weights]:
    """Importances [C] that sum to 1, and the share of each column's variance that the structure explains [C].

    A column is a graph of the edges that have it and its shares [n] in [0, 1]. If nothing explains much of any of
    them, all are of the same importance.
    """
    explained = np.array([explained_share(graph, share, seed) for graph, share in columns])
    if explained.max() < TELLING:
        return np.full(len(columns), 1 / len(columns)), explained
    return explained / explained.sum(), explained


def explained_share(graph: Graph, share: Weights, seed: int = 0) -> float:
    """The share in [0, 1] of the variance of `share` [n] that the other edges of the graph tell (R² out of fold).

    What may be chance is 0.

    >>> from focuse.graph import read
    >>> graph = read([(f"h{i % 20}", "r", f"t{i // 20}", i % 20) for i in range(400)])
    >>> explained_share(graph, graph.weight / 19) > 0.9
    True
    >>> explained_share(graph, np.random.default_rng(0).random(400)) < 0.05
    True
    """
    random = np.random.default_rng([seed, STREAM])
    if len(graph) > MOST_ROWS:
        rows = np.sort(random.choice(len(graph), MOST_ROWS, replace=False))
        graph, share = graph.select(rows), share[rows]
    if len(graph) < 2 * FOLDS or np.ptp(share) == 0:
        return 0.0
    # Repeats of a triple fall into one fold: that a number stands there twice is not structure.
    distinct, triple = np.unique(graph.keys, return_inverse=True)
    fold = (random.permutation(len(distinct)) % FOLDS)[triple]
    groups = _groups(graph)
    predicted = np.empty(len(share))
    for number in range(FOLDS):
        held = fold == number
        if held.any():
            predicted[held] = _predict(groups, share, ~held)[held]
    # Against the mean of the other folds, as a guess without structure would have it.
    sums, counts = np.bincount(fold, share, FOLDS), np.bincount(fold, minlength=FOLDS)
    elsewhere = ((share.sum() - sums) / np.maximum(len(share) - counts, 1))[fold]
    unexplained = np.square(share - predicted).sum() / np.square(share - elsewhere).sum()
    told = float(1 - unexplained)
    return told if told >= max(LEAST, CHANCE / len(share)) else 0.0


def _groups(graph: Graph) -> Groups:
    """The groups of rows that each effect belongs to, the coarse ones first."""
    entities, relations = len(graph.entities), len(graph.relations)
    head, kind, tail = (ids.astype(np.int64) for ids in (graph.head, graph.relation, graph.tail))
    low, high = np.minimum(head, tail), np.maximum(head, tail)
    result = []
    for key in (kind, head, tail, head * relations + kind, tail * relations + kind, low * entities + high):
        distinct, group = np.unique(key, return_inverse=True)
        result.append((group, len(distinct)))
    return result


def _predict(groups: Groups, share: Weights, fitted: npt.NDArray[np.bool_]) -> Weights:
    """The share of every row [n], from the rows that are `fitted` bool [n]."""
    mean = share[fitted].mean()
    effects = [np.zeros(count) for _, count in groups]
    left = share[fitted] - mean
    inside = [group[fitted] for group, _ in groups]
    for _ in range(SWEEPS):
        for place, (_, count) in enumerate(groups):
            left += effects[place][inside[place]]
            effects[place] = shrunken_means(left, inside[place], count)
            left -= effects[place][inside[place]]
    total: Weights = np.full(len(share), mean)
    for effect, (group, _) in zip(effects, groups, strict=True):
        total += effect[group]
    return total


def shrunken_means(values: Weights, group: npt.NDArray[np.intp], groups: int) -> Weights:
    """The mean of each group's values [n] drawn towards 0, the more the less groups differ beyond chance; [groups].

    m · nτ² / (nτ² + σ²) for a group of n with mean m, where the variances within (σ²) and between groups (τ²) are
    estimated by the analysis of variance.
    """
    count = np.bincount(group, minlength=groups)
    mean = np.bincount(group, values, groups) / np.maximum(count, 1)
    seen, rows = int((count > 0).sum()), len(values)
    if seen < 2 or rows <= seen:
        return np.zeros(groups)
    within = np.square(values - mean[group]).sum() / (rows - seen)
    among = (count * np.square(mean - values.mean())).sum() / (seen - 1)
    size = (rows - np.square(count).sum() / rows) / (seen - 1)
    between = max((among - within) / size, 0.0)
    if between == 0.0:
        return np.zeros(groups)
    signal = count * between
    kept = np.divide(signal, signal + within, out=np.zeros(groups), where=signal > 0)
    shrunken: Weights = mean * kept
    return shrunken
