"""One thread for the model: order, refusals, time."""

import asyncio
import threading

import pytest

from focuse.serve.problems import Refused
from focuse.serve.worker import Worker


def test_questions_are_answered_one_at_a_time_in_one_thread() -> None:
    worker, seen = Worker(), []

    async def all_of_them() -> list[int]:
        return await asyncio.gather(
            *(worker.ask(lambda n=n: seen.append(threading.get_ident()) or n) for n in range(9))
        )

    assert asyncio.run(all_of_them()) == list(range(9))
    assert len(set(seen)) == 1
    assert seen[0] != threading.get_ident()


def test_a_fault_reaches_the_one_who_asked() -> None:
    with pytest.raises(ZeroDivisionError):
        asyncio.run(Worker().ask(lambda: 1 // 0))


def test_a_question_that_nobody_waits_for_is_not_begun() -> None:
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


def test_too_many_are_turned_away_and_a_slow_one_is_given_up() -> None:
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
    assert refused.value.status == 503
    hold.set()
