"""What the admin client makes of answers that a healthy broker of ours does not give."""

import pytest

from qbus.clients import Admin, ConfigKind, ConfigSource, GroupOffset
from qbus.clients.spark.sink.options import STAGING_TOPIC
from qbus.clients.types import TopicPartition
from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages import share_group_describe as share
from qbus.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeResponse,
    TopicPartitions,
)
from qbus.wire.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from qbus.wire.messages.consumer_group_describe import Member as ConsumerMember
from qbus.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from qbus.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from qbus.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from qbus.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from qbus.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponse as ShareOffsets,
)
from qbus.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponseGroup as GroupOffsets,
)
from qbus.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponsePartition as PartitionOffsets,
)
from qbus.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponseTopic as TopicOffsets,
)
from qbus.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from tests.support.fake_broker import FakeBroker


async def test_a_controller_that_moved_is_asked_again() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]

        def answer(request: CreateTopicsRequest) -> CreateTopicsResponse:
            result = CreatableTopicResult(name=request.topics[0].name, error_code=codes.pop(0))
            return CreateTopicsResponse(topics=[result])

        broker.handlers[ApiKey.CREATE_TOPICS] = answer
        await admin.create_topic("new", partitions=3, config={"a": "b"})
        assert codes == []
        (topic,) = broker.asked(ApiKey.CREATE_TOPICS)[-1].topics
        assert (topic.num_partitions, topic.replication_factor) == (3, -1)
        assert [(config.name, config.value) for config in topic.configs] == [("a", "b")]


@pytest.mark.parametrize(
    ("words", "expected"), [("no such key", "no such key"), (None, "topic t: INVALID_CONFIG")]
)
async def test_the_brokers_words_reach_the_user(words: str | None, expected: str) -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        result = CreatableTopicResult(
            name="t", error_code=ErrorCode.INVALID_CONFIG, error_message=words
        )
        broker.handlers[ApiKey.CREATE_TOPICS] = lambda _: CreateTopicsResponse(topics=[result])
        with pytest.raises(ApiError, match=expected):
            await admin.create_topic("t")


async def test_codes_and_sources_of_a_later_protocol() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        config = DescribeConfigsResourceResult(name="key", value="1", config_source=99)
        result = DescribeConfigsResult(configs=[config])
        broker.handlers[ApiKey.DESCRIBE_CONFIGS] = lambda _: DescribeConfigsResponse(
            results=[result]
        )
        (entry,) = await admin.describe_config(ConfigKind.TOPIC, "t")
        assert entry.source is ConfigSource.UNKNOWN
        result.error_code = 9999
        with pytest.raises(ApiError, match="9999") as caught:
            await admin.describe_config(ConfigKind.TOPIC, "t")
        assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_dead_group_does_not_exist() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.DESCRIBE_GROUPS] = lambda _: DescribeGroupsResponse(
            groups=[DescribedGroup(group_id="g", group_state="Dead")]
        )
        broker.handlers[ApiKey.CONSUMER_GROUP_DESCRIBE] = lambda _: ConsumerGroupDescribeResponse(
            groups=[ConsumerGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)]
        )
        broker.handlers[ApiKey.SHARE_GROUP_DESCRIBE] = lambda _: share.ShareGroupDescribeResponse(
            groups=[share.DescribedGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)]
        )
        with pytest.raises(ApiError) as caught:
            await admin.describe_group("g")
        assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_group_that_is_no_classic_one_is_described_all_the_same() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.DESCRIBE_GROUPS] = lambda _: DescribeGroupsResponse(
            groups=[DescribedGroup(group_id="g", group_state="Dead")]
        )
        topic = TopicPartitions(topic_name="t", partitions=[1, 0])
        member = ConsumerMember(
            member_id="m",
            member_epoch=2,
            target_assignment=Assignment(topic_partitions=[topic]),
            member_type=1,
        )
        group = ConsumerGroup(
            group_id="g",
            group_state="Reconciling",
            group_epoch=3,
            assignor_name="uniform",
            members=[member],
        )
        broker.handlers[ApiKey.CONSUMER_GROUP_DESCRIBE] = lambda _: ConsumerGroupDescribeResponse(
            groups=[group]
        )
        described = await admin.describe_group("g")
        assert (described.type, described.state, described.epoch) == ("consumer", "Reconciling", 3)
        assert described.protocol == "uniform"
        (found,) = described.members
        assert (found.epoch, found.assignment, found.is_classic) == (2, (), False)
        assert found.target == (TopicPartition("t", 0), TopicPartition("t", 1))


def without(broker: FakeBroker) -> None:
    """Have the broker know "g" neither as a classic nor as a consumer group."""
    broker.handlers[ApiKey.DESCRIBE_GROUPS] = lambda _: DescribeGroupsResponse(
        groups=[DescribedGroup(group_id="g", group_state="Dead")]
    )
    broker.handlers[ApiKey.CONSUMER_GROUP_DESCRIBE] = lambda _: ConsumerGroupDescribeResponse(
        groups=[ConsumerGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)]
    )


