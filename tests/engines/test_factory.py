"""Devices by name, and errors of memory that a user can mend."""

import pytest
import torch

from focuse.engines.factory import choose_device, enough_memory
from focuse.errors import FocuseError


@pytest.mark.parametrize("gpu", [False, True])
def test_the_gpu_is_chosen_where_there_is_one_and_the_engine_can_use_it(
    monkeypatch: pytest.MonkeyPatch, gpu: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert choose_device("auto") == choose_device("auto", "fused") == ("cuda" if gpu else "cpu")
    assert choose_device("auto", "partitioned") == "cpu"


def test_a_device_that_is_not_there_is_told() -> None:
    assert choose_device("cpu") == "cpu"
    with pytest.raises(FocuseError, match="not available here"):
        choose_device("cuda:99")


def test_too_little_memory_is_one_line_and_other_errors_stay_what_they_are() -> None:
    with pytest.raises(FocuseError, match="not enough memory"), enough_memory():
        raise MemoryError
    with pytest.raises(RuntimeError, match="shapes"), enough_memory():
        raise RuntimeError("shapes do not fit")
