"""How records are found and read: filters, times to live, batches of all kinds, the disk."""

import asyncio
from random import Random
from typing import Any

import pytest

from qbus.broker.partition.partition import ACKS_ALL
from qbus.broker.queues import AckRange, AckType, AcquiredRange
from qbus.broker.queues.batches import BatchCache, StoredBatch, ttl_of
from qbus.broker.queues.filters import parse_filter, tags_of
from qbus.broker.queues.taking import Offer, Terms
from qbus.broker.queues.types import WaitedFor
from qbus.errors import ApiError, CorruptBatch
from qbus.records import (
    HEADER_SIZE,
    Compression,
    build_batch,
    check_crc,
    encode_records,
    iter_records,
    read_header,
)
from qbus.records.header import LENGTH_PREFIX, set_base_offset, write_header
from qbus.records.record import Headers
from tests.support.waiting import eventually

from .queues import World, accept, once, records, release, sent, take


def tagged(tags: str | None) -> Headers:
    return (("qbus-tags", tags.encode()),) if tags is not None else ()


@pytest.mark.parametrize(
    ("expression", "taken", "left"),
    [
        ("any:a,b", ["a", "b,c", " a , x"], ["c", "", None, "ab"]),
        ("all:a,b", ["a,b", "b,c,a"], ["a", "c", None]),
        ("none:a,b", ["c", "", None], ["a", "c,b"]),
        (" any : a ", ["a"], ["b"]),
    ],
)
def test_what_an_expression_takes(
    expression: str, taken: list[str | None], left: list[str | None]
) -> None:
    known = parse_filter(expression)
    assert known is not None
    assert [known.matches(tagged(tags)) for tags in taken] == [True] * len(taken)
    assert [known.matches(tagged(tags)) for tags in left] == [False] * len(left)


@pytest.mark.parametrize("expression", ["a", "some:a", "any:", "any:a,,b", ":a", "any"])
def test_what_is_no_expression(expression: str) -> None:
    with pytest.raises(ValueError, match="is no filter"):
        parse_filter(expression)


def test_no_expression_takes_all() -> None:
    assert parse_filter(" ") is None
    assert tags_of((("qbus-tags", None),)) == frozenset()


async def test_a_group_gets_what_its_filter_takes(world: World) -> None:
    for tags in ("red", "blue", "red,blue", ""):
        await world.add(tags.encode(), headers={"qbus-tags": tags})
    queue = world.queue(filter="any:red")
    assert await take(queue) == [b"red", b"red,blue"]
    await world.settled()
    assert queue.counts.filtered == 2
    others = world.queue("others", filter="none:red")
    taken = await others.take_batches("m", max_records=10, max_bytes=1 << 20)
    assert sent(taken) == [b"blue", b""]
    await accept(queue, 0)
    await accept(queue, 2)
    assert world.progress().start >= 4, "what is left out is done"


