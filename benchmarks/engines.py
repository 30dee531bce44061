"""The fused engine beside the reference, on a GPU: seconds an epoch of the paper's settings, and their ratio.

    FOCUSE_DATA=folder python benchmarks/engines.py [ppi5k nl27k …]

Both train the same batches with the same negatives; the losses must agree.
"""

import statistics
import sys

import focuse

MODELS = ("complex", "distmult", "transe")


def main() -> None:
    print("| data | model | reference, s/epoch | fused, s/epoch | ratio | losses differ by |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in sys.argv[1:] or ["ppi5k", "nl27k"]:
        data = focuse.datasets.load(name)
        for model in MODELS:
            pace, losses = {}, {}
            for engine in ("reference", "fused"):
                settings = {"model": model, "dim": 400, "lr": 1e-4, "epochs": 6, "burn_in": 6, "check_every": 6}
                run = focuse.train(
                    data.train, valid=data.valid, engine=engine, device="cuda", progress=False, **settings
                )
                # The first epoch compiles and records, the last one ranks validation.
                pace[engine] = statistics.median(row["seconds"] for row in run.history[1:-1])
                losses[engine] = run.history[-1]["loss"]
            apart = abs(losses["fused"] / losses["reference"] - 1)
            ratio = pace["reference"] / pace["fused"]
            print(
                f"| {name} | {model} | {pace['reference']:.3f} | {pace['fused']:.3f} | {ratio:.1f} | {apart:.1e} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
