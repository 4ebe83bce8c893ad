"""Requests without an answer: matched in order, failed in time, whoever still waits."""

import asyncio

import pytest

from qbus.clients.errors import ConnectionFailed, RequestTimedOut
from qbus.clients.net.in_flight import InFlightRequests
from qbus.errors import WireError
from qbus.wire import ApiKey
from tests.support.waiting import eventually


def frame(correlation_id: int, body: bytes = b"") -> memoryview:
    return memoryview(correlation_id.to_bytes(4, "big") + body)


async def test_answers_go_to_their_requests() -> None:
    requests = InFlightRequests(lambda _: None)
    answers = [requests.add(number, ApiKey.FETCH, 60.0) for number in (1, 2)]
    assert len(requests) == 2
    for number in (1, 2):
        requests.answered(frame(number, b"%d" % number))
    assert [bytes(await answer)[4:] for answer in answers] == [b"1", b"2"]
    assert len(requests) == 0
    requests.fail("the end")


@pytest.mark.parametrize("answer", [frame(2), frame(0), memoryview(b""), memoryview(b"\1")])
async def test_anything_else_is_refused(answer: memoryview) -> None:
    requests = InFlightRequests(lambda _: None)
    with pytest.raises(WireError, match="without a request"):
        requests.answered(answer)
    first = requests.add(1, ApiKey.FETCH, 60.0)
    with pytest.raises(WireError, match="another request"):
        requests.answered(answer)
    assert not first.done()
    requests.fail("the end")
    await asyncio.gather(first, return_exceptions=True)


async def test_late_requests_have_timed_out_and_the_others_failed() -> None:
    missing: list[str] = []
    requests = InFlightRequests(missing.append)
    patient = requests.add(1, ApiKey.JOIN_GROUP, 60.0)
    hurried = requests.add(2, ApiKey.HEARTBEAT, 0.01)
    await eventually(lambda: missing)
    assert missing == ["no answer to HEARTBEAT in 0.01 s"]
    requests.fail("gone")
    with pytest.raises(ConnectionFailed, match="gone"):
        await patient
    with pytest.raises(RequestTimedOut, match="gone"):
        await hurried


async def test_a_deadline_after_an_answered_one_is_kept() -> None:
    missing: list[str] = []
    requests = InFlightRequests(missing.append)
    requests.add(1, ApiKey.HEARTBEAT, 0.01)
    requests.answered(frame(1))
    behind = requests.add(2, ApiKey.FETCH, 0.05)
    await eventually(lambda: missing)
    assert missing == ["no answer to FETCH in 0.05 s"]
    requests.fail("gone")
    await asyncio.gather(behind, return_exceptions=True)


async def test_a_cancelled_request_can_still_be_late() -> None:
    missing: list[str] = []
    requests = InFlightRequests(missing.append)
    requests.add(1, ApiKey.FETCH, 0.01).cancel()
    await eventually(lambda: missing)
    requests.fail("gone")
    assert len(requests) == 0


async def test_who_is_told_of_an_answer_is_told_as_it_arrives_and_once() -> None:
    told: list[bytes] = []

    def tell(answer: asyncio.Future[memoryview]) -> None:
        told.append(bytes(answer.result()[4:]))

    requests = InFlightRequests(lambda _: None)
    answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
    requests.add(1, ApiKey.PRODUCE, 60.0, answer, tell)
    answer.add_done_callback(tell)
    requests.answered(frame(1, b"stored"))
    assert told == [b"stored"], "without a turn of the loop"
    assert bytes(await answer)[4:] == b"stored"
    await asyncio.sleep(0)
    assert told == [b"stored"]
    requests.fail("the end")


async def test_who_is_told_of_an_answer_is_told_by_the_loop_that_there_is_none() -> None:
    told: list[str] = []
    requests = InFlightRequests(lambda _: None)
    answers: list[asyncio.Future[memoryview]] = []
    for number in range(2):
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        requests.add(number, ApiKey.PRODUCE, 60.0, answer, lambda _: told.append("at once"))
        answer.add_done_callback(
            lambda done: told.append("cancelled" if done.cancelled() else str(done.exception()))
        )
        answers.append(answer)
    answers[0].cancel()
    requests.answered(frame(0))
    requests.fail("gone")
    assert told == []
    await asyncio.gather(*answers, return_exceptions=True)
    assert [text.rpartition(": ")[2] for text in told] == ["cancelled", "gone"]
