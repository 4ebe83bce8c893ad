"""Malformed bytes are refused, and none takes much more memory than it is long."""

import struct
import tracemalloc

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from qbus.errors import WireError
from qbus.wire import API, ApiKey, Struct, decode, decode_request_header, encode, primitives
from qbus.wire.messages.api_versions import ApiVersionsResponse
from qbus.wire.messages.fetch import FetchRequest
from qbus.wire.messages.heartbeat import HeartbeatRequest
from qbus.wire.messages.metadata import MetadataRequest
from qbus.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from qbus.wire.messages.sync_group import SyncGroupRequest

from .strategies import messages

LATEST = [
    pytest.param(cls, api.max_version, id=cls.__name__)
    for api in API.values()
    for cls in (api.request, api.response)
]

OLDEST = [
    pytest.param(cls, api.min_version, id=cls.__name__)
    for api in API.values()
    for cls in (api.request, api.response)
]

PRODUCE = ProduceRequest(
    transactional_id="id",
    topic_data=[
        TopicProduceData(name="topic", partition_data=[PartitionProduceData(records=b"records")])
    ],
)


def written(message: Struct, version: int) -> bytes:
    return b"".join(bytes(part) for part in encode(message, version))


def refused(cls: type[Struct], version: int, data: bytes) -> None:
    with pytest.raises(WireError):
        decode(cls, version, memoryview(data))