async def test_a_filter_that_cannot_be_read_is_not_applied(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.add(b"a")
    assert await take(world.queue(filter="what")) == [b"a"]
    assert "is no filter" in caplog.text


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
async def test_what_is_too_old_for_its_ttl_is_not_given_out(
    world: World, compression: Compression
) -> None:
    await world.add(b"a", b"b", headers={"qbus-ttl": "10s"}, compression=compression)
    await world.add(b"c")
    queue = world.queue()
    assert await take(queue, 1) == [b"a"]
    world.clock.advance(10)
    await release(queue, 0)
    assert await take(queue) == [b"c"]
    await world.settled()
    assert queue.counts.expired == 2
    assert all(map(world.progress().is_done, (0, 1)))


async def test_thousands_that_are_too_old_are_passed_at_one_call(world: World) -> None:
    for _ in range(10):
        await world.add(*[b"old"] * 1000, headers={"qbus-ttl": "1s"})
    await world.add(b"new")
    world.clock.advance(2)
    queue = world.queue(partition_max_locks=100_000)
    assert await take(queue) == [b"new"]
    await world.settled()
    assert queue.counts.expired == 10_000


def test_when_a_record_expires() -> None:
    assert ttl_of((("other", b"1"), ("qbus-ttl", b"5s"))) == 5_000
    assert ttl_of((("qbus-ttl", b"soon"),)) == -1
    assert ttl_of((("qbus-ttl", None),)) == -1


async def test_each_record_has_its_lock(world: World) -> None:
    for seconds in (b"5", b"100", b"0"):
        await world.add(seconds, headers={"lock": seconds.decode()})
    queue = world.queue()

    def terms(headers: Headers) -> Terms:
        return Terms(1000 * int(headers[0][1] or b"0"), is_once=False)

    taken = await records(queue, by_headers=terms)
    assert len(taken) == 3
    await world.pass_time(queue, 6)
    assert await take(queue) == [b"5"]
    await world.pass_time(queue, 25)
    assert await take(queue) == [b"0"], "the settings' 30 s"
    await world.pass_time(queue, 70)
    assert b"100" in await take(queue)


async def test_at_most_once_a_record_is_done_before_it_is_given_out(world: World) -> None:
    await world.add(b"a", b"b", b"c", headers={"once": ""})
    queue = world.queue()
    await world.settled()
    world.plane.disk.hold_syncs()
    taken: list[Any] = []

    async def work() -> None:
        taken.extend(await records(queue, 2, by_headers=once))

    task = asyncio.create_task(work())
    await eventually(lambda: world.progress().is_done(1))
    assert taken == []
    world.plane.disk.release_syncs()
    await task
    assert [record.value for record in taken] == [b"a", b"b"]
    await accept(queue, 0)  # it is done, as it was
    await world.restart()
    assert await take(world.queue()) == [b"c"]


async def test_some_records_are_given_out_at_most_once(world: World) -> None:
    await world.add(b"once", headers={"once": ""})
    await world.add(b"often")
    queue = world.queue()
    taken = await records(queue, 2, by_headers=once)
    assert [record.value for record in taken] == [b"once", b"often"]
    await world.restart()
    assert await take(world.queue()) == [b"often"]


ONCE = {"qbus-job": "60,0,0,1,00000000", "qbus-ttl": "60s"}


async def test_a_job_without_retry_is_done_before_a_kafka_client_gets_it(world: World) -> None:
    await world.add(b"often")
    await world.add(b"once", b"once", headers=ONCE)
    await world.add(b"often")
    queue = world.queue()
    taken = await queue.take_batches("m", max_records=100, max_bytes=1 << 20)
    assert taken.acquired == [AcquiredRange(0, 3, 1)]
    assert [world.progress().is_done(offset) for offset in range(4)] == [False, True, True, False]
    assert queue.counts.acknowledged == 2
    with pytest.raises(ApiError):
        await accept(queue, 1, 2, member="another")
    await release(queue, 0, 3, member="m")
    assert await take(queue) == [b"often", b"often"]
    await world.pass_time(queue, 60)
    assert await take(queue) == [b"often", b"often"]
    with pytest.raises(ApiError):
        await accept(queue, 1, member="m")
    await world.restart()
    left = [*await take(world.queue()), *await take(world.queue())]  # each of a batch to be read
    assert left == [b"often", b"often"]


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD, Compression.GZIP])
async def test_one_by_one_all_records_of_all_batches_come_in_order(
    world: World, compression: Compression
) -> None:
    expected = []
    queue = world.queue()
    for number in range(30):
        values = [b"%d-%d" % (number, at) + b"x" * (at % 3 * 70) for at in range(number % 7 + 1)]
        await world.add(*values, compression=compression)
        expected += values
    got = []
    while taken := await records(queue, 1):
        got.append(taken[0].value)
        await accept(queue, taken[0].offset)
    assert got == expected
    assert (queue.length, len(world.progress().done)) == (0, 0)


async def test_limits_of_records_and_bytes(world: World) -> None:
    for _ in range(3):
        await world.add(*[b"x" * 1000] * 10)
    queue = world.queue(partition_max_locks=25)
    assert len(await records(queue, max_bytes=2500)) == 3
    assert len(await records(queue, 15)) == 15
    assert len(await records(queue)) == 7, "locks of the partition"
    assert await take(queue) == []
    await accept(queue, 0, 2)
    assert len(await take(queue)) == 3


