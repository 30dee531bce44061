"""Choice of the device, and errors of too little memory."""

import pytest
import torch

from focuse.engines.factory import choose_device, explain_memory_errors
from focuse.errors import FocuseError


@pytest.mark.parametrize("gpu", [False, True])
def test_auto_device_is_the_gpu_if_available_and_supported_by_the_engine(
    monkeypatch: pytest.MonkeyPatch, gpu: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert choose_device("auto") == choose_device("auto", "native") == ("cuda" if gpu else "cpu")
    assert choose_device("auto", "partitioned") == "cpu"


def test_missing_device_is_an_error() -> None:
    assert choose_device("cpu") == "cpu"
    with pytest.raises(FocuseError, match="is not available; use 'auto' or 'cpu'"):
        choose_device("cuda:99")


def test_out_of_memory_is_one_line_and_other_errors_are_not_changed() -> None:
    with pytest.raises(FocuseError, match="not enough memory"), explain_memory_errors():
        raise MemoryError
    with pytest.raises(RuntimeError, match="shapes"), explain_memory_errors():
        raise RuntimeError("shapes do not fit")
