"""Choice of the device, and errors of too little memory."""

from typing import Any

import pytest
import torch

import focuse
from focuse.engines.factory import choose_device, explain_memory_errors
from focuse.engines.native import library
from focuse.errors import FocuseError


@pytest.mark.parametrize("gpu", [False, True])
def test_auto_device_is_the_gpu_if_available_and_supported_by_the_engine(
    monkeypatch: pytest.MonkeyPatch, gpu: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert choose_device("auto") == choose_device("auto", "native") == ("cuda" if gpu else "cpu")
    assert choose_device("auto", "partitioned") == "cpu"


def test_a_device_is_a_gpu_or_cpu() -> None:
    assert choose_device("cpu") == choose_device("cpu:0") == "cpu"
    for name in ("cuda:99", "meta"):
        with pytest.raises(FocuseError, match="is not available; use 'auto' or 'cpu'"):
            choose_device(name)


@pytest.mark.skipif(library() is None, reason="the C++ library was not built")
@pytest.mark.parametrize("model", ["gtranse", "suke"])
def test_a_loss_without_kernels_is_left_to_autograd_with_a_note(small: focuse.Graph, listen: Any, model: str) -> None:
    settings = {"model": model, "dim": 4, "epochs": 1}
    with pytest.raises(FocuseError, match="engine 'native': its kernels cannot compute this loss; use the engine 'aut"):
        focuse.train(small, engine="native", **settings)
    notes = listen().notes
    focuse.train(small, **settings)
    assert any("its kernels cannot compute this loss" in note for note in notes)


def test_out_of_memory_is_one_line_and_other_errors_are_not_changed() -> None:
    with pytest.raises(FocuseError, match="not enough memory"), explain_memory_errors():
        raise MemoryError
    with pytest.raises(RuntimeError, match="shapes"), explain_memory_errors():
        raise RuntimeError("shapes do not fit")
