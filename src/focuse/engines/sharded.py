"""The sharded engine, in which each process holds a shard of the entity table.

Each process computes its part of every batch, requests the rows that it needs from their owners and sends their
gradients back. The gradients of relations and shared parameters are summed over all processes, which then take the same
step. So a step is equal to that of the autograd engine up to rounding, for any number of processes. In ranking, each
process scores the rows of its shard; only the row of a query's known entity, the score of its target and the counts of
competitors are communicated.

Rows are exchanged by TorchRec if it is installed, the optimizer is sparse-adagrad and the processes compute on CPUs.
Otherwise `EmbeddingExchange` exchanges them with torch.distributed. This fallback is needed for sparse-adam, which is
the default optimizer of TransE and RotatE and which fbgemm does not compute on CPUs; because TorchRec requires a CUDA
build of fbgemm and can be installed for CPUs only with `pip install --no-deps`; and for scoring tables that are not
trained. Two gloo processes compute equal losses either way, and the fallback takes 5 to 16 % less time per step
(docs/distributed.md).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.engines.autograd import AutogradEngine, TableView
from focuse.engines.base import FusableOptimizer, Gradients, Step, TableOptimizer
from focuse.engines.process_group import ProcessGroup, shard_slice
from focuse.engines.scorer import StrengthScorer, TableScorer, Targets, count_local_competitors
from focuse.errors import install_command
from focuse.models.base import Model, Side, Table
from focuse.objective.negatives import Batch, Negatives

# ---- exchange of rows and gradients --------------------------------------------------------------------------------


class RowRequest(NamedTuple):
    """How many rows this process requests from each other one (`send`), and which rows are requested from it.

    Process p requests `receive[p]` rows from this one; `asked` [Σ receive] holds their ids.
    """

    send: list[int]
    receive: list[int]
    asked: Tensor


class EmbeddingExchange:
    """This process's shard of a table of `size` rows: `rows` [n, d], which are the rows `first` to `last` − 1."""

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
        return {"entity": (distinct - self.first, total)}

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
        rows = self.rows.index_select(0, request.asked - self.first)
        return self.group.all_to_all(rows, request.receive, request.send)


TORCHREC_MODULES = (
    "fbgemm_gpu.split_embedding_configs",
    "torchrec.distributed.embedding",
    "torchrec.sparse.jagged_tensor",
)
TORCHREC_INSTALL = f"{install_command('distributed')} && pip install --no-deps torchrec==1.9.2"


def torchrec_unavailable(optimizer: TableOptimizer, device: torch.device) -> str:
    """Return why TorchRec cannot be used with this optimizer on this device, or '' if it can."""
    if device.type != "cpu":
        return "it is used on CPUs only"
    if not (isinstance(optimizer, FusableOptimizer) and optimizer.spec.method == "adagrad"):
        return "TorchRec requires the optimizer 'sparse-adagrad'"
    if find_spec("torchrec") is None or find_spec("fbgemm_gpu") is None:
        return f"TorchRec is not installed ({TORCHREC_INSTALL})"
    return _import_failure()


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


# ---- the engine ---------------------------------------------------------------------------------------------------


class ExchangedTableView(TableView):
    """A view of the entity rows in this process's part of a batch, gathered from the processes that own them.

    If `count_once` is True, each touched row is regularized by one process only.
    """

    def __init__(self, exchange: EmbeddingExchange, count_once: bool) -> None:
        super().__init__(exchange.rows)
        self.exchange, self.count_once = exchange, count_once

    def gather(self, ids: Tensor | None) -> None:
        if ids is None:
            raise ValueError("the sharded engine does not support steps that touch every entity")
        self.ids = torch.unique(ids)
        self.leaf = self.values = self.exchange.gather_rows(self.ids).requires_grad_()
        self.counted = self.exchange.is_lowest_rank(self.ids) if self.count_once else None

    def touched(self) -> Tensor:
        """Return the rows that this process regularizes; a row that several processes touch is regularized by one."""
        return self.leaf if self.counted is None else self.leaf[self.counted]


class ReplicatedTableView(TableView):
    """A view of the rows that the whole batch touches, of a replicated table; the main process regularizes them."""

    def __init__(self, table: Tensor, batch_ids: Tensor, is_main: bool) -> None:
        super().__init__(table)
        self.batch_ids, self.is_main = batch_ids, is_main

    def gather(self, ids: Tensor | None) -> None:
        super().gather(self.batch_ids)

    def touched(self) -> Tensor:
        return self.leaf if self.is_main else self.leaf[:0]


