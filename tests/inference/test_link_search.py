"""The best links of blocks, compared with sorting everything."""

import numpy as np
import torch

from focuse.inference.link_search import TopLinks, _keep_best


def test_the_best_of_blocks_are_the_best_of_all() -> None:
    random = np.random.default_rng(0)
    for size in (1, 3, 50, 400, 5000):
        scores = random.integers(0, 30, 3000).astype(np.float32)  # many ties
        keys = random.permutation(3000)
        top, held = TopLinks(size), 0
        for start in range(0, 3000, 170):
            top.add(torch.from_numpy(scores[start : start + 170]), torch.from_numpy(keys[start : start + 170]))
            held = max(held, top._count)
        found = top.best()
        order = np.lexsort((keys, -scores))[:size]
        assert found[1].tolist() == keys[order].tolist()
        assert found[0].tolist() == scores[order].tolist()
        assert held <= 2 * size + 170


def test_a_block_of_equal_scores_keeps_the_smallest_keys() -> None:
    top = TopLinks(2)
    top.add(torch.zeros(100), torch.arange(100, 0, -1))
    assert top.best()[1].tolist() == [1, 2]
    assert top.threshold == 0.0
    assert TopLinks(3).best()[0].tolist() == []


def test_strong_heads_leave_room_for_other_heads() -> None:
    scores = torch.rand(500, 1000, generator=torch.Generator().manual_seed(0))
    scores[:3] += 100
    top = TopLinks(20)
    _keep_best(top, scores, torch.arange(500), torch.arange(1000), 1000, 1)
    assert len(set((top.best()[1] // 1000).tolist())) == 20
