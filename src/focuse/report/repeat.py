"""Section on how to repeat it: command and settings, versions, fingerprints of the data, the run in Python."""

from __future__ import annotations

import hashlib
import platform
import shlex
from typing import Any

import numpy as np
import torch

from focuse import __version__
from focuse.data.graph import Graph
from focuse.data.splits import MAX_HELD_OUT
from focuse.report.gathered import Gathered, Reported
from focuse.report.page import code, heading, paragraph, table
from focuse.storage.metadata import read_toml, to_toml

FILE = "settings.toml"
USUAL_SHARE = 0.1  # of the graph, held out for validation and for test where nothing else is said


def repeat(run: Reported, figures: Gathered) -> str:
    """All that someone needs to train the same again, and to use the run."""
    versions, prints = made_with(run), fingerprints(run)
    figures.data["versions"], figures.data["fingerprints"] = versions, prints
    figures.data["repeat"] = {"command": repeat_command(run), FILE: settings_text(run)}
    facts = [[name, value] for name, value in versions.items()]
    parts = [[name, digest, f"{size:,}"] for name, (size, digest) in prints.items()]
    text = (
        f"With these settings in a file {FILE}, this command trains the same embeddings: bit for bit on a CPU, with "
        "the same versions, number of threads and kind of processor. It reads the file as focuse does by itself; where "
        "columns or a separator were named, name them again."
    )
    return "".join([
        heading("To repeat it"), paragraph(text), *(paragraph(note) for note in _more(run)),
        code(repeat_command(run), "command"), heading(f"Settings: {FILE}", 3), code(settings_text(run), FILE),
        heading("From the run itself", 3),
        paragraph("A run holds its splits, so that it can be used, and trained again, without the file it came from."),
        code(in_python(run), "Python"),
        heading("Versions and data", 3),
        table([], facts, words=2, caption="Made with"),
        table(["part", "SHA-256", "rows"], parts, words=2, caption="Fingerprints of ids and weights, and of names"),
    ])  # fmt: skip


def settings_text(run: Reported) -> str:
    """Every setting as TOML, resolved: what was chosen on validation is fixed."""
    return to_toml(run.settings.to_kwargs())


def repeat_command(run: Reported) -> str:
    """`focuse train …` with what the run knows of its files and of its split."""
    train, valid, test = run.graph, run.splits.valid, run.splits.test
    words = ["focuse", "train", _name(train)]
    given = {"valid": _given(valid, train), "test": _given(test, train)}
    for name, graph in (("valid", valid), ("test", test)):
        words += [f"--{name}", _name(graph)] if given[name] else []
    # Of a graph with given parts only validation may have been cut off; else both were.
    total = len(train) + sum(len(graph) for name, graph in (("valid", valid), ("test", test)) if not given[name])
    repeats = int(np.unique(train.keys, return_counts=True)[1].max())
    for name, graph in (("valid", valid), ("test", test)):
        cut = not given[name] and not (given["valid"] or (name == "test" and given["test"]))
        share = _share(len(graph), total, repeats) if cut else None
        words += [f"--{name}-share", share] if share is not None else []
    words += (
        ["--known-negatives", _name(run.splits.known_negatives)]
        if run.splits.known_negatives is not None and _has_false_file(run)
        else []
    )
    words += ["--node-attributes", run.splits.attributes.source] if run.splits.attributes is not None else []
    return shlex.join([*words, "--config", FILE, "--out", "again"])


def _has_false_file(run: Reported) -> bool:
    settings = run.settings
    return settings.negative_weights != "known-negative" and settings.zero_weights != "known-negative"


def _given(part: Graph, train: Graph) -> bool:
    """Whether a held-out part is a file of its own; what was cut off has the name of the whole."""
    return len(part) > 0 and part.source != train.source


def _name(graph: Graph) -> str:
    return graph.source or "GRAPH"


def _share(size: int, total: int, repeats: int) -> str | None:
    """The shortest share that holds out `size` of `total` rows, None where that is the usual one.

    A part ends before a triple of several rows that would not fit: up to `repeats` − 1 rows may lack.

    >>> _share(30, 300, 1), _share(60, 300, 1), _share(0, 300, 1)
    (None, '0.2', '0')
    """
    usual = min(int(USUAL_SHARE * total), MAX_HELD_OUT)
    if 0 <= usual - size < repeats:
        return None
    for digits in range(1, 16):
        text = f"{(size + 0.5) / total:.{digits}f}".rstrip("0").rstrip(".") if size else "0"
        lower = f"{size / total:.{digits}f}".rstrip("0").rstrip(".")
        for share in (lower, text):
            if int(float(share) * total) == size:
                return share
    return f"{(size + 0.5) / total!r}"


def _more(run: Reported) -> list[str]:
    """What the command cannot know."""
    notes = []
    if run.splits.inferred is not None:
        notes.append("The run also learnt from what rules infer: give --rules or --inferred-triples again.")
    if run.splits.known_negatives is not None and _has_false_file(run):
        notes.append("The run also learnt from triples known to be false, from the file that --known-negatives names.")
    if run.settings.init_from is not None:
        notes.append(
            f"It began with the embeddings of another run, {run.settings.init_from}, which must be there again."
        )
    return notes


def in_python(run: Reported) -> str:
    """Loading the run, asking it, and training its splits again."""
    folder = "runs/mine" if run.folder is None else run.folder.as_posix()
    graph = run.graph
    head, relation = graph.entities[int(graph.head[0])], graph.relations[int(graph.relation[0])]
    lines = [
        "import focuse",
        "",
        f"run = focuse.load({folder!r})",
        "print(run.evaluate())",
        f"print(run.predict(head={head!r}, relation={relation!r}, top=10))",
    ]
    splits = run.splits
    if splits.inferred is None and splits.known_negatives is None and splits.attributes is None:
        lines += [
            "",
            "again = focuse.train(",
            "    run.graph, valid=run.splits.valid or None, test=run.splits.test or None,",
            "    valid_fraction=0, test_fraction=0, **run.settings.to_kwargs(),",
            ")",
        ]
    return "\n".join(lines) + "\n"


def made_with(run: Reported) -> dict[str, str]:
    """Versions, device and engine: those of the training where its folder tells them, else those of this machine."""
    stored: dict[str, Any] = {} if run.folder is None else read_toml(run.folder / "run.toml")
    return {
        "focuse": str(stored.get("focuse", __version__)),
        "PyTorch": str(stored.get("torch", torch.__version__)),
        "Python of this page": platform.python_version(),
        "machine of this page": f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} thread(s)",
        "device": run.settings.device,
        "engine": run.settings.engine,
        "seed": str(run.settings.seed),
    }


def fingerprints(run: Reported) -> dict[str, tuple[int, str]]:
    """Part -> its rows, and SHA-256 of head, relation, tail (int32) and weight (float64), in the order of training."""
    splits = run.splits
    parts = {"train": splits.train, "validation": splits.valid, "test": splits.test}
    found = {name: (len(part), _digest(part)) for name, part in parts.items() if len(part)}
    for name, words in (("entities", splits.train.entities), ("relations", splits.train.relations)):
        digest = hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass"))
        found[f"names of {name}"] = (len(words), digest.hexdigest())
    return found


def _digest(graph: Graph) -> str:
    digest = hashlib.sha256()
    for ids in (graph.head, graph.relation, graph.tail):
        digest.update(np.ascontiguousarray(ids, "<i4").tobytes())
    digest.update(np.ascontiguousarray(graph.weight, "<f8").tobytes())
    return digest.hexdigest()
