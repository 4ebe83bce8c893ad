"""What members of a share group get, and what becomes of it."""

import pytest

from qbus.broker.queues import AckRange, AckType, QueueCounts, RecordStatus
from qbus.errors import ApiError, ErrorCode

from .queues import World, accept, records, reject, release, sent, take


async def test_each_record_is_given_to_one_member(world: World) -> None:
    await world.add(b"a", b"b", b"c")
    queue = world.queue()
    assert await take(queue, 2, "m") == [b"a", b"b"]
    assert await take(queue, 2, "n") == [b"c"]
    assert await take(queue, 2, "m") == []
    assert (queue.length, queue.in_flight) == (0, 3)


async def test_what_is_done_is_never_given_again(world: World) -> None:
    await world.add(b"a", b"b", b"c")
    queue = world.queue()
    await take(queue)
    await accept(queue, 0, 2)
    assert world.progress().start == 4, "with the hidden batch behind them"
    await world.restart()
    queue = world.queue()
    assert await take(queue) == []
    await world.add(b"d")
    assert await take(queue) == [b"d"]


async def test_a_new_leader_gives_out_again_what_is_not_done(world: World) -> None:
    await world.add(b"a", b"b", b"c")
    queue = world.queue()
    await take(queue)
    await accept(queue, 1)
    await world.restart()
    assert [(r.value, r.deliveries) for r in await records(world.queue())] == [
        (b"a", 1),
        (b"c", 1),
    ]


async def test_a_record_can_be_acknowledged_by_who_has_it_alone(world: World) -> None:
    await world.add(b"a", b"b", b"c", b"d")
    queue = world.queue()
    await take(queue, 2, "m")
    await take(queue, 1, "n")
    for member, first, last in (("n", 0, 1), ("m", 1, 2), ("m", 3, 3), ("n", 9, 9)):
        with pytest.raises(ApiError) as caught:
            await accept(queue, first, last, member)
        assert caught.value.code is ErrorCode.INVALID_RECORD_STATE
    await accept(queue, 1, 1, "m")
    with pytest.raises(ApiError):
        await accept(queue, 0, 1, "m")
    await accept(queue, 0, 0, "m")


async def test_what_is_before_the_start_may_be_acknowledged_again(world: World) -> None:
    await world.add(b"a", b"b", b"c")
    queue = world.queue()
    await take(queue, 3)
    await accept(queue, 0, 1)
    await accept(queue, 0, 1)
    assert world.progress().start == 2
    await accept(queue, 1, 2)
    assert world.progress().start >= 3
    await queue.acknowledge("another", [AckRange(0, 2, AckType.RELEASE)])
    assert await take(queue) == []


async def test_acknowledgements_are_all_or_none(world: World) -> None:
    await world.add(b"a", b"b", b"c")
    queue = world.queue()
    await take(queue, 2)
    ranges = [AckRange(0, 0, AckType.ACCEPT), AckRange(2, 2, AckType.ACCEPT)]
    with pytest.raises(ApiError):
        await queue.acknowledge("a", ranges)
    assert world.progress().start == 0
    await accept(queue, 0, 1)


async def test_what_is_released_is_given_out_again_and_counted(world: World) -> None:
    await world.add(b"a", b"b")
    queue = world.queue()
    await take(queue)
    await release(queue, 0)
    await accept(queue, 1)
    (again,) = await records(queue, member="n")
    assert (again.value, again.deliveries, again.nacks, again.timeouts) == (b"a", 2, 0, 0)
    await release(queue, 0, member="n", nack=True)
    await world.restart()
    (again,) = await records(world.queue())
    assert (again.deliveries, again.nacks) == (3, 1)


async def test_a_lock_runs_out(world: World) -> None:
    await world.add(b"a")
    queue = world.queue()
    await take(queue)
    await world.pass_time(queue, 29.9)
    assert await take(queue) == []
    await world.pass_time(queue, 0.2)
    (again,) = await records(queue, member="n")
    assert (again.deliveries, again.timeouts) == (2, 1)
    with pytest.raises(ApiError):
        await accept(queue, 0)
    assert queue.counts == QueueCounts(taken=2, timeouts=1)


async def test_a_lock_is_renewed(world: World) -> None:
    await world.add(b"a")
    queue = world.queue()
    await take(queue)
    for _ in range(5):
        await world.pass_time(queue, 20)
        await queue.acknowledge("a", [AckRange(0, 0, AckType.RENEW)])
    assert await take(queue) == []
    await accept(queue, 0)


async def test_what_was_given_out_too_often_is_dropped(world: World) -> None:
    await world.add(b"a", b"b")
    queue = world.queue(delivery_limit=3)
    for delivery in (1, 2, 3):
        assert (await records(queue, 1))[0].deliveries == delivery
        await release(queue, 0)
    assert await take(queue) == [b"b"]
    assert queue.counts.dropped == 1
    assert queue.state_of(0).status is RecordStatus.ACKED


async def test_what_was_given_out_too_often_goes_to_the_dead_letter_topic(world: World) -> None:
    await world.add(b"a", b"b")
    queue = world.queue(delivery_limit=2, dead_letter_topic="dlq")
    await take(queue, 1)
    await world.pass_time(queue, 31)
    await take(queue, 1)
    await release(queue, 0, nack=True)
    await world.until_moved(1)
    ((topic, letter),) = world.box.letters
    assert (topic, letter.value) == ("dlq", b"a")
    assert dict(letter.headers) == {
        "__dlq.errors.topic": b"jobs",
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"0",
        "__dlq.errors.group": b"workers",
        "__dlq.errors.delivery.count": b"2",
        "__dlq.errors.message": b"given out 2 times: 1 refused, 1 timed out",
    }
    assert world.progress().start == 1


async def test_what_is_rejected_is_given_to_nobody(world: World) -> None:
    await world.add(b"a", b"b", b"c")
    queue = world.queue()
    await take(queue)
    await reject(queue, 0)
    queue = world.queue(dead_letter_topic="dlq")
    await reject(queue, 1, 2)
    await world.until_moved(2)
    assert [letter.value for _, letter in world.box.letters] == [b"b", b"c"]
    assert (queue.counts.dropped, queue.counts.dead_letters) == (1, 2)
    assert all(map(world.progress().is_done, range(3)))


async def test_batches_are_given_out_as_they_lie_in_the_log(world: World) -> None:
    await world.add(b"a", b"b", b"c")
    await world.add(b"d")
    queue = world.queue()
    taken = await queue.take_batches("m", max_records=2, max_bytes=1 << 20)
    assert taken.acquired == [(0, 1, 1)]
    assert sent(taken) == [b"a", b"b"]
    taken = await queue.take_batches("n", max_records=100, max_bytes=1 << 20)
    assert taken.acquired == [(2, 3, 1)]
    assert sent(taken) == [b"c", b"d"]
    await release(queue, 1, member="m")
    taken = await queue.take_batches("n", max_records=100, max_bytes=1 << 20)
    assert taken.acquired == [(1, 1, 2)]
    assert (await queue.take_batches("n", max_records=1, max_bytes=1)).records == b""