async def test_limits_of_batches(world: World) -> None:
    for _ in range(3):
        await world.add(*[b"x" * 1000] * 10)
    queue = world.queue()
    size = len(queue.partition.log.read(0, 1) or b"")

    async def get(**limits: Any) -> list[tuple[int, int, int]]:
        limits = {"max_records": 100, "max_bytes": 1 << 20} | limits
        return list((await queue.take_batches("m", **limits)).acquired)

    assert await get(max_bytes=size - 1, min_one=False) == []
    assert await get(max_bytes=1, max_records=4) == [(0, 3, 1)]
    assert await get(max_bytes=2 * size) == [(4, 19, 1)]
    await release(queue, 2, 3, "m")
    assert await get(max_records=1, exact=False) == [(2, 3, 2)]
    assert await get(max_records=3, exact=False) == [(20, 29, 1)], "the last batch whole"
    assert await get() == []


async def test_batches_ascend_wherever_their_records_come_from(world: World) -> None:
    for number in range(4):
        await world.add(b"%d" % number)
    queue = world.queue()
    await take(queue, 3)
    await release(queue, 2)
    await release(queue, 0)
    taken = await queue.take_batches("n", max_records=10, max_bytes=1 << 20)
    assert sent(taken) == [b"0", b"2", b"3"]
    assert taken.acquired == [(0, 0, 2), (2, 2, 2), (3, 3, 1)]


def sparse() -> StoredBatch:
    """A batch that lost some records, as compaction leaves one."""
    batch = bytearray(build_batch([(None, b"%d" % n, (), 0) for n in range(3)]))
    from qbus.records.header import write_header

    header = read_header(batch)
    write_header(batch, header._replace(base_offset=10, last_offset_delta=5))
    return StoredBatch(read_header(batch), bytes(batch))


def test_a_batch_that_lost_records_says_which() -> None:
    batch = sparse()
    assert batch.gaps() == [(13, 15)]
    assert [record.offset for record in batch.records(11, 15)] == [11, 12]
    assert batch.records(13, 15) == []


async def poison(world: World, compression: int) -> int:
    """Append a batch whose checksum is right and whose records cannot be read."""
    from qbus.records.header import write_header

    good = build_batch([(None, b"v", (), world.clock.time_ms())] * 3)
    batch = bytearray(good[:61] + b"\xff" * 40)
    header = read_header(good)._replace(attributes=compression, batch_length=len(batch) - 12)
    write_header(batch, header)
    info = world.partition.append(memoryview(batch), -1)
    await eventually(lambda: world.partition.high_watermark > info.last_offset)
    return info.first_offset


@pytest.mark.parametrize("compression", [0, 1])
async def test_records_that_cannot_be_read_are_given_up(
    world: World, compression: int, caplog: pytest.LogCaptureFixture
) -> None:
    await world.add(b"a")
    first = await poison(world, compression)
    await world.add(b"b")
    queue = world.queue()
    assert await take(queue) == [b"a", b"b"]
    await world.settled()
    assert queue.counts.dropped == 3
    assert all(map(world.progress().is_done, range(first, first + 3)))
    assert "cannot be read, and are given up" in caplog.text
    other = world.queue("filtering", filter="none:red")
    taken = await other.take_batches("m", max_records=10, max_bytes=1 << 20)
    assert sent(taken) == [b"a", b"b"]


async def test_batches_that_cannot_be_decompressed_are_not_sent(world: World) -> None:
    await poison(world, 1)
    await world.add(b"b")
    queue = world.queue()
    taken = await queue.take_batches("m", max_records=10, max_bytes=1 << 20)
    assert sent(taken) == [b"b"]
    await world.settled()
    assert queue.oldest_ms >= 0


def test_records_that_are_cut_are_corrupt() -> None:
    batch = bytes(build_batch([(None, b"v" * 300, (), 0)]))
    cut = bytearray(batch[:-5])
    header = read_header(batch)._replace(batch_length=len(cut) - 12)
    with pytest.raises(CorruptBatch):
        StoredBatch(header, bytes(cut)).records(0, 0)


async def test_memory_is_bounded_however_many_wait(world: World) -> None:
    cache = BatchCache(100_000)
    world.plane.queues._cache = cache
    for _ in range(40):
        await world.add(*[b"x" * 500] * 40)
    queue = world.queue(partition_max_locks=10_000)
    count = 0
    while taken := await records(queue, 37):
        count += len(taken)
        assert cache.size < 400_000
    assert count == 1600
    await release(queue, 5)
    await release(queue, 1500)
    assert [r.offset for r in await records(queue)] == [5, 1500]


