"""What a client believes of its cluster, and what makes it change its mind."""

from types import SimpleNamespace
from uuid import UUID

import pytest

from qbus.clients.net.metadata import ClusterMetadata
from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

UNKNOWN_ID = str(UUID(int=0))
FIRST_ID, SECOND_ID = UUID(int=1).bytes, UUID(int=2).bytes


def answer(*leaders: tuple[int, int], topic_id: bytes = FIRST_ID) -> MetadataResponse:
    """Brokers 1 and 2, and the topic t: of each partition the leader and its epoch."""
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=n, host=f"b{n}", port=9092) for n in (1, 2)],
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                name="t",
                topic_id=topic_id,
                partitions=[
                    MetadataResponsePartition(
                        partition_index=index, leader_id=leader, leader_epoch=epoch
                    )
                    for index, (leader, epoch) in enumerate(leaders)
                ],
            )
        ],
    )


def refusal(code: ErrorCode, name: str = "t") -> MetadataResponse:
    return MetadataResponse(topics=[MetadataResponseTopic(error_code=code, name=name)])


def knowing(*leaders: tuple[int, int]) -> ClusterMetadata:
    metadata = ClusterMetadata()
    metadata.update(answer(*leaders))
    return metadata


def code_of(metadata: ClusterMetadata, topic: str = "t", partition: int = 0) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        metadata.leader(topic, partition)
    return caught.value.code


def test_a_reader_in_another_thread_keeps_what_it_has_read() -> None:
    metadata = knowing((1, 1))
    nodes, topics = metadata.nodes, metadata.topics
    metadata.update(answer((2, 2), (2, 2)))
    metadata.apply_leader_hint("t", 0, 1, 3)
    assert topics["t"].partitions[0].leader == 1
    assert (len(topics["t"].partitions), len(nodes)) == (1, 2)
    assert metadata.topics is not topics


def test_a_forgotten_topic_has_partitions_but_no_leaders() -> None:
    metadata = knowing((1, 1), (2, 1))
    metadata.forget(["t", "never heard of"])
    assert metadata.missing(["t", "u"]) == ["t", "u"]
    assert metadata.partition_counts(["t"]) == {"t": 2}
    assert code_of(metadata) is ErrorCode.LEADER_NOT_AVAILABLE
    metadata.update(answer((1, 1), (2, 1)))
    assert metadata.missing(["t"]) == []
    assert metadata.leader("t", 1) == 2


@pytest.mark.parametrize(
    ("topic", "partition", "epoch"), [("t", 1, 4), ("t", 2, -1), ("t", -1, -1), ("u", 0, -1)]
)
def test_the_epochs_of_leaders(topic: str, partition: int, epoch: int) -> None:
    assert knowing((1, 3), (2, 4)).leader_epoch(topic, partition) == epoch


def test_metadata_of_an_older_epoch_is_ignored() -> None:
    metadata = knowing((1, 5), (1, 5))
    metadata.update(answer((2, 4), (2, 6), (2, 0)))
    assert [metadata.leader("t", index) for index in range(3)] == [1, 2, 2]


def test_metadata_of_an_older_epoch_counts_after_forget() -> None:
    metadata = knowing((1, 5))
    metadata.forget(["t"])
    metadata.update(answer((2, 4)))
    assert metadata.leader("t", 0) == 2


def test_metadata_without_epochs_counts() -> None:
    metadata = knowing((1, 5))
    metadata.update(answer((2, -1)))
    assert metadata.leader("t", 0) == 2


def test_a_topic_created_again_begins_anew() -> None:
    metadata = knowing((1, 5), (1, 5))
    metadata.update(answer((2, 0), topic_id=SECOND_ID))
    assert metadata.leader("t", 0) == 2
    assert metadata.partition_counts(["t"]) == {"t": 1}
    assert metadata.topics["t"].topic_id == UUID(bytes=SECOND_ID)


def test_an_answer_about_all_topics_ends_the_others() -> None:
    metadata = knowing((1, 0))
    metadata.update(refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "u"))
    assert metadata.missing(["t"]) == []
    metadata.update(MetadataResponse(), is_whole=True)
    assert metadata.missing(["t"]) == ["t"]
    for name in ("t", "u"):
        assert code_of(metadata, name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a b", "the topic name 'a b' has other characters than"),
        ("", "the topic name"),
        ("t", "topic t: INVALID_TOPIC_EXCEPTION"),
    ],
)
def test_a_name_that_no_topic_can_have_is_told_with_the_rule(name: str, told: str) -> None:
    metadata = ClusterMetadata()
    metadata.update(refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, name))
    with pytest.raises(ApiError) as refused:
        metadata.topic(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert str(refused.value).startswith(told)
    assert UNKNOWN_ID not in str(refused.value)


def test_a_refused_topic_is_missing_and_says_why() -> None:
    metadata = knowing((1, 0))
    metadata.update(refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert code_of(metadata) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert metadata.missing(["t"]) == ["t"]
    metadata.update(answer((1, 0)))
    assert metadata.leader("t", 0) == 1


@pytest.mark.parametrize("indexes", [(1, 2), (0, 0), (0, 2), (-1, 0), (2**31 - 1,)])
def test_a_broker_that_names_impossible_partitions(indexes: tuple[int, ...]) -> None:
    metadata = ClusterMetadata()
    response = answer(*[(1, 0)] * len(indexes))
    for partition, index in zip(response.topics[0].partitions, indexes, strict=True):
        partition.partition_index = index
    metadata.update(response)
    assert code_of(metadata) is ErrorCode.UNKNOWN_SERVER_ERROR


class TestLeaderHint:
    def test_it_moves_one_partition(self) -> None:
        metadata = knowing((1, 1), (1, 1))
        assert metadata.apply_leader_hint("t", 1, 2, 2)
        assert [metadata.leader("t", index) for index in (0, 1)] == [1, 2]
        assert metadata.topics["t"].partitions[1].leader_epoch == 2

    def test_it_brings_the_address_of_an_unknown_broker(self) -> None:
        metadata = knowing((1, 1))
        assert not metadata.apply_leader_hint("t", 0, 3, 2)
        assert metadata.leader("t", 0) == 1
        assert metadata.apply_leader_hint(
            "t", 0, 3, 2, SimpleNamespace(host="b3", port=9, rack=None)
        )
        assert metadata.leader("t", 0) == 3
        assert (metadata.nodes[3].host, metadata.nodes[3].port) == ("b3", 9)

    @pytest.mark.parametrize(
        ("topic", "partition", "leader", "epoch"),
        [
            ("t", 0, 2, 5),  # no later than what is known
            ("t", 0, 2, 4),
            ("t", 0, -1, 6),  # there is no leader
            ("t", 1, 2, 6),  # no such partition
            ("t", -1, 2, 6),
            ("u", 0, 2, 6),  # no such topic
        ],
    )
    def test_what_is_no_news(self, topic: str, partition: int, leader: int, epoch: int) -> None:
        metadata = knowing((1, 5))
        topics = metadata.topics
        assert not metadata.apply_leader_hint(topic, partition, leader, epoch)
        assert metadata.topics is topics