async def test_a_share_group_is_described_with_its_members() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        without(broker)
        topic = share.TopicPartitions(topic_name="t", partitions=[1, 0])
        member = share.Member(
            member_id="m",
            member_epoch=2,
            client_host="127.0.0.1",
            assignment=share.Assignment(topic_partitions=[topic]),
        )
        group = share.DescribedGroup(
            group_id="g", group_state="Stable", group_epoch=3, members=[member]
        )
        broker.handlers[ApiKey.SHARE_GROUP_DESCRIBE] = lambda _: share.ShareGroupDescribeResponse(
            groups=[group]
        )
        described = await admin.describe_group("g")
        assert (described.type, described.state, described.epoch) == ("share", "Stable", 3)
        (found,) = described.members
        assert found.assignment == (TopicPartition("t", 0), TopicPartition("t", 1))


async def test_what_a_share_group_has_not_done() -> None:
    async with FakeBroker({"t": 2}) as broker, Admin(broker.bootstrap) as admin:
        partitions = [
            PartitionOffsets(partition_index=0, start_offset=4, lag=3),
            PartitionOffsets(
                partition_index=1,
                start_offset=-1,
                lag=-1,
                error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ),
        ]
        topic = TopicOffsets(topic_name="t", partitions=partitions)
        broker.handlers[ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS] = lambda _: ShareOffsets(
            groups=[GroupOffsets(group_id="g", topics=[topic])]
        )
        first, second = await admin.share_group_offsets("g")
        assert (first.committed_offset, first.lag, first.problem) == (4, 3, "")
        assert (second.committed_offset, second.undone) == (-1, -1)
        assert second.problem == "NOT_LEADER_OR_FOLLOWER"


async def test_groups_that_are_not_of_consumers_keep_their_secrets() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        member = DescribedGroupMember(member_id="m", member_assignment=b"\xff\xff\xff\xff")
        broker.handlers[ApiKey.DESCRIBE_GROUPS] = lambda _: DescribeGroupsResponse(
            groups=[DescribedGroup(group_id="g", protocol_type="connect", members=[member])]
        )
        (described,) = (await admin.describe_group("g")).members
        assert described.assignment == ()


async def test_groups_are_listed_by_name() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.LIST_GROUPS] = lambda _: ListGroupsResponse(
            groups=[ListedGroup(group_id="b"), ListedGroup(group_id="a")]
        )
        assert [listing.group for listing in await admin.list_groups()] == ["a", "b"]


async def test_an_offline_log_directory_is_shown_as_such() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        offline = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir="/broken")
        healthy = DescribeLogDirsResult(
            log_dir="/data",
            topics=[
                DescribeLogDirsTopic(
                    name="t",
                    partitions=[
                        DescribeLogDirsPartition(partition_index=index, partition_size=index * 10)
                        for index in (1, 0)
                    ],
                )
            ],
        )
        broker.handlers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _: DescribeLogDirsResponse(
            results=[offline, healthy]
        )
        broken, good = await admin.describe_log_dirs()
        assert (broken.is_online, broken.path) == (False, "/broken")
        assert [(r.partition, r.size) for r in good.replicas] == [(0, 0), (1, 10)]


async def test_topics_are_listed_without_the_internal_ones() -> None:
    async with FakeBroker({"b": 1, "a": 2, "__internal": 1}) as broker:
        honest = broker.metadata

        def metadata(request: object) -> object:
            response = honest(request)  # type: ignore[arg-type]
            for topic in response.topics:
                topic.is_internal = topic.name == "__internal"
            return response

        broker.handlers[ApiKey.METADATA] = metadata
        async with Admin(broker.bootstrap) as admin:
            assert [topic.name for topic in await admin.list_topics()] == ["a", "b"]
            everything = await admin.list_topics(internal=True)
            assert [topic.name for topic in everything] == ["__internal", "a", "b"]
            assert [len(topic.partitions) for topic in everything] == [1, 2, 1]


async def test_topics_that_clients_of_qbus_keep_their_state_in_are_internal() -> None:
    topics = {"a": 1, STAGING_TOPIC: 1, "__qbusy": 1}
    async with FakeBroker(topics) as broker, Admin(broker.bootstrap) as admin:
        assert [topic.name for topic in await admin.list_topics()] == ["__qbusy", "a"]
        everything = await admin.list_topics(internal=True)
        assert [topic.name for topic in everything if topic.is_internal] == [STAGING_TOPIC]


@pytest.mark.parametrize(
    ("committed", "start", "end", "lag"),
    [(3, 0, 10, 7), (3, 5, 10, 5), (10, 0, 10, 0), (12, 0, 10, 0)],
)
def test_lag_counts_what_can_still_be_read(committed: int, start: int, end: int, lag: int) -> None:
    assert GroupOffset("t", 0, committed, "", start, end).lag == lag
