"""TorchRec where it is not what it should be."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from focuse.engines import torchrec
from focuse.engines.torchrec import lacks
from focuse.training.optimisers import make_optimiser

TABLES = {"entity": torch.zeros(2, 2)}


def loaded() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] in ("torchrec", "fbgemm_gpu")]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place from which TorchRec and fbgemm are imported, whatever else is installed."""
    for name in loaded():
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("torchrec", "fbgemm_gpu"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    torchrec._broken.cache_clear()
    yield tmp_path
    for name in loaded():
        del sys.modules[name]
    torchrec._broken.cache_clear()


@pytest.mark.parametrize(
    "fault",
    ["OSError('libcudart.so.12: cannot open it')", "RuntimeError('two\\nlines')", "ImportError()"],
)
def test_what_fails_on_import_is_as_if_it_were_not_there(installed: Path, fault: str) -> None:
    (installed / "fbgemm_gpu" / "__init__.py").write_text(f"raise {fault}\n", encoding="utf-8")
    said = lacks(make_optimiser("row-adagrad", TABLES, 0.1))
    assert said.startswith("TorchRec cannot be imported: ")
    assert fault.partition("'")[2].partition("\\n")[0].strip("')") in said
    assert "\n" not in said
    assert torchrec.INSTALL in said


def test_a_part_that_is_missing_is_told_by_its_name(installed: Path) -> None:
    assert "No module named 'fbgemm_gpu.split_embedding_configs'" in lacks(make_optimiser("row-adagrad", TABLES, 0.1))


def test_nothing_is_imported_where_it_would_not_serve(installed: Path) -> None:
    (installed / "fbgemm_gpu" / "__init__.py").write_text("raise OSError('never')\n", encoding="utf-8")
    assert "never" not in lacks(make_optimiser("row-adam", TABLES, 0.1))
    assert lacks(None) == ""