class ShardedScorer(TableScorer):
    """A scorer over an entity table of which this process holds a shard; all processes must make every call."""

    def __init__(
        self,
        model: Model,
        tables: Mapping[str, Tensor],
        exchange: EmbeddingExchange,
        inverse_relations: bool = False,
    ) -> None:
        super().__init__(model, tables, inverse_relations)
        self.exchange, self.group, self.num_entities = exchange, exchange.group, exchange.size

    @property
    def entities(self) -> int:
        return self.num_entities

    @torch.no_grad()
    def rows(self, table: Table, ids: Tensor) -> Tensor:
        """Return the encoded embeddings of `ids`: [...] -> [..., d]."""
        if table != "entity":
            return super().rows(table, ids)
        distinct, place = torch.unique(ids, return_inverse=True)
        found = self.exchange.fetch(distinct)
        if self.has_attributes or self.model.encoder is not None:
            found = self.encode(self.model, found, self.tables["relation"], distinct)[0]
        return F.embedding(place, found)

    def _held_ids(self) -> Tensor:
        return torch.arange(self.exchange.first, self.exchange.last, device=self.device)

    @torch.no_grad()
    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Return one score per triple, ids [B] -> [B]; each process computes a part of them."""
        part = self.group.shard(len(head))
        return self.group.all_gather(super().score(head[part], relation[part], tail[part]), len(head))

    @torch.no_grad()
    def score_some(self, known: Tensor, relation: Tensor, entities: Tensor, side: Side) -> Tensor:
        part = self.group.shard(len(known))
        found = super().score_some(known[part], relation[part], entities[part], side)
        return self.group.all_gather(found, len(known))

    @torch.no_grad()
    def score_all(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Return the scores of every entity on `side` in every process: ids [B] -> [B, E]. Use it for few queries."""
        found = self.local_scores(known, relation, side)
        return self.group.all_gather(found.T.contiguous(), self.num_entities).T

    def local_scores(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Return the scores of the entities in this process's shard: ids [B] -> [B, s]."""
        return super().score_all(known, relation, side)

    @torch.no_grad()
    def count_competitors(self, known: Tensor, relation: Tensor, side: Side, targets: Targets) -> tuple[Tensor, Tensor]:
        """Return the counts int64 [n, 4] of `scorer.count_competitors`, and the scores of the targets [n]."""
        scores = self.local_scores(known, relation, side)
        query = targets.query
        row = targets.target - self.exchange.first
        here = (row >= 0) & (row < scores.shape[1])
        target_scores = scores.new_zeros(len(row))
        target_scores[here] = scores[query[here], row[here]]
        self.group.all_reduce(target_scores)
        counts = count_local_competitors(scores, target_scores, targets, self.exchange.first, self.num_entities)
        finite = torch.isfinite(scores).all(1)[query]
        table = self.group.all_reduce(torch.cat([counts, (~finite).long()[:, None]], dim=1))
        table[table[:, 4] > 0] = -1
        return table[:, :4], target_scores


class ShardedStrengthScorer(ShardedScorer):
    """The same over tables that several processes share."""

    def __init__(self, likely: ShardedScorer, weights: ShardedScorer, exponent: float) -> None:
        super().__init__(likely.model, likely.tables, likely.exchange, likely.side_dependent)
        self.joined = StrengthScorer(likely, weights, exponent)
        self.local, self.local_weights = likely.local_scores, weights.local_scores

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return self.joined.score(head, relation, tail)

    def score_all(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return self.joined.score_all(known, relation, side)

    def score_some(self, known: Tensor, relation: Tensor, entities: Tensor, side: Side) -> Tensor:
        return self.joined.score_some(known, relation, entities, side)

    def local_scores(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return self.joined.join(
            self.local(known, relation, side), F.logsigmoid(self.local_weights(known, relation, side))
        )


class ShardedEngine(AutogradEngine):
    """An engine whose entity table is this process's shard [n, d] of all `entities`; other tables are whole."""

    fallback_message = "rows are exchanged by torch.distributed; TorchRec could exchange them"

    def __init__(
        self,
        model: Model,
        tables: Mapping[str, Tensor],
        optimizer: TableOptimizer,
        inverse_relations: bool,
        group: ProcessGroup,
        entities: int,
    ) -> None:
        self.group, self.num_entities = group, entities
        self.fallback_reason = self._torchrec_unavailable(optimizer, tables["entity"].shape[1])
        shard = tables["entity"], entities, group
        self.exchange = (
            EmbeddingExchange(*shard) if self.fallback_reason else TorchRecExchange(*shard, optimizer=optimizer)
        )
        super().__init__(model, {**tables, "entity": self.exchange.rows}, optimizer, inverse_relations)
        self._batch_relations = tables["relation"].new_empty(0, dtype=torch.int64)
        self._count_once = False

    def _torchrec_unavailable(self, optimizer: TableOptimizer, width: int) -> str:
        """Return why TorchRec cannot be used, or '' if it can; if one process cannot use it, no process does."""
        reason = torchrec_unavailable(optimizer, self.group.device)
        if width % 4:
            reason = reason or f"TorchRec needs rows of a multiple of 4 numbers, not {width}"
        last = shard_slice(self.num_entities, self.group.size - 1, self.group.size)
        if last.start == last.stop:
            reason = reason or f"TorchRec needs a row for each of the {self.group.size} processes"
        elsewhere = self.group.any_rank(bool(reason))
        return reason or ("TorchRec cannot be used in another process" if elsewhere else "")

    @staticmethod
    def unsupported_reason(model: Model) -> str:
        """Return why this engine does not support the model, or '' if it does."""
        if model.encoder is not None and not model.encoder.rowwise:
            return f"{model.name} encodes entities from the whole table"
        return f"{model.name} needs the whole batch" if "whole batch" in model.requires else ""

    @property
    def entities(self) -> int:
        return self.num_entities

    def make_scorer(self, model: Model, tables: Mapping[str, Tensor]) -> ShardedScorer:
        shard = tables["entity"]
        trained = shard is self.exchange.rows
        exchange = self.exchange if trained else EmbeddingExchange(shard, self.num_entities, self.group)
        return ShardedScorer(model, tables, exchange, self.inverse_relations)

    # ---- one training step ----------------------------------------------------------------------------------------

    def table_view(self, name: str) -> TableView:
        if name == "entity":
            return ExchangedTableView(self.exchange, self._count_once)
        if name == "relation":
            return ReplicatedTableView(self.tables[name], self._batch_relations, self.group.is_main)
        return super().table_view(name)

    def step(self, step: Step) -> float:
        """Take one step; every process is given the whole batch and computes its part of it."""
        batch = step.positives
        part = self.group.shard(len(batch))
        self._batch_relations = self.relation_ids(step)
        self._count_once = step.regularizer is not None and step.regularizer.scope != "rows"
        if part.start < part.stop:
            positives = Batch(*(column[part] for column in (batch.head, batch.relation, batch.tail, batch.weight)))
            negatives = [_shard_negatives(group, part) for group in step.negatives]
            loss, total, views = self.compute_loss(replace(step, positives=positives, negatives=negatives))
            total.backward()  # type: ignore[no-untyped-call]
            losses = torch.stack([loss, total]).detach()
        else:  # fewer triples than processes: this process has no part, but must take part in the exchange
            views = {name: self.table_view(name) for name in self.tables if name not in self.model.buffers}
            for name in ("entity", "relation"):
                views[name].gather(self._batch_relations[:0])
            losses = views["entity"].leaf.new_zeros(2)
        return self._update(losses, views)

    def _update(self, losses: Tensor, views: Mapping[str, TableView]) -> float:
        """Sum the gradients over all processes and update; `losses` are this process's loss and minimized total."""
        gradients = {name: view.gradient() for name, view in views.items()}
        entity_gradient = gradients.pop("entity")
        flat = self.group.all_reduce(torch.cat([losses, *(gradient.flatten() for gradient in gradients.values())]))
        loss, minimized = flat[:2].tolist()
        if not math.isfinite(minimized):
            raise FloatingPointError(f"the loss is {minimized}")
        summed = torch.split(flat[2:], [gradient.numel() for gradient in gradients.values()])
        replicated = {
            name: (views[name].ids, total.view(gradient.shape))
            for (name, gradient), total in zip(gradients.items(), summed, strict=True)
        }
        self.optimizer.update({**self.exchange.scatter_gradients(entity_gradient), **replicated})
        self.scorer.invalidate()
        return float(loss)


def _shard_negatives(group: Negatives, part: slice) -> Negatives:
    """Return the negatives of a part of the batch; a shared pool is the same for all parts."""
    entities = group.entities
    if entities is None:
        raise ValueError("the sharded engine does not support steps that touch every entity")
    facts = group.known
    if facts is not None:
        inside = (facts[0] >= part.start) & (facts[0] < part.stop)
        facts = facts[0][inside] - part.start, facts[1][inside]
    return replace(
        group,
        entities=entities if entities.dim() == 1 else entities[part],
        replaces_tail=None if group.replaces_tail is None else group.replaces_tail[part],
        mask=None if group.mask is None else group.mask[part],
        target=None if group.target is None else group.target[part],
        known=facts,
    )
