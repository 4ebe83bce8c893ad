"""Bad batches with good ones behind them: what is served, and where the log goes on."""

import random
from pathlib import Path

import pytest

from qbus.broker.log import Log
from qbus.broker.log.damage import DamagedRange
from qbus.broker.log.damage_file import (
    DAMAGED_BATCHES,
    BadDamageFile,
    DamageEntry,
    decode_damage,
    encode_damage,
)
from qbus.broker.log.scan import Place
from qbus.errors import ApiError, ErrorCode
from qbus.records import CorruptBatch, iter_batches, iter_records
from tests.support.logs import NOW_MS, batch

from .conftest import OpenLog

SIZE = len(batch(b"0" * 600))
COUNT = 10


def fill(open_log: OpenLog, **config: int) -> None:
    """Ten batches of one record, flushed; no checkpoint."""
    log = open_log(**config)
    for number in range(COUNT):
        log.append(batch(b"%d" % number * 600, timestamp=NOW_MS + number), 0)
    log.flush()


def segment(directory: Path, base: int = 0) -> Path:
    return directory / f"{base:020d}.log"


def spoil(path: Path, position: int, mask: int = 0xFF) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def serve(log: Log) -> Log:
    """What a partition does whose only replica this is."""
    assert not log.is_usable, "it must not lead while another replica may have everything"
    assert log.can_serve_around_damage
    log.serve_around_damage()
    log.flush()
    return log


def read_all(log: Log) -> tuple[list[int], list[int]]:
    """The offsets that can be read, and those that are CORRUPT_MESSAGE."""
    readable: list[int] = []
    corrupt: list[int] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            found = log.read(offset, 1, wait=True)
            assert found is not None
            found.verify()
        except CorruptBatch:
            corrupt.append(offset)
            offset += 1
            continue
        for _, one in iter_batches(found.read()):
            for record in iter_records(one):
                if record.offset >= offset:
                    readable.append(record.offset)
                    offset = record.offset + 1
    return readable, corrupt


def ranges(log: Log) -> list[tuple[int, int]]:
    return [(one.first_offset, one.last_offset) for one in log.damage]


