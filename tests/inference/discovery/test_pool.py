"""The bounded pool against sorting everything."""

import numpy as np
import torch

from focuse.inference.discovery.pool import Pool


def test_the_best_of_blocks_are_the_best_of_all() -> None:
    random = np.random.default_rng(0)
    for size in (1, 3, 50, 400, 5000):
        scores = random.integers(0, 30, 3000).astype(np.float32)  # many ties
        keys = random.permutation(3000)
        pool, held = Pool(size), 0
        for start in range(0, 3000, 170):
            pool.add(torch.from_numpy(scores[start : start + 170]), torch.from_numpy(keys[start : start + 170]))
            held = max(held, pool._held)
        found = pool.best()
        order = np.lexsort((keys, -scores))[:size]
        assert found[1].tolist() == keys[order].tolist()
        assert found[0].tolist() == scores[order].tolist()
        assert held <= 2 * size + 170


def test_a_block_of_equal_scores_keeps_the_smallest_keys() -> None:
    pool = Pool(2)
    pool.add(torch.zeros(100), torch.arange(100, 0, -1))
    assert pool.best()[1].tolist() == [1, 2]
    assert pool.bar == 0.0
    assert Pool(3).best()[0].tolist() == []
