"""A model of your own: a class, checked and trained. own_model_package offers the same to every program."""

import tempfile

import torch

import focuse
from focuse.models.base import TripleModel
from focuse.models.checks import check_model
from focuse.paper.demo import careers


class Stretch(TripleModel):
    """TransE whose relations also say how much each dimension counts: f = −Σ |(1 + aᵢ) (hᵢ + bᵢ − tᵢ)|."""

    name = "stretch"
    defaults = {"negative_sampling": "per-triple", "optimizer": "sparse-adam"}  # noqa: RUF012

    def widths(self, dim: int) -> tuple[int, int]:
        return dim, 2 * dim

    def triple(self, head: torch.Tensor, relation: torch.Tensor, tail: torch.Tensor) -> torch.Tensor:
        scale, step = relation.chunk(2, -1)
        return -((1 + scale) * (head + step - tail)).abs().sum(-1)


def main() -> None:
    check_model(Stretch)  # all its uses agree, and its gradients are right
    run = focuse.train(careers(), model=Stretch, dim=16, epochs=5, lr=0.02, label_exponent=2, progress=False)
    print(run.evaluate())
    with tempfile.TemporaryDirectory() as folder:
        run.save(f"{folder}/run")
        again = focuse.load(f"{folder}/run", model=Stretch)  # a script's own class must be handed over
        print(again.predict(head="Sound Engineer", relation="requires skill", top=3))


if __name__ == "__main__":
    main()