PLACES = {
    "base offset": 3,
    "length": 11,
    "long length": 8,
    "leader epoch": 15,
    "magic": 16,
    "sum": 18,
    "last offset delta": 26,
    "producer id": 45,
    "records": 100,
    "last byte": SIZE - 1,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("bad", [0, 1, 5, 8])
@pytest.mark.parametrize("recovery_point", [0, COUNT], ids=["above", "below"])
def test_everything_around_a_bad_batch_is_served(
    open_log: OpenLog, directory: Path, place: str, bad: int, recovery_point: int
) -> None:
    fill(open_log)
    spoil(segment(directory), bad * SIZE + PLACES[place])
    log = open_log(recovery_point=recovery_point)
    if not log.is_usable:
        serve(log)
    others = [offset for offset in range(COUNT) if offset != bad]
    assert read_all(log) == (others, [bad])
    assert ranges(log) == [(bad, bad)]
    assert log.log_end_offset == COUNT
    assert log.append(batch(b"behind", timestamp=NOW_MS), 0).first_offset == COUNT
    assert read_all(log) == ([*others, COUNT], [bad])


def test_the_last_batch_above_the_recovery_point_is_torn_and_cut(
    open_log: OpenLog, directory: Path
) -> None:
    fill(open_log)
    spoil(segment(directory), 9 * SIZE + 100)
    log = open_log()
    assert log.is_usable
    assert (log.log_end_offset, log.damage) == (9, [])


def test_the_last_batch_below_the_recovery_point_keeps_its_offsets(
    open_log: OpenLog, directory: Path
) -> None:
    fill(open_log)
    spoil(segment(directory), 9 * SIZE + 11)
    log = serve(open_log(recovery_point=COUNT))
    assert ranges(log) == [(9, 9)]
    assert log.append(batch(b"behind"), 0).first_offset == COUNT
    log.flush()
    assert segment(directory).read_bytes()[9 * SIZE + 12 : 10 * SIZE], "nothing is overwritten"
    assert read_all(log) == ([*range(9), COUNT], [9])


def test_several_bad_batches_are_each_a_range(open_log: OpenLog, directory: Path) -> None:
    fill(open_log, segment_bytes=SIZE * 5)
    spoil(segment(directory), 1 * SIZE + 100)
    spoil(segment(directory), 2 * SIZE + 11)
    spoil(segment(directory, 5), 1 * SIZE + 11)
    spoil(segment(directory, 5), 3 * SIZE + 100)
    log = serve(open_log(segment_bytes=SIZE * 5))
    assert read_all(log) == ([0, 3, 4, 5, 7, 9], [1, 2, 6, 8])
    assert ranges(log) == [(1, 2), (6, 6), (8, 8)]
    assert {one.path for one in log.damage} == {
        str(segment(directory)),
        str(segment(directory, 5)),
    }


@pytest.mark.parametrize("state", ["zeros", "cut", "cut in a batch", "missing", "garbage"])
def test_a_middle_segment_below_the_recovery_point_is_a_range(
    open_log: OpenLog, directory: Path, state: str
) -> None:
    fill(open_log, segment_bytes=SIZE * 3)
    path = segment(directory, 3)
    data = path.read_bytes()
    content = {
        "zeros": bytes(len(data)),
        "cut": data[:SIZE],
        "cut in a batch": data[: SIZE + 100],
        "missing": b"",
        "garbage": random.Random(1).randbytes(len(data)),
    }[state]
    path.write_bytes(content)
    if state == "missing":
        path.unlink()
    lost = [4, 5] if state.startswith("cut") else [3, 4, 5]
    expected = [offset for offset in range(COUNT) if offset not in lost], lost
    log = open_log(recovery_point=COUNT, segment_bytes=SIZE * 3)
    if not log.is_usable:
        serve(log)
    assert read_all(log) == expected
    assert ranges(log) == [(lost[0], lost[-1])]
    log.close()
    again = open_log(recovery_point=COUNT, clean=True, segment_bytes=SIZE * 3)
    if state in {"cut", "missing"}:
        serve(again)  # it has no bytes to be repaired: another replica may have all of it by now
    assert again.is_usable
    assert ranges(again) == [(lost[0], lost[-1])]
    assert read_all(again) == expected


def test_records_that_are_missing_at_the_end_keep_their_offsets(
    open_log: OpenLog, directory: Path
) -> None:
    fill(open_log)
    data = segment(directory).read_bytes()
    segment(directory).write_bytes(data[: SIZE * 6 + 100])
    log = serve(open_log(recovery_point=COUNT))
    assert ranges(log) == [(6, 9)]
    assert log.append(batch(b"behind"), 0).first_offset == COUNT
    assert read_all(log) == ([*range(6), COUNT], [6, 7, 8, 9])


@pytest.mark.parametrize(("start", "is_missed"), [(2, True), (3, False), (4, False)])
def test_only_a_segment_with_records_behind_the_log_start_is_missed(
    open_log: OpenLog, directory: Path, start: int, is_missed: bool
) -> None:
    fill(open_log, segment_bytes=SIZE * 3)
    open_log(segment_bytes=SIZE * 3).close()
    segment(directory).unlink()
    log = open_log(recovery_point=COUNT, log_start_offset=start, segment_bytes=SIZE * 3)
    assert log.log_start_offset == max(start, 3)
    assert [one.offset for one in log.corruptions] == ([0] if is_missed else [])


def test_without_any_segment_there_is_nothing_to_serve(open_log: OpenLog, directory: Path) -> None:
    fill(open_log)
    segment(directory).unlink()
    log = open_log(recovery_point=COUNT)
    assert not log.is_usable
    assert not log.can_serve_around_damage
    with pytest.raises(ApiError) as caught:
        log.append(batch(b"x"), 0)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_log_that_is_refused_is_refused_again(open_log: OpenLog, directory: Path) -> None:
    fill(open_log)
    spoil(segment(directory), SIZE + 100)
    open_log().close()
    again = open_log()
    assert not again.is_usable
    assert again.can_serve_around_damage


def test_what_is_known_is_known_after_a_restart_and_since_when(
    open_log: OpenLog, directory: Path
) -> None:
    fill(open_log)
    spoil(segment(directory), SIZE + 11)
    log = serve(open_log())
    since = log.damage[0].since_ms
    log.append(batch(b"behind", timestamp=NOW_MS), 0)
    log.close()
    again = open_log(recovery_point=COUNT + 1, clean=True)
    assert again.is_usable
    assert ranges(again) == [(1, 1)]
    assert again.damage[0].since_ms == since
    assert read_all(again) == ([0, *range(2, COUNT + 1)], [1])
    assert [one.offset for one in again.corruptions] == [1]


@pytest.mark.parametrize("fate", ["deleted", "empty", "halved", "one bit", "of another log"])
def test_the_damage_is_found_again_without_its_file(
    open_log: OpenLog, directory: Path, fate: str
) -> None:
    fill(open_log)
    spoil(segment(directory), SIZE + 11)
    log = serve(open_log())
    log.close()
    path = directory / DAMAGED_BATCHES
    data = path.read_bytes()
    if fate == "deleted":
        path.unlink()
    elif fate == "empty":
        path.write_bytes(b"")
    elif fate == "halved":
        path.write_bytes(data[: len(data) // 2])
    elif fate == "one bit":
        spoil(path, 6, 1)
    else:
        other = DamagedRange(Place(4, 4 * SIZE), Place(6, 6 * SIZE), "", 1)
        path.write_bytes(encode_damage([(0, other)]))
    again = open_log(recovery_point=COUNT, clean=True)
    assert again.is_usable
    assert read_all(again) == ([0, *range(2, COUNT)], [1])
    assert ranges(again) == [(1, 1)]


def test_a_file_says_what_was_written() -> None:
    first = DamagedRange(Place(5, 812), Place(10, 1624), "found before this start", 1)
    second = DamagedRange(Place(12, 2000), Place(14, 2000), "found before this start", 2)
    entries: list[DamageEntry] = [(0, first), (0, second)]
    assert decode_damage(encode_damage(entries)) == entries
    with pytest.raises(BadDamageFile):
        decode_damage(encode_damage(entries)[:-1])


def test_a_segment_that_goes_takes_its_damage_with_it(open_log: OpenLog, directory: Path) -> None:
    config = {"segment_bytes": SIZE * 3, "retention_bytes": SIZE * 4}
    fill(open_log, **config)
    spoil(segment(directory), SIZE + 11)
    log = serve(open_log(**config))
    assert ranges(log) == [(1, 1)]
    assert log.apply_retention() > 0
    assert log.damage == []
    log.checkpoint()
    assert not (directory / DAMAGED_BATCHES).exists()


def test_timestamps_are_looked_up_around_it(open_log: OpenLog, directory: Path) -> None:
    fill(open_log)
    spoil(segment(directory), 3 * SIZE + 100)
    log = serve(open_log())
    found = log.offset_for_timestamp(NOW_MS + 3)
    assert found is not None
    assert found.offset == 4
    latest = log.offset_of_max_timestamp()
    assert latest is not None
    assert latest.offset == COUNT - 1


def test_a_cut_goes_before_or_behind_it(open_log: OpenLog, directory: Path) -> None:
    fill(open_log)
    spoil(segment(directory), 3 * SIZE + 11)
    log = serve(open_log())
    assert log.truncate_to(6) == 6
    assert read_all(log) == ([0, 1, 2, 4, 5], [3])
    assert log.truncate_to(2) == 2
    assert log.damage == []
    assert read_all(log) == ([0, 1], [])


def test_bytes_that_went_bad_are_checked_again_before_they_are_served(
    open_log: OpenLog, directory: Path
) -> None:
    fill(open_log)
    log = open_log()
    for number in range(COUNT):
        log.append(batch(b"%d" % number * 600, timestamp=NOW_MS + number), 0)
    for bad in (3, COUNT + 3):
        spoil(segment(directory), bad * SIZE + 100)
    while not log.scrub():
        pass
    assert ranges(log) == [(3, 3), (COUNT + 3, COUNT + 3)]
    for bad in (3, COUNT + 3):
        for offset in (bad - 1, bad):
            found = log.read(offset, 2 * SIZE)
            assert found is not None
            assert found.needs_verification
        for offset in (bad - 1, bad + 1):
            found = log.read(offset, SIZE)
            assert found is not None
            assert not found.needs_verification, "only what is damaged lost its check"


@pytest.mark.parametrize("offset", [4, 5])
def test_a_cut_within_a_lost_end_goes_before_it(
    open_log: OpenLog, directory: Path, offset: int
) -> None:
    config = {"segment_bytes": SIZE * 3}
    fill(open_log, **config)
    segment(directory, 3).write_bytes(segment(directory, 3).read_bytes()[:SIZE])
    log = open_log(recovery_point=COUNT, **config)
    assert read_all(log) == ([*range(4), *range(6, COUNT)], [4, 5])
    assert ranges(log) == [(4, 5)]
    assert log.truncation_point(offset) == 4
    assert log.truncate_to(offset) == 4
    assert log.damage == []
    assert log.append(batch(b"behind"), 0).first_offset == 4
    assert read_all(log) == ([*range(5)], [])


def test_a_cut_within_the_lost_end_of_the_log_goes_before_it(
    open_log: OpenLog, directory: Path
) -> None:
    fill(open_log)
    segment(directory).write_bytes(segment(directory).read_bytes()[: SIZE * 6])
    log = serve(open_log(recovery_point=COUNT))
    assert ranges(log) == [(6, 9)]
    assert log.truncate_to(8) == 6
    assert log.damage == []


def test_producers_are_known_from_what_is_left(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    for sequence in range(4):
        one = batch(b"v" * 600, producer_id=7, producer_epoch=0, base_sequence=sequence)
        log.append(one, 0)
    log.flush()
    size = log.size // 4
    spoil(segment(directory), size + 100)
    again = serve(open_log())
    behind = batch(b"v" * 600, producer_id=7, producer_epoch=0, base_sequence=4)
    assert again.append(behind, 0).first_offset == 4


@pytest.mark.parametrize("seed", range(20))
def test_random_damage_hides_nothing_else(open_log: OpenLog, directory: Path, seed: int) -> None:
    chance = random.Random(seed)
    fill(open_log, segment_bytes=SIZE * 4)
    spoiled: set[int] = set()
    for _ in range(chance.randrange(1, 4)):
        offset = chance.randrange(COUNT - 1)
        base = offset // 4 * 4
        position = (offset - base) * SIZE + chance.randrange(SIZE)
        spoil(segment(directory, base), position, 1 << chance.randrange(8))
        spoiled.add(offset)
    log = open_log(segment_bytes=SIZE * 4)
    if not log.is_usable:
        serve(log)
    readable, corrupt = read_all(log)
    assert readable + corrupt
    assert sorted(readable + corrupt) == list(range(COUNT))
    assert set(readable) >= set(range(COUNT)) - spoiled
    log.close()
    again = open_log(recovery_point=COUNT, clean=True, segment_bytes=SIZE * 4)
    assert read_all(again) == (readable, corrupt)
