"""The process group of a distributed training, as started by torchrun, and its collective operations.

`current_group()` always returns a group. Without torchrun it has one process, whose collective operations return at
once.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from focuse.errors import FocuseError

TORCHRUN_COMMAND = "torchrun --nproc-per-node 2 -m focuse train … (GRAPH --out RUN --engine sharded, or --resume RUN)"

CONNECT_TIMEOUT, ANSWER_TIMEOUT = timedelta(minutes=5), timedelta(seconds=3)
POLL_INTERVAL = 0.05  # seconds
PEER_LOST = (
    "another process of this training has ended; torchrun --max-restarts 3 restarts all from the last checkpoint"
)


Value = TypeVar("Value")


class ProcessGroup:
    """All processes of a training; this process has the given `rank` of `size`, and its tensors are on `device`.

    `local_rank` is its rank on its machine; the ranks of one machine are consecutive. `job` is the name of the torchrun
    job, which is the same after a restart, and `store` is the key-value store through which the processes connected.
    All processes must call every collective method in the same order. With one process, these methods return their
    argument.

    >>> alone = ProcessGroup()
    >>> alone.rank, alone.size, alone.is_main, alone.any_rank(True), alone.broadcast("a"), alone.shard(5)
    (0, 1, True, True, 'a', slice(0, 5, None))
    """

    def __init__(
        self,
        rank: int = 0,
        size: int = 1,
        device: torch.device | None = None,
        job: str = "",
        local_rank: int = 0,
        store: Any = None,
    ) -> None:
        self.rank, self.size, self.job, self.local_rank, self.store = rank, size, job, local_rank, store
        self.device = torch.device("cpu") if device is None else device
        self._messages = 0

    @property
    def is_single(self) -> bool:
        """Whether this is the only process and torchrun did not start it."""
        return self.size == 1 and self.store is None

    @property
    def command(self) -> str:
        """The command that starts the processes of this group, for messages."""
        return "focuse" if self.is_single else "torchrun … -m focuse"

    @property
    def is_main(self) -> bool:
        """Whether this is the process of rank 0, which reports progress and writes files."""
        return self.rank == 0

    @property
    def is_local_main(self) -> bool:
        """Whether this process has local rank 0 on its machine."""
        return self.local_rank == 0

    def shard(self, count: int) -> slice:
        """Return the slice of `count` rows that belongs to this process.

        >>> [ProcessGroup(rank, 3).shard(7) for rank in range(3)]
        [slice(0, 3, None), slice(3, 6, None), slice(6, 7, None)]
        """
        return shard_slice(count, self.rank, self.size)

    def all_reduce(self, values: Tensor) -> Tensor:
        """Sum `values` over all processes, in place; the result is bitwise equal in all processes."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def any_rank(self, flag: bool) -> bool:
        """Return whether `flag` is true in any process."""
        if self.size == 1:
            return flag
        found = torch.tensor([float(flag)], device=self.device)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return bool(found.item())

    def broadcast(self, value: Any) -> Any:
        """Return the `value` of the main process in every process."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, 0)
        return values[0]

    def broadcast_on_host(self, value: Any) -> Any:
        """Return the JSON-serializable `value` of local rank 0 in every process of this machine, without a timeout."""
        if self.size == 1:
            return value
        self._messages += 1
        name = f"focuse here {self.rank - self.local_rank} {self._messages}"
        if self.is_local_main:
            self.store.set(name, json.dumps(value))
        while not self.store.check([name]):  # polling, because a collective call times out after half an hour
            time.sleep(POLL_INTERVAL)
        return json.loads(self.store.get(name))

    def all_to_all(self, values: Tensor, send: list[int], receive: list[int]) -> Tensor:
        """Send rows to every process and receive rows from every process.

        `values` [Σ send, ...] holds the rows for each process in the order of ranks; the result is [Σ receive, ...].
        """
        if self.size == 1:
            return values
        found = values.new_empty(sum(receive), *values.shape[1:])
        dist.all_to_all_single(found, values.contiguous(), receive, send)
        return found

    def all_gather(self, values: Tensor, count: int) -> Tensor:
        """Concatenate the shards of `count` rows of all processes: [shard, ...] -> [count, ...]."""
        if self.size == 1:
            return values
        longest = shard_slice(count, 0, self.size).stop
        padded = values.new_zeros(longest, *values.shape[1:])
        padded[: len(values)] = values
        found = values.new_empty(longest * self.size, *values.shape[1:])
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # its name until torch 2.12
        gather(found, padded)
        return found[:count]

    def barrier(self) -> None:
        """Wait until all processes have reached this call."""
        self.any_rank(False)

    def run_on_main(self, action: Callable[[], Value]) -> Value:
        """Run `action` in the main process and return its result in all; a FocuseError is raised in all of them."""
        if self.size == 1:
            return action()
        self.barrier()  # no other process may still use what the main process changes
        found: Value | None = None
        failure: tuple[type[FocuseError], str] | None = None
        if self.is_main:
            try:
                found = action()
            except FocuseError as error:
                failure = type(error), str(error)
        found, failure = self.broadcast((found, failure))
        if failure is not None:
            kind, text = failure
            raise kind.__new__(kind, text)  # the constructors of some errors take other arguments
        return cast("Value", found)


def shard_slice(count: int, rank: int, size: int) -> slice:
    """Return the slice of `count` rows that process `rank` of `size` owns; TorchRec shards tables in the same way."""
    length = -(-count // size)
    return slice(min(count, rank * length), min(count, (rank + 1) * length))


_initialized: list[ProcessGroup] = []


def current_group(environment: Mapping[str, str] = os.environ) -> ProcessGroup:
    """Return the group of this process, which has one process unless torchrun started it.

    Before `init_group` is called, the group has the rank and size from torchrun, but the processes cannot communicate.
    """
    if _initialized:
        return _initialized[0]
    if not _launched_by_torchrun(environment):
        return ProcessGroup()
    local_rank = int(environment.get("LOCAL_RANK", "0"))
    return ProcessGroup(int(environment["RANK"]), int(environment["WORLD_SIZE"]), local_rank=local_rank)


def init_group(device: str) -> ProcessGroup:
    """Connect the processes that torchrun has started; afterwards 'cuda' is the GPU of this process's local rank."""
    if not _launched_by_torchrun(os.environ):
        raise FocuseError(f"engine 'sharded' needs processes that torchrun starts: {TORCHRUN_COMMAND}")
    if not _initialized:
        cuda = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        if cuda:
            torch.cuda.set_device(local_rank)
        job, store = _connect("cpu:gloo,cuda:nccl" if cuda else "gloo")
        atexit.register(destroy_group)
        own = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
        _initialized.append(ProcessGroup(dist.get_rank(), dist.get_world_size(), own, job, local_rank, store))
    return _initialized[0]


