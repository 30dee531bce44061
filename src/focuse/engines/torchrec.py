"""Rows exchanged by TorchRec: an embedding collection sharded by rows, whose optimiser is fused with the way back."""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from focuse.engines.base import Gradients, OpenOptimiser, TableOptimiser
from focuse.engines.company import Company
from focuse.engines.exchange import Exchange

USED = ("fbgemm_gpu.split_embedding_configs", "torchrec.distributed.embedding", "torchrec.sparse.jagged_tensor")
INSTALL = "pip install 'focuse[distributed]' && pip install --no-deps torchrec==1.9.2"


def lacks(optimiser: TableOptimiser | None) -> str:
    """Why TorchRec cannot serve, '' if it can."""
    if find_spec("torchrec") is None or find_spec("fbgemm_gpu") is None:
        return f"TorchRec is not installed ({INSTALL})"
    if optimiser is not None and not (isinstance(optimiser, OpenOptimiser) and optimiser.rule.method == "adagrad"):
        return "its fused optimisers for CPUs hold none like ours but row-adagrad"
    return "" if optimiser is None else _broken()


@cache
def _broken() -> str:
    """Why TorchRec cannot be imported, '' if it can; of another version, or without its GPU, it may raise anything."""
    try:
        for name in USED:
            import_module(name)
    except Exception as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return f"TorchRec cannot be imported: {said} ({INSTALL})"
    return ""


class TorchRecExchange(Exchange):
    """TorchRec's table in place of ours: `rows` and the sums of squares of `optimiser` become views of it."""

    title = "TorchRec"

    def __init__(self, rows: Tensor, size: int, company: Company, optimiser: Any) -> None:
        super().__init__(rows, size, company)
        rule, key = optimiser.rule, "entity.sum"
        self.collection = _collection(size, rows.shape[1], company, rule.lr, rule.eps)
        table, moments = _local(self.collection)
        for held, given in ((table, rows), (moments, optimiser.parts_of[key])):
            held.copy_(given)
        self.rows = optimiser.tables["entity"] = table
        optimiser.parts_of[key] = moments

    def fetch(self, ids: Tensor) -> Tensor:
        with torch.no_grad():
            return self._look_up(ids).detach()

    def borrow(self, ids: Tensor) -> Tensor:
        self.borrowed = self._look_up(ids)
        return self.borrowed.detach()

    def give_back(self, gradient: Tensor) -> Gradients:
        """The owners step while gradients arrive; nothing is left for our optimiser."""
        self.borrowed.backward(gradient)  # type: ignore[no-untyped-call]
        return {}

    def _look_up(self, ids: Tensor) -> Tensor:
        from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

        lengths = torch.tensor([len(ids)], device=ids.device)
        found: Tensor = self.collection(KeyedJaggedTensor(["entity"], ids, lengths=lengths))["entity"].values()
        return found


def _collection(size: int, width: int, company: Company, lr: float, eps: float) -> Any:
    """A table [size, width] cut into rows for everyone, with Adagrad fused."""
    logging.getLogger("torch.fx._symbolic_trace").setLevel(logging.ERROR)  # a hint for TorchRec, not for its users
    import torch.distributed as dist
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from torchrec.distributed import comm_ops
    from torchrec.distributed.embedding import EmbeddingCollectionSharder
    from torchrec.distributed.embedding_types import EmbeddingComputeKernel
    from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise
    from torchrec.distributed.types import ShardingEnv
    from torchrec.modules.embedding_configs import EmbeddingConfig
    from torchrec.modules.embedding_modules import EmbeddingCollection

    comm_ops.set_gradient_division(False)  # losses are summed over processes, as over the rows of a batch
    table = EmbeddingConfig(num_embeddings=size, embedding_dim=width, name="entity", feature_names=["entity"])
    whole = EmbeddingCollection(tables=[table], device=torch.device("meta"))
    fused = {"optimizer": EmbOptimType.EXACT_ADAGRAD, "learning_rate": lr, "eps": eps}
    sharder = EmbeddingCollectionSharder(fused_params=fused, use_index_dedup=False)
    plan = construct_module_sharding_plan(
        whole,
        {"entity": row_wise(compute_kernel=EmbeddingComputeKernel.FUSED.value)},
        sharder,
        local_size=company.count,
        world_size=company.count,
        device_type=company.device.type,
    )
    if dist.group.WORLD is None:
        raise ValueError("TorchRec needs a company that has met")
    return sharder.shard(whole, plan, ShardingEnv.from_process_group(dist.group.WORLD), company.device)


def _local(collection: Any) -> tuple[Tensor, Tensor]:
    """This process's rows and its sums of squared gradients, both [n, d], as the collection holds them."""
    modules = [module for lookup in collection._lookups for module in lookup.modules()]
    fused = next(module for module in modules if hasattr(module, "split_optimizer_states"))
    table = fused.split_embedding_weights()[0].detach()
    return table, fused.split_optimizer_states()[0][0].detach().view(table.shape)
