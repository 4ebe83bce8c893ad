"""What the audit log is told of changes that were made: which one, and of what."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from qbus.broker.audit import AuditLog, Caller
from qbus.broker.authorization import AccessControl, Operation, Resource
from qbus.errors import ErrorCode
from qbus.security.acls import Decision
from qbus.wire import ApiKey
from qbus.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from qbus.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from qbus.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from qbus.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.metadata_plane import MetadataPlane, metadata_plane

TOPIC, BROKER = 2, 4


class Noting:
    """In place of the audit log."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str, str]] = []
        self.asked: list[tuple[str, str]] = []

    def samples(self) -> bool:
        return False

    def authorization(
        self, caller: Caller, operation: Operation, _: Resource, __: Decision
    ) -> None:
        self.asked.append((caller.request, operation.name))

    def administration(self, caller: Caller, action: str, target: str) -> None:
        self.changes.append((caller.request, action, target))


@pytest.fixture
def audit() -> Noting:
    return Noting()


@pytest.fixture
async def plane(tmp_path: Path, audit: Noting) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path) as made:
        made.control = AccessControl(audit=cast("AuditLog", audit))
        yield made


async def create(plane: MetadataPlane, name: str, **more: Any) -> None:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    await plane.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], **more))


async def test_topics_that_are_made_and_deleted(plane: MetadataPlane, audit: Noting) -> None:
    await create(plane, "orders")
    await create(plane, "orders")  # it is there
    await create(plane, "drafts", validate_only=True)
    for _ in range(2):
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")])
        await plane.ask(ApiKey.DELETE_TOPICS, 6, gone)
    assert audit.changes == [
        ("CREATE_TOPICS", "create topic", "orders"),
        ("DELETE_TOPICS", "delete topic", "orders"),
    ]
    assert audit.asked.count(("DELETE_TOPICS", "DELETE")) == 2, "also in vain"


async def test_topics_that_are_made_because_somebody_asks_for_them(
    plane: MetadataPlane, audit: Noting
) -> None:
    wanted = MetadataRequest(
        topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True
    )
    await plane.ask(ApiKey.METADATA, 9, wanted)
    assert audit.changes == [("METADATA", "create topic", "new")]


async def test_configurations(plane: MetadataPlane, audit: Noting) -> None:
    await create(plane, "orders")

    def resource(kind: int, name: str, key: str, value: str) -> AlterConfigsResource:
        return AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[AlterableConfig(name=key, config_operation=0, value=value)],
        )

    request = IncrementalAlterConfigsRequest(
        resources=[
            resource(TOPIC, "orders", "retention.ms", "1000"),
            resource(TOPIC, "missing", "retention.ms", "1000"),
            resource(BROKER, "", "message.max.bytes", "100000"),
        ]
    )
    response = await plane.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    codes = [one.error_code for one in response.responses]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    del audit.changes[0]  # that the topic was made
    assert [target for _, _, target in audit.changes] == ["topic orders", "all brokers"]
