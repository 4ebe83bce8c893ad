"""TxnOffsetCommit at every version, and the end of its transaction in the group."""

from typing import Any

import pytest

from qbus.errors import ErrorCode
from qbus.metadata import StoreUnavailable
from qbus.wire.messages.end_group_transaction import EndGroupTransactionRequest
from qbus.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from qbus.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from ...group.shell import TOPIC_ID, at
from .group_broker import GroupBroker, versions


def broker_with_topic(**config: object) -> GroupBroker:
    broker = GroupBroker(**config)
    broker.metadata.add("t", partitions=3)
    return broker


def request(*partitions: int, topic: str = "t", **changes: Any) -> TxnOffsetCommitRequest:
    metadata = changes.pop("metadata", "note")
    wanted = [
        TxnOffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=100 + index,
            committed_leader_epoch=5,
            committed_metadata=metadata,
        )
        for index in partitions
    ]
    fields: dict[str, Any] = {
        "transactional_id": "tx",
        "group_id": "g",
        "producer_id": 7,
        "producer_epoch": 2,
        "topics": [TxnOffsetCommitRequestTopic(name=topic, partitions=wanted)],
    }
    return TxnOffsetCommitRequest(**(fields | changes))


async def errors(broker: GroupBroker, version: int, asked: TxnOffsetCommitRequest) -> list[int]:
    response = await broker.ask(version, asked)
    for wanted, answer in zip(asked.topics, response.topics, strict=True):
        assert answer.name == wanted.name
        assert [p.partition_index for p in answer.partitions] == [
            p.partition_index for p in wanted.partitions
        ]
    return [item.error_code for topic in response.topics for item in topic.partitions]


async def end(broker: GroupBroker, *, committed: bool, epoch: int = 2) -> int:
    response = await broker.ask(
        0,
        EndGroupTransactionRequest(
            group_id="g", producer_id=7, producer_epoch=epoch, committed=committed
        ),
    )
    error: int = response.error_code
    return error


async def fetched(broker: GroupBroker, *, stable: bool) -> tuple[int, int]:
    """The offset of t-0 and its error."""
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    group = OffsetFetchRequestGroup(group_id="g", topics=topics)
    response = await broker.ask(8, OffsetFetchRequest(groups=[group], require_stable=stable))
    (partition,) = response.groups[0].topics[0].partitions
    return partition.committed_offset, partition.error_code


@pytest.mark.parametrize("version", versions("TXN_OFFSET_COMMIT"))
class TestAtEveryVersion:
    async def test_offsets_count_when_the_transaction_is_committed(self, version: int) -> None:
        broker = broker_with_topic()

        assert await errors(broker, version, request(0, 2)) == [ErrorCode.NONE] * 2
        assert await broker.shell.groups.offsets("g") == {}
        assert await end(broker, committed=True) == ErrorCode.NONE

        stored = (await broker.shell.groups.offsets("g"))["t"]
        assert {index: (o.offset, o.metadata) for index, o in stored.items()} == {
            0: (100, "note"),
            2: (102, "note"),
        }
        assert stored[0].leader_epoch == (5 if version >= 2 else -1)
        assert stored[0].topic_id == TOPIC_ID

    async def test_the_transactions_coordinator_is_asked_and_adds_from_version_5_on(
        self, version: int
    ) -> None:
        broker = broker_with_topic()

        await errors(broker, version, request(0))

        assert broker.transactions.asked == [("tx", 7, 2, "g", version >= 5)]

    async def test_stores_what_exists_and_says_what_does_not(self, version: int) -> None:
        broker = broker_with_topic()

        answers = await errors(broker, version, request(0, 3, -1))

        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answers == [ErrorCode.NONE, unknown, unknown]
        assert await errors(broker, version, request(0, topic="u")) == [unknown]

    async def test_offsets_of_a_deleted_topic_are_refused_if_the_request_has_its_id(
        self, version: int
    ) -> None:
        broker = broker_with_topic()
        asked = request(0)
        asked.topics[0].topic_id = b"f" * 16

        answers = await errors(broker, version, asked)

        has_ids = version >= 3  # tagged fields
        assert answers == [ErrorCode.UNKNOWN_TOPIC_ID if has_ids else ErrorCode.NONE]
        asked.topics[0].topic_id = TOPIC_ID
        assert await errors(broker, version, asked) == [ErrorCode.NONE]

    async def test_nobody_is_asked_for_nothing(self, version: int) -> None:
        broker = broker_with_topic()

        await errors(broker, version, request(9))

        assert broker.transactions.asked == []

    async def test_large_metadata_are_refused(self, version: int) -> None:
        broker = broker_with_topic(offset_metadata_max_bytes=3)

        assert await errors(broker, version, request(0)) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
        assert await errors(broker, version, request(0, metadata=None)) == [ErrorCode.NONE]

    async def test_a_transaction_that_is_not_open_is_refused_in_the_clients_words(
        self, version: int
    ) -> None:
        broker = broker_with_topic()
        broker.transactions.answer = ErrorCode.TRANSACTION_ABORTABLE

        answers = await errors(broker, version, request(0))

        known = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
        assert answers == [known]

    async def test_a_store_that_does_not_answer_is_told(self, version: int) -> None:
        broker = broker_with_topic()
        await broker.commit("g", "t", 0, at(5))
        broker.shell.store.failures.append(StoreUnavailable("gone"))

        answers = await errors(broker, version, request(0))

        assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


