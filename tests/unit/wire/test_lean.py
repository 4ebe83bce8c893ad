"""Plain requests read in C: as the general decoder reads them, or not at all."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.errors import WireError
from qbus.wire import API, ApiKey, Struct, encode_request, encode_response, lean
from qbus.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from qbus.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tests.support.lean_requests import general_form, lean_forms

pytestmark = pytest.mark.skipif(not lean.IS_BUILT, reason="nothing was compiled here")

PRODUCE_VERSIONS = range(9, API[ApiKey.PRODUCE].max_version + 1)
FETCH_VERSIONS = range(12, API[ApiKey.FETCH].max_version + 1)
_BY_ID = 13
_TOPIC_ID = bytes(range(16))

INT16, INT32, INT64 = (st.integers(-(2 ** (n - 1)), 2 ** (n - 1) - 1) for n in (16, 32, 64))
NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True)
CLIENTS = st.none() | st.from_regex(r"[ -~]{0,200}", fullmatch=True)


def naming(version: int, name: str = "topic") -> dict[str, Any]:
    return {"topic_id": _TOPIC_ID} if version >= _BY_ID else {"name": name}


def fetch_naming(version: int, name: str = "topic") -> dict[str, Any]:
    return {"topic_id": _TOPIC_ID} if version >= _BY_ID else {"topic": name}


def produce_request(version: int, **fields: Any) -> ProduceRequest:
    data = PartitionProduceData(index=3, records=b"a batch")
    topics = [TopicProduceData(partition_data=[data], **naming(version))]
    return ProduceRequest(**{"acks": -1, "timeout_ms": 500, "topic_data": topics, **fields})


def fetch_request(version: int, **fields: Any) -> FetchRequest:
    wanted = FetchPartition(partition=3, fetch_offset=42, partition_max_bytes=1 << 20)
    topics = [FetchTopic(partitions=[wanted], **fetch_naming(version))]
    return FetchRequest(**{"session_epoch": 0, "min_bytes": 1, "topics": topics, **fields})


def framed(
    key: ApiKey, version: int, request: Struct, correlation_id: int = 7, client: str | None = "c"
) -> bytes:
    return b"".join(map(bytes, encode_request(key, version, correlation_id, client, request)))[4:]


def read(key: ApiKey, frame: bytes) -> Any:
    reader = lean.read_produce if key is ApiKey.PRODUCE else lean.read_fetch
    return reader(memoryview(frame))


def same(key: ApiKey, frame: bytes) -> None:
    name = key.name.lower()
    assert lean_forms(frame) == {name: general_form(name, frame)}


class TestWhatIsPlain:
    @pytest.mark.parametrize("version", PRODUCE_VERSIONS)
    def test_a_batch_to_one_partition(self, version: int) -> None:
        same(ApiKey.PRODUCE, framed(ApiKey.PRODUCE, version, produce_request(version)))

    @pytest.mark.parametrize("version", FETCH_VERSIONS)
    def test_a_fetch_of_one_partition(self, version: int) -> None:
        same(ApiKey.FETCH, framed(ApiKey.FETCH, version, fetch_request(version)))

    @given(
        st.sampled_from(PRODUCE_VERSIONS),
        NAMES,
        CLIENTS,
        INT16,
        INT32,
        st.binary(min_size=1),
        INT32,
    )
    def test_any_numbers_names_and_records_of_a_produce(
        self,
        version: int,
        name: str,
        client: str | None,
        acks: int,
        number: int,
        records: bytes,
        index: int,
    ) -> None:
        data = PartitionProduceData(index=index, records=records)
        request = ProduceRequest(
            acks=acks,
            timeout_ms=number,
            topic_data=[TopicProduceData(partition_data=[data], **naming(version, name))],
        )
        same(ApiKey.PRODUCE, framed(ApiKey.PRODUCE, version, request, number, client))

    @given(st.sampled_from(FETCH_VERSIONS), NAMES, CLIENTS, st.tuples(*[INT32] * 6), INT64)
    def test_any_numbers_and_names_of_a_fetch(
        self, version: int, name: str, client: str | None, numbers: tuple[int, ...], offset: int
    ) -> None:
        wanted = FetchPartition(
            partition=numbers[0],
            current_leader_epoch=numbers[1],
            fetch_offset=offset,
            partition_max_bytes=numbers[2],
        )
        request = FetchRequest(
            min_bytes=numbers[3],
            max_bytes=numbers[4],
            isolation_level=numbers[5] % 2,
            session_epoch=-(numbers[5] % 2),
            topics=[FetchTopic(partitions=[wanted], **fetch_naming(version, name))],
        )
        same(ApiKey.FETCH, framed(ApiKey.FETCH, version, request, numbers[0], client))

    def test_records_of_any_length(self) -> None:
        for size in (1, 126, 127, 128, 16_382, 16_383, 16_384, 3_000_000):
            data = PartitionProduceData(index=0, records=bytes(size))
            topics = [TopicProduceData(name="t", partition_data=[data])]
            same(ApiKey.PRODUCE, framed(ApiKey.PRODUCE, 9, produce_request(9, topic_data=topics)))


DATA = PartitionProduceData(index=0, records=b"records")
WANTED = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
TOPIC = FetchTopic(topic="t", partitions=[WANTED])


class TestWhatIsNot:
    @pytest.mark.parametrize(
        "fields",
        [
            {"transactional_id": "t"},
            {"transactional_id": ""},
            {"topic_data": []},
            {"topic_data": [TopicProduceData(name="t")]},
            {"topic_data": [TopicProduceData(name="t", partition_data=[DATA, DATA])]},
            {"topic_data": [TopicProduceData(name="t", partition_data=[DATA])] * 2},
            {"topic_data": [TopicProduceData(name="", partition_data=[DATA])]},
            {"topic_data": [TopicProduceData(name="tëst", partition_data=[DATA])]},
            {
                "topic_data": [
                    TopicProduceData(name="t", partition_data=[DATA], mirror_source="beijing")
                ]
            },
            {
                "topic_data": [
                    TopicProduceData(
                        name="t",
                        partition_data=[
                            PartitionProduceData(index=0, records=b"r", mirror_follows=5)
                        ],
                    )
                ]
            },
            {"topic_data": [TopicProduceData(name="t", partition_data=[PartitionProduceData()])]},
            {
                "topic_data": [
                    TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"")])
                ]
            },
        ],
        ids=str,
    )
    def test_another_form_of_a_produce(self, fields: dict[str, Any]) -> None:
        assert read(ApiKey.PRODUCE, framed(ApiKey.PRODUCE, 9, produce_request(9, **fields))) is None

    @pytest.mark.parametrize(
        "fields",
        [
            {"session_epoch": 1, "session_id": 5},
            {"replica_id": 2},
            {"rack_id": "rack"},
            {"topics": []},
            {"topics": [TOPIC, TOPIC]},
            {"topics": [FetchTopic(topic="t", partitions=[WANTED, WANTED])]},
            {"forgotten_topics_data": [ForgottenTopic(topic="t", partitions=[1])]},
            {"cluster_id": "cluster"},
        ],
        ids=str,
    )
    def test_another_form_of_a_fetch(self, fields: dict[str, Any]) -> None:
        assert read(ApiKey.FETCH, framed(ApiKey.FETCH, 12, fetch_request(12, **fields))) is None

    def test_a_follower(self) -> None:
        request = fetch_request(15, replica_state=ReplicaState(replica_id=2, replica_epoch=1))
        assert read(ApiKey.FETCH, framed(ApiKey.FETCH, 15, request)) is None

    @pytest.mark.parametrize(
        ("key", "version"), [(ApiKey.PRODUCE, 8), (ApiKey.FETCH, 11), (ApiKey.FETCH, 4)]
    )
    def test_an_older_version(self, key: ApiKey, version: int) -> None:
        request: Any = ProduceRequest if key is ApiKey.PRODUCE else FetchRequest
        assert read(key, framed(key, version, request())) is None

    def test_a_version_that_is_not_known(self) -> None:
        frame = bytearray(framed(ApiKey.PRODUCE, 13, produce_request(13)))
        frame[3] = API[ApiKey.PRODUCE].max_version + 1
        assert read(ApiKey.PRODUCE, bytes(frame)) is None

    def test_a_client_id_that_is_not_ascii(self) -> None:
        frame = framed(ApiKey.PRODUCE, 9, produce_request(9), client="ë")
        assert read(ApiKey.PRODUCE, frame) is None

    @pytest.mark.parametrize("key", [ApiKey.PRODUCE, ApiKey.FETCH])
    def test_a_frame_that_is_cut_or_goes_on(self, key: ApiKey) -> None:
        request = produce_request(12) if key is ApiKey.PRODUCE else fetch_request(12)
        frame = framed(key, 12, request)
        for size in range(len(frame)):
            assert read(key, frame[:size]) is None
        assert read(key, frame + b"\0") is None

    @pytest.mark.parametrize("key", [ApiKey.PRODUCE, ApiKey.FETCH])
    @given(data=st.data())
    def test_what_was_changed_is_read_as_ever_or_not_at_all(
        self, key: ApiKey, data: st.DataObject
    ) -> None:
        version = data.draw(st.sampled_from([12, 13]))
        request = produce_request(version) if key is ApiKey.PRODUCE else fetch_request(version)
        frame = bytearray(framed(key, version, request))
        for _ in range(data.draw(st.integers(1, 3))):
            frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
        if read(key, bytes(frame)) is not None:
            try:
                same(key, bytes(frame))
            except WireError as error:
                pytest.fail(f"the general way refuses it: {error}")


def joined(key: ApiKey, version: int, correlation_id: int, response: Struct) -> bytes:
    return b"".join(map(bytes, encode_response(key, version, correlation_id, response)))


class TestAnswers:
    @given(
        st.sampled_from(PRODUCE_VERSIONS),
        NAMES,
        st.tuples(INT32, INT32),
        st.sampled_from([0, 7, 20, 56]),
        st.tuples(INT64, INT64, INT64),
    )
    def test_to_a_produce(
        self,
        version: int,
        name: str,
        numbers: tuple[int, int],
        code: int,
        offsets: tuple[int, int, int],
    ) -> None:
        correlation_id, index = numbers
        answer = PartitionProduceResponse(
            index=index,
            error_code=code,
            base_offset=offsets[0],
            log_append_time_ms=offsets[1],
            log_start_offset=offsets[2],
        )
        topic = TopicProduceResponse(partition_responses=[answer], **naming(version, name))
        key = _TOPIC_ID if version >= _BY_ID else name
        assert lean.produced(version, correlation_id, key, index, code, *offsets) == joined(
            ApiKey.PRODUCE, version, correlation_id, ProduceResponse(responses=[topic])
        )

    @given(
        st.sampled_from(FETCH_VERSIONS),
        NAMES,
        st.tuples(INT32, INT32),
        st.tuples(INT64, INT64, INT64),
        st.binary(min_size=1, max_size=20_000),
        st.booleans(),
    )
    def test_to_a_fetch(
        self,
        version: int,
        name: str,
        numbers: tuple[int, int],
        offsets: tuple[int, int, int],
        records: bytes,
        is_committed: bool,
    ) -> None:
        correlation_id, index = numbers
        data = PartitionData(
            partition_index=index,
            high_watermark=offsets[0],
            last_stable_offset=offsets[1],
            log_start_offset=offsets[2],
            aborted_transactions=[] if is_committed else None,
            records=records,
        )
        topic = FetchableTopicResponse(partitions=[data], **fetch_naming(version, name))
        key = _TOPIC_ID if version >= _BY_ID else name
        head = lean.fetched(
            version, correlation_id, key, index, offsets, len(records), is_committed=is_committed
        )
        assert head + records + lean.FETCH_TRAILER == joined(
            ApiKey.FETCH, version, correlation_id, FetchResponse(responses=[topic])
        )


@given(data=st.binary(max_size=20), position=st.integers(0, 25), expected=st.binary(max_size=8))
def test_bytes_stand_in_a_frame_where_a_slice_of_it_equals_them(
    data: bytes, position: int, expected: bytes
) -> None:
    frame = memoryview(data)
    equal = position <= len(data) and data[position : position + len(expected)] == expected
    assert lean.has_at(frame, position, expected) == equal
    for size in range(len(data) - position + 1):
        assert lean.has_at(frame, position, data[position : position + size])
