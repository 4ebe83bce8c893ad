"""The copy of another cluster's partition: it holds back what its source does, and does nothing."""

import logging
import random
from typing import cast

import pytest

from qbus.broker.log import LogConfig, Provenance
from qbus.broker.partition.partition import Partition
from qbus.errors import ApiError, ErrorCode
from qbus.records import iter_batches, read_header
from tests.support.waiting import eventually

from .conftest import NewLine
from .delays import DAY, HOUR, NOW, Line, WallClock, state

COPY = {"qbus_mirror_source": "a", "qbus_mirror_topic_id": "id"}
EPOCH = slice(12, 16)


class Copier:
    """Copies what a log has to its mirror, as ``qbus mirror`` does."""

    def __init__(self, source: Line, copy: Line) -> None:
        self.source, self.copy = source, copy

    def missing(self) -> list[bytes]:
        """The batches that the copy lacks."""
        log = self.source.log
        start = max(self.copy.log.log_end_offset, log.log_start_offset)
        found: list[bytes] = []
        while (records := log.read(start, 1 << 20, wait=True)) is not None:
            with records:
                found += [bytes(batch) for _, batch in iter_batches(records.read())]
                start = records.next_offset
        return found

    def write(self, batches: list[bytes]) -> None:
        """Write some of them."""
        if batches:
            log = self.copy.log
            start = self.source.log.log_start_offset
            log.append_mirrored(
                memoryview(bytearray(b"".join(batches))),
                Provenance("a", "id", log.log_end_offset, start),
                0,
            )

    def catch_up(self) -> None:
        self.write(self.missing())


def bytes_of(line: Line) -> dict[int, bytes]:
    """Every batch without its leader epoch, by base offset."""
    found: dict[int, bytes] = {}
    offset = line.log.log_start_offset
    while (records := line.log.read(offset, 1 << 20, wait=True)) is not None:
        with records:
            for header, batch in iter_batches(records.read()):
                whole = bytearray(batch)
                whole[EPOCH] = bytes(4)
                found[header.base_offset] = bytes(whole)
            offset = records.next_offset
    return found


def make_own(line: Line) -> None:
    """Take ``qbus.mirror.source`` out of the topic's configuration."""
    line.settings = {**line.settings, "qbus_mirror_source": "", "qbus_mirror_former_source": "a"}
    line.log.update_config(LogConfig(**line.settings))


def values(line: Line) -> list[bytes]:
    return [record.value or b"" for record in line.visible()]


@pytest.fixture
async def copier(line: Line, new_line: NewLine) -> Copier:
    return Copier(line, new_line(**COPY))


@pytest.mark.parametrize("seed", range(8))
async def test_a_copy_knows_what_its_source_knows_however_it_is_cut(
    new_line: NewLine, clock: WallClock, seed: int
) -> None:
    rng = random.Random(seed)
    settings = {"segment_bytes": rng.choice([2_000, 1 << 30]), "retention_ms": DAY}
    source, copy = new_line(**settings), new_line(**settings, **COPY)
    copier = Copier(source, copy)
    sent: list[int] = []
    for number in range(120):
        chosen = rng.random()
        if chosen < 0.5:
            delay = f"{rng.randrange(1, 100)}h"
            key = b"%d" % (number % 5)
            sent.append(source.send(b"%d" % number, key, delay=delay, ttl="20h"))
        elif chosen < 0.6:
            source.send(b"plain")
        elif chosen < 0.7 and sent:
            source.produce((None, None, {"qbus-cancel": str(rng.choice(sent))}))
        elif chosen < 0.75 and sent:
            later = {"qbus-reschedule": str(rng.choice(sent)), "qbus-delay": "30h"}
            source.produce((None, None, later))
        elif chosen < 0.9:
            clock.advance(rng.randrange(2 * HOUR))
            await source.deliver()
        else:
            copier.catch_up()  # before retention takes what it lacks
            source.log.roll()
            source.log.flush()
            await source.carry()
            source.log.apply_retention()
        if rng.random() < 0.4:
            missing = copier.missing()
            copier.write(missing[: rng.randrange(len(missing) + 1)])
        if rng.random() < 0.1:
            copy.reopen(clean=rng.random() < 0.5)
    copier.catch_up()
    assert state(copy.fold) == state(source.fold)
    assert not copier.missing()
    ours, theirs = bytes_of(source), bytes_of(copy)
    assert {at: batch for at, batch in theirs.items() if at in ours} == ours
    copy.reopen()
    assert state(copy.fold) == state(source.fold)


