"""The newest offset of each key, and what is left of batches by it, by both twins."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.errors import CorruptBatch
from qbus.records import HEADER_SIZE, Compression, build_batch, iter_records, read_header
from qbus.records.compact import (
    HORIZON,
    REVISION,
    PortableOffsetMap,
    PortableSifter,
    emptied,
    horizon_of,
    portable_keyless,
    portable_rebased,
    with_records,
)
from qbus.records.control import empty_batch
from qbus.records.header import write_header

NOW = 1_700_000_000_000
INTERVAL = 100

Item = tuple[bytes | None, bytes | None]


class Twin(NamedTuple):
    OffsetMap: Any
    Sifter: Any
    rebased: Any
    keyless: Any


def twins() -> list[Twin]:
    portable = Twin(PortableOffsetMap, PortableSifter, portable_rebased, portable_keyless)
    try:
        from qbus.records import _compact
    except ImportError:
        return [portable]
    assert _compact.REVISION == REVISION, "built from other sources"
    fast: Any = _compact
    return [portable, Twin(fast.OffsetMap, fast.Sifter, fast.rebased, fast.keyless)]


TWINS = twins()


@pytest.fixture(params=TWINS, ids=lambda twin: str(twin.OffsetMap.__module__))
def twin(request: pytest.FixtureRequest) -> Twin:
    found: Twin = request.param
    return found


def made(base_offset: int, *items: Item, timestamp: int = NOW, **fields: Any) -> bytes:
    batch = build_batch(
        [(key, value, (), timestamp + n) for n, (key, value) in enumerate(items)],
        base_offset=base_offset,
        leader_epoch=0,
        **fields,
    )
    return bytes(batch)


def room(twin: Twin, records: int = 1000) -> Any:
    return twin.OffsetMap(1 << 20, records)


def taken(twin: Twin, *batches: bytes, records: int = 1000) -> Any:
    offsets = room(twin, records)
    data = b"".join(batches)
    position, offset = offsets.take_run(data, 0, 0, 0)
    assert position == len(data)
    assert offset == read_header(batches[-1]).last_offset + 1
    return offsets


def changed(batch: bytes, **fields: int) -> bytes:
    out = bytearray(batch)
    write_header(out, read_header(out)._replace(**fields))
    return bytes(out)


class TestOffsetMap:
    def test_the_newest_offset_of_a_key_is_known(self, twin: Twin) -> None:
        offsets = taken(
            twin, made(0, (b"a", b"1"), (b"b", b"2"), (b"a", b"3")), made(5, (b"b", b""))
        )
        assert [offsets.get(key) for key in (b"a", b"b", b"c", b"")] == [2, 5, -1, -1]
        assert (len(offsets), offsets.latest, offsets.is_full) == (2, 5, False)

    def test_empty_keys_count_and_missing_ones_do_not(self, twin: Twin) -> None:
        offsets = taken(twin, made(0, (b"", b"1"), (None, b"2")))
        assert (len(offsets), offsets.get(b""), offsets.latest) == (1, 0, 1)

    def test_records_before_the_start_are_passed_over(self, twin: Twin) -> None:
        offsets = room(twin)
        batch = made(0, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"))
        offsets.take_run(batch, 0, 0, 2)
        assert [offsets.get(key) for key in (b"a", b"b", b"c")] == [-1, -1, 2]
        assert offsets.latest == 2

    def test_when_it_is_full_all_up_to_the_latest_is_in_it(self, twin: Twin) -> None:
        offsets = twin.OffsetMap(1 << 20, 100)
        items = [(b"%d" % n, b"v") for n in range(1000)]
        position, offset = offsets.take_run(made(0, *items), 0, 0, 0)
        assert (position, offset, offsets.is_full) == (0, 0, True)
        assert len(offsets) == offsets.latest + 1
        assert 50 <= len(offsets) <= 200
        for n in range(1000):
            assert offsets.get(b"%d" % n) == (n if n <= offsets.latest else -1)

    def test_known_keys_are_taken_in_when_it_is_full(self, twin: Twin) -> None:
        offsets = twin.OffsetMap(1 << 20, 1)
        most = 0
        while not offsets.is_full:
            offsets.take_run(made(most, (b"%d" % most, b"v")), 0, most, 0)
            most += 1
        full = len(offsets)
        offsets.is_full = False
        assert offsets.take_run(made(100, (b"0", b"v")), 0, 100, 0)[1] == 101
        assert (offsets.get(b"0"), len(offsets), offsets.is_full) == (100, full, False)

    def test_its_memory_bounds_it(self, twin: Twin) -> None:
        offsets = twin.OffsetMap(24 * 1000, 1 << 40)
        offsets.take_run(made(0, *[(b"%d" % n, b"v") for n in range(5000)]), 0, 0, 0)
        assert offsets.is_full
        assert len(offsets) <= 900

    @pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4])
    def test_compressed_batches_are_left(self, twin: Twin, codec: Compression) -> None:
        plain, packed = made(0, (b"a", b"1")), made(1, (b"b", b"2"), compression=codec)
        assert room(twin).take_run(plain + packed, 0, 0, 0) == (len(plain), 1)

    @pytest.mark.parametrize("bit", [0x10, 0x20, 0x30, 0xA0])
    def test_transactions_and_control_batches_are_left(self, twin: Twin, bit: int) -> None:
        assert room(twin).take_run(made(0, (b"a", b"1"), attributes=bit), 0, 0, 0) == (0, 0)

    def test_what_is_damaged_cut_or_out_of_order_is_left(self, twin: Twin) -> None:
        good = made(3, (b"a", b"1"))
        bad = bytearray(good)
        bad[-1] ^= 1
        for data, offset in (
            (bytes(bad), 0),
            (good[:-1], 0),
            (good[:30], 0),
            (b"", 0),
            (good, 4),
            (changed(good, records_count=2), 0),
            (changed(good, records_count=0), 0),
            (changed(good, last_offset_delta=-1), 0),
            (changed(good, magic=1), 0),
        ):
            offsets = room(twin)
            assert offsets.take_run(data, 0, offset, 0) == (0, offset)

    def test_records_that_are_nonsense_are_refused(self, twin: Twin) -> None:
        batch = bytearray(made(0, (b"a", b"1"), (b"b", b"2")))
        batch[HEADER_SIZE] = 0x7F
        write_header(batch, read_header(batch))
        assert room(twin).take_run(bytes(batch), 0, 0, 0) == (0, 0)
        with pytest.raises(CorruptBatch):
            room(twin).take(batch[HEADER_SIZE:], read_header(batch), 0)


class TestSifter:
    def sifted(
        self,
        twin: Twin,
        offsets: Any,
        *batches: bytes,
        newest: frozenset[int] = frozenset(),
        now_ms: int = NOW,
    ) -> Any:
        sifter = twin.Sifter(offsets, newest, now_ms, INTERVAL)
        data = b"".join(batches)
        assert sifter.sift_run(data, 0, 0)[0] == len(data)
        return sifter

    def test_a_batch_with_nothing_to_remove_stays_as_it_is(self, twin: Twin) -> None:
        batch = made(0, (b"a", b"1"), (b"b", b"2"))
        sifter = self.sifted(twin, taken(twin, batch), batch)
        assert bytes(sifter.out) == batch
        assert (sifter.records, sifter.kept, sifter.end_offset) == (2, 2, 2)
        assert sifter.position == len(batch)

    def test_what_is_left_keeps_its_offsets_and_the_batch_its_bounds(self, twin: Twin) -> None:
        first = made(0, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", b"4"))
        last = made(9, (b"b", b"5"))
        sifter = self.sifted(twin, taken(twin, first, last), first, last)
        left = bytes(sifter.out)[: -len(last)]
        header = read_header(left)
        assert (header.base_offset, header.last_offset, header.records_count) == (0, 3, 1)
        assert [(one.offset, one.value, one.timestamp) for one in iter_records(left)] == [
            (2, b"3", NOW + 2)
        ]
        assert header.max_timestamp == NOW + 2
        assert bytes(sifter.out).endswith(last)

    def test_a_batch_of_which_nothing_is_left_goes(self, twin: Twin) -> None:
        old, new = made(0, (b"a", b"1")), made(1, (b"a", b"2"))
        sifter = self.sifted(twin, taken(twin, old, new), old, new)
        assert bytes(sifter.out) == new
        assert (sifter.records, sifter.kept) == (2, 1)

    def test_records_without_a_key_go(self, twin: Twin) -> None:
        batch = made(0, (None, b"1"), (b"a", b"2"))
        sifter = self.sifted(twin, taken(twin, batch), batch)
        assert [one.offset for one in iter_records(bytes(sifter.out))] == [1]

    def test_what_is_behind_the_map_stays_whatever_it_is(self, twin: Twin) -> None:
        known, behind = made(0, (b"a", b"1")), made(1, (b"a", b"2"), (None, b"3"))
        sifter = self.sifted(twin, taken(twin, known), known, behind)
        assert bytes(sifter.out) == known + behind

    def test_keys_that_the_map_does_not_know_stay(self, twin: Twin) -> None:
        clean, dirty = made(0, (b"a", b"1"), (b"b", b"2")), made(2, (b"b", b"3"))
        offsets = room(twin)
        offsets.take_run(dirty, 0, 2, 2)
        sifter = self.sifted(twin, offsets, clean, dirty)
        assert [one.offset for one in iter_records(bytes(sifter.out)[: -len(dirty)])] == [0]

    def test_a_tombstone_without_a_horizon_is_left_to_the_caller(self, twin: Twin) -> None:
        batch = made(0, (b"a", None), (b"b", b"2"), (b"b", b"3"))
        offsets = taken(twin, batch)
        sifter = twin.Sifter(offsets, frozenset(), NOW, INTERVAL)
        assert sifter.sift_run(batch, 0, 0) == (0, 0)
        assert not sifter.out
        left = sifter.sift(batch[HEADER_SIZE:], read_header(batch))
        assert (left.kept, left.tombstones, left.max_timestamp) == (2, 1, NOW + 2)

    @pytest.mark.parametrize(("now_ms", "stays"), [(NOW - 1, True), (NOW, False), (NOW + 1, False)])
    def test_a_tombstone_stays_until_its_horizon(
        self, twin: Twin, now_ms: int, stays: bool
    ) -> None:
        batch = made(0, (b"a", None), (b"b", b"2"), attributes=HORIZON)
        assert horizon_of(read_header(batch)) == NOW
        sifter = self.sifted(twin, taken(twin, batch), batch, now_ms=now_ms)
        assert [one.offset for one in iter_records(bytes(sifter.out))] == [0, 1][not stays :]

    def test_a_newer_value_removes_a_tombstone_before_its_horizon(self, twin: Twin) -> None:
        batch, new = made(0, (b"a", None), attributes=HORIZON), made(1, (b"a", b"1"))
        sifter = self.sifted(twin, taken(twin, batch, new), batch, new, now_ms=0)
        assert bytes(sifter.out) == new

    def test_the_newest_batch_of_a_producer_is_left_to_the_caller(self, twin: Twin) -> None:
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        old, new = made(0, (b"a", b"1"), **fields), made(1, (b"a", b"2"))
        offsets = taken(twin, old, new)
        sifter = twin.Sifter(offsets, frozenset({0}), NOW, INTERVAL)
        assert sifter.sift_run(old + new, 0, 0) == (0, 0)
        other = twin.Sifter(offsets, frozenset({1}), NOW, INTERVAL)
        assert other.sift_run(old + new, 0, 0) == (len(old + new), 2)

    def test_with_log_append_time_the_time_stays(self, twin: Twin) -> None:
        batch = changed(made(0, (b"a", b"1"), (b"a", b"2")), attributes=8, max_timestamp=NOW + 9)
        sifter = self.sifted(twin, taken(twin, batch), batch)
        assert read_header(bytes(sifter.out)).max_timestamp == NOW + 9
        assert [one.timestamp for one in iter_records(bytes(sifter.out))] == [NOW + 9]

    def test_index_entries_say_where_batches_are(self, twin: Twin) -> None:
        batches = [made(n, (b"%d" % n, b"v" * 50), timestamp=NOW - n) for n in range(10)]
        sifter = self.sifted(twin, taken(twin, *batches), *batches)
        assert sifter.points
        for position, last_offset, timestamp, timestamp_offset in sifter.points:
            assert read_header(bytes(sifter.out), position).last_offset == last_offset
            assert (timestamp, timestamp_offset) == (NOW, 0)
        gaps = [
            b.position - a.position for a, b in zip(sifter.points, sifter.points[1:], strict=False)
        ]
        assert all(INTERVAL < gap <= INTERVAL + 2 * len(batches[0]) for gap in gaps)
        assert (sifter.first_timestamp, sifter.max_timestamp) == (NOW, NOW)

    def test_batches_of_the_callers_own_count_as_well(self, twin: Twin) -> None:
        sifter = twin.Sifter(room(twin), frozenset(), NOW, INTERVAL)
        batch = empty_batch(4, 9, 0)
        sifter.add(batch, read_header(batch))
        assert (bytes(sifter.out), sifter.end_offset, sifter.position) == (batch, 9, HEADER_SIZE)


class TestRewriting:
    def test_records_after_another_base_timestamp_are_the_same(self, twin: Twin) -> None:
        batch = made(0, (b"a", None), (b"b", b"2"), (None, b"v" * 300))
        header = read_header(batch)
        records = twin.rebased(batch[HEADER_SIZE:], header, NOW + 86_400_000)
        sifter = twin.Sifter(room(twin), frozenset(), NOW, INTERVAL)
        left = sifter.sift(batch[HEADER_SIZE:], header)
        moved = header._replace(base_timestamp=NOW + 86_400_000)
        assert list(iter_records(bytes(with_records(moved, left, records)))) == list(
            iter_records(batch)
        )

    @pytest.mark.parametrize("cut", [1, 2, 5])
    def test_records_that_are_cut_cannot_be_rewritten(self, twin: Twin, cut: int) -> None:
        batch = made(0, (b"a", b"1"))
        with pytest.raises(CorruptBatch):
            twin.rebased(batch[HEADER_SIZE:-cut], read_header(batch), NOW)

    def test_a_timestamp_must_fit(self, twin: Twin) -> None:
        batch = made(0, (b"a", b"1"), timestamp=2**63 - 9)
        with pytest.raises(CorruptBatch):
            twin.rebased(batch[HEADER_SIZE:], read_header(batch), -(2**62))

    def test_an_emptied_batch_keeps_its_place_and_its_producer(self) -> None:
        batch = made(
            5,
            (b"a", b"1"),
            (b"b", b"2"),
            producer_id=7,
            producer_epoch=1,
            base_sequence=3,
            compression=Compression.GZIP,
            attributes=0x10 | HORIZON,
        )
        header = read_header(bytes(emptied(read_header(batch))))
        assert (header.base_offset, header.last_offset, header.records_count) == (5, 6, 0)
        assert (header.producer_id, header.producer_epoch, header.last_sequence) == (7, 1, 4)
        assert (header.attributes, header.size) == (0x10, HEADER_SIZE)
        assert header.base_timestamp == header.max_timestamp == NOW + 1


class TestKeys:
    @pytest.mark.parametrize(
        ("keys", "found"),
        [
            ((b"a", b""), []),
            ((None,), [0]),
            ((b"a", None, None), [1, 2]),
            ((None, b"b", None, b"d", None), [0, 2]),
        ],
    )
    def test_the_first_records_without_one_are_found(
        self, twin: Twin, keys: tuple[bytes | None, ...], found: list[int]
    ) -> None:
        batch = made(0, *((key, b"v") for key in keys))
        assert twin.keyless(batch[HEADER_SIZE:], read_header(batch), 2) == found

    def test_nonsense_is_refused(self, twin: Twin) -> None:
        batch = made(0, (b"a", b"1"))
        with pytest.raises(CorruptBatch):
            twin.keyless(batch[HEADER_SIZE:] + b"x", read_header(batch), 2)


_items = st.lists(
    st.tuples(
        st.sampled_from([None, b"", b"a", b"b", b"c", b"a long key of more than eight bytes"]),
        st.sampled_from([None, b"", b"1", b"v" * 40]),
    ),
    min_size=1,
    max_size=6,
)


@given(
    st.lists(st.tuples(_items, st.integers(0, 3), st.booleans()), min_size=1, max_size=8),
    st.integers(0, 5),
    st.booleans(),
)
def test_both_twins_leave_the_same(
    batches: list[tuple[list[Item], int, bool]], start: int, horizon_is_over: bool
) -> None:
    data, offset = b"", 0
    for items, gap, marked in batches:
        offset += gap
        data += made(offset, *items, attributes=HORIZON if marked else 0)
        offset += len(items)
    results = []
    for twin in TWINS:
        offsets = room(twin)
        reached = offsets.take_run(data, 0, 0, start)
        sifter = twin.Sifter(offsets, frozenset(), NOW + 99 * horizon_is_over, INTERVAL)
        stopped = sifter.sift_run(data, 0, 0)
        results.append(
            (
                reached,
                len(offsets),
                offsets.latest,
                stopped,
                bytes(sifter.out),
                sifter.points,
                (sifter.records, sifter.kept, sifter.position, sifter.end_offset),
                (sifter.first_timestamp, sifter.max_timestamp, sifter.max_timestamp_offset),
            )
        )
    assert all(result == results[0] for result in results)
