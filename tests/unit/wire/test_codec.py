"""Frames: a length, the header of each version, and the message."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.errors import WireError
from qbus.wire import (
    API,
    ApiKey,
    Part,
    RequestHeader,
    decode,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from qbus.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from qbus.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from qbus.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

RIGID, FLEXIBLE = 3, 4  # versions of Heartbeat


class Region:
    """Stands for a region of a file."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length


def whole(parts: list[Part]) -> bytes:
    return b"".join(parts)


class TestRequests:
    def test_a_rigid_one(self) -> None:
        frame = whole(encode_request(ApiKey.HEARTBEAT, 0, 7, "me", HeartbeatRequest()))
        assert frame.hex() == "00000014000c 0000 00000007 0002 6d65 0000 00000000 0000".replace(
            " ", ""
        )

    def test_a_flexible_one_has_tags_but_no_compact_client_id(self) -> None:
        frame = whole(encode_request(ApiKey.HEARTBEAT, FLEXIBLE, 7, "me", HeartbeatRequest()))
        body = "01 00000000 01 00 00"
        assert frame[4:].hex() == ("000c 0004 00000007 0002 6d65 00" + body).replace(" ", "")

    @pytest.mark.parametrize("version", [0, RIGID, FLEXIBLE])
    @pytest.mark.parametrize("client_id", [None, "", "me", "é" * 100])
    def test_come_back(self, version: int, client_id: str | None) -> None:
        request = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
        frame = whole(encode_request(ApiKey.HEARTBEAT, version, -9, client_id, request))
        (length,) = struct.unpack_from(">i", frame)
        assert length == len(frame) - 4
        header, pos = decode_request_header(memoryview(frame)[4:])
        assert header == RequestHeader(ApiKey.HEARTBEAT, version, -9, client_id)
        assert decode(HeartbeatRequest, version, memoryview(frame)[4:], pos) == request

    def test_tags_of_the_header_are_skipped(self) -> None:
        head = struct.pack(">hhih", ApiKey.HEARTBEAT, FLEXIBLE, 1, -1)
        assert (
            decode_request_header(memoryview(head + b"\2\0\1x\5\2yz" + b"rest"))[1] == len(head) + 8
        )

    @pytest.mark.parametrize("version", [0, 3, 5])
    def test_api_versions_follow_the_rule_too(self, version: int) -> None:
        request = ApiVersionsRequest(client_software_name="a" * (version >= 3))
        frame = memoryview(whole(encode_request(ApiKey.API_VERSIONS, version, 1, "c", request)))[4:]
        _, pos = decode_request_header(frame)
        assert decode(ApiVersionsRequest, version, frame, pos) == request

    def test_an_unknown_api_or_version_is_told_as_it_is(self) -> None:
        for key, version in ((999, 0), (-1, -1), (ApiKey.API_VERSIONS, 99)):
            head = struct.pack(">hhihc", key, version, 5, 1, b"c")
            header, _ = decode_request_header(memoryview(head + b"\0"))
            assert header == RequestHeader(key, version, 5, "c")

    @pytest.mark.parametrize("version", [RIGID, FLEXIBLE])
    def test_a_header_cut_short_is_refused(self, version: int) -> None:
        head = struct.pack(">hhih", ApiKey.HEARTBEAT, version, 1, 2) + b"me"
        head += b"\1\0\1x" if version == FLEXIBLE else b""
        for size in range(len(head)):
            with pytest.raises(WireError):
                decode_request_header(memoryview(head)[:size])

    @pytest.mark.parametrize("length", [-2, -32768])
    def test_a_client_id_of_negative_length_is_refused(self, length: int) -> None:
        head = struct.pack(">hhih", ApiKey.HEARTBEAT, RIGID, 1, length)
        with pytest.raises(WireError):
            decode_request_header(memoryview(head))

    def test_a_client_id_that_is_not_utf_8_is_refused(self) -> None:
        head = struct.pack(">hhih", ApiKey.HEARTBEAT, RIGID, 1, 1) + b"\xff"
        with pytest.raises(WireError, match="UTF-8"):
            decode_request_header(memoryview(head))

    def test_a_client_id_that_no_header_holds_is_not_written(self) -> None:
        for client_id in ("x" * 0x8000, "\ud800"):
            with pytest.raises(WireError):
                encode_request(ApiKey.HEARTBEAT, 0, 1, client_id, HeartbeatRequest())

    @given(st.binary(max_size=60))
    def test_noise_is_a_header_or_refused(self, data: bytes) -> None:
        try:
            _, pos = decode_request_header(memoryview(data))
        except WireError:
            return
        assert 10 <= pos <= len(data)


