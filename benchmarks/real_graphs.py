"""Default settings on the real benchmark graphs, plain and focused.

    FOCUSE_DATA=folder python benchmarks/real_graphs.py [ppi5k nl27k cn15k …]

Prints a Markdown table: figures on test, time an epoch, time to rank.
"""

import statistics
import sys
import time

import focuse


def main() -> None:
    names = sys.argv[1:] or ["ppi5k", "nl27k", "cn15k"]
    print("| data | model | top 10 % MRR | bottom 10 % MRR | ΔMRR | MRR | s/epoch | epochs | ranking, s | device |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        data = focuse.datasets.load(name)
        for focus, label in (("off", "plain ComplEx"), ("paper", "FocusE ComplEx"), ("label", "ComplEx, labels")):
            run = focuse.train(data.train, valid=data.valid, test=data.test, focus=focus, progress=False)
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