def destroy_group() -> None:
    """Disconnect the processes."""
    if _initialized:
        _initialized.clear()
        dist.destroy_process_group()


def _launched_by_torchrun(environment: Mapping[str, str]) -> bool:
    return all(name in environment for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"))


def _connect(backend: str) -> tuple[str, Any]:
    """Connect all processes; return the name of their job, which the first process generates, and their store.

    The store of torchrun persists when torchrun restarts its workers, so the name of the job is found there again.
    However, it also keeps the addresses of processes that have ended. Therefore the main process opens a new store for
    each start and publishes its address.
    """
    from torch.distributed.rendezvous import rendezvous  # imported here because not every build of torch has it

    agent_store, rank, size = next(iter(rendezvous("env://")))
    job: bytes = agent_store.compare_set("focuse job", "", uuid.uuid4().hex)
    outlives = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = (_open_store(agent_store) if rank == 0 else _find_store(agent_store)) if outlives else agent_store
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    return job.decode(), store


def _open_store(agent_store: Any) -> Any:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # finds the local address; nothing is sent
        probe.connect((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        address = probe.getsockname()[0]
    store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    name = uuid.uuid4().hex
    store.set("focuse meeting", name)
    agent_store.set("focuse meeting", f"{address} {store.port} {name}")
    return store


def _client(address: str, port: int) -> Any:
    return dist.TCPStore(address, port, is_master=False, timeout=ANSWER_TIMEOUT, wait_for_workers=False)  # type: ignore[attr-defined]


def _find_store(agent_store: Any) -> Any:
    """Return a client of the main process's store; an address that was published before a restart is skipped."""
    give_up = time.monotonic() + CONNECT_TIMEOUT.total_seconds()
    while True:
        address, port, name = agent_store.get("focuse meeting").decode().split()
        try:
            store = _client(address, int(port))
            if store.get("focuse meeting").decode() == name:
                store.set_timeout(CONNECT_TIMEOUT)
                return store
        except (RuntimeError, ValueError):
            pass
        if time.monotonic() > give_up:
            raise FocuseError(
                f"the main process does not answer at {address}:{port}; check the network between the machines"
            )
        time.sleep(0.1)


def join_group(engine: str, device: str, out: object = True) -> ProcessGroup:
    """Return the process group of a training with this engine, initialized if the engine is sharded.

    Raises FocuseError if there are several processes and the engine is not sharded, or if it is sharded and there is
    no folder `out` for the run.
    """
    if engine != "sharded":
        group = current_group()
        if group.size > 1:
            raise FocuseError(
                f"torchrun has started several processes, but engine {engine!r} supports one; use engine 'sharded'"
            )
        return group
    if out is None:
        raise FocuseError(f"engine {engine!r} needs a run folder that all processes can access (out)")
    return init_group(device)


def is_peer_lost(error: BaseException) -> bool:
    """Return whether an error means that another process has ended.

    >>> is_peer_lost(RuntimeError("[pair.cc:553] Connection closed by peer [127.0.0.1]:27264"))
    True
    >>> is_peer_lost(RuntimeError("other"))
    False
    """
    phrases = ("closed by peer", "reset by peer")
    closed = isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in phrases)
    return closed or type(error).__name__ in ("DistBackendError", "DistNetworkError")


def is_first_to_report(text: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process is the first to report `text`, so that an error of all processes is printed once.

    The processes use the store of torchrun, which exists before they connect. Without it, every process reports.
    """
    alone = current_group(environment).size == 1
    if alone or environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return True
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    key = f"focuse said {environment.get('TORCHELASTIC_RESTART_COUNT', '0')} {digest}"
    try:
        store = _client(environment["MASTER_ADDR"], int(environment["MASTER_PORT"]))
        return int(store.add(key, 1)) == 1
    except (RuntimeError, ValueError, KeyError):
        return True
