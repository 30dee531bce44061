"""How long until an MRR is reached: peers' saved embeddings beside focuse, with its default settings.

    FOCUSE_DATA=folder python benchmarks/time_to_quality.py --saved FOLDER --data ppi5k,nl27k --picture quality.svg

FOLDER/DATA/PEER holds what the programs in benchmarks/peers wrote with --save: epoch-0001.npz, … and settings.json.
Such a training takes hours; its MRR after an epoch does not depend on the machine, only its pace does. So the pace is
measured here for a few epochs with the same settings (or taken from --paces, a file that --json wrote), and an epoch's
seconds are its number times the pace. focuse is trained here. Seconds are those of training alone; all embeddings
are ranked by focuse: the whole test set, filtered, both sides, ties at their worst.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import smoke

sys.path.insert(0, str(Path(__file__).parent / "peers"))

import environments
import machine
from ranker import Ranker, Splits
from systems import run

NAMES = {"ampligraph": "AmpliGraph", "pykeen": "PyKEEN", "unkr": "unKR"}
VARIANTS: dict[str, tuple[str, dict[str, str]]] = {
    "default": ("focuse", {}),
    "plain": ("focuse, plain", {"focus": "off"}),
}
COLOURS = {"AmpliGraph": "#d95f02", "PyKEEN": "#7570b3", "unKR": "#a6761d"}
OWN_COLOURS = ("#1b9e77", "#66a61e", "#3a7ca5")


@dataclass(frozen=True)
class Curve:
    """The MRR of one system after some epochs, and the seconds that training to them takes."""

    label: str
    epochs: list[int]
    seconds: list[float]
    mrr: list[float]

    def reaches(self, mrr: float) -> float | None:
        """Seconds to the first measured epoch with at least this MRR."""
        return next((at for at, found in zip(self.seconds, self.mrr, strict=True) if found >= mrr), None)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--saved", type=Path, required=True, help="FOLDER/DATA/PEER/epoch-*.npz")
    parser.add_argument("--data", default="ppi5k,nl27k")
    parser.add_argument("--focuse", default="default,plain", help=f"some of {', '.join(VARIANTS)}")
    parser.add_argument("--epochs", type=int, help="of focuse (default: its own default)")
    parser.add_argument("--paces", type=Path, help='{"ppi5k": {"pykeen": seconds an epoch, …}, …}; else measured')
    parser.add_argument("--pace-epochs", type=int, default=3, help="epochs to measure a pace with, the first not timed")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--environments", type=Path, default=environments.default_folder())
    parser.add_argument("--picture", type=Path, help="an SVG of all curves")
    parser.add_argument("--json", type=Path, help="write everything there, too")
    return smoke.parse(parser, data=smoke.GRAPH, saved=Path("none"), focuse="plain", epochs=2, threads=1)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    chosen = arguments()
    load = machine.busy()
    paces: dict[str, dict[str, float]] = {}
    if chosen.paces:
        given = json.loads(chosen.paces.read_text())
        paces = given.get("paces", given)
    found: dict[str, list[Curve]] = {}
    print(machine.sentence(machine.describe()) + load + "\n")
    print("| data | system | epochs | s/epoch | seconds | MRR | focuse to the same MRR, s | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in chosen.data.split(","):
        splits = Splits.named(name)
        with tempfile.TemporaryDirectory() as folder:
            paths = splits.write(Path(folder))
            paces[name] = paces.get(name, {}) | measure_paces(chosen, name, paths, paces.get(name, {}))
            ranker = Ranker(splits)
            peers = [curve_of_peer(chosen.saved / name / peer, pace, ranker) for peer, pace in paces[name].items()]
            own = [curve_of_focuse(chosen, one, paths, ranker, Path(folder)) for one in chosen.focuse.split(",")]
        found[name] = peers + own
        print("\n".join(rows(name, peers, own)), flush=True)
    if chosen.json:
        curves = {name: [asdict(curve) for curve in some] for name, some in found.items()}
        written = {"machine": machine.describe(), "load": load, "paces": paces, "curves": curves}
        chosen.json.write_text(json.dumps(written, indent=1) + "\n")
    if chosen.picture:
        draw(found, chosen.picture)


def measure_paces(
    chosen: argparse.Namespace, name: str, paths: Mapping[str, Path], known: Mapping[str, float]
) -> dict[str, float]:
    """Seconds an epoch of each peer that has saved something and whose pace is not known, with the settings it had."""
    paces = {}
    for peer in NAMES:
        saved = chosen.saved / name / peer
        if peer in known or not any(saved.glob("epoch-*.npz")):
            continue
        settings = json.loads((saved / "settings.json").read_text())
        same = ("model", "dim", "negatives", "batch_size", "lr", "focus", "recipe")
        flags = {key.replace("_", "-"): settings[key] for key in same if key in settings}
        flags |= {"epochs": chosen.pace_epochs, "threads": chosen.threads, **paths}
        paces[peer] = run(peer, environments.python_of(peer, chosen.environments, say), flags, say)["seconds_per_epoch"]
    return paces


def curve_of_peer(folder: Path, pace: float, ranker: Ranker) -> Curve:
    """From what a peer saved; or from mrr.json, {epoch: MRR}, where that was ranked elsewhere."""
    ranked = folder / "mrr.json"
    if ranked.exists():
        found = {int(epoch): mrr for epoch, mrr in json.loads(ranked.read_text()).items()}
        return Curve(NAMES[folder.name], list(found), [pace * epoch for epoch in found], list(found.values()))
    files = sorted(folder.glob("epoch-*.npz"))
    epochs = [int(file.stem.rpartition("-")[2]) for file in files]
    say(f"ranking {len(files)} states in {folder} …")
    return Curve(NAMES[folder.name], epochs, [pace * epoch for epoch in epochs], [ranker.saved(file) for file in files])


def curve_of_focuse(
    chosen: argparse.Namespace, variant: str, paths: Mapping[str, Path], ranker: Ranker, folder: Path
) -> Curve:
    """Trained now, in a process of its own."""
    label, changed = VARIANTS[variant]
    saved = folder / variant
    flags: dict[str, Any] = {"threads": chosen.threads, "seed": chosen.seed, "save": saved, "defaults": "", **paths}
    flags |= {"save-at": ",".join(map(str, looks(1000))), **changed}
    if chosen.epochs:
        flags["epochs"] = chosen.epochs
    run("focuse", sys.executable, flags, say)
    files = sorted(saved.glob("epoch-*.npz"))
    seconds = []
    for file in files:
        with np.load(file) as content:
            seconds.append(float(content["seconds"].sum()))
    epochs = [int(file.stem.rpartition("-")[2]) for file in files]
    return Curve(label, epochs, seconds, [ranker.saved(file) for file in files])


def looks(most: int) -> list[int]:
    """Epochs to look after: every one at first, then about every tenth part more."""
    found, at = [], 1
    while at <= most:
        found.append(at)
        at = max(at + 1, round(at * 1.1))
    return found


def rows(name: str, peers: list[Curve], own: list[Curve]) -> list[str]:
    """A line for each peer and for each focuse; a peer's last MRR is what focuse has to reach."""
    lines = []
    for peer in peers:
        last, taken = peer.mrr[-1], peer.seconds[-1]
        times = [one.reaches(last) for one in own]
        reached = "; ".join(
            f"{one.label}: {'not reached' if at is None else f'{at:.2f}'}" for one, at in zip(own, times, strict=True)
        )
        ratios = "; ".join("–" if at is None else f"{taken / at:.0f}" for at in times)
        done = peer.epochs[-1]
        cells = f"{done} | {taken / done:.2f} | {taken:.0f} | {last:.3f} | {reached} | {ratios}"
        lines.append(f"| {name} | {peer.label} | {cells} |")
    for one in own:
        done, taken = one.epochs[-1], one.seconds[-1]
        lines.append(f"| {name} | {one.label} | {done} | {taken / done:.3f} | {taken:.1f} | {one.mrr[-1]:.3f} | | |")
    return lines


def draw(found: Mapping[str, list[Curve]], target: Path) -> None:
    """MRR against seconds, one panel a data set."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "focuse"  # the same picture is the same file
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(found), figsize=(5.2 * len(found), 3.8), squeeze=False)
    for panel, (name, curves) in zip(panels[0], found.items(), strict=True):
        spare = iter(OWN_COLOURS)
        for curve in curves:
            colour = COLOURS.get(curve.label) or next(spare)
            panel.plot(curve.seconds, curve.mrr, marker="o", markersize=3, color=colour, label=curve.label)
        panel.set_xscale("log")
        panel.set_title(name.upper())
        panel.set_xlabel("seconds of training")
        panel.set_ylabel("MRR on test (filtered, both sides)")
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
        panel.legend(frameon=False, fontsize="small")
    figure.tight_layout()
    figure.savefig(target, format="svg", metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    main()
