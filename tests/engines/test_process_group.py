"""Process groups of one process; test_sharded.py and others have several."""

import pytest
import torch
import torch.distributed as dist

from focuse.engines.process_group import ProcessGroup, current_group, is_first_to_report


def test_the_same_error_is_reported_once_per_start() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    started = {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    assert [is_first_to_report("no such file", started) for _ in range(3)] == [True, False, False]
    assert is_first_to_report("another one", started)
    assert is_first_to_report("no such file", {**started, "TORCHELASTIC_RESTART_COUNT": "1"})
    # Without a store every process reports.
    assert all(is_first_to_report("no such file", {**started, "WORLD_SIZE": "1"}) for _ in range(2))
    assert all(is_first_to_report("no such file", {**started, "MASTER_PORT": "none"}) for _ in range(2))


@pytest.mark.parametrize("local_rank", [0, 1])
def test_a_single_process_gets_back_what_it_sends(local_rank: int) -> None:
    group, values = ProcessGroup(local_rank=local_rank), torch.arange(3)
    assert group.broadcast_on_host(["a", 3]) == ["a", 3]
    assert group.broadcast({"a": 1}) == {"a": 1}
    assert [group.any_rank(flag) for flag in (False, True)] == [False, True]
    assert torch.equal(group.all_gather(values, 3), values)
    assert torch.equal(group.all_to_all(values, [3], [3]), values)
    assert torch.equal(group.all_reduce(values.clone()), values)
    assert group.shard(3) == slice(0, 3)
    group.barrier()


def test_without_torchrun_the_group_has_one_process() -> None:
    group = current_group({})
    assert (group.rank, group.size, group.is_main, group.is_local_main) == (0, 1, True, True)


def test_rank_is_read_from_torchrun_before_processes_connect() -> None:
    group = current_group({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1"})
    assert (group.rank, group.size, group.is_main, group.is_local_main) == (3, 4, False, False)
