"""Several processes that train together, as torchrun starts them, and what they say to each other."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import socket
import time
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from focuse.errors import FocuseError

START = "torchrun --nproc-per-node 2 -m focuse train … (GRAPH --out RUN --engine sharded, or --resume RUN)"

MEETING, ANSWER = timedelta(minutes=5), timedelta(seconds=3)  # to come together, and for an address to answer
ASK_AGAIN = 0.05  # seconds
LOST = "another process of this training is gone; torchrun --max-restarts 3 starts all again, from the last checkpoint"


class Company:
    """All processes of a training: this one is number `rank` of `count`, and its tensors are on `device`.

    On its machine it is number `local`, and ranks there follow each other. `job` is a name that all keep when torchrun
    starts them again. Every method is for all of them: each process calls it, in the same order.
    """

    def __init__(
        self, rank: int, count: int, device: torch.device, job: str = "", local: int = 0, store: Any = None
    ) -> None:
        self.rank, self.count, self.device, self.job = rank, count, device, job
        self.local, self.store, self.said = local, store, 0
        self.alone = count == 1 and not (dist.is_available() and dist.is_initialized())

    @property
    def leads(self) -> bool:
        """Whether this one reports and writes."""
        return self.rank == 0

    @property
    def first_here(self) -> bool:
        """Whether this one is the first on its machine."""
        return self.local == 0

    def part(self, size: int) -> slice:
        """This process's share of `size` things; the first has one if anyone has.

        >>> [Company(rank, 3, torch.device("cpu")).part(7) for rank in range(3)]
        [slice(0, 3, None), slice(3, 6, None), slice(6, 7, None)]
        """
        return part(size, self.rank, self.count)

    def sum(self, values: Tensor) -> Tensor:
        """The sum of everyone's `values`, in place; the same bits everywhere."""
        if not self.alone:
            dist.all_reduce(values)
        return values

    def agreed(self, wish: bool) -> bool:
        """Whether anyone wishes it."""
        if self.alone:
            return wish
        found = torch.tensor([float(wish)], device=self.device)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return bool(found.item())

    def told(self, value: Any) -> Any:
        """What the first process says."""
        if self.alone:
            return value
        said = [value]
        dist.broadcast_object_list(said, 0)
        return said[0]

    def here(self, value: Any) -> Any:
        """What the first process of this machine says, of what JSON knows; it may take its time."""
        if self.alone:
            return value
        self.said += 1
        name = f"focuse here {self.rank - self.local} {self.said}"
        if self.first_here:
            self.store.set(name, json.dumps(value))
        while not self.store.check([name]):  # not all at once, as the others do: that is given up after half an hour
            time.sleep(ASK_AGAIN)
        return json.loads(self.store.get(name))

    def swap(self, values: Tensor, send: list[int], receive: list[int]) -> Tensor:
        """Rows to everyone and from everyone: [Σ send, ...] in the order of processes -> [Σ receive, ...]."""
        if self.alone:
            return values
        found = values.new_empty(sum(receive), *values.shape[1:])
        dist.all_to_all_single(found, values.contiguous(), receive, send)
        return found

    def gathered(self, values: Tensor, size: int) -> Tensor:
        """Everyone's part of `size` rows put together: [part, ...] -> [size, ...]."""
        if self.alone:
            return values
        room = part(size, 0, self.count).stop
        mine = values.new_zeros(room, *values.shape[1:])
        mine[: len(values)] = values
        found = values.new_empty(room * self.count, *values.shape[1:])
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # its name until torch 2.12
        gather(found, mine)
        return found[:size]

    def wait(self) -> None:
        """Until all have come this far."""
        self.agreed(False)


