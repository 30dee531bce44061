"""The exchange of embedding rows and gradients between the processes that shard a table.

`EmbeddingExchange` needs only torch.distributed and works with all row-wise optimizers. `TorchRecExchange` stores the
table in TorchRec, which fuses the optimizer with the exchange of gradients.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from focuse.engines.base import FusableOptimizer, Gradients, TableOptimizer
from focuse.engines.process_group import ProcessGroup


@dataclass(frozen=True)
class RowRequest:
    """The rows that the processes request from each other.

    This process requests `send[p]` rows from process p, and process p requests `receive[p]` rows from this one; `asked`
    [Σ receive] holds the ids of the rows that are requested from this process.
    """

    send: list[int]
    receive: list[int]
    asked: Tensor


class EmbeddingExchange:
    """The shard of a table of `size` rows that this process owns: `rows` [last − first, d] from `first` to `last` − 1.

    The shard may be in main memory while the step is computed on a GPU; then only the rows of a step are copied.
    """

    title = "torch.distributed"

    def __init__(self, rows: Tensor, size: int, group: ProcessGroup) -> None:
        self.rows, self.size, self.group = rows, size, group
        own = group.shard(size)
        self.first, self.last = own.start, own.stop
        if len(rows) != self.last - self.first:
            raise ValueError(f"expected the {self.last - self.first} rows of this process's shard, found {len(rows)}")

    def fetch(self, ids: Tensor) -> Tensor:
        """Return the rows of ascending, distinct ids for reading: [U] -> [U, d]."""
        return self._rows(self._request(ids))

    def gather_rows(self, ids: Tensor) -> Tensor:
        """Return the rows of ascending, distinct ids for a step: [U] -> [U, d]; see `scatter_gradients`."""
        self.request = self._request(ids)
        return self._rows(self.request)

    def scatter_gradients(self, gradient: Tensor) -> Gradients:
        """Send the gradient of the gathered rows [U, d] to their owners; return the gradients of the local rows."""
        request = self.request
        received = self.group.all_to_all(gradient, request.send, request.receive)
        distinct, place = torch.unique(request.asked, return_inverse=True)
        total = received.new_zeros(len(distinct), received.shape[1]).index_add_(0, place, received)
        return {"entity": ((distinct - self.first).to(self.rows.device), total.to(self.rows.device))}

    def is_lowest_rank(self, ids: Tensor) -> Tensor:
        """Return for which ids this process has the lowest rank of those that requested them: [U] -> bool [U].

        A regularizer that uses this mask counts every id once.
        """
        request = self._request(ids)
        distinct, place = torch.unique(request.asked, return_inverse=True)
        every = torch.arange(len(place), device=place.device)
        first = torch.full_like(distinct, len(place)).scatter_reduce_(0, place, every, "amin")
        answer = (first[place] == every).to(torch.uint8)
        return self.group.all_to_all(answer, request.receive, request.send).bool()

    def _request(self, ids: Tensor) -> RowRequest:
        group = self.group
        length = -(-self.size // group.size)
        bounds = torch.arange(group.size + 1, device=ids.device) * length
        send = torch.searchsorted(ids, bounds).diff()
        ones = [1] * group.size
        receive = group.all_to_all(send, ones, ones)
        send_counts, receive_counts = torch.stack([send, receive]).tolist()
        return RowRequest(send_counts, receive_counts, group.all_to_all(ids, send_counts, receive_counts))

    def _rows(self, request: RowRequest) -> Tensor:
        local = (request.asked - self.first).to(self.rows.device)
        rows = self.rows.index_select(0, local).to(request.asked.device, non_blocking=True)
        return self.group.all_to_all(rows, request.receive, request.send)


# ---- TorchRec --------------------------------------------------------------------------------------------------------

TORCHREC_MODULES = (
    "fbgemm_gpu.split_embedding_configs",
    "torchrec.distributed.embedding",
    "torchrec.sparse.jagged_tensor",
)
TORCHREC_INSTALL = "pip install 'focuse[distributed]' && pip install --no-deps torchrec==1.9.2"


def torchrec_unavailable(optimizer: TableOptimizer | None) -> str:
    """Return why TorchRec cannot be used with this optimizer, or '' if it can."""
    if find_spec("torchrec") is None or find_spec("fbgemm_gpu") is None:
        return f"TorchRec is not installed ({TORCHREC_INSTALL})"
    if optimizer is not None and not (isinstance(optimizer, FusableOptimizer) and optimizer.spec.method == "adagrad"):
        return "among its fused CPU optimizers, only that of sparse-adagrad computes the same steps"
    return "" if optimizer is None else _import_failure()


@cache
def _import_failure() -> str:
    """Return why TorchRec cannot be imported, or '' if it can; importing another version may raise any exception."""
    try:
        for name in TORCHREC_MODULES:
            import_module(name)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return f"TorchRec cannot be imported: {reason} ({TORCHREC_INSTALL})"
    return ""


class TorchRecExchange(EmbeddingExchange):
    """An exchange over TorchRec's table; `rows` and the sums of squares of `optimizer` become views of it."""

    title = "TorchRec"

    def __init__(self, rows: Tensor, size: int, group: ProcessGroup, optimizer: Any) -> None:
        super().__init__(rows, size, group)
        spec, key = optimizer.spec, "entity.sum"
        self.collection = _embedding_collection(size, rows.shape[1], group, spec.lr, spec.eps)
        table, moments = _local_tensors(self.collection)
        for view, values in ((table, rows), (moments, optimizer.moment_tables[key])):
            view.copy_(values)
        self.rows = optimizer.tables["entity"] = table
        optimizer.moment_tables[key] = moments

    def fetch(self, ids: Tensor) -> Tensor:
        with torch.no_grad():
            return self._look_up(ids).detach()

    def gather_rows(self, ids: Tensor) -> Tensor:
        self.gathered = self._look_up(ids)
        return self.gathered.detach()

    def scatter_gradients(self, gradient: Tensor) -> Gradients:
        """Send the gradients to the owners, where TorchRec updates the rows; nothing is left for the optimizer."""
        self.gathered.backward(gradient)  # type: ignore[no-untyped-call]
        return {}

    def _look_up(self, ids: Tensor) -> Tensor:
        from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

        lengths = torch.tensor([len(ids)], device=ids.device)
        found: Tensor = self.collection(KeyedJaggedTensor(["entity"], ids, lengths=lengths))["entity"].values()
        return found


