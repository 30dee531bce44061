"""Default settings on the real benchmark graphs, plain and focused.

    FOCUSE_DATA=folder python benchmarks/real_graphs.py [ppi5k nl27k cn15k …]

Each data set is a folder with train.tsv.gz, valid.tsv.gz and test.tsv.gz. Prints a Markdown table: figures on test,
time an epoch, time to rank.
"""

import os
import statistics
import sys
import time
from pathlib import Path

import focuse


def main() -> None:
    folder = Path(os.environ.get("FOCUSE_DATA", "."))
    names = sys.argv[1:] or ["ppi5k", "nl27k", "cn15k"]
    print("| data | model | top 10 % MRR | bottom 10 % MRR | ΔMRR | MRR | s/epoch | epochs | ranking, s | device |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        train, valid, test = (focuse.read(folder / name / f"{part}.tsv.gz") for part in ("train", "valid", "test"))
        for focus, label in (("off", "plain ComplEx"), ("paper", "FocusE ComplEx")):
            run = focuse.train(train, valid=valid, test=test, focus=focus, progress=False)
            start = time.perf_counter()
            result = run.evaluate()
            ranking = time.perf_counter() - start
            pace = statistics.median(row["seconds"] for row in run.history)
            print(
                f"| {name} | {label} | {result.top.mrr:.3f} | {result.bottom.mrr:.3f} | {result.delta_mrr:.3f} "
                f"| {result.all.mrr:.3f} | {pace:.2f} | {len(run.history)} | {ranking:.1f} | {run.settings.device} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
