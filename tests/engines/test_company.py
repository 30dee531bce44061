"""What processes say to each other; test_sharded.py and others have several of them."""

import pytest
import torch
import torch.distributed as dist

from focuse.engines.company import Company, first_to_say


def test_the_same_refusal_is_said_once_a_start() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    started = {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    assert [first_to_say("no such file", started) for _ in range(3)] == [True, False, False]
    assert first_to_say("another one", started)
    assert first_to_say("no such file", {**started, "TORCHELASTIC_RESTART_COUNT": "1"})
    # Where nobody can be asked, everyone speaks.
    assert all(first_to_say("no such file", {**started, "WORLD_SIZE": "1"}) for _ in range(2))
    assert all(first_to_say("no such file", {**started, "MASTER_PORT": "none"}) for _ in range(2))


@pytest.mark.parametrize("local", [0, 1])
def test_a_process_by_itself_hears_what_it_says(local: int) -> None:
    assert Company(0, 1, torch.device("cpu"), local=local).here(["a", 3]) == ["a", 3]