def _embedding_collection(size: int, width: int, group: ProcessGroup, lr: float, eps: float) -> Any:
    """Return a TorchRec collection with one table [size, width], sharded by rows, with fused Adagrad."""
    logging.getLogger("torch.fx._symbolic_trace").setLevel(logging.ERROR)  # its warnings do not concern users
    import torch.distributed as dist
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from torchrec.distributed import comm_ops
    from torchrec.distributed.embedding import EmbeddingCollectionSharder
    from torchrec.distributed.embedding_types import EmbeddingComputeKernel
    from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise
    from torchrec.distributed.types import ShardingEnv
    from torchrec.modules.embedding_configs import EmbeddingConfig
    from torchrec.modules.embedding_modules import EmbeddingCollection

    comm_ops.set_gradient_division(False)  # losses are summed over processes, not averaged
    table = EmbeddingConfig(num_embeddings=size, embedding_dim=width, name="entity", feature_names=["entity"])
    whole = EmbeddingCollection(tables=[table], device=torch.device("meta"))
    fused = {"optimizer": EmbOptimType.EXACT_ADAGRAD, "learning_rate": lr, "eps": eps}
    sharder = EmbeddingCollectionSharder(fused_params=fused, use_index_dedup=False)
    plan = construct_module_sharding_plan(
        whole,
        {"entity": row_wise(compute_kernel=EmbeddingComputeKernel.FUSED.value)},
        sharder,
        local_size=group.size,
        world_size=group.size,
        device_type=group.device.type,
    )
    if dist.group.WORLD is None:
        raise ValueError("TorchRec needs an initialized process group")
    return sharder.shard(whole, plan, ShardingEnv.from_process_group(dist.group.WORLD), group.device)


def _local_tensors(collection: Any) -> tuple[Tensor, Tensor]:
    """Return this process's rows and its sums of squared gradients, both [n, d], as views of the collection."""
    modules = [module for lookup in collection._lookups for module in lookup.modules()]
    fused = next(module for module in modules if hasattr(module, "split_optimizer_states"))
    table = fused.split_embedding_weights()[0].detach()
    return table, fused.split_optimizer_states()[0][0].detach().view(table.shape)