async def test_a_copy_delivers_carries_and_says_nothing(
    new_line: NewLine, clock: WallClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    copier = Copier(new_line(retention_ms=DAY), new_line(retention_ms=DAY, **COPY))
    copy = copier.copy
    copier.source.send(b"due", delay="1h")
    copier.source.send(b"too late", delay="1h", ttl="1s")
    copier.source.send(b"far", delay="9d")
    copier.catch_up()
    end = copy.log.log_end_offset
    copy.log.roll()
    copy.log.flush()
    clock.advance(2 * DAY)
    for _ in range(3):
        copy.service.watch_clock()
        await copy.service.carry()
        assert copy.log.apply_retention() == 0
        assert copy.delayed._timer is None
    assert copy.log.log_end_offset == end
    assert copy.fold.pending == 3
    count, next_due, records = await copy.service.describe(cast("Partition", copy), (0, -1), 10)
    assert (count, next_due) == (3, NOW + HOUR)
    assert [record.value for record in records] == [b"due", b"too late", b"far"]
    assert not [one for one in caplog.records if one.levelno >= logging.INFO]


async def test_a_copy_starts_with_what_it_holds_back_at_the_latest(
    new_line: NewLine, clock: WallClock
) -> None:
    copier = Copier(new_line(retention_ms=DAY), new_line(retention_ms=DAY, **COPY))
    source, copy = copier.source, copier.copy
    source.send(b"plain")
    place = source.send(b"far", delay="9d")
    source.send(b"plain")
    copier.catch_up()
    end = copy.log.log_end_offset
    assert await copy.service.clear_before(cast("Partition", copy), end) == place
    assert await copy.service.clear_before(cast("Partition", copy), place) == place
    assert await copy.service.clear_before(cast("Partition", copy), 0) == 0
    assert copy.log.log_end_offset == end
    for line in (source, copy):
        line.log.roll()
        line.log.flush()
    clock.advance(2 * DAY)
    assert copy.log.apply_retention() == 0
    await source.carry()
    copier.catch_up()
    assert await copy.service.clear_before(cast("Partition", copy), end) == end
    assert copy.log.apply_retention() == source.log.apply_retention() == 1
    assert state(copy.fold) == state(source.fold)


async def test_orders_to_a_copy_are_refused_as_all_records_are(copier: Copier) -> None:
    copier.source.send(b"far", delay="1h")
    copier.catch_up()
    for headers in ({"qbus-cancel": "0"}, {"qbus-delay": "1s"}, {}):
        with pytest.raises(ApiError, match="mirror of the one in a: only a mirror") as refusal:
            copier.copy.produce((b"k", b"v", headers))
        assert refusal.value.code is ErrorCode.POLICY_VIOLATION
    assert copier.copy.fold.pending == 1


async def test_what_the_source_had_not_delivered_is_taken_over(
    copier: Copier, clock: WallClock, caplog: pytest.LogCaptureFixture
) -> None:
    source, copy = copier.source, copier.copy
    for number in range(100):
        source.send(b"%d" % number, delay=f"{number + 1}m")
    source.produce((None, None, {"qbus-cancel": "99"}))
    clock.advance(30 * 60_000)
    await source.deliver()
    copier.catch_up()
    clock.advance(30 * 60_000)
    await source.deliver()  # which the copy does not get
    caplog.set_level(logging.INFO)
    make_own(copy)
    copy.service.watch_clock()
    await eventually(lambda: len(values(copy)) == 60)
    assert values(copy) == [b"%d" % number for number in range(60)]
    clock.advance(HOUR)
    copy.service.watch_clock()
    await eventually(lambda: not copy.fold.pending)
    assert values(copy) == [b"%d" % number for number in range(99)]
    (said,) = [one.getMessage() for one in caplog.records if one.levelno == logging.INFO]
    assert said == "t-0: mirror of a ended: delivers 69 records that it had not delivered"


async def test_a_copy_that_becomes_a_topic_of_its_own_carries(
    new_line: NewLine, clock: WallClock
) -> None:
    copier = Copier(new_line(), new_line(retention_ms=DAY, **COPY))
    place = copier.source.send(b"far", delay="9d")
    copier.catch_up()
    copy = copier.copy
    copy.log.roll()
    copy.log.flush()
    clock.advance(2 * DAY)
    make_own(copy)
    await copy.carry()
    assert copy.log.apply_retention() == 1
    clock.advance(8 * DAY)
    assert await copy.deliver() == 1
    (record,) = copy.visible()
    assert record.headers[-1] == ("qbus-delayed-offset", b"%d" % place)


@pytest.mark.parametrize("reopened", [None, True, False])
async def test_a_mirror_that_ends_behind_an_announcement(
    copier: Copier, clock: WallClock, reopened: bool | None
) -> None:
    source, copy = copier.source, copier.copy
    source.send(b"v", delay="1s")
    clock.advance(1000)
    await source.deliver()
    missing = copier.missing()
    assert [read_header(batch).is_hidden for batch in missing] == [True, True, False]
    copier.write(missing[:2])
    if reopened is not None:
        copy.reopen(clean=reopened)
    assert (copy.fold.pending, values(copy)) == (1, [])
    make_own(copy)
    copy.send(b"other")  # in the place of what was announced
    assert copy.fold.pending == 1
    await copy.deliver()
    assert values(copy) == [b"other", b"v"]
    assert (await copy.deliver(), copy.fold.pending) == (0, 0)


@pytest.mark.parametrize("reopened", [None, True, False])
async def test_an_announcement_and_its_batch_in_two_writes(
    copier: Copier, clock: WallClock, reopened: bool | None
) -> None:
    source, copy = copier.source, copier.copy
    source.send(b"v", delay="1s")
    clock.advance(1000)
    await source.deliver()
    *first, announced = copier.missing()
    copier.write(first)
    if reopened is not None:
        copy.reopen(clean=reopened)
    copier.write([announced])
    make_own(copy)
    assert (await copy.deliver(), values(copy)) == (0, [b"v"])


async def test_a_mirror_that_starts_when_retention_has_carried(
    new_line: NewLine, clock: WallClock
) -> None:
    source, copy = new_line(retention_ms=DAY), new_line(retention_ms=DAY, **COPY)
    offsets = [source.send(b"%d" % number, delay="9d") for number in range(5)]
    for _ in range(2):
        source.log.roll()
        source.log.flush()
        clock.advance(2 * DAY)
        await source.carry()
        source.log.apply_retention()
    assert source.log.log_start_offset > offsets[-1]
    Copier(source, copy).catch_up()
    assert copy.log.log_start_offset == source.log.log_start_offset
    assert state(copy.fold) == state(source.fold)
    source.produce((None, None, {"qbus-cancel": str(offsets[2])}))
    Copier(source, copy).catch_up()
    make_own(copy)
    clock.advance(9 * DAY)
    await copy.deliver()
    assert values(copy) == [b"0", b"1", b"3", b"4"]


@pytest.mark.parametrize("reopened", [None, True, False])
async def test_a_copy_that_was_overtaken_by_retention(
    new_line: NewLine, clock: WallClock, reopened: bool | None
) -> None:
    """What it knew of before the gap counts no more: what is held back was carried behind it."""
    copier = Copier(new_line(retention_ms=DAY), new_line(retention_ms=DAY, **COPY))
    source, copy = copier.source, copier.copy
    offsets = [source.send(b"%d" % number, b"k", delay="9d") for number in range(5)]
    copier.catch_up()
    source.produce((None, None, {"qbus-cancel": str(offsets[0])}))
    source.produce((None, None, {"qbus-reschedule": str(offsets[1]), "qbus-delay": "8d"}))
    source.produce((None, None, {"qbus-reschedule": str(offsets[2]), "qbus-delay": "1h"}))
    clock.advance(2 * HOUR)
    await source.deliver()
    for _ in range(2):
        source.log.roll()
        source.log.flush()
        clock.advance(2 * DAY)
        source.send(b"plain")
        await source.carry()
        source.log.apply_retention()
    gap = (copy.log.log_end_offset, source.log.log_start_offset)
    assert gap[0] < gap[1]
    copier.catch_up()
    if reopened is not None:
        copy.reopen(clean=reopened)
    assert state(copy.fold)[:2] == state(source.fold)[:2]
    assert {at for at in bytes_of(copy) if at >= gap[1]} == bytes_of(source).keys()
    assert [at for at in bytes_of(copy) if gap[0] <= at < gap[1]] == [gap[1] - 1]
    make_own(copy)
    clock.advance(9 * DAY)
    await copy.deliver()
    assert sorted(set(values(copy))) == [b"1", b"3", b"4", b"plain"]
    assert values(copy).count(b"1") == 1


async def overtake(copier: Copier, clock: WallClock, lying: int = 5) -> None:
    """Let the source's retention remove what the copy lacks, and carry what both hold back."""
    source = copier.source
    for number in range(lying):
        source.send(b"%d" % number, delay="9d")
    copier.catch_up()
    source.send(b"plain")
    source.log.roll()
    source.log.flush()
    clock.advance(DAY // 2)
    for number in range(3):
        source.send(b"p%d" % number)
    source.log.roll()
    source.log.flush()
    clock.advance(3 * DAY // 4)
    await source.carry()
    source.log.apply_retention()
    assert source.log.log_start_offset > copier.copy.log.log_end_offset


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]


@pytest.mark.parametrize("reopened", [None, True, False])
@pytest.mark.parametrize("led_anew", [True, False])
async def test_a_source_that_dies_before_an_overtaken_copy_is_current(
    new_line: NewLine,
    clock: WallClock,
    caplog: pytest.LogCaptureFixture,
    reopened: bool | None,
    led_anew: bool,
) -> None:
    copier = Copier(new_line(retention_ms=DAY), new_line(retention_ms=DAY, **COPY))
    copy = copier.copy
    await overtake(copier, clock)
    copier.write(copier.missing()[:1])
    if reopened is not None:
        copy.reopen(clean=reopened)
    copy.delayed.wake()
    assert not warnings(caplog)
    make_own(copy)
    if led_anew:  # in the same moment: the new leader never saw a copy
        copy.service.stop()
        copy.lead()
    for _ in range(2):
        copy.delayed.wake()
    (said,) = warnings(caplog)
    assert said.startswith("t-0: mirror of a ended before it had copied all behind a gap")
    assert "up to 5 delayed records" in said
    place = copy.send(b"own", delay="9d")
    copy.log.roll()
    copy.log.flush()
    clock.advance(2 * DAY)
    await copy.carry()
    assert (copy.log.apply_retention() > 0, copy.log.log_start_offset > place) == (True, True)
    caplog.clear()
    copy.reopen()
    assert not warnings(caplog)


@pytest.mark.parametrize("reopened", [None, True, False])
async def test_a_source_that_dies_when_an_overtaken_copy_is_current(
    new_line: NewLine,
    clock: WallClock,
    caplog: pytest.LogCaptureFixture,
    reopened: bool | None,
) -> None:
    copier = Copier(new_line(retention_ms=DAY), new_line(retention_ms=DAY, **COPY))
    copy = copier.copy
    await overtake(copier, clock)
    copier.write(copier.missing()[:1])
    if reopened is not None:
        copy.reopen(clean=reopened)
    copier.catch_up()
    if reopened is not None:
        copy.reopen(clean=reopened)
    make_own(copy)
    copy.delayed.wake()
    assert not warnings(caplog)
    clock.advance(9 * DAY)
    await copy.deliver()
    assert sorted(set(values(copy)) - {b"p0", b"p1", b"p2"}) == [b"%d" % n for n in range(5)]


async def test_a_copy_that_is_overtaken_twice_counts_both_times(
    new_line: NewLine, clock: WallClock
) -> None:
    copier = Copier(new_line(retention_ms=DAY), new_line(retention_ms=DAY, **COPY))
    source, copy = copier.source, copier.copy
    await overtake(copier, clock)
    copier.write(copier.missing()[:-1])  # what was carried, and not the BOUND behind it
    assert (copy.fold.pending, copy.fold.maybe_missing) == (5, 5)
    source.log.roll()
    source.log.flush()
    clock.advance(3 * DAY // 2)
    source.send(b"plain")
    source.log.roll()
    source.log.flush()
    clock.advance(3 * DAY // 2)
    await source.carry()
    source.log.apply_retention()
    assert source.log.log_start_offset > copy.log.log_end_offset
    copier.write(copier.missing()[:-1])
    assert (copy.fold.pending, copy.fold.maybe_missing) == (5, 10)
    copier.catch_up()
    assert (copy.fold.pending, copy.fold.maybe_missing) == (5, 0)


async def test_nothing_is_put_into_a_gap_of_a_copy_that_holds_nothing_back(
    new_line: NewLine, clock: WallClock
) -> None:
    copier = Copier(new_line(retention_ms=DAY), new_line(retention_ms=DAY, **COPY))
    source, copy = copier.source, copier.copy
    source.send(b"first")
    copier.catch_up()
    for _ in range(3):
        source.send(b"plain")
        source.log.roll()
    source.log.flush()
    clock.advance(2 * DAY)
    source.log.apply_retention()
    source.send(b"last")
    assert source.log.log_start_offset > copy.log.log_end_offset
    copier.catch_up()
    assert list(bytes_of(copy)) == [0, *bytes_of(source)]
