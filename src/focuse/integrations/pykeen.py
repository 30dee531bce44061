"""FocusE inside PyKEEN (Ali et al., 2021), for those who stay there: edge weights, a loss, and β's decay.

    weights = EdgeWeights.of(training, "graph.tsv")      # the weight of each training triple, in [0, 1]
    loss = FocusELoss(beta_decay_epochs=50)              # focuse's layer, then one of focuse's losses
    pipeline(training=training, …, loss=loss, training_loop_kwargs={"loss_weighter": weights},
             training_kwargs={"num_epochs": 100, "callbacks": loss.callback()})

The equations are those of focuse.objective.focuse: PyKEEN's scores go through the layer, with the positive's weight
for the positive and for all its corruptions. It works in both of PyKEEN's training loops. In sLCWA the negatives are
what PyKEEN's sampler draws, without those that its filter takes out; in LCWA a positive's negatives are all entities
that PyKEEN labels 0 in its row. The extra `pykeen` brings PyKEEN.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from focuse.data.graph import Graph, Vocabulary, isin_sorted
from focuse.data.readers import read
from focuse.data.triple_index import find_sorted_tensor, id_tensors
from focuse.data.weights import default_normalizer, fit_normalizer
from focuse.errors import FocuseError, install_command
from focuse.objective.focuse import FocusELayer
from focuse.objective.losses import FocusedLoss, make_loss, takes_weights
from focuse.option_strings import choose

try:
    from pykeen.losses import Loss, UnsupportedLabelSmoothingError
    from pykeen.training.callbacks import TrainingCallback
    from pykeen.triples.weights import LossWeighter
except ImportError as error:
    raise ImportError(f"focuse.integrations.pykeen needs PyKEEN ({error}); {install_command('pykeen')}") from None


class EdgeWeights(LossWeighter):  # type: ignore[misc]
    """The weights of triples, looked up by ids; NaN for a triple that is not known.

    `triples` int64 [n, 3] are those that PyKEEN trains on (with inverse ones, if it makes such), `weight` [n] their
    weights in [0, 1].
    """

    def __init__(self, triples: Tensor, weight: Tensor, entities: int, relations: int) -> None:
        if weight.shape != triples.shape[:1]:
            raise FocuseError(f"EdgeWeights: {len(triples):,} triples have {weight.numel():,} weights; give one each")
        sizes = torch.tensor([entities, relations, entities], device=triples.device)
        if not bool(((triples >= 0) & (triples < sizes)).all()):
            raise FocuseError(f"EdgeWeights: ids reach beyond {entities:,} entities or {relations:,} relations")
        if not bool(((weight >= 0) & (weight <= 1)).all()):
            raise FocuseError("EdgeWeights: weights must lie in [0, 1]; EdgeWeights.of normalizes them")
        self.entities, self.relations = entities, relations
        self.keys, order = torch.sort(self._keys(*triples.unbind(-1)))
        self.weight = weight.to(torch.get_default_dtype())[order]
        if bool((self.keys[1:] == self.keys[:-1]).any()):
            raise FocuseError("EdgeWeights: a triple has two weights; EdgeWeights.of makes one of them")

    @classmethod
    def of(cls, factory: Any, graph: Any, *, normalize: str | None = None, duplicates: str = "max") -> Self:
        """Return weights of the triples of a PyKEEN `factory`, from a `graph` by names (whatever `focuse.read` takes).

        The graph may have more triples than the factory, in any order. PyKEEN keeps one of several equal triples;
        `duplicates` is the weight of that one: the max, the mean or the last. Then weights are normalized as by
        `focuse train`: `normalize` is one of its normalizers, fitted on the factory's triples alone.

        >>> from pykeen.triples import TriplesFactory
        >>> rows = [("a", "likes", "b", 1.0), ("b", "likes", "c", 3.0), ("a", "likes", "b", 2.0)]
        >>> factory = TriplesFactory.from_labeled_triples(np.array([row[:3] for row in rows]))
        >>> EdgeWeights.of(factory, rows, normalize="relation").weight_triples(factory.mapped_triples).tolist()
        [0.0, 1.0]
        """
        if not hasattr(factory, "entity_to_id"):
            raise FocuseError(
                "EdgeWeights.of needs a TriplesFactory with names; with ids alone use EdgeWeights(…) directly"
            )
        if duplicates == "keep":
            raise FocuseError("PyKEEN keeps one of several equal triples; say which weight counts: max, mean or last")
        found = read(graph)
        if found.columns is not None:
            raise FocuseError(f"{found.source}: several weights per edge; give one, like graph.column('score')")
        head, relation, tail = factory.mapped_triples.numpy().astype(np.int32).T
        entities, relations = (
            Vocabulary(sorted(ids, key=ids.get)) for ids in (factory.entity_to_id, factory.relation_to_id)
        )
        train = Graph(head, relation, tail, np.ones(len(head)), entities, relations)
        aligned = found.align(train).graph
        merged = aligned.select(isin_sorted(aligned.keys, np.sort(train.keys))).merge_repeated(duplicates)
        missing = train.select(~isin_sorted(train.keys, np.sort(merged.keys)))
        if len(missing):
            first = ", ".join(list(missing.to_arrow().slice(0, 1).to_pylist()[0].values())[:3])
            raise FocuseError(
                f"{found.source}: {len(missing):,} of {len(train):,} training triples have no weight there, "
                f"the first is ({first})"
            )
        normalizer = fit_normalizer(normalize or default_normalizer(merged), merged)
        weight = torch.from_numpy(normalizer.transform(merged.weight, merged.relation))
        triples = torch.stack(id_tensors(merged), dim=1)
        if factory.create_inverse_triples:  # an inverse triple has the weight of its triple
            inverter = factory.relation_inverter
            triples = torch.cat([inverter.map(triples), inverter.map(triples, invert=True).flip(1)])
            weight = weight.repeat(2)
        return cls(triples, weight, factory.num_entities, factory.num_relations)

    def __call__(self, h: Any, r: Any, t: Any) -> Tensor:
        """Return weights of triples by ids that broadcast; None stands for all ids."""
        sizes = (self.entities, self.relations, self.entities)
        given = zip((h, r, t), sizes, strict=True)
        ids = [torch.arange(size) if part is None else torch.as_tensor(part) for part, size in given]
        index, found = find_sorted_tensor(self.keys, self._keys(*ids))
        return torch.where(found, self.weight[index], torch.nan)

    def _keys(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        return (h * self.relations + r) * self.entities + t


class FocusELoss(Loss):  # type: ignore[misc]
    """FocusE, then one of focuse's losses: PyKEEN's scores in, one number out.

    `loss` as `focuse train` takes it ('multiclass-nll', 'margin:margin=2', …), `nonlinearity`, `beta_decay_epochs`,
    `beta_min` and `fixed_beta` as in `focuse.objective.focuse.FocusELayer`. For models whose scores are never above 0
    (distances: TransE, RotatE, …) take nonlinearity='shifted-softplus'. `reduction` is over the positives of a batch.
    """

    def __init__(
        self,
        loss: str = "multiclass-nll",
        nonlinearity: str = "softplus",
        beta_decay_epochs: int = 100,
        beta_min: float = 0.0,
        fixed_beta: float | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=choose("reduction", reduction, ("mean", "sum")))
        if takes_weights(loss):
            raise FocuseError(f"FocusELoss: the loss {loss!r} takes the weights itself; choose another under the layer")
        self.layer = FocusELayer(nonlinearity, beta_decay_epochs, beta_min, fixed_beta)
        self.objective = FocusedLoss(make_loss(loss), self.layer)
        self.beta: float | None = fixed_beta

    def callback(self) -> BetaDecay:
        """Return the callback that tells this loss the epoch; it goes into `training_kwargs`."""
        return BetaDecay(self)

    def process_slcwa_scores(
        self,
        positive_scores: Tensor,
        negative_scores: Tensor,
        label_smoothing: float | None = None,
        batch_filter: Tensor | None = None,
        num_entities: int | None = None,
        pos_weights: Tensor | None = None,
        neg_weights: Tensor | None = None,
    ) -> Tensor:
        """Return the loss [] of scores [B, 1] and [B, N] (or those that a filter bool [B, N] keeps) and weights [B]."""
        if batch_filter is not None:
            negative_scores = negative_scores.new_zeros(batch_filter.shape).masked_scatter(
                batch_filter, negative_scores
            )
        return self._total(positive_scores[:, 0], negative_scores, pos_weights, batch_filter, label_smoothing)

    def process_lcwa_scores(
        self,
        predictions: Tensor,
        labels: Tensor,
        label_smoothing: float | None = None,
        num_entities: int | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Return the loss [] of scores, labels and weights [B, E]; negatives of a positive are labeled 0 in its row."""
        row, place = (labels > 0.5).nonzero(as_tuple=True)
        weight = None if weights is None else weights[row, place]
        return self._total(predictions[row, place], predictions[row], weight, labels[row] == 0, label_smoothing)

    def _total(
        self,
        positive: Tensor,
        negative: Tensor,
        weight: Tensor | None,
        mask: Tensor | None,
        label_smoothing: float | None,
    ) -> Tensor:
        if label_smoothing:
            raise UnsupportedLabelSmoothingError(self)
        if weight is None:
            raise FocuseError(
                "FocusELoss has no weights: give training_loop_kwargs={'loss_weighter': EdgeWeights.of(…)}, and train "
                "by the loop sLCWA or LCWA (the symmetric loop does not pass weights)"
            )
        if self.beta is None:
            raise FocuseError("FocusELoss does not know the epoch: give training_kwargs={'callbacks': loss.callback()}")
        if bool(weight.isnan().any()):
            raise FocuseError("FocusELoss: a training triple has no weight; make EdgeWeights of the training factory")
        value = self.objective(positive, negative, weight.to(positive), mask, self.beta)
        reduced: Tensor = self._reduction_method(value)
        return reduced


class BetaDecay(TrainingCallback):  # type: ignore[misc]
    """Sets β of a `FocusELoss` before every batch, by the epochs that PyKEEN has finished, also if it resumes.

    `betas` has the β of every epoch; a result tracker gets it as the metric 'beta'.
    """

    def __init__(self, loss: FocusELoss) -> None:
        super().__init__()
        self.focused = loss
        self.betas: list[float] = []

    def register_training_loop(self, training_loop: Any) -> None:
        if training_loop.loss is not self.focused:
            raise FocuseError("BetaDecay: the pipeline trains by another loss; give it the FocusELoss of this callback")
        super().register_training_loop(training_loop)
        self.pre_batch()  # before it trains PyKEEN tries how much fits into memory, without callbacks

    def pre_batch(self, **kwargs: Any) -> None:
        self.focused.beta = self.focused.layer.beta(len(self.training_loop.losses_per_epochs))

    def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
        self.betas.append(float(self.focused.beta or 0.0))
        if self.training_loop.result_tracker is not None:
            self.training_loop.result_tracker.log_metrics({"beta": self.betas[-1]}, step=epoch)