def part(size: int, rank: int, count: int) -> slice:
    """The share of `size` things that is number `rank` of `count`; TorchRec cuts tables in the same way."""
    length = -(-size // count)
    return slice(min(size, rank * length), min(size, (rank + 1) * length))


_joined: list[Company] = []


def started(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether torchrun has started this process."""
    return "RANK" in environment and "WORLD_SIZE" in environment and "MASTER_ADDR" in environment


def leads(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is the one that speaks: the first of several, or one by itself."""
    return not started(environment) or environment["RANK"] == "0"


def several(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether torchrun has started more than one process."""
    return started(environment) and int(environment["WORLD_SIZE"]) > 1


def join(device: str) -> Company:
    """The company that torchrun has started, met at its place; 'cuda' is this process's own GPU from then on."""
    if not started():
        raise FocuseError(f"engine 'sharded' is for processes that torchrun starts: {START}")
    if not _joined:
        cuda = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
        if cuda:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        job, store = _meet("cpu:gloo,cuda:nccl" if cuda else "gloo")
        atexit.register(leave)
        where = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
        local = int(os.environ.get("LOCAL_RANK", "0"))
        _joined.append(Company(dist.get_rank(), dist.get_world_size(), where, job, local, store))
    return _joined[0]


def _meet(backend: str) -> tuple[str, Any]:
    """All come together; the name of their job, which the first who comes makes up, and the store they met at.

    torchrun's store outlives workers that it starts again. So the job's name is found there again, and so would be
    addresses of processes that are gone: the first process opens a store for this start, and says where it is.
    """
    from torch.distributed.rendezvous import rendezvous  # only here: not every build of torch has it

    told, rank, count = next(iter(rendezvous("env://")))
    job: bytes = told.compare_set("focuse job", "", uuid.uuid4().hex)
    kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = (_open(told) if rank == 0 else _find(told)) if kept else told
    dist.init_process_group(backend, store=store, rank=rank, world_size=count)
    return job.decode(), store


def _open(told: Any) -> Any:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as towards:  # nothing is sent: whence would it be?
        towards.connect((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        address = towards.getsockname()[0]
    store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    name = uuid.uuid4().hex
    store.set("focuse meeting", name)
    told.set("focuse meeting", f"{address} {store.port} {name}")
    return store


def _find(told: Any) -> Any:
    """Where the first process is; what it said before it was started again is of no use."""
    give_up = time.monotonic() + MEETING.total_seconds()
    while True:
        address, port, name = told.get("focuse meeting").decode().split()
        try:
            store = dist.TCPStore(address, int(port), is_master=False, timeout=ANSWER, wait_for_workers=False)  # type: ignore[attr-defined]
            if store.get("focuse meeting").decode() == name:
                store.set_timeout(MEETING)
                return store
        except (RuntimeError, ValueError):
            pass
        if time.monotonic() > give_up:
            raise FocuseError(
                f"the first process does not answer at {address}:{port}; see that machines reach each other"
            )
        time.sleep(0.1)


def joined() -> Company:
    """The company that this process is in."""
    if not _joined:
        raise FocuseError(f"engine 'sharded' is for processes that torchrun starts: {START}")
    return _joined[0]


def lost(error: BaseException) -> bool:
    """Whether an error says that another process is no longer there.

    >>> lost(RuntimeError("[pair.cc:553] Connection closed by peer [127.0.0.1]:27264")), lost(RuntimeError("other"))
    (True, False)
    """
    said = isinstance(error, RuntimeError) and any(words in str(error) for words in ("closed by peer", "reset by peer"))
    return said or type(error).__name__ in ("DistBackendError", "DistNetworkError")


def first_to_say(text: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether no other process of this start has said the same: a refusal that all come to is told once.

    They ask torchrun's store, which is there before they meet; where there is none, everyone speaks.
    """
    if not several(environment) or environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return True
    said = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    key = f"focuse said {environment.get('TORCHELASTIC_RESTART_COUNT', '0')} {said}"
    try:
        place = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
        store = dist.TCPStore(*place, is_master=False, timeout=ANSWER, wait_for_workers=False)  # type: ignore[attr-defined]
        return int(store.add(key, 1)) == 1
    except (RuntimeError, ValueError, KeyError):
        return True


def leave() -> None:
    """Part from it."""
    if _joined:
        _joined.clear()
        dist.destroy_process_group()