@pytest.mark.parametrize("version", [3, 4, 5])
class TestMembers:
    async def test_that_are_named_are_checked(self, version: int) -> None:
        broker = broker_with_topic()
        member = await broker.member()

        ours = request(0, member_id=member, generation_id=1)
        old = request(0, member_id=member, generation_id=0)
        unknown = request(0, member_id="x", generation_id=1)

        assert await errors(broker, version, ours) == [ErrorCode.NONE]
        assert await errors(broker, version, old) == [ErrorCode.ILLEGAL_GENERATION]
        assert await errors(broker, version, unknown) == [ErrorCode.UNKNOWN_MEMBER_ID]

    async def test_of_a_group_that_does_not_exist_are_of_no_generation(self, version: int) -> None:
        broker = broker_with_topic()

        gone = request(0, member_id="x", generation_id=1)

        assert await errors(broker, version, gone) == [ErrorCode.ILLEGAL_GENERATION]


class TestStableOffsets:
    async def test_are_refused_while_a_transaction_may_replace_them(self) -> None:
        broker = broker_with_topic()
        await broker.commit("g", "t", 0, at(5))
        await errors(broker, 5, request(0))

        assert await fetched(broker, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert await fetched(broker, stable=False) == (5, ErrorCode.NONE)
        await end(broker, committed=True)

        assert await fetched(broker, stable=True) == (100, ErrorCode.NONE)

    async def test_are_refused_where_a_transaction_brings_the_first(self) -> None:
        broker = broker_with_topic()
        await errors(broker, 5, request(0))

        assert await fetched(broker, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert await fetched(broker, stable=False) == (-1, ErrorCode.NONE)
        await end(broker, committed=False)

        assert await fetched(broker, stable=True) == (-1, ErrorCode.NONE)


class TestTheEnd:
    async def test_may_be_told_again(self) -> None:
        broker = broker_with_topic()
        await errors(broker, 5, request(0))

        assert await end(broker, committed=True, epoch=3) == ErrorCode.NONE
        assert await end(broker, committed=True, epoch=3) == ErrorCode.NONE

    async def test_of_a_group_that_nobody_knows_is_no_error(self) -> None:
        assert await end(broker_with_topic(), committed=True) == ErrorCode.NONE

    async def test_that_is_not_stored_is_no_success(self) -> None:
        broker = broker_with_topic()
        await errors(broker, 5, request(0))
        broker.shell.store.failures.append(StoreUnavailable("gone"))

        assert await end(broker, committed=True) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await end(broker, committed=True) == ErrorCode.NONE

        assert await fetched(broker, stable=True) == (100, ErrorCode.NONE)
