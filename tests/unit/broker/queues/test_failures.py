"""Where nothing can be stored, nothing has changed, and callers hear of it."""

import asyncio

import pytest

from qbus.broker.queues.batches import LogBatches, StoredBatch, Stretch
from qbus.broker.queues.outcomes import SettledListeners
from qbus.errors import ApiError, ErrorCode
from qbus.records import build_batch, read_header
from qbus.records.header import write_header
from tests.support.waiting import eventually

from .queues import GROUP, SETTINGS, World, accept, once, records, release, sent, take

pytestmark = pytest.mark.sources  # parts of the broker fail

ONCE = {"once": ""}


def refuse(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the partition take nothing."""

    def append_own(*_: object) -> None:
        raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")

    from qbus.broker.partition.partition import Partition

    monkeypatch.setattr(Partition, "append_own", append_own)


async def test_an_acknowledgement_that_cannot_be_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.add(b"a", b"b", b"c")
    queue = world.queue()
    await take(queue)
    before = world.progress().start
    with monkeypatch.context() as patch:
        refuse(world, patch)
        for what in (accept(queue, 0), release(queue, 1), queue.settle(2)):
            with pytest.raises(ApiError) as caught:
                await what
            assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        with pytest.raises(ApiError):
            await queue.put_back(1, nack=True)
    assert (world.progress().start, queue.in_flight, queue.length) == (before, 3, 0)
    await accept(queue, 0, 2)
    assert queue.counts.acknowledged == 3


async def test_a_lock_that_runs_out_where_nothing_can_be_stored(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("qbus.broker.queues.gate._RETRY_S", 0.02)
    await world.add(b"a")
    queue = world.queue()
    await take(queue)
    with monkeypatch.context() as patch:
        refuse(world, patch)
        await world.pass_time(queue, 31)
        assert (await take(queue), queue.counts.timeouts) == ([], 0)
        assert "cannot be stored" in caplog.text
    await eventually(lambda: queue.counts.timeouts == 1)
    (record,) = await records(queue)
    assert (record.deliveries, record.timeouts) == (2, 1)


async def test_a_filter_where_nothing_can_be_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbus.broker.queues.gate._RETRY_S", 0.0)
    await world.add(b"a", b"b", headers={"qbus-tags": "red"})
    queue = world.queue(filter="none:red")
    with monkeypatch.context() as patch:
        refuse(world, patch)
        assert await take(queue) == []
        await asyncio.sleep(0)
        assert queue.counts.filtered == 0
    assert await take(queue) == []
    await world.settled()
    assert (queue.counts.filtered, queue.length) == (2, 0)


async def test_at_most_once_where_nothing_can_be_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbus.broker.queues.gate._RETRY_S", 0.0)
    await world.add(b"a", headers=ONCE)
    await world.add(b"b")
    queue = world.queue()
    with monkeypatch.context() as patch:
        refuse(world, patch)
        with pytest.raises(ApiError):
            await records(queue, 1, by_headers=once)
        taken = await records(queue, 2, by_headers=once)
        assert [record.value for record in taken] == [b"b"]
    taken = await records(queue, 2, by_headers=once)
    assert [record.value for record in taken] == [b"a"]


class Waiting:
    def __init__(self) -> None:
        self.calls = 0

    def ready(self, queue: object) -> bool:
        self.calls += 1
        return True


async def test_who_waits_hears_of_what_could_not_be_given_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbus.broker.queues.gate._RETRY_S", 0.02)
    await world.add(b"a", headers=ONCE)
    queue = world.queue()
    waiting = Waiting()
    with monkeypatch.context() as patch:
        refuse(world, patch)
        with pytest.raises(ApiError):
            await records(queue, 1, by_headers=once)
        queue.wait(waiting)
        await asyncio.sleep(0)
        assert waiting.calls == 0
    await eventually(lambda: waiting.calls == 1)


async def test_a_group_that_cannot_begin(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        refuse(world, patch)
        with pytest.raises(ApiError) as caught:
            world.queue()
        assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        with pytest.raises(ApiError):
            await take(world.queue(auto_offset_reset="by_duration:PT1H"))
    await world.add(b"a")
    assert await take(world.queue()) == [b"a"]


async def test_answers_wait_for_the_high_watermark(world: World) -> None:
    await world.add(b"a", b"b")
    queue = world.queue()
    await take(queue)
    world.plane.disk.hold_syncs()
    first = asyncio.create_task(accept(queue, 0))
    other = asyncio.create_task(accept(queue, 1))
    await eventually(lambda: world.progress().is_done(1))
    end = world.partition.log.log_end_offset
    await asyncio.sleep(0.02)
    assert (first.done(), other.done()) == (False, False)
    assert world.progress().mentioned_at == end - 1
    world.plane.disk.release_syncs()
    await asyncio.gather(first, other)


async def test_acknowledgements_of_one_turn_are_one_batch(world: World) -> None:
    await world.add(*[b"x"] * 20)
    queue, other = world.queue(), world.queue("others")
    await take(queue)
    await take(other)
    await world.settled()
    before = world.partition.log.log_end_offset
    await asyncio.gather(
        *[accept(queue, offset) for offset in range(20)], *[accept(other, at) for at in (1, 3)]
    )
    batch = world.partition.log.read_batch(before, wait=True)
    assert batch is not None
    with batch:
        assert (batch.first_offset, batch.next_offset) == (before, before + 2)
    assert world.partition.log.log_end_offset == before + 2, "a record for each group"


async def test_a_result_that_is_too_large_is_refused_before_anything_is_begun(
    world: World,
) -> None:
    await world.add(b"a")
    queue = world.queue()
    await take(queue)
    with pytest.raises(ApiError) as caught:
        await queue.settle(0, b"x" * (1 << 20))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    await accept(queue, 0)


async def test_large_results_of_one_turn_are_several_batches(world: World) -> None:
    await world.add(*[b"x"] * 6)
    queue = world.queue()
    await take(queue)
    body = b"y" * 400_000
    assert all(await asyncio.gather(*[queue.settle(offset, body) for offset in range(6)]))
    log, sizes, offset = world.partition.log, [], 7
    while offset < log.log_end_offset:
        batch = log.read_batch(offset, wait=True)
        assert batch is not None
        with batch:
            sizes.append(len(batch))
            offset = batch.next_offset
    assert len(sizes) == 3
    assert max(sizes) < 1_100_000
    for number in range(6):
        assert await queue.result(number) == body


async def test_what_the_fold_has_not_taken_in_has_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.add(b"a")
    queue = world.queue()
    await take(queue)
    with monkeypatch.context() as patch:
        patch.setattr(type(world.fold), "_apply", lambda *_: None)
        with pytest.raises(ApiError) as caught:
            await accept(queue, 0)
        assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    await accept(queue, 0)


async def test_who_does_not_know_whether_it_was_stored_is_told_so(world: World) -> None:
    await world.add(b"a")
    queue = world.queue()
    await take(queue)
    world.plane.disk.hold_syncs()
    task = asyncio.create_task(accept(queue, 0))
    await eventually(lambda: world.progress().is_done(0))
    world.partition.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(ApiError) as caught:
        await task
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    world.plane.disk.release_syncs()


async def test_a_suspected_leader_gives_nothing_and_goes_on_later(world: World) -> None:
    await world.add(b"a", b"b")
    queue = world.queue()
    await take(queue, 1)
    world.partition.suspect()
    for what in (take(queue), accept(queue, 0)):
        with pytest.raises(ApiError) as caught:
            await what
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(ApiError):
        world.plane.queues.queue(world.partition, GROUP, SETTINGS)
    world.partition.resume()
    await accept(queue, 0)
    assert await take(queue) == [b"b"]


async def test_what_was_given_back_and_is_compacted_away_is_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.add(b"a", b"b", b"c")
    await world.add(b"d")
    queue, other = world.queue(), world.queue("others")
    await take(queue)
    await other.take_batches("a", max_records=10, max_bytes=1 << 20)
    for one in (queue, other):
        await release(one, 1, 3)
    await world.add(b"e")
    kept = bytearray(build_batch([(None, b"a", (), 0), (None, b"b", (), 0)]))
    write_header(kept, read_header(kept)._replace(last_offset_delta=2))
    batch = StoredBatch(read_header(kept), bytes(kept))
    original = LogBatches.at

    def at(batches: LogBatches, offset: int) -> Stretch | None:
        if offset > 3:
            return original(batches, offset)
        return Stretch(0, 2, batch) if offset < 3 else Stretch(3, 3, None)

    monkeypatch.setattr(LogBatches, "at", at)
    assert await take(queue) == [b"b", b"e"]
    assert sent(await other.take_batches("a", max_records=10, max_bytes=1 << 20)) == [b"b", b"e"]
    await world.settled()
    for one in (queue, other):
        assert one.counts.dropped == 2
        assert all(map(world.progress(one.group).is_done, (2, 3)))


class Told:
    """Notes what it is told of."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []

    def told(self, token: object, code: ErrorCode, message: str | None) -> None:
        self.codes.append(code)


async def test_what_was_begun_before_a_disk_fails_is_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hidden_end(*_: object, **__: object) -> int:
        raise OSError("the disk fails")

    await world.add(b"a", b"b", b"c")
    queue = world.queue()
    assert await take(queue, 1) == [b"a"]
    waiting = Told()
    with monkeypatch.context() as patch:
        patch.setattr("qbus.broker.log.log.Log.hidden_end", hidden_end)
        with pytest.raises(OSError, match="the disk fails"):
            queue.begin_to_settle([(0, 0), (2, 2)], waiting, None)
    await world.settled()
    assert world.progress().is_done(0)
    assert not waiting.codes
    assert list(queue.begin_to_settle([(0, 0), (2, 2)], waiting, None)) == [(2, 2)]
    await eventually(lambda: waiting.codes == [ErrorCode.NONE])


@pytest.mark.parametrize("defect", [ValueError("a defect"), OSError("a disk")], ids=["value", "OS"])
async def test_a_defect_where_something_is_stored_leaves_nobody_waiting(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    defect: Exception,
) -> None:
    def append_own(*_: object) -> None:
        raise defect

    await world.add(b"a", b"b")
    queue = world.queue()
    await take(queue)
    with monkeypatch.context() as patch:
        patch.setattr("qbus.broker.partition.partition.Partition.append_own", append_own)
        with pytest.raises(ApiError, match="a defect that the broker's log tells of") as caught:
            await asyncio.wait_for(accept(queue, 0), 5)
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert str(defect) in caplog.text
    assert (queue.in_flight, world.progress().is_done(0)) == (2, False)
    await accept(queue, 0, 1)


async def test_an_entry_that_cannot_be_closed_costs_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settlement(_: object) -> None:
        raise ValueError("a defect")

    await world.add(b"a", b"b")
    queue = world.queue()
    await take(queue)
    waiting = Told()
    with monkeypatch.context() as patch:
        patch.setattr("qbus.broker.queues.settlement.Finishing.settlement", settlement)
        queue.begin_to_settle([(1, 1)], waiting, None)
        await asyncio.wait_for(accept(queue, 0), 5)
    assert waiting.codes == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert world.progress().is_done(0)


async def test_what_follows_from_what_was_stored_may_fail(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def went_on(_: object) -> None:
        raise ValueError("a defect")

    await world.add(b"a", b"b")
    queue, other = world.queue(), world.queue("others")
    for one in (queue, other):
        await take(one)
    with monkeypatch.context() as patch:
        patch.setattr("qbus.broker.queues.queue.ShareQueue.went_on", went_on)
        await asyncio.wait_for(asyncio.gather(accept(queue, 0), accept(other, 1)), 5)
    assert "cannot go on after what was stored" in caplog.text
    assert world.progress().is_done(0)


async def test_what_follows_what_is_appended_may_fail_and_it_is_stored_all_the_same(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def appended(*_: object) -> None:
        raise ValueError("a defect")

    await world.add(b"a", b"b")
    queue = world.queue()
    await take(queue)
    listeners = world.partition._events.appended
    listeners.append(appended)
    await asyncio.wait_for(accept(queue, 0), 5)
    listeners.remove(appended)
    assert "a defect" in caplog.text
    assert (queue.in_flight, world.progress().is_done(0)) == (1, True)
    await world.restart()
    assert await take(world.queue()) == [b"b"]


async def test_one_that_cannot_be_told_keeps_no_others_waiting(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    class Defect(Told):
        def told(self, *_: object) -> None:
            raise ValueError("a defect")

    await world.add(b"a", b"b")
    queue, other = world.queue(), world.queue("others")
    await take(queue)
    await take(other)
    waiting = Told()
    queue.begin_to_settle([(0, 0)], Defect(), None)
    queue.begin_to_settle([(1, 1)], waiting, None)
    await asyncio.wait_for(accept(other, 0), 5)
    await eventually(lambda: waiting.codes == [ErrorCode.NONE])
    assert "a defect" in caplog.text


async def test_all_who_wait_for_a_record_hear_that_it_is_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: bool) -> None:
        raise ValueError("a defect")

    heard: list[bool] = []
    listeners = SettledListeners()
    for offset in (1, 2):
        listeners.add(offset, fail)
        listeners.add(offset, heard.append)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    listeners.tell([1], done)
    assert heard == [True]
    listeners.close()
    assert heard == [True, False]
    assert "a defect" in caplog.text
