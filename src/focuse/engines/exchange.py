"""Rows of a table that lies in pieces: asked of the processes that own them, and their gradients brought back.

This one needs nothing but torch.distributed, and takes any of our row optimisers; TorchRec's is in torchrec.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from focuse.engines.base import Gradients
from focuse.engines.company import Company


@dataclass(frozen=True)
class Request:
    """What was asked: `send` ids of each process and `receive` from each, whose ids are `asked` [R]."""

    send: list[int]
    receive: list[int]
    asked: Tensor


class Exchange:
    """The rows `first` to `last` of a table of `size` rows, `rows` [last − first, d], which this process owns.

    They may lie in main memory while everything is computed on a GPU: then only the rows of a step travel.
    """

    title = "torch.distributed"

    def __init__(self, rows: Tensor, size: int, company: Company) -> None:
        self.rows, self.size, self.company = rows, size, company
        mine = company.part(size)
        self.first, self.last = mine.start, mine.stop
        if len(rows) != self.last - self.first:
            raise ValueError(f"{len(rows)} rows, where {self.last - self.first} are this process's own")

    def fetch(self, ids: Tensor) -> Tensor:
        """Rows of ascending, different ids: [U] -> [U, d], for a look only."""
        return self._rows(self._request(ids))

    def borrow(self, ids: Tensor) -> Tensor:
        """The same for a step, whose `give_back` will bring their gradient."""
        self.request = self._request(ids)
        return self._rows(self.request)

    def give_back(self, gradient: Tensor) -> Gradients:
        """The gradient of what was borrowed [U, d] to the owners; what our optimiser is to do with it here."""
        request = self.request
        found = self.company.swap(gradient, request.send, request.receive)
        distinct, place = torch.unique(request.asked, return_inverse=True)
        total = found.new_zeros(len(distinct), found.shape[1]).index_add_(0, place, found)
        return {"entity": ((distinct - self.first).to(self.rows.device), total.to(self.rows.device))}

    def counted(self, ids: Tensor) -> Tensor:
        """Where this process is the first of those that hold an id: [U] -> bool [U]; so each is counted once."""
        request = self._request(ids)
        distinct, place = torch.unique(request.asked, return_inverse=True)
        every = torch.arange(len(place), device=place.device)
        first = torch.full_like(distinct, len(place)).scatter_reduce_(0, place, every, "amin")
        answer = (first[place] == every).to(torch.uint8)
        return self.company.swap(answer, request.receive, request.send).bool()

    def _request(self, ids: Tensor) -> Request:
        company = self.company
        length = -(-self.size // company.count)
        bounds = torch.arange(company.count + 1, device=ids.device) * length
        send = torch.searchsorted(ids, bounds).diff()
        each = [1] * company.count
        receive = company.swap(send, each, each)
        sent, received = torch.stack([send, receive]).tolist()
        return Request(sent, received, company.swap(ids, sent, received))

    def _rows(self, request: Request) -> Tensor:
        local = (request.asked - self.first).to(self.rows.device)
        rows = self.rows.index_select(0, local).to(request.asked.device, non_blocking=True)
        return self.company.swap(rows, request.receive, request.send)
