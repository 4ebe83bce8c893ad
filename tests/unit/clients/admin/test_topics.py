"""Creating, deleting and describing topics, several at once, some of which are refused."""

from uuid import UUID

import pytest

from qbus.clients import Admin, NewTopic, PartialFailure
from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from qbus.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from qbus.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from qbus.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.support.fake_broker import FakeBroker

ID = UUID(int=7)


async def test_only_topics_that_were_not_created_are_asked_for_again() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        codes = {
            "a": [ErrorCode.NONE],
            "b": [ErrorCode.NOT_CONTROLLER, ErrorCode.NONE],
            "c": [ErrorCode.REQUEST_TIMED_OUT],
        }

        def answer(request: CreateTopicsRequest) -> CreateTopicsResponse:
            return CreateTopicsResponse(
                topics=[
                    CreatableTopicResult(
                        name=topic.name, error_code=codes[topic.name].pop(0), num_partitions=3
                    )
                    for topic in request.topics
                ]
            )

        broker.handlers[ApiKey.CREATE_TOPICS] = answer
        with pytest.raises(PartialFailure) as caught:
            await admin.create_topics([NewTopic("a"), NewTopic("b"), NewTopic("c")])
        assert {name: topic.partitions for name, topic in caught.value.results.items()} == {
            "a": 3,
            "b": 3,
        }
        assert caught.value.errors["c"].code is ErrorCode.REQUEST_TIMED_OUT
        asked = [[t.name for t in r.topics] for r in broker.asked(ApiKey.CREATE_TOPICS)]
        assert asked == [["a", "b", "c"], ["b"]]


async def test_the_controller_is_looked_up_again_when_it_is_none() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]
        broker.handlers[ApiKey.CREATE_TOPICS] = lambda _: CreateTopicsResponse(
            topics=[CreatableTopicResult(name="t", error_code=codes.pop(0))]
        )
        await admin.create_topic("t")
        assert len(broker.asked(ApiKey.METADATA)) == 2


async def test_chosen_brokers() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.CREATE_TOPICS] = lambda _: CreateTopicsResponse(
            topics=[CreatableTopicResult(name="t")]
        )
        await admin.create_topic("t", assignments=[[1, 2], (2, 3)], validate_only=True)
        (request,) = broker.asked(ApiKey.CREATE_TOPICS)
        (topic,) = request.topics
        assert request.validate_only
        assert (topic.num_partitions, topic.replication_factor) == (-1, -1)
        assert [(a.partition_index, a.broker_ids) for a in topic.assignments] == [
            (0, [1, 2]),
            (1, [2, 3]),
        ]


@pytest.mark.parametrize("name", ["other", ""])
async def test_a_broker_that_answers_for_something_else(name: str) -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.CREATE_TOPICS] = lambda _: CreateTopicsResponse(
            topics=[CreatableTopicResult(name=name)]
        )
        with pytest.raises(ApiError, match="did not answer for t"):
            await admin.create_topic("t")


async def test_deletion_by_name_and_by_id() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:

        def answer(request: DeleteTopicsRequest) -> DeleteTopicsResponse:
            return DeleteTopicsResponse(
                responses=[
                    DeletableTopicResult(name="t", topic_id=UUID(int=1).bytes),
                    DeletableTopicResult(name="found by id", topic_id=ID.bytes),
                    DeletableTopicResult(
                        name=None,
                        topic_id=UUID(int=8).bytes,
                        error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                    ),
                ]
            )

        broker.handlers[ApiKey.DELETE_TOPICS] = answer
        with pytest.raises(PartialFailure) as caught:
            await admin.delete_topics(["t", ID, UUID(int=8)])
        assert caught.value.results.keys() == {"t", ID}
        assert caught.value.errors[UUID(int=8)].code is ErrorCode.UNKNOWN_TOPIC_ID
        (request,) = broker.asked(ApiKey.DELETE_TOPICS)
        assert [(t.name, UUID(bytes=t.topic_id)) for t in request.topics] == [
            ("t", UUID(int=0)),
            (None, ID),
            (None, UUID(int=8)),
        ]


async def test_a_topic_that_is_not_there_is_not_waited_for() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        with pytest.raises(PartialFailure) as caught:
            await admin.describe_topics(["t", "missing"])
        assert caught.value.results["t"].name == "t"
        assert caught.value.errors["missing"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(broker.asked(ApiKey.METADATA)) == 1


async def test_description_by_id() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:

        def metadata(request: MetadataRequest) -> MetadataResponse:
            (asked,) = request.topics or []
            assert (asked.name, asked.topic_id) == (None, ID.bytes)
            assert not request.allow_auto_topic_creation
            return MetadataResponse(
                topics=[
                    MetadataResponseTopic(
                        name="t",
                        topic_id=ID.bytes,
                        partitions=[MetadataResponsePartition(partition_index=0, leader_id=1)],
                    )
                ]
            )

        broker.handlers[ApiKey.METADATA] = metadata
        assert (await admin.describe_topic(ID)).name == "t"


async def test_new_partitions() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:

        def answer(request: CreatePartitionsRequest) -> CreatePartitionsResponse:
            return CreatePartitionsResponse(
                results=[
                    CreatePartitionsTopicResult(name=topic.name, error_code=code)
                    for topic in request.topics
                ]
            )

        broker.handlers[ApiKey.CREATE_PARTITIONS] = answer
        code = ErrorCode.NONE
        await admin.create_partitions("t", 4, assignments=[(1,)], validate_only=True)
        (request,) = broker.asked(ApiKey.CREATE_PARTITIONS)
        (topic,) = request.topics
        assert request.validate_only
        assert (topic.count, [a.broker_ids for a in topic.assignments]) == (4, [[1]])
        code = ErrorCode.INVALID_PARTITIONS
        with pytest.raises(ApiError, match="topic t: INVALID_PARTITIONS"):
            await admin.create_partitions("t", 1)
