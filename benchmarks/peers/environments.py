"""The environments of the peers: a virtual one for each, made once, every version pinned."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

# Steps of pip, one list each. torch stands in every step that could bring another one, with gigabytes of CUDA.
# pip's own variables (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, …) say where from; a CPU build of torch serves.
TORCH = "torch==2.13.0"
STEPS: dict[str, list[list[str]]] = {
    "ampligraph": [["ampligraph==2.2.0", "tensorflow==2.15.1", "pandas", "setuptools<81"]],
    "pykeen": [[TORCH], [TORCH, "pykeen==1.11.1", "pandas"]],
    # unKR asks for a Lightning that refuses this torch, and Lightning for packages of its time.
    "unkr": [
        [TORCH],
        [TORCH, "pandas", "scipy", "gensim", "IPython", "PyYAML", "wandb", "tensorboard", "tqdm", "future"],
        [TORCH, "fsspec[http]", "torchmetrics==0.11.4"],
        ["--no-deps", "unKR==1.0.3", "pytorch-lightning==1.5.10", "setuptools==75.8.0", "pyDeprecate==0.3.1"],
    ],
}
NEWEST = {"ampligraph": (3, 11), "unkr": (3, 11)}  # the newest Python that each is known to run on


def default_folder() -> Path:
    return Path.home() / ".cache" / "focuse" / "peers"


def python_of(name: str, folder: Path, say: Callable[[str], None]) -> Path:
    """The interpreter of a peer's environment, which is made if it is missing."""
    home = folder / name
    python, ready = home / "bin" / "python", home / "ready.txt"
    wanted = "\n".join(" ".join(step) for step in STEPS[name])
    if ready.is_file() and ready.read_text() == wanted:
        return python
    say(f"making the environment of {name} in {home} (gigabytes, minutes) …")
    subprocess.run([_python(name), "-m", "venv", "--clear", str(home)], check=True)
    for step in STEPS[name]:
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *step]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{name}: pip install {' '.join(step)} failed: {done.stderr.strip()[-400:]}")
    ready.write_text(wanted)
    return python


def _python(name: str) -> str:
    """A Python that the peer runs on: this one, or an older one if it is installed."""
    newest = NEWEST.get(name, sys.version_info[:2])
    if sys.version_info[:2] <= newest:
        return sys.executable
    older = shutil.which(f"python{newest[0]}.{newest[1]}")
    if older is None:
        raise RuntimeError(f"{name} needs Python {newest[0]}.{newest[1]}, which is not installed")
    return older
