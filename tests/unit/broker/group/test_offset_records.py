"""Committed offsets as records that Kafka's tools read."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.group.offset_records import (
    MalformedOffsetError,
    OffsetKey,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from qbus.broker.group.offsets import NO_TOPIC_ID, Offset

LONGS = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(max_size=20)
OFFSETS = st.builds(
    Offset,
    LONGS,
    st.integers(-1, 2**31 - 1),
    st.text(max_size=300),
    LONGS,
    st.none() | st.integers(0, 2**62),
    st.just(NO_TOPIC_ID) | st.binary(min_size=16, max_size=16),
)


class TestKeys:
    def test_are_kafkas(self) -> None:
        assert encode_key("gr", "t", 7) == b"\0\1" + b"\0\2gr" + b"\0\1t" + b"\0\0\0\7"

    @given(NAMES, NAMES, st.integers(-1, 2**31 - 1))
    def test_come_back_as_they_were(self, group: str, topic: str, partition: int) -> None:
        assert decode_key(encode_key(group, topic, partition)) == OffsetKey(group, topic, partition)

    def test_of_the_first_version_are_read(self) -> None:
        assert decode_key(b"\0\0" + encode_key("g", "t", 1)[2:]) == OffsetKey("g", "t", 1)

    @pytest.mark.parametrize("version", [-1, 2, 3, 8])
    def test_of_other_things_are_told_apart(self, version: int) -> None:
        assert decode_key(struct.pack(">h", version) + b"\0\1g") is None

    @pytest.mark.parametrize(
        "key", [b"", b"\0", b"\0\1", b"\0\1\0\5g", b"\0\1\xff\xff\0\0", b"\0\1\0\1\xff\0\0\0\0\0\0"]
    )
    def test_that_are_cut_off_or_no_text_are_refused(self, key: bytes) -> None:
        with pytest.raises(MalformedOffsetError):
            decode_key(key)


class TestValues:
    def test_without_a_topic_id_are_of_version_3(self) -> None:
        value = encode_value(Offset(5, 2, "note", 1_000))

        assert value == struct.pack(">hqih4sq", 3, 5, 2, 4, b"note", 1_000)

    def test_with_a_topic_id_are_of_version_4_and_have_it_as_a_tag(self) -> None:
        value = encode_value(Offset(5, -1, "", 1_000, None, b"i" * 16))

        assert value == struct.pack(">hqiBq", 4, 5, -1, 1, 1_000) + b"\x01\x00\x10" + b"i" * 16

    @given(OFFSETS)
    def test_come_back_as_they_were(self, offset: Offset) -> None:
        assert decode_value(encode_value(offset)) == offset

    def test_of_older_versions_are_read(self) -> None:
        assert decode_value(struct.pack(">hqh1sq", 0, 5, 1, b"m", 9)) == Offset(5, -1, "m", 9)
        assert decode_value(struct.pack(">hqh1sqq", 1, 5, 1, b"m", 9, 20)) == Offset(
            5, -1, "m", 9, 20
        )
        assert decode_value(struct.pack(">hqh1sqq", 1, 5, 1, b"m", 9, -1)) == Offset(5, -1, "m", 9)
        assert decode_value(struct.pack(">hqh1sq", 2, 5, 1, b"m", 9)) == Offset(5, -1, "m", 9)

    def test_tags_that_are_not_known_are_skipped(self) -> None:
        value = struct.pack(">hqiBq", 4, 5, -1, 1, 9) + b"\x01\x07\x02hi"

        assert decode_value(value) == Offset(5, -1, "", 9)

    @pytest.mark.parametrize("version", [-1, 5, 100])
    def test_of_versions_to_come_are_refused(self, version: int) -> None:
        with pytest.raises(MalformedOffsetError):
            decode_value(struct.pack(">hqih0sq", version, 5, 2, 0, b"", 1_000))

    @given(OFFSETS, st.data())
    def test_that_are_cut_off_are_refused(self, offset: Offset, data: st.DataObject) -> None:
        value = encode_value(offset)
        with pytest.raises(MalformedOffsetError):
            decode_value(value[: data.draw(st.integers(0, len(value) - 1))])

    @given(st.binary(max_size=60))
    def test_of_anything_else_are_refused_or_read(self, value: bytes) -> None:
        with suppress(MalformedOffsetError):
            decode_value(value)
