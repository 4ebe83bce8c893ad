"""Hidden batches and what their records say."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.records import CorruptBatch, build_batch, check_crc, iter_records, read_header
from qbus.records.control import (
    Announcement,
    Carried,
    Change,
    ChangeKind,
    ControlRecord,
    ControlType,
    Entries,
    History,
    Shared,
    SharedResult,
    control_batch,
    control_type,
    decode_announcement,
    decode_carried,
    decode_entries,
    decode_int64,
    decode_rescheduled,
    decode_result,
    decode_shared,
    empty_batch,
    encode_announcement,
    encode_carried,
    encode_entries,
    encode_int64,
    encode_rescheduled,
    encode_result,
    encode_shared,
    iter_control,
)
from qbus.records.header import HEADER_SIZE, hide_delayed, set_base_offset

INT64 = st.integers(-(2**63), 2**63 - 1)
ENTRIES = st.lists(st.tuples(INT64, INT64), max_size=50).map(
    lambda pairs: Entries(tuple(due for due, _ in pairs), tuple(at for _, at in pairs))
)

COUNT = st.integers(0, 0xFFFF)
HISTORIES = st.builds(History, COUNT, COUNT, COUNT, INT64, st.booleans())


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """A change of any kind; only what was returned has a history."""
    kind = draw(st.sampled_from(ChangeKind))
    first = draw(st.integers(0, 2**62))
    last = first + draw(st.integers(0, 2**61))
    history = draw(HISTORIES) if kind is ChangeKind.RETURNED else History()
    return Change(kind, first, last, history)


@given(ENTRIES, INT64)
def test_every_value_is_read_as_it_was_written(entries: Entries, number: int) -> None:
    assert decode_entries(encode_entries(entries)) == entries
    announcement = Announcement(0xFFFFFFFF, 7, entries)
    assert decode_announcement(encode_announcement(announcement)) == announcement
    assert decode_rescheduled(encode_rescheduled(number, entries)) == (number, entries)
    carried = Carried(number, 1, 2, 3, -1, b"a batch")
    assert decode_carried(encode_carried(carried)) == carried
    assert decode_int64(encode_int64(number)) == number


@given(st.text(max_size=30), st.lists(changes(), max_size=10), st.binary(max_size=30))
def test_what_share_groups_did_is_read_as_it_was_written(
    group: str, made: list[Change], body: bytes
) -> None:
    assert decode_shared(encode_shared(Shared(group, made))) == Shared(group, made)
    result = SharedResult(group, 7, body)
    assert decode_result(encode_result(result)) == result


def test_changes_of_unknown_kinds_are_passed_over() -> None:
    value = encode_shared(Shared("g", [Change(ChangeKind.ARCHIVED, 1, 2)]))
    unknown = bytes((99, 3)) + bytes(16) + b"abc"
    known = Change(ChangeKind.ACKNOWLEDGED, 3, 3)
    value += unknown + encode_shared(Shared("", [known]))[2:]
    assert decode_shared(value).changes == [Change(ChangeKind.ARCHIVED, 1, 2), known]


def test_counts_that_are_too_great_are_written_as_the_greatest() -> None:
    change = Change(ChangeKind.RETURNED, 0, 0, History(70_000, 65_536, 65_535))
    read = decode_shared(encode_shared(Shared("g", [change]))).changes[0].history
    assert read == History(65_535, 65_535, 65_535)


@pytest.mark.parametrize(("first", "last"), [(5, 4), (-1, 4)])
def test_a_change_of_no_records_is_corrupt(first: int, last: int) -> None:
    value = encode_shared(Shared("g", [Change(ChangeKind.ARCHIVED, first, last)]))
    with pytest.raises(CorruptBatch):
        decode_shared(value)


@given(st.binary(max_size=60))
def test_values_that_are_cut_are_corrupt_and_nothing_worse(value: bytes) -> None:
    for decode in (
        decode_entries,
        decode_announcement,
        decode_rescheduled,
        decode_carried,
        decode_int64,
        decode_shared,
        decode_result,
    ):
        with suppress(CorruptBatch):
            decode(value)


def test_a_control_batch_is_hidden_and_holds_its_records_in_order() -> None:
    batch = control_batch(
        [(ControlType.BOUND, encode_int64(5)), (ControlType.EXPIRED, b"")], 1000, producer_id=3
    )
    header = read_header(batch)
    check_crc(batch, header)
    assert (header.is_hidden, header.is_delayed, header.producer_id) == (True, False, 3)
    assert header.max_timestamp == 1000
    assert list(iter_control(batch)) == [
        ControlRecord(0, ControlType.BOUND, encode_int64(5)),
        ControlRecord(1, ControlType.EXPIRED, b""),
    ]


def test_a_control_batch_has_a_record_at_least() -> None:
    with pytest.raises(ValueError, match="at least one"):
        control_batch([], 1000)


@given(
    st.lists(st.tuples(st.sampled_from(ControlType), st.binary(max_size=200)), min_size=1),
    st.integers(0, 2**40),
    st.lists(st.tuples(st.integers(HEADER_SIZE, 2000), st.integers(1, 255)), max_size=2),
)
def test_a_control_batch_is_read_as_any_other_whatever_is_wrong_with_it(
    records: list[tuple[ControlType, bytes]], offset: int, damage: list[tuple[int, int]]
) -> None:
    batch = control_batch(records, 1000)
    set_base_offset(batch, offset, 0)
    for place, change in damage:
        if place < len(batch):
            batch[place] ^= change
    assert read_all(iter_control, batch) == read_all(one_by_one, batch)


def read_all(
    read: Callable[[bytearray], Iterator[ControlRecord]], batch: bytearray
) -> tuple[list[ControlRecord], str]:
    found: list[ControlRecord] = []
    try:
        found.extend(read(batch))
    except CorruptBatch as bad:
        return found, str(bad)
    return found, ""


def one_by_one(batch: bytearray) -> Iterator[ControlRecord]:
    for record in iter_records(batch):
        type_ = control_type(record.key)
        if type_ is not None:
            yield ControlRecord(record.offset, type_, record.value or b"")


def test_records_of_other_types_and_versions_are_passed_over() -> None:
    keys = (b"\0\0\0\0", b"\0\0\0\1", b"\0\1\x03\xe8", b"\0\0\x7f\xff", b"\0\0\x03\xed")
    batch = build_batch([(key, b"v", (), 0) for key in keys], attributes=0x20)
    assert [record.type for record in iter_control(batch)] == [ControlType.BOUND]


@pytest.mark.parametrize("key", [None, b"", b"\0\0\3"])
def test_a_control_record_without_a_key_is_corrupt(key: bytes | None) -> None:
    with pytest.raises(CorruptBatch, match="no key"):
        list(iter_control(build_batch([(key, b"v", (), 0)], attributes=0x20)))


@pytest.mark.parametrize(
    ("attributes", "hidden", "delayed"),
    [
        (0x00, False, False),
        (0x80, False, False),
        (0x20, True, False),
        (0x30, False, False),  # a transaction's marker
        (0xA0, True, True),
        (0xB0, False, False),
    ],
)
def test_what_is_hidden(attributes: int, hidden: bool, delayed: bool) -> None:
    header = read_header(build_batch([(None, b"v", (), 0)], attributes=attributes))
    assert (header.is_hidden, header.is_delayed) == (hidden, delayed)


def test_a_delayed_batch_keeps_its_records_as_they_came() -> None:
    batch = build_batch([(b"k", b"v", [("h", b"x")], 77), (None, None, (), 78)], producer_id=9)
    records = list(iter_records(batch))
    hide_delayed(batch, 5000)
    header = read_header(batch)
    check_crc(batch, header)
    assert header.is_delayed
    assert (header.max_timestamp, header.base_timestamp, header.producer_id) == (5000, 77, 9)
    assert list(iter_records(batch)) == records


def test_an_empty_batch_covers_offsets_and_holds_nothing() -> None:
    batch = empty_batch(100, 110, 4)
    header = read_header(batch)
    check_crc(batch, header)
    assert len(batch) == header.size == 61
    assert (header.base_offset, header.last_offset, header.records_count) == (100, 109, 0)
    assert header.partition_leader_epoch == 4
    assert list(iter_records(batch)) == []