class TestResponses:
    @pytest.mark.parametrize(("version", "tags"), [(RIGID, ""), (FLEXIBLE, "00")])
    def test_have_tags_when_flexible(self, version: int, tags: str) -> None:
        frame = whole(
            encode_response(ApiKey.HEARTBEAT, version, 7, HeartbeatResponse(error_code=27))
        )
        assert frame[4:].hex() == "00000007" + tags + "00000000001b" + tags
        assert decode_response(ApiKey.HEARTBEAT, version, memoryview(frame)[4:]) == (
            7,
            HeartbeatResponse(error_code=27),
        )

    def test_to_api_versions_never_have_tags_in_the_header(self) -> None:
        frame = whole(encode_response(ApiKey.API_VERSIONS, 3, 7, ApiVersionsResponse()))
        assert frame[4:].hex() == "00000007" + "0000010000000000"
        assert decode_response(ApiKey.API_VERSIONS, 3, frame[4:]) == (7, ApiVersionsResponse())

    def test_cut_short_are_refused(self) -> None:
        frame = whole(encode_response(ApiKey.HEARTBEAT, FLEXIBLE, 7, HeartbeatResponse()))[4:]
        for size in range(len(frame)):
            with pytest.raises(WireError):
                decode_response(ApiKey.HEARTBEAT, FLEXIBLE, frame[:size])

    @pytest.mark.parametrize("version", [11, 12, 18])
    def test_pass_regions_through_and_count_them(self, version: int) -> None:
        first, second = Region(5000), Region(3)
        partitions = [
            PartitionData(partition_index=0, records=first),
            PartitionData(partition_index=1, records=b""),
            PartitionData(partition_index=2, records=second),
        ]
        response = FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])
        parts = encode_response(ApiKey.FETCH, version, 1, response)
        assert [part for part in parts if isinstance(part, Region)] == [first, second]
        (length,) = struct.unpack_from(">i", parts[0])
        assert length == sum(map(len, parts)) - 4
        filled = b"".join(bytes(len(p)) if isinstance(p, Region) else p for p in parts)
        _, decoded = decode_response(ApiKey.FETCH, version, memoryview(filled)[4:])
        (topic,) = decoded.responses
        assert [len(partition.records) for partition in topic.partitions] == [5000, 0, 3]

    def test_without_records_are_one_part(self) -> None:
        assert len(encode_response(ApiKey.HEARTBEAT, 4, 1, HeartbeatResponse())) == 1


class TestRecords:
    def test_are_views_of_what_was_received(self) -> None:
        response = FetchResponse(
            responses=[FetchableTopicResponse(partitions=[PartitionData(records=b"x" * 5000)])]
        )
        frame = bytearray(whole(encode_response(ApiKey.FETCH, 13, 1, response)))[4:]
        _, decoded = decode_response(ApiKey.FETCH, 13, memoryview(frame))
        records = decoded.responses[0].partitions[0].records
        assert isinstance(records, memoryview)
        assert records.obj is frame
        assert bytes(records) == b"x" * 5000

    def test_are_copied_when_a_part_of_their_own_would_cost_more(self) -> None:
        for size, parts in ((0, 1), (1023, 1), (1024, 3)):
            partition = PartitionData(records=bytes(size))
            response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
            assert len(encode_response(ApiKey.FETCH, 13, 1, response)) == parts

    def test_are_passed_on_as_they_are(self) -> None:
        records = memoryview(bytearray(5000))
        response = FetchResponse(
            responses=[FetchableTopicResponse(partitions=[PartitionData(records=records)])]
        )
        assert any(part is records for part in encode_response(ApiKey.FETCH, 13, 1, response))


def test_every_api_has_its_messages() -> None:
    for key, api in API.items():
        assert api.key is key
        assert api.request.__name__ == api.response.__name__.replace("Response", "Request")
