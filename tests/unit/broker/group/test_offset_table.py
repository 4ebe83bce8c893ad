"""Tables of committed offsets: in C as a dict would be, and what comes packed as one by one."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.group.offset_records import encode_key, encode_value
from qbus.broker.group.offset_table import (
    IS_BUILT,
    Table,
    add_records,
    new_table,
    positions,
    positions_of,
    store,
)
from qbus.broker.group.offsets import NO_TOPIC_ID, Offset
from qbus.records.codec import twin
from qbus.records.header import HEADER_SIZE
from tests.support.positions import packed

pytestmark = pytest.mark.skipif(not IS_BUILT, reason="nothing was compiled here")

TOPIC_ID = bytes(range(16))
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(max_size=20) | st.just("") | st.just("x" * 300)
POSITIONS = st.lists(st.tuples(st.integers(0, 9) | INT32, INT64, INT32, TEXTS), max_size=30)
OFFSETS = st.builds(
    Offset,
    INT64,
    INT32,
    TEXTS,
    INT64,
    st.none() | INT64,
    st.sampled_from([TOPIC_ID, NO_TOPIC_ID, bytes(16), b"another"]),
)


def tabled(positions: Any, committed_at: int, topic_id: bytes) -> dict[int, Offset]:
    return {
        index: Offset(offset, epoch, text, committed_at, None, topic_id)
        for index, offset, epoch, text in positions
    }


def same(table: Table, expected: dict[int, Offset]) -> None:
    assert table == expected
    assert list(table) == list(expected)
    assert list(table.items()) == list(expected.items())
    assert list(table.keys()) == list(expected.keys())
    assert list(table.values()) == list(expected.values())
    assert len(table) == len(expected)
    assert bool(table) is bool(expected)
    assert dict(table) == expected
    asked = [*expected, 77, *expected]
    assert positions_of(table, asked) == positions_of(expected, asked)
    for index in (*expected, 77):
        assert table.get(index) == expected.get(index)
        assert (index in table) is (index in expected)


class TestATable:
    @given(st.data())
    def test_is_as_a_dict_whatever_is_done_to_it(self, data: st.DataObject) -> None:
        table, expected = new_table(), dict[int, Offset]()
        copies: list[tuple[Table, dict[int, Offset]]] = []
        for _ in range(data.draw(st.integers(1, 12))):
            index = data.draw(st.integers(0, 6))
            what = data.draw(st.sampled_from(["set", "set", "pop", "copy", "store", "store"]))
            if what == "set":
                table[index] = expected[index] = data.draw(OFFSETS)
            elif what == "pop":
                assert table.pop(index, None) == expected.pop(index, None)
            elif what == "copy":
                copies.append((table.copy(), expected.copy()))
                if data.draw(st.booleans()):  # either may be changed
                    copies.append((table, expected))
                    table, expected = table.copy(), expected.copy()
            else:
                stored = data.draw(POSITIONS)
                store(table, packed(stored), len(stored), 55, TOPIC_ID)
                expected |= tabled(stored, 55, TOPIC_ID)
        same(table, expected)
        for made, was in copies:
            same(made, was)

    def test_keeps_many_partitions_in_any_order(self) -> None:
        chance = random.Random(1)
        table, expected = new_table(), dict[int, Offset]()
        for turn in range(20):
            indexes = chance.sample(range(3_000), 500)
            stored = [(index, turn, -1, "note" * (index % 2)) for index in indexes]
            store(table, packed(stored), len(stored), turn, TOPIC_ID)
            expected |= tabled(stored, turn, TOPIC_ID)
            for index in chance.sample(range(3_000), 300):
                assert table.pop(index, None) == expected.pop(index, None)
        same(table, expected)

    def test_gives_offsets_that_are_as_any_other(self) -> None:
        table = new_table()
        table[3] = Offset(5, 1, "note", 7, 9, TOPIC_ID)

        found = table[3]

        assert type(found) is Offset
        assert hash(found) == hash(Offset(5, 1, "note", 7, 9, TOPIC_ID))
        assert found._replace(offset=6) == Offset(6, 1, "note", 7, 9, TOPIC_ID)
        assert repr(table) == repr({3: found})

    def test_gives_the_positions_of_some_partitions(self) -> None:
        table = new_table()
        table[3] = Offset(5, 1, "note", 7, 9, TOPIC_ID)

        assert positions_of(table, [4, 3]) == [(4, -1, -1, ""), (3, 5, 1, "note")]

    def test_lacks_what_was_never_committed(self) -> None:
        table = new_table()
        with pytest.raises(KeyError):
            table[0]
        with pytest.raises(KeyError):
            del table[0]
        assert table.pop(0, None) is None
        assert table != object()

    @pytest.mark.parametrize(
        "offset",
        [
            (1, -1, "", 0, None),
            (1, -1, b"", 0, None, TOPIC_ID),
            (1, -1, "", 0, None, "id"),
            (2**63, -1, "", 0, None, TOPIC_ID),
            (1, 2**31, "", 0, None, TOPIC_ID),
            (1, -1, "", "now", None, TOPIC_ID),
        ],
        ids=str,
    )
    def test_refuses_what_is_no_offset(self, offset: Any) -> None:
        table = new_table()
        with pytest.raises((TypeError, ValueError, OverflowError)):
            table[0] = offset
        assert not table


class TestPackedPositions:
    @given(POSITIONS)
    def test_are_unpacked_as_they_were(self, stored: list[tuple[int, int, int, str]]) -> None:
        assert positions(packed(stored), len(stored)) == stored

    @given(
        POSITIONS.filter(bool),
        st.sampled_from([TOPIC_ID, NO_TOPIC_ID, bytes(16)]),
        st.integers(0, 2**40),
        st.sampled_from(["g", "gröup" * 40]),
    )
    def test_are_the_records_that_would_be_encoded_one_by_one(
        self,
        stored: list[tuple[int, int, int, str]],
        topic_id: bytes,
        committed_at: int,
        group: str,
    ) -> None:
        offsets = [
            Offset(at, epoch, text, committed_at, None, topic_id) for _, at, epoch, text in stored
        ]
        keys = [encode_key(group, "topic", index) for index, *_ in stored]
        expected, _ = twin.encode_lists(list(map(encode_value, offsets)), keys, None, None, 5)
        half = len(stored) // 2
        batch = bytearray(HEADER_SIZE)
        for first, some in ((0, stored[:half]), (half, stored[half:])):
            prefix = encode_key(group, "topic", 0)[:-4]
            add_records(batch, first, prefix, packed(some), len(some), committed_at, topic_id)
        assert batch == expected

    @given(POSITIONS, st.integers(-1, 40), st.data())
    def test_that_are_malformed_change_nothing(
        self, stored: list[tuple[int, int, int, str]], count: int, data: st.DataObject
    ) -> None:
        changed = bytearray(packed(stored))
        for _ in range(data.draw(st.integers(0, 3)) if changed else 0):
            changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
        cut = bytes(changed[: data.draw(st.integers(0, len(changed)))])
        try:
            found = positions(cut, count)
        except ValueError:
            found = None
        batch, table = bytearray(b"before"), new_table()
        table[0] = Offset(1)
        if found is not None:
            assert packed(found) == cut
            add_records(batch, 0, b"key", cut, count, 0, TOPIC_ID)
            store(table, cut, count, 9, TOPIC_ID)
            assert table == {0: Offset(1)} | tabled(found, 9, TOPIC_ID)
        elif not is_text(cut):
            with pytest.raises(ValueError, match="positions"):
                add_records(batch, 0, b"key", cut, count, 0, TOPIC_ID)
            with pytest.raises(ValueError, match="positions"):
                store(table, cut, count, 9, TOPIC_ID)
            assert batch == b"before"
            assert table == {0: Offset(1)}

    def test_need_the_id_of_a_topic(self) -> None:
        with pytest.raises(ValueError, match="16 bytes"):
            add_records(bytearray(), 0, b"", b"", 0, 0, b"short")


def is_text(data: bytes) -> bool:
    """Whether positions fill it, and only their metadata may be wrong."""
    at = 0
    while at + 18 <= len(data):
        at += 18 + int.from_bytes(data[at + 16 : at + 18])
    return at == len(data)
