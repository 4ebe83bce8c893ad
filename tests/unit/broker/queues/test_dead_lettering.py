"""What is given up goes to the dead letter topic, each record at least once."""

import pytest

from qbus.broker.queues import dead_lettering
from qbus.broker.queues.dead_lettering import DeadLetter, to_dead_letters
from qbus.errors import ApiError, ErrorCode
from qbus.records import ConsumerRecord, TimestampType, iter_records
from qbus.records.control import History
from tests.support.waiting import eventually

from .queues import GROUP, SETTINGS, World, accept, reject, release, take


async def test_what_waits_for_the_topic_is_not_given_out(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dead_lettering, "_FIRST_RETRY_S", 0.01)
    await world.add(b"a", b"b")
    queue = world.queue(dead_letter_topic="dlq")
    world.box.error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is none")
    await take(queue)
    await reject(queue, 0)
    await eventually(lambda: "wait for their dead letter topic" in caplog.text)
    assert await take(queue) == []
    assert queue.state_of(0).status.value == "active"
    world.box.error = None
    await world.until_moved(1)
    assert [letter.value for _, letter in world.box.letters] == [b"a"]
    assert world.progress().is_done(0)


async def test_a_new_leader_moves_what_its_predecessor_did_not(world: World) -> None:
    await world.add(b"a", b"b", b"c")
    queue = world.queue(dead_letter_topic="dlq", delivery_limit=1)
    world.box.error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    await take(queue)
    await reject(queue, 0)
    await release(queue, 2)
    await world.restart()
    world.box.error = None
    queue = world.queue(dead_letter_topic="dlq", delivery_limit=1)
    assert await take(queue) == [b"b"]
    await world.until_moved(2)
    messages = [dict(letter.headers)["__dlq.errors.message"] for _, letter in world.box.letters]
    assert messages == [b"rejected", b"given out 1 times: 0 refused, 0 timed out"]


async def test_without_the_topic_in_the_settings_any_more_it_is_dropped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_lettering, "_FIRST_RETRY_S", 0.01)
    await world.add(b"a")
    queue = world.queue(dead_letter_topic="dlq")
    world.box.error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    await take(queue)
    await reject(queue, 0)
    world.queue()
    await eventually(lambda: queue.counts.dropped == 1)


async def test_what_waits_for_the_topic_takes_no_locks(world: World) -> None:
    await world.add(*[b"%d" % number for number in range(9)])
    queue = world.queue(dead_letter_topic="dlq", partition_max_locks=3)
    world.box.error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for first in (0, 3):
        assert len(await take(queue)) == 3
        assert await take(queue) == []
        await reject(queue, first, first + 2)
    assert await queue.settle(0)
    assert len(await take(queue)) == 3
    assert await take(queue) == []


async def test_many_are_moved_in_batches(world: World) -> None:
    for _ in range(3):
        await world.add(*[b"x" * 50] * 700)
    queue = world.queue(dead_letter_topic="dlq", partition_max_locks=10_000)
    await take(queue, 5000)
    await reject(queue, 0, 2099)
    await world.until_moved(2100)
    offsets = [int(dict(one.headers)["__dlq.errors.offset"] or b"") for _, one in world.box.letters]
    assert offsets == list(range(2100))
    assert world.progress().start >= 2100


async def test_what_is_too_large_for_the_topic_goes_alone_or_compressed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    import os

    noise = os.urandom(3000)
    await world.add(b"a", b"b" * 3000, noise, b"c")
    queue = world.queue(dead_letter_topic="dlq")
    world.box.most_bytes = 1000
    await take(queue)
    await reject(queue, 0, 3)
    await world.until_moved(4)
    assert [one.value for _, one in world.box.letters] == [b"a", b"b" * 3000, b"c"]
    assert "too large for the dead letter topic" in caplog.text


async def test_a_record_that_is_done_meanwhile_is_not_moved(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_lettering, "_FIRST_RETRY_S", 0.01)
    await world.add(b"a", b"b")
    queue = world.queue(dead_letter_topic="dlq")
    world.box.error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    await take(queue)
    await reject(queue, 0, 1)
    assert await queue.settle(0)
    world.box.error = None
    await world.until_moved(1)
    assert [one.value for _, one in world.box.letters] == [b"b"]
    assert queue.counts.acknowledged == 1


async def test_what_retention_took_is_moved_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_lettering, "_FIRST_RETRY_S", 0.01)
    await world.add(b"a")
    await world.add(b"b")
    queue = world.queue(dead_letter_topic="dlq")
    world.box.error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    await take(queue)
    await reject(queue, 0, 1)
    world.partition.delete_records_before(1)
    assert await take(queue) == []
    world.box.error = None
    await eventually(lambda: not len(queue.dead_lettering))
    assert [one.value for _, one in world.box.letters] == [b"b"]


def test_headers_of_a_former_dead_letter_topic_are_replaced() -> None:
    headers = (("k", b"v"), ("__dlq.errors.topic", b"former"), ("__dlq.errors.group", b"former"))
    record = ConsumerRecord("", 0, 7, 5, b"key", None, headers, TimestampType.CREATE_TIME)
    batch = to_dead_letters([DeadLetter(record, History(3, 2, 1))], "t", 4, GROUP)
    (letter,) = iter_records(bytes(batch))
    assert (letter.key, letter.value, letter.timestamp) == (b"key", None, 5)
    assert letter.headers[0] == ("k", b"v")
    assert dict(letter.headers)["__dlq.errors.topic"] == b"t"
    assert len(letter.headers) == 7


async def test_it_stops_with_the_leadership(world: World) -> None:
    await world.add(b"a")
    queue = world.queue(dead_letter_topic="dlq")
    world.box.error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    await take(queue)
    await reject(queue, 0)
    queue.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    queue.dead_lettering.add([])
    await eventually(lambda: queue.dead_lettering._task is None)
    assert SETTINGS.dead_letter_topic == ""
    with pytest.raises(ApiError):
        await accept(queue, 0)
