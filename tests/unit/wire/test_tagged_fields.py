"""Tagged fields (KIP-482): known ones are read in any order, unknown ones skipped anywhere."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qbus.wire import API, Struct, decode, encode
from qbus.wire.messages.api_versions import ApiVersionsResponse
from qbus.wire.messages.produce import ProduceRequest
from qbus.wire.primitives import skip_header_tags, uvarint

from .strategies import messages

FLEXIBLE = [
    pytest.param(cls, api.max_version, id=cls.__name__)
    for api in API.values()
    for cls in (api.request, api.response)
    if api.max_version >= api.first_flexible
]

# Our own are 10,000 and the next few, which a generator may take out of our sources.
TAGS = st.integers(100, 9_999) | st.integers(10_100, 2**31)
UNKNOWN = st.lists(st.tuples(TAGS, st.binary(max_size=200)), max_size=200)


def section(tags: list[tuple[int, bytes]]) -> bytes:
    fields = (uvarint(tag) + uvarint(len(data)) + data for tag, data in tags)
    return uvarint(len(tags)) + b"".join(fields)


@pytest.mark.parametrize(("cls", "version"), FLEXIBLE)
def test_unknown_ones_at_the_end_of_a_message_are_skipped(cls: type[Struct], version: int) -> None:
    data = b"".join(encode(cls(), version))
    assert data[-1:] == b"\0"
    unknown = section([(100, b"new"), (2**31 - 1, b"x" * 300)])
    assert decode(cls, version, memoryview(data[:-1] + unknown)) == cls()


@pytest.mark.parametrize("version", [9, 12])
@given(partition=UNKNOWN, topic=UNKNOWN, request=UNKNOWN)
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
def test_unknown_ones_within_a_message_are_skipped(
    version: int,
    partition: list[tuple[int, bytes]],
    topic: list[tuple[int, bytes]],
    request: list[tuple[int, bytes]],
) -> None:
    plain = bytes.fromhex("00 0001 00000001 02 02 61 02 00000007 04 616263")
    data = plain + section(partition) + section(topic) + section(request)
    expected = decode(ProduceRequest, version, memoryview(plain + bytes(3)))
    assert decode(ProduceRequest, version, memoryview(data)) == expected


def test_known_ones_stand_among_unknown_ones() -> None:
    head = b"\0\0\1" + bytes(4)
    tags = section([(1, bytes(7) + b"\3"), (50, b"?"), (3, b"\1"), (99, b"")])
    expected = ApiVersionsResponse(finalized_features_epoch=3, zk_migration_ready=True)
    assert decode(ApiVersionsResponse, 3, memoryview(head + tags)) == expected


@given(messages(ApiVersionsResponse, 3))
def test_only_those_that_are_not_at_their_default_are_written(
    message: ApiVersionsResponse,
) -> None:
    is_set = [
        message.supported_features != [],
        message.finalized_features_epoch != -1,
        message.finalized_features != [],
        message.zk_migration_ready,
    ]
    bare = ApiVersionsResponse(
        error_code=message.error_code,
        api_keys=message.api_keys,
        throttle_time_ms=message.throttle_time_ms,
    )
    without_tags = b"".join(encode(bare, 3))
    data = b"".join(encode(message, 3))
    assert data[: len(without_tags) - 1] == without_tags[:-1]
    assert data[len(without_tags) - 1] == sum(is_set)


@given(UNKNOWN)
def test_a_section_is_skipped_as_a_whole(tags: list[tuple[int, bytes]]) -> None:
    data = section(tags)
    assert skip_header_tags(data + b"rest", 0, len(data) + 4) == len(data)