class TestCutShort:
    @pytest.mark.parametrize(("cls", "version"), [*OLDEST, *LATEST])
    def test_every_prefix_of_a_message_is_refused(self, cls: type[Struct], version: int) -> None:
        @settings(
            max_examples=3,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(messages(cls, version, records=st.binary(max_size=20)))
        def check(message: Struct) -> None:
            data = written(message, version)
            for size in range(min(len(data), 300)):
                refused(cls, version, data[:size])

        check()

    @pytest.mark.parametrize("version", [3, 9, 12])
    def test_of_a_request_whose_records_are_missing(self, version: int) -> None:
        data = written(PRODUCE, version)
        for size in range(len(data)):
            refused(ProduceRequest, version, data[:size])


class TestTooLong:
    @pytest.mark.parametrize(("cls", "version"), [*OLDEST, *LATEST])
    def test_bytes_behind_a_message(self, cls: type[Struct], version: int) -> None:
        refused(cls, version, written(cls(), version) + b"\0")

    def test_bytes_behind_a_message_are_left_alone_when_it_need_not_fill_the_buffer(self) -> None:
        message = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        for version in (3, 4):
            data = written(message, version)
            longer = memoryview(data + b"more")
            assert decode(HeartbeatRequest, version, longer, exact=False) == message
            for size in range(len(data)):
                with pytest.raises(WireError):
                    decode(HeartbeatRequest, version, memoryview(data)[:size], exact=False)

    def test_an_unknown_tagged_field_may_not_reach_beyond_the_buffer_even_so(self) -> None:
        data = written(HeartbeatRequest(), 4)[:-1] + b"\1\x64\5four"
        with pytest.raises(WireError, match="5 bytes, 4 remain"):
            decode(HeartbeatRequest, 4, memoryview(data), exact=False)


class TestLengths:
    @pytest.mark.parametrize("length", [-2, -100, -32768, 6, 32767])
    def test_of_a_string(self, length: int) -> None:
        with pytest.raises(WireError, match=f"group_id has {length} bytes, 5 remain"):
            decode(HeartbeatRequest, 0, memoryview(struct.pack(">h", length) + b"group"))

    def test_of_a_string_that_may_not_be_null(self) -> None:
        with pytest.raises(WireError, match="group_id is null"):
            decode(HeartbeatRequest, 0, memoryview(struct.pack(">hih", -1, 0, 0)))
        with pytest.raises(WireError, match="group_id is null"):
            decode(HeartbeatRequest, 4, memoryview(bytes(8)))

    @pytest.mark.parametrize("length", [-2, -(2**31), 8, 2**31 - 1])
    def test_of_records(self, length: int) -> None:
        data = written(PRODUCE, 3)
        at = len(data) - len(b"records") - 4
        refused(ProduceRequest, 3, data[:at] + struct.pack(">i", length) + data[at + 4 :])

    @pytest.mark.parametrize("length", [-2, -(2**31), 5, 2**31 - 1])
    def test_of_bytes(self, length: int) -> None:
        head = b"\0\1g" + bytes(4) + b"\0\1m" + struct.pack(">ih", 1, 0)
        refused(SyncGroupRequest, 0, head + struct.pack(">i", length) + b"four")

    @pytest.mark.parametrize(
        "varint", ["ffffffff7f", "ffffffffff01", "ffffffff0f", "8080808080", "ff"]
    )
    def test_that_are_huge_or_endless_varints(self, varint: str) -> None:
        data = bytes.fromhex(varint)
        refused(HeartbeatRequest, 4, data + b"group")  # a string
        refused(MetadataRequest, 9, data + bytes(3))  # an array
        refused(MetadataRequest, 9, b"\0\0\0\0" + data)  # a count of tags
        refused(MetadataRequest, 9, b"\0\0\0\0\1" + data)  # a tag
        refused(MetadataRequest, 9, b"\0\0\0\0\1\7" + data)  # the length of a tagged field

    def test_a_compact_string_is_not_longer_than_any_other_may_be(self) -> None:
        fits, over = "g" * 0x7FFF, "g" * 0x8000
        decode(HeartbeatRequest, 4, memoryview(written(HeartbeatRequest(group_id=fits), 4)))
        with pytest.raises(WireError, match="32768"):
            written(HeartbeatRequest(group_id=over), 4)
        refused(HeartbeatRequest, 4, b"\x81\x80\x02" + over.encode() + bytes(4) + b"\1\0\0")


class TestText:
    @pytest.mark.parametrize("text", ["ff", "c3", "eda080", "c080", "f8888080"])
    def test_that_is_not_utf_8(self, text: str) -> None:
        data = bytes.fromhex(text)
        refused(HeartbeatRequest, 0, struct.pack(">h", len(data)) + data + bytes(6))
        refused(HeartbeatRequest, 4, bytes([len(data) + 1]) + data + bytes(4) + b"\1\0\0")

    def test_surrogates_are_not_written(self) -> None:
        with pytest.raises(WireError):
            written(HeartbeatRequest(group_id="\ud800"), 0)


class TestCounts:
    """A count is held against the bytes that remain before anything is allocated for it."""

    LYING = (
        pytest.param(MetadataRequest, 0, struct.pack(">i", 2**31 - 1), id="structs"),
        pytest.param(MetadataRequest, 9, b"\xff\xff\xff\xff\x0f", id="compact structs"),
        pytest.param(MetadataRequest, 0, struct.pack(">i", -2), id="less than null"),
        pytest.param(
            API[ApiKey.OFFSET_FETCH].request,
            1,
            b"\0\0" + struct.pack(">ihi", 1, 0, 2**29 - 1),
            id="numbers",
        ),
        pytest.param(
            API[ApiKey.DESCRIBE_GROUPS].request,
            0,
            struct.pack(">i", 2**30),
            id="strings",
        ),
    )

    @pytest.mark.parametrize(("cls", "version", "data"), LYING)
    def test_a_lying_count_allocates_nothing(
        self, cls: type[Struct], version: int, data: bytes
    ) -> None:
        with pytest.raises(WireError, match="items, 0 bytes remain"):
            decode(cls, version, memoryview(data))
        tracemalloc.start()
        try:
            refused(cls, version, data + bytes(1000))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 200_000

    def test_items_of_all_arrays_are_limited(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(primitives, "MAX_REQUEST_ITEMS", 5)
        monkeypatch.setattr(ProduceRequest, "decoders", {})

        def request(topics: int) -> bytes:
            data = [PartitionProduceData()]
            return written(
                ProduceRequest(topic_data=[TopicProduceData(partition_data=data)] * topics), 9
            )

        decode(ProduceRequest, 9, memoryview(request(topics=2)))
        refused(ProduceRequest, 9, request(topics=3))

    def test_tags_count_as_items(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(primitives, "MAX_REQUEST_ITEMS", 5)
        monkeypatch.setattr(ProduceRequest, "decoders", {})
        whole = written(ProduceRequest(), 9)
        assert whole[-1:] == b"\0"
        decode(ProduceRequest, 9, memoryview(whole[:-1] + b"\5" + b"\x63\0" * 5))
        refused(ProduceRequest, 9, whole[:-1] + b"\6" + b"\x63\0" * 6)

    def test_the_tags_of_a_header_are_limited(self) -> None:
        head = struct.pack(">hhih", 18, 3, 1, -1)
        decode_request_header(memoryview(head + b"\x64" + b"\x63\0" * 100))
        with pytest.raises(WireError, match="101 tagged fields"):
            decode_request_header(memoryview(head + b"\x65" + b"\x63\0" * 101))

    def test_nested_counts_bring_the_bytes_for_what_they_promise(self) -> None:
        """Memory stays in proportion to the frame, however arrays are nested in arrays."""
        topic = b"\1" + b"\1" + b"\0"  # an empty name, no partitions, no tags
        data = b"\0" + bytes(6) + b"\x80\x40" + topic * 0x1FFF + b"\0"
        tracemalloc.start()
        try:
            decode(ProduceRequest, 9, memoryview(data))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 60 * len(data)


class TestTags:
    def test_a_count_of_tags_that_are_not_there(self) -> None:
        refused(HeartbeatRequest, 4, b"\2g" + bytes(4) + b"\2m\0" + b"\xff\xff\x7f")

    def test_a_known_field_longer_or_shorter_than_it_says(self) -> None:
        head, epoch = b"\0\0\1" + bytes(4), struct.pack(">q", 3)
        decode(ApiVersionsResponse, 3, memoryview(head + b"\1\1\x08" + epoch))
        refused(ApiVersionsResponse, 3, head + b"\1\1\x09" + epoch + b"\0")
        refused(ApiVersionsResponse, 3, head + b"\1\1\x07" + epoch)

    def test_a_field_that_takes_bytes_beyond_the_message(self) -> None:
        refused(ApiVersionsResponse, 3, b"\0\0\1" + bytes(4) + b"\1\1\x7f" + bytes(8))


class TestNoise:
    @pytest.mark.parametrize(("cls", "version"), LATEST)
    def test_random_bytes_are_a_message_or_refused(self, cls: type[Struct], version: int) -> None:
        @settings(max_examples=25)
        @given(st.binary(max_size=200))
        def check(data: bytes) -> None:
            try:
                message = decode(cls, version, memoryview(data))
            except WireError:
                return
            assert decode(cls, version, memoryview(written(message, version))) == message

        check()

    @pytest.mark.parametrize("version", [4, 12, 18])
    def test_one_byte_changed_anywhere(self, version: int) -> None:
        @settings(max_examples=40, suppress_health_check=list(HealthCheck))
        @given(messages(FetchRequest, version), st.data())
        def check(message: Struct, draw: st.DataObject) -> None:
            data = bytearray(written(message, version))
            at = draw.draw(st.integers(0, len(data) - 1))
            data[at] ^= draw.draw(st.integers(1, 255))
            try:
                decode(FetchRequest, version, memoryview(data))
            except WireError:
                return

        check()


UNFIT = [
    pytest.param(HeartbeatRequest(generation_id=2**31), 0, id="number too high"),
    pytest.param(HeartbeatRequest(group_id="g" * 0x8000), 0, id="string too long"),
    pytest.param(HeartbeatRequest(group_id=None), 0, id="null string"),  # type: ignore[arg-type]
    pytest.param(MetadataRequest(topics=None), 0, id="null array"),
    pytest.param(
        ProduceRequest(topic_data=[TopicProduceData(topic_id=b"short")]), 13, id="short uuid"
    ),
    pytest.param(
        ProduceRequest(topic_data=[TopicProduceData(topic_id=bytes(17))]), 13, id="long uuid"
    ),
    pytest.param(
        HeartbeatRequest(generation_id="1"),  # type: ignore[arg-type]
        0,
        id="text for a number",
    ),
]


@pytest.mark.parametrize(("message", "version"), UNFIT)
def test_a_value_that_does_not_fit_is_not_written(message: Struct, version: int) -> None:
    with pytest.raises(WireError):
        encode(message, version)
