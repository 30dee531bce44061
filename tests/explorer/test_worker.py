"""The worker thread of the model: order, refusals and time limits."""

import asyncio
import threading

import pytest

from focuse.explorer import worker as module
from focuse.explorer.problems import Refused
from focuse.explorer.worker import Readers, Worker


def test_questions_are_answered_one_at_a_time_in_one_thread() -> None:
    worker, seen = Worker(), []

    async def all_of_them() -> list[int]:
        return await asyncio.gather(
            *(worker.ask(lambda n=n: seen.append(threading.get_ident()) or n) for n in range(9))
        )

    assert asyncio.run(all_of_them()) == list(range(9))
    assert len(set(seen)) == 1
    assert seen[0] != threading.get_ident()


def test_exception_is_raised_for_the_one_who_asked() -> None:
    with pytest.raises(ZeroDivisionError):
        asyncio.run(Worker().ask(lambda: 1 // 0))


def test_question_without_a_waiting_client_is_not_started() -> None:
    worker, hold, begun, answered = Worker(), threading.Event(), threading.Event(), []
    worker.submit(lambda: (begun.set(), hold.wait(10)))
    assert begun.wait(10)

    async def gone() -> bool:
        return True

    with pytest.raises(Refused, match="nobody waits"):
        asyncio.run(worker.ask(lambda: answered.append(1), gone))
    hold.set()
    worker.submit(lambda: None).result(10)
    assert answered == []


def test_full_queue_refuses_and_slow_answer_times_out() -> None:
    worker, hold = Worker(waiting=1, seconds=0.05), threading.Event()
    begun = threading.Event()
    worker.submit(lambda: (begun.set(), hold.wait(10)))
    assert begun.wait(10)

    async def late() -> None:
        await worker.ask(lambda: 1)

    with pytest.raises(Refused, match=r"no answer within 0\.05 seconds"):
        asyncio.run(late())
    worker2, begun2 = Worker(waiting=1), threading.Event()
    worker2.submit(lambda: (begun2.set(), hold.wait(10)))
    assert begun2.wait(10)
    worker2.submit(lambda: 1)
    with pytest.raises(Refused, match="busy") as refused:
        worker2.submit(lambda: 2)
    assert (refused.value.status, refused.value.again) == (429, 1)
    hold.set()


def held(**room: int) -> tuple[Worker, threading.Event]:
    """A worker whose thread is busy until the event is set."""
    worker, hold, begun = Worker(**room), threading.Event(), threading.Event()
    worker.submit(lambda: (begun.set(), hold.wait(10)))
    assert begun.wait(10)
    return worker, hold


class Clock:
    """Time that passes only when a job says so; it takes the place of the module `time` in the worker."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_slow_questions_do_not_block_quick_ones(clock: Clock) -> None:
    worker, hold = held(waiting=40, dear=3)
    order: list[str] = []
    futures = [worker.submit(lambda n=n: (order.append(f"dear {n}"), clock.advance(0.05)), "dear") for n in range(3)]
    with pytest.raises(Refused, match="busy"):  # their queue is their own
        worker.submit(lambda: None, "dear")
    futures += [worker.submit(lambda: order.append("quick")) for _ in range(30)]
    hold.set()
    for future in futures:
        future.result(10)
    # One dear question at most goes before them; the others wait until quick ones have had their time.
    assert order.index("quick") <= 1
    assert [one for one in order if one != "quick"] == ["dear 0", "dear 1", "dear 2"]


@pytest.mark.parametrize("lane", ["quick", "dear"])
def test_one_client_leaves_room_for_others(lane) -> None:
    worker, hold = held(waiting=3, dear=3)
    futures = [worker.submit(lambda: "mine", lane, client="me") for _ in range(3)]
    with pytest.raises(Refused, match="busy"):
        worker.submit(lambda: "mine", lane, client="me")
    futures += [worker.submit(lambda: "yours", lane, client=name) for name in ("you", "you", "she")]
    with pytest.raises(Refused, match="busy"):  # twice the room of one is the room of all
        worker.submit(lambda: "yours", lane, client="he")
    futures[0].cancel()
    futures.append(worker.submit(lambda: "mine", lane, client="me"))  # what was given up does not count as its own
    hold.set()
    assert [future.result(10) for future in futures[1:]] == ["mine"] * 2 + ["yours"] * 3 + ["mine"]


def test_slow_and_quick_questions_take_turns(clock: Clock) -> None:
    worker, hold = held(waiting=400)
    order: list[str] = []
    futures = [worker.submit(lambda: (order.append("quick"), clock.advance(0.002))) for _ in range(100)]
    futures += [worker.submit(lambda: (order.append("dear"), clock.advance(0.02)), "dear") for _ in range(2)]
    hold.set()
    for future in futures:
        future.result(10)
    assert order[-1] == "quick"


def test_cancelled_questions_free_their_places() -> None:
    worker, hold = held(waiting=2)
    for future in [worker.submit(lambda: 1) for _ in range(2)]:
        future.cancel()
    assert worker.waiting == 2
    answer = worker.submit(lambda: 3)
    hold.set()
    assert answer.result(10) == 3


def test_admitted_question_needs_no_new_place() -> None:
    worker, hold = held(waiting=1)
    worker.submit(lambda: 1)
    with pytest.raises(Refused):
        worker.submit(lambda: 2)
    answer = worker.submit(lambda: 3, admitted=True)
    hold.set()
    assert answer.result(10) == 3


def test_small_graphs_are_read_inline_and_large_ones_by_threads() -> None:
    assert asyncio.run(Readers(inline=True).ask(threading.get_ident)) == threading.get_ident()
    readers, hold = Readers(inline=False, threads=1, waiting=2), threading.Event()

    async def many() -> list[object]:
        asked = [asyncio.create_task(readers.ask(lambda: hold.wait(10))) for _ in range(4)]
        await asyncio.wait(asked[3:], timeout=10)  # the last one is refused
        hold.set()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return [*answers, await readers.ask(threading.get_ident)]

    *answers, thread = asyncio.run(many())
    assert answers[:3] == [True] * 3
    assert isinstance(answers[3], Refused)
    assert answers[3].status == 429
    assert thread != threading.get_ident()
