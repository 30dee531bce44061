"""Reasons for which TorchRec cannot be used."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from focuse.engines.optimizers import make_optimizer
from focuse.engines.sharded import exchange
from focuse.engines.sharded.exchange import torchrec_unavailable

TABLES = {"entity": torch.zeros(2, 2)}


def loaded() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] in ("torchrec", "fbgemm_gpu")]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder from which TorchRec and fbgemm are imported, whatever else is installed."""
    for name in loaded():
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("torchrec", "fbgemm_gpu"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    exchange._import_failure.cache_clear()
    yield tmp_path
    for name in loaded():
        del sys.modules[name]
    exchange._import_failure.cache_clear()


@pytest.mark.parametrize(
    "fault",
    ["OSError('libcudart.so.12: cannot open it')", "RuntimeError('two\\nlines')", "ImportError()"],
)
def test_torchrec_that_fails_on_import_is_reported_in_one_line(installed: Path, fault: str) -> None:
    (installed / "fbgemm_gpu" / "__init__.py").write_text(f"raise {fault}\n", encoding="utf-8")
    reason = torchrec_unavailable(make_optimizer("sparse-adagrad", TABLES, 0.1))
    assert reason.startswith("TorchRec cannot be imported: ")
    assert fault.partition("'")[2].partition("\\n")[0].strip("')") in reason
    assert "\n" not in reason
    assert exchange.TORCHREC_INSTALL in reason


def test_a_missing_module_is_named(installed: Path) -> None:
    assert "No module named 'fbgemm_gpu.split_embedding_configs'" in torchrec_unavailable(
        make_optimizer("sparse-adagrad", TABLES, 0.1)
    )


def test_torchrec_is_not_imported_for_an_optimizer_that_it_lacks(installed: Path) -> None:
    (installed / "fbgemm_gpu" / "__init__.py").write_text("raise OSError('never')\n", encoding="utf-8")
    assert "never" not in torchrec_unavailable(make_optimizer("sparse-adam", TABLES, 0.1))
    assert torchrec_unavailable(None) == ""
