"""The queue of questions to the model: order, refusals and time limits."""

import asyncio
import threading

import pytest

from focuse.explorer.guards import Lane, ModelQueue
from focuse.explorer.schemas import ProblemError


def busy_queue(**limits: int) -> tuple[ModelQueue, threading.Event]:
    """A queue whose thread is busy until the event is set."""
    queue, release, begun = ModelQueue(**limits), threading.Event(), threading.Event()
    queue.submit(lambda: (begun.set(), release.wait(10)))
    assert begun.wait(10)
    return queue, release


def test_questions_are_answered_one_at_a_time_in_one_thread() -> None:
    queue, threads = ModelQueue(), []

    async def all_of_them() -> list[int]:
        return await asyncio.gather(
            *(queue.run(lambda n=n: threads.append(threading.get_ident()) or n) for n in range(9))
        )

    assert asyncio.run(all_of_them()) == list(range(9))
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()


def test_exception_is_raised_for_the_client_that_asked() -> None:
    with pytest.raises(ZeroDivisionError):
        asyncio.run(ModelQueue().run(lambda: 1 // 0))


def test_question_of_a_client_that_left_is_not_started() -> None:
    queue, release = busy_queue()
    answered: list[int] = []

    async def is_gone() -> bool:
        return True

    with pytest.raises(ProblemError, match="has left"):
        asyncio.run(queue.run(lambda: answered.append(1), is_gone=is_gone))
    release.set()
    queue.submit(lambda: None).result(10)
    assert answered == []


def test_late_answer_is_a_problem() -> None:
    queue, release = busy_queue(timeout=0.05)
    with pytest.raises(ProblemError, match=r"no answer within 0\.05 seconds") as refused:
        asyncio.run(queue.run(lambda: 1))
    assert (refused.value.status_code, refused.value.headers) == (503, {"Retry-After": "2"})
    release.set()


@pytest.mark.parametrize("lane", ["quick", "slow"])
def test_full_lane_refuses_more_and_leaves_the_other_lane_open(lane: Lane) -> None:
    queue, release = busy_queue(max_quick=2, max_slow=2)
    futures = [queue.submit(lambda: 1, lane) for _ in range(2)]
    with pytest.raises(ProblemError, match="busy") as refused:
        queue.submit(lambda: 2, lane)
    assert (refused.value.status_code, refused.value.headers) == (429, {"Retry-After": "2"})
    queue.submit(lambda: 3, "slow" if lane == "quick" else "quick")
    futures[0].cancel()  # frees its place
    futures.append(queue.submit(lambda: 4, lane))
    release.set()
    assert [future.result(10) for future in futures[1:]] == [1, 4]


def test_quick_questions_wait_for_one_slow_question_at_most() -> None:
    queue, release = busy_queue()
    order: list[str] = []
    futures = [queue.submit(lambda n=n: order.append(f"slow {n}"), "slow") for n in range(3)]
    futures += [queue.submit(lambda: order.append("quick")) for _ in range(30)]
    release.set()
    for future in futures:
        future.result(10)
    assert order == ["slow 0", *["quick"] * 30, "slow 1", "slow 2"]


def test_slow_questions_are_not_starved_by_quick_ones() -> None:
    queue, release = busy_queue()
    order: list[str] = []

    def quick() -> None:
        order.append("quick")
        if len(order) < 50:  # there is always another quick question
            queue.submit(quick)

    queue.submit(quick)
    slow = [queue.submit(lambda: order.append("slow"), "slow") for _ in range(3)]
    release.set()
    for future in slow:
        future.result(10)
    assert [place for place, lane in enumerate(order) if lane == "slow"][2] < 8
