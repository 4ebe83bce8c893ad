"""OffsetCommit at every version."""

from typing import Any

import pytest

from qbus.errors import ErrorCode
from qbus.metadata import StoreUnavailable
from qbus.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

from ...group.shell import TOPIC_ID
from .group_broker import GroupBroker, versions


def broker_with_topic() -> GroupBroker:
    broker = GroupBroker()
    broker.metadata.add("t", partitions=3)
    return broker


def request(*partitions: int, topic: str = "t", **changes: Any) -> OffsetCommitRequest:
    metadata = changes.pop("metadata", "note")
    topic_id = changes.pop("topic_id", TOPIC_ID)
    wanted = [
        OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=100 + index,
            committed_leader_epoch=5,
            committed_metadata=metadata,
        )
        for index in partitions
    ]
    item = OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=wanted)
    return OffsetCommitRequest(**({"group_id": "g", "topics": [item]} | changes))


async def errors(broker: GroupBroker, version: int, asked: OffsetCommitRequest) -> list[int]:
    response = await broker.ask(version, asked)
    for wanted, answer in zip(asked.topics, response.topics, strict=True):
        assert answer.name == (wanted.name if version < 10 else "")
        assert answer.topic_id == (wanted.topic_id if version >= 10 else bytes(16))
        assert [p.partition_index for p in answer.partitions] == [
            p.partition_index for p in wanted.partitions
        ]
    return [item.error_code for topic in response.topics for item in topic.partitions]


@pytest.mark.parametrize("version", versions("OFFSET_COMMIT"))
class TestAtEveryVersion:
    async def test_stores_offset_epoch_and_metadata(self, version: int) -> None:
        broker = broker_with_topic()

        assert await errors(broker, version, request(0, 2)) == [ErrorCode.NONE] * 2

        stored = (await broker.shell.groups.offsets("g"))["t"]
        assert {index: (o.offset, o.metadata) for index, o in stored.items()} == {
            0: (100, "note"),
            2: (102, "note"),
        }
        assert stored[0].leader_epoch == (5 if version >= 6 else -1)
        assert stored[0].topic_id == TOPIC_ID

    async def test_stores_what_exists_and_says_what_does_not(self, version: int) -> None:
        broker = broker_with_topic()

        assert await errors(broker, version, request(0, 3, -1)) == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        unknown = (
            ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        )
        other = request(0, topic="unknown", topic_id=b"?" * 16)
        assert await errors(broker, version, other) == [unknown]

    async def test_takes_nulls_for_no_metadata_and_refuses_too_much(self, version: int) -> None:
        broker = broker_with_topic()

        assert await errors(broker, version, request(0, metadata=None)) == [ErrorCode.NONE]
        assert await errors(broker, version, request(0, metadata="ü" * 2048)) == [ErrorCode.NONE]
        assert await errors(broker, version, request(0, metadata="ü" * 2048 + "x")) == [
            ErrorCode.OFFSET_METADATA_TOO_LARGE
        ]

    async def test_is_for_members_while_there_are_any(self, version: int) -> None:
        broker = broker_with_topic()
        member_id = await broker.member()

        def commit(generation: int, who: str) -> OffsetCommitRequest:
            return request(0, member_id=who, generation_id_or_member_epoch=generation)

        assert await errors(broker, version, commit(1, member_id)) == [ErrorCode.NONE]
        assert await errors(broker, version, commit(0, member_id)) == [ErrorCode.ILLEGAL_GENERATION]
        assert await errors(broker, version, commit(1, "nobody")) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert await errors(broker, version, commit(-1, "")) == [ErrorCode.UNKNOWN_MEMBER_ID]

    async def test_of_a_generation_of_no_group_is_refused(self, version: int) -> None:
        asked = request(0, member_id="a", generation_id_or_member_epoch=1)

        assert await errors(broker_with_topic(), version, asked) == [
            ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
        ]

    async def test_that_is_not_stored_is_not_acknowledged(self, version: int) -> None:
        broker = broker_with_topic()
        broker.shell.store.failures.append(StoreUnavailable("disk"))

        assert await errors(broker, version, request(0, 7)) == [
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]

    async def test_of_nothing_is_a_sign_of_life_all_the_same(self, version: int) -> None:
        broker = broker_with_topic()
        member_id = await broker.member()

        for _ in range(3):
            await broker.shell.timers.advance(9)
            nothing = OffsetCommitRequest(
                group_id="g", member_id=member_id, generation_id_or_member_epoch=1
            )
            response = await broker.ask(version, nothing)
            assert response.topics == []

        assert await errors(
            broker, version, request(0, member_id=member_id, generation_id_or_member_epoch=1)
        ) == [ErrorCode.NONE]


@pytest.mark.parametrize(("version", "is_kept"), [(2, False), (4, False), (5, True)])
async def test_old_versions_may_set_a_retention(version: int, is_kept: bool) -> None:
    broker = broker_with_topic()
    await broker.shell.groups.start()
    await errors(broker, version, request(0, retention_time_ms=60_000))

    await broker.shell.timers.advance(2 * 3_600)

    assert bool(await broker.shell.groups.offsets("g")) == is_kept


async def test_a_static_member_that_was_replaced_is_fenced() -> None:
    broker = broker_with_topic()
    old = await broker.member(group_instance_id="one")
    await broker.join(group_instance_id="one")
    asked = request(0, member_id=old, generation_id_or_member_epoch=1, group_instance_id="one")

    assert await errors(broker, 9, asked) == [ErrorCode.FENCED_INSTANCE_ID]


async def test_the_nameless_group_may_commit() -> None:
    broker = broker_with_topic()

    assert await errors(broker, 9, request(0, group_id="")) == [ErrorCode.NONE]