@pytest.mark.sources
async def test_what_is_not_in_the_page_cache_is_read_in_a_thread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qbus.broker.log.reader import LogSlice

    await world.add(b"a", b"b")
    monkeypatch.setattr(LogSlice, "is_cached", lambda _: False)
    queue = world.queue()
    assert await take(queue, 1) == [b"a"]
    world.plane.queues._led[world.partition].batches.clear()
    await release(queue, 0)
    assert await take(queue) == [b"a", b"b"]
    taken = await world.queue("other").take_batches("m", max_records=5, max_bytes=1 << 20)
    assert sent(taken) == [b"a", b"b"]


class Waits:
    """Waits for records, and never takes any."""

    def ready(self, queue: WaitedFor) -> bool:
        return True


async def offer(world: World, *values: bytes) -> None:
    """Append a batch, and say so to who waits."""
    batch = encode_records(list(values), base_timestamp=world.clock.time_ms())
    world.partition.append(memoryview(batch), ACKS_ALL)
    world.plane.queues.offer(world.partition, batch)


async def test_what_is_offered_is_given_out_once_it_is_acknowledged(world: World) -> None:
    queue = world.queue()
    await world.settled()
    queue.wait(Waits())
    world.plane.disk.hold_syncs()
    await offer(world, b"a", b"b")
    assert await take(queue) == []
    world.plane.disk.release_syncs()
    await world.settled()
    assert await take(queue) == [b"a", b"b"]
    await accept(queue, 1, 2)
    await offer(world, b"c")
    await world.settled()
    assert await take(queue) == [b"c"], "behind the acknowledgement"


@pytest.mark.sources
async def test_what_is_offered_to_who_waits_need_not_be_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qbus.broker.log.reader import LogSlice

    monkeypatch.setattr(LogSlice, "is_cached", lambda _: False)
    queue = world.queue()
    await world.settled()
    await offer(world, b"a")
    await world.settled()
    assert queue.take_now(Offer("m", 5, 1 << 20)) is None, "nobody waited"
    assert await take(queue) == [b"a"]
    queue.wait(Waits())
    await offer(world, b"b")
    await world.settled()
    taken = queue.take_now(Offer("m", 5, 1 << 20))
    assert taken is not None
    assert [record.value for record in taken.records] == [b"b"]


async def test_what_retention_took_is_done(world: World) -> None:
    for number in range(6):
        await world.add(b"%d" % number)
    queue = world.queue()
    await take(queue, 2)
    await release(queue, 1)
    world.partition.delete_records_before(4)
    assert await take(queue) == [b"4", b"5"]
    await world.settled()
    assert world.progress().start == 4
    await queue.acknowledge("a", [AckRange(0, 0, AckType.ACCEPT), AckRange(1, 5, AckType.ACCEPT)])
    assert world.progress().start >= 6


