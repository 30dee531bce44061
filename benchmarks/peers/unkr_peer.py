"""unKR's FocusE, trained and timed in its own environment: unKR 1.0.3 with Lightning 1.5.10. It ranks tails only."""

from __future__ import annotations

import contextlib
import io
import math
import os
import tempfile
import time
import warnings
from pathlib import Path

import common

NAMES = {"complex": "ComplEX", "distmult": "DistMult", "transe": "TransE"}
RANKED_AT_ONCE = 16
RATE = 1e-3


def mend() -> None:
    """What unKR 1.0.3 and Lightning 1.5.10 miss in today's Python, NumPy and torch; before unKR is imported."""
    import numpy as np
    import pytorch_lightning.trainer.states as states
    import torch.optim.lr_scheduler as schedulers

    if not hasattr(np, "in1d"):
        np.in1d = np.isin
    schedulers._LRScheduler = schedulers.LRScheduler
    for kind in (states.TrainerFn, states.TrainerStatus, states.RunningStage):  # Python 3.11 formats them anew
        kind.__format__ = lambda self, spec: format(str(self.value), spec)
        kind.__str__ = lambda self: str(self.value)


def main() -> None:
    chosen = common.arguments(__doc__, focus="on")
    chosen.lr = chosen.lr or RATE
    warnings.filterwarnings("ignore")
    data = common.Data(chosen)
    with tempfile.TemporaryDirectory() as folder:
        write(data, Path(folder))
        os.environ["WANDB_MODE"] = "disabled"
        run(chosen, data, folder)


def write(data: common.Data, folder: Path) -> None:
    """unKR finds its files by name; the triples to be ranked come first in test."""
    import pandas as pd

    rest = data.test.drop(data.ranked.index)
    for name, part in (("train", data.train), ("val", data.valid), ("test", pd.concat([data.ranked, rest]))):
        part.to_csv(folder / f"{name}.tsv", sep="\t", header=False, index=False)


def run(chosen: object, data: common.Data, folder: str) -> None:
    import numpy as np
    import torch

    mend()
    import pytorch_lightning as lightning
    from unKR.utils import import_class, setup_parser

    torch.set_num_threads(chosen.threads)
    settings = setup_parser().parse_args([])
    settings.__dict__.update(configuration(chosen, data, folder))
    lightning.seed_everything(chosen.seed)
    samplers = import_class("unKR.data.UKGEUniSampler")(settings)
    source = import_class("unKR.data.KGDataModule")(
        settings, samplers, import_class("unKR.data.UKGETestSampler")(samplers)
    )
    model = import_class("unKR.model.FocusE")(settings)
    trained = import_class("unKR.lit_model.FocusELitModel")(model, settings)
    clock = common.Clock(chosen)

    class Follower(lightning.Callback):
        """Tells the clock, and takes the embeddings out."""

        def on_train_epoch_start(self, trainer: object, module: object) -> None:
            if chosen.epochs > 1:  # β's decay; unKR's own main program leaves it out
                with contextlib.redirect_stdout(io.StringIO()):
                    model.adjust_parameters(trainer.current_epoch)
            clock.start()

        def on_train_epoch_end(self, trainer: object, module: object) -> None:
            if clock.stop():
                clock.save(*tables(model, samplers, data), data)

    trainer = lightning.Trainer(
        max_epochs=chosen.epochs,
        callbacks=[Follower()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        limit_test_batches=math.ceil(chosen.rank / RANKED_AT_ONCE) or 1,
        default_root_dir=folder,
    )
    trainer.fit(trained, datamodule=source)
    more = {"settings": {"batch_size": settings.train_bs, "loss": "FocusE_Loss"}, "sides": "tail"}
    if chosen.rank:
        more["ranked"] = min(len(data.test), trainer.limit_test_batches * RANKED_AT_ONCE)
        start = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            found = trainer.test(trained, datamodule=source, verbose=False)[0]
        more |= {"ranking_seconds": round(time.perf_counter() - start, 3), "mrr": found.get("Test_mrr")}
    packages = {"torch": torch.__version__, "numpy": np.__version__, "lightning": lightning.__version__}
    rows = len(samplers.triple_store)
    common.report("unKR", "1.0.3", chosen, data, clock, rows, packages=packages, **more)


def configuration(chosen: object, data: common.Data, folder: str) -> dict[str, object]:
    """unKR's settings; what is not asked for is as its own demo of FocusE has it."""
    return {
        "data_path": folder,
        "dataset_name": "benchmark",
        "model_name": "FocusE",
        "loss_name": "FocusE_Loss",
        "litmodel_name": "FocusELitModel",
        "data_class": "KGDataModule",
        "train_sampler_class": "UKGEUniSampler",
        "test_sampler_class": "UKGETestSampler",
        "base_model": NAMES[chosen.model],
        "emb_dim": chosen.dim * (2 if chosen.model == "complex" else 1),  # real and imaginary parts share a row
        "num_neg": chosen.negatives,
        "train_bs": data.batch_size(chosen),
        "eval_bs": RANKED_AT_ONCE,
        "lr": chosen.lr,
        "max_epochs": chosen.epochs,
        "seed": chosen.seed,
        "margin": 9.0,
        "regularization": 0.001,
        "gpu": "cpu",
        "num_workers": 0,
        "confidence_filter": 0,
        "calc_hits": [1, 3, 10],
        "optim_name": "Adam",
        "use_weight": False,
        "num_batches": 0,
        "filter_flag": True,
        "negative_adversarial_sampling": False,
    }


def tables(model: object, samplers: object, data: common.Data) -> list[object]:
    """Entities and relations as arrays in the order of the data's names."""
    found = []
    for layer, places, names in (
        (model.ent_emb, samplers.ent2id, data.entities),
        (model.rel_emb, samplers.rel2id, data.relations),
    ):
        rows = [places[name] for name in names]
        found.append(layer.weight.detach().numpy()[rows])
    return found


if __name__ == "__main__":
    main()
