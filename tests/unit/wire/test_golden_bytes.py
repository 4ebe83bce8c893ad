"""Messages written out by hand, byte by byte, from the protocol guide."""

import pytest

from qbus.wire import ZERO_UUID, Struct, decode, encode
from qbus.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from qbus.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from qbus.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from qbus.wire.messages.find_coordinator import FindCoordinatorRequest
from qbus.wire.messages.heartbeat import HeartbeatRequest
from qbus.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from qbus.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from qbus.wire.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

TOPIC_ID = bytes(range(16))

GOLDEN: list[tuple[str, Struct, int, str]] = [
    (
        "lengths of four and two bytes before flexible versions",
        ProduceRequest(
            acks=-1,
            timeout_ms=1500,
            topic_data=[
                TopicProduceData(
                    name="tp", partition_data=[PartitionProduceData(index=7, records=b"abc")]
                )
            ],
        ),
        3,
        "ffff"  # transactional id: null
        "ffff 000005dc"  # acks, timeout
        "00000001 0002 7470"  # one topic: its name
        "00000001 00000007 00000003 616263",  # one partition: its index and records
    ),
    (
        "lengths one too high, and tags behind each struct, in flexible versions",
        ProduceRequest(
            transactional_id="t",
            acks=1,
            timeout_ms=1,
            topic_data=[
                TopicProduceData(
                    name="tp", partition_data=[PartitionProduceData(index=7, records=b"abc")]
                )
            ],
        ),
        9,
        "02 74"
        "0001 00000001"
        "02 03 7470"
        "02 00000007 04 616263"
        "00 00 00",  # no tags: of the partition, the topic, the request
    ),
    (
        "topic ids instead of names, and null records",
        ProduceRequest(
            topic_data=[
                TopicProduceData(
                    topic_id=TOPIC_ID, partition_data=[PartitionProduceData(records=None)]
                )
            ]
        ),
        13,
        "00 0000 00000000 02 000102030405060708090a0b0c0d0e0f 02 00000000 00 00 00 00",
    ),
    (
        "a struct as a tagged field",
        ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name="a",
                    partition_responses=[
                        PartitionProduceResponse(
                            index=1,
                            error_code=6,
                            base_offset=-1,
                            current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=9),
                        )
                    ],
                )
            ]
        ),
        10,
        "02 02 61 02"
        "00000001 0006 ffffffffffffffff"  # index, error, base offset
        "ffffffffffffffff ffffffffffffffff"  # append time, log start
        "01 00"  # no record errors, no error message
        "01 00 09 00000002 00000009 00"  # one tag, number 0, of nine bytes, the last for its tags
        "00 00000000 00",
    ),
    (
        "an answer with empty records, which are never null",
        FetchResponse(
            session_id=5,
            responses=[
                FetchableTopicResponse(
                    topic="a",
                    partitions=[PartitionData(partition_index=1, high_watermark=2, records=b"")],
                )
            ],
        ),
        7,
        "00000000 0000 00000005 00000001 0001 61 00000001"
        "00000001 0000 0000000000000002 ffffffffffffffff ffffffffffffffff"
        "00000000 00000000",  # no aborted transactions; records of length 0
    ),
    (
        "tagged fields that are at their defaults are left out",
        FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic_id=TOPIC_ID,
                    partitions=[
                        PartitionData(
                            diverging_epoch=EpochEndOffset(epoch=1, end_offset=2),
                            aborted_transactions=None,
                        )
                    ],
                )
            ]
        ),
        13,
        "00000000 0000 00000000 02 000102030405060708090a0b0c0d0e0f 02"
        "00000000 0000 0000000000000000 ffffffffffffffff ffffffffffffffff"
        "00 ffffffff 01"  # null transactions, no other replica, empty records
        "01 00 0d 00000001 0000000000000002 00"
        "00 00",
    ),
    ("all topics are null", MetadataRequest(topics=None), 1, "ffffffff"),
    ("no topics are none", MetadataRequest(topics=[]), 1, "00000000"),
    (
        "a topic by id has a null name",
        MetadataRequest(topics=[MetadataRequestTopic(topic_id=TOPIC_ID, name=None)]),
        12,
        "02 000102030405060708090a0b0c0d0e0f 00 00 01 00 00",
    ),
    (
        "a topic by name has the zero id",
        MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=ZERO_UUID, name="a")],
            allow_auto_topic_creation=False,
        ),
        12,
        "02 00000000000000000000000000000000 02 61 00 00 00 00",
    ),
    (
        "several tagged fields, in the order of their numbers",
        ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)],
            supported_features=[SupportedFeatureKey(name="f", min_version=1, max_version=2)],
            finalized_features_epoch=3,
        ),
        3,
        "0000 02 0012 0000 0004 00 000000000200 08 02 02 66 0001 0002 0001 08 0000000000000003",
    ),
    (
        "the handshake of a client",
        ApiVersionsRequest(client_software_name="lib", client_software_version="1.0"),
        3,
        "04 6c6962 04 312e30 00",
    ),
    ("nothing at all", ApiVersionsRequest(), 0, ""),
    (
        "an array of strings",
        FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "bc"]),
        4,
        "01 03 02 61 03 6263 00",
    ),
    (
        "a struct that is absent",
        DescribeTopicPartitionsRequest(cursor=None),
        0,
        "01 000007d0 ff 00",
    ),
    (
        "a struct that may be absent",
        DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="a", partition_index=1)),
        0,
        "01 000007d0 01 02 61 00000001 00 00",
    ),
    (
        "text is UTF-8",
        HeartbeatRequest(group_id="é", generation_id=1, member_id="€"),
        0,
        "0002 c3a9 00000001 0003 e282ac",
    ),
    (
        "an API without flexible versions",
        OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t")]),
        0,
        "0001 67 00000001 0001 74 00000000",
    ),
]


@pytest.mark.parametrize(
    ("message", "version", "golden"), [row[1:] for row in GOLDEN], ids=[row[0] for row in GOLDEN]
)
def test_bytes(message: Struct, version: int, golden: str) -> None:
    data = bytes.fromhex(golden)
    assert b"".join(bytes(part) for part in encode(message, version)) == data
    assert decode(type(message), version, memoryview(data)) == message


def test_a_length_of_two_varint_bytes() -> None:
    message = HeartbeatRequest(group_id="g" * 300, member_id="m")
    data = bytes.fromhex("ad02") + b"g" * 300 + bytes.fromhex("00000000 02 6d 00 00")
    assert b"".join(encode(message, 4)) == data
    assert decode(HeartbeatRequest, 4, memoryview(data)) == message