@pytest.mark.sources
async def test_too_many_returned_records_clog_the_queue(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("qbus.broker.queues.state.MOST_RETURNED", 3)
    await world.add(*[b"%d" % number for number in range(6)])
    queue = world.queue()
    await take(queue, 3)
    await release(queue, 0, 2, delay_ms=60_000)
    assert (await take(queue), queue.delayed) == ([], 3)
    assert "nothing new is given out" in caplog.text
    world.clock.advance(60)
    queue.look()
    assert await take(queue, 3) == [b"0", b"1", b"2"]
    await accept(queue, 0, 2)
    assert await take(queue) == [b"3", b"4", b"5"]


# Large batches of which little is taken


def noise(count: int, seed: int = 1) -> list[bytes]:
    """Values that no codec makes smaller."""
    random = Random(seed)
    return [random.randbytes(100) for _ in range(count)]


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
async def test_of_a_large_batch_only_what_was_taken_is_sent(
    world: World, compression: Compression
) -> None:
    values = noise(1_000)
    first = await world.add(*values, compression=compression)
    whole = len(encode_records(values, base_timestamp=0))
    queue, seen = world.queue(), 0
    while seen < len(values):
        taken = await queue.take_batches("m", max_records=100, max_bytes=1 << 20)
        assert sent(taken) == values[seen : seen + 100]
        assert len(taken.records) < whole / 8
        header = read_header(taken.records)
        check_crc(taken.records, header)
        assert (header.base_offset, header.last_offset) == (first, first + len(values) - 1)
        seen += 100


async def test_what_was_given_back_is_sent_from_the_first_to_the_last_of_it(world: World) -> None:
    values = noise(1_000)
    await world.add(*values)
    queue = world.queue()
    assert len(sent(await queue.take_batches("m", max_records=1_000, max_bytes=1 << 20))) == 1_000
    for offset in (300, 310, 420):
        await release(queue, offset, member="m")
    taken = await queue.take_batches("m", max_records=10, max_bytes=1 << 20)
    assert sent(taken) == [values[300], values[310], values[420]]
    assert 121 * 100 < len(taken.records) < 130 * 110


@pytest.mark.parametrize("compression", list(Compression))
def test_any_part_of_a_batch_has_its_records_as_they_were(compression: Compression) -> None:
    batch = encode_records(
        noise(300),
        keys=[b"%d" % number for number in range(300)],
        base_timestamp=1_000,
        compression=compression,
    )
    set_base_offset(batch, 7_000, 3)
    stored = StoredBatch(read_header(batch), bytes(batch))
    known = {record.offset: record for record in iter_records(bytes(batch))}
    random = Random(2)
    for _ in range(50):
        low = random.randrange(300)
        high = random.randrange(low, 300)
        made = bytes(stored.part(7_000 + low, 7_000 + high))
        check_crc(made, read_header(made))
        found = {record.offset: record for record in iter_records(made)}
        assert found.keys() >= set(range(7_000 + low, 7_000 + high + 1))
        assert all(known[offset] == record for offset, record in found.items())


def test_a_batch_with_a_wrong_checksum_gets_no_right_one() -> None:
    batch = encode_records(noise(300), base_timestamp=0)
    batch[-1] ^= 1
    stored = StoredBatch(read_header(batch), bytes(batch))
    assert stored.part(0, 0) == batch


# Batches that are not what they claim to be: the broker that appends them reads no records


def claiming(count: int, payload: bytes) -> bytearray:
    """A batch whose header claims to have so many records."""
    batch = bytearray(encode_records([b""], base_timestamp=0))
    header = read_header(batch)
    batch[HEADER_SIZE:] = payload
    length = len(batch) - LENGTH_PREFIX
    delta = count - 1
    write_header(
        batch,
        header._replace(batch_length=length, last_offset_delta=delta, records_count=count),
    )
    return batch


def test_a_length_that_leads_back_is_met_once() -> None:
    """It would be looked at as often as there are to be records."""
    back = b"\x85\x80\x00"  # -3, as three bytes
    batch = claiming(1_000, back.ljust(8_000, b"\x00"))
    stored = StoredBatch(read_header(batch), bytes(batch))
    with pytest.raises(CorruptBatch):
        _ = stored.positions
    assert stored.is_broken
    assert stored.part(0, 0) == batch


@pytest.mark.parametrize("tags", ["", "none:red"])
async def test_a_batch_that_claims_more_records_than_fit_into_it_is_given_up_at_once(
    world: World, tags: str
) -> None:
    most = 2**31 - 1
    batch = claiming(most, bytes(100))
    assert StoredBatch(read_header(batch), bytes(batch)).is_broken
    world.partition.append(memoryview(batch), -1)
    await world.add(b"good")
    queue = world.queue(filter=tags)
    for _ in range(2):  # it is stored that those are given up before others are given out
        taken = await queue.take_batches("m", max_records=10, max_bytes=1 << 20, exact=False)
        await world.settled()
    assert (sent(taken), queue.counts.dropped) == ([b"good"], most)


def test_small_batches_and_those_with_gaps_are_sent_whole() -> None:
    small = encode_records(noise(10), base_timestamp=0)
    assert StoredBatch(read_header(small), bytes(small)).part(0, 0) == small
    holed = bytearray(encode_records(noise(300), base_timestamp=0))
    header = read_header(holed)
    write_header(holed, header._replace(last_offset_delta=header.last_offset_delta + 1))
    assert StoredBatch(read_header(holed), bytes(holed)).part(0, 0) == holed
