"""A broker with a queue, in this process and loop, for the coroutines behind the commands."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from qbus.clients.types import ConfigKind, ConfigSource
from qbus.records import build_batch
from qbus.records.control import (
    Change,
    ChangeKind,
    ControlType,
    Shared,
    control_batch,
    encode_shared,
)
from qbus.wire import ApiKey
from qbus.wire.messages import queue_offsets as offsets
from qbus.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from qbus.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.support.fake_broker import FakeBroker
from tests.support.fake_share import FakeShareGroup


class FakeQueue:
    """The broker, the share group, and what ``QueueOffsets`` answers of each partition."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.group = FakeShareGroup(broker)
        self.states: dict[tuple[str, int], dict[str, Any]] = {}
        self.configs: list[tuple[int, str, dict[str, str | None]]] = []
        broker.handlers[ApiKey.QUEUE_OFFSETS] = self._offsets
        self.group_configs: dict[str, str] = {}
        self.topic_configs = {"qbus.delay.enable": "true"}
        broker.handlers[ApiKey.DESCRIBE_CONFIGS] = self._describe
        broker.handlers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = self._alter

    def store(self, *values: bytes, topic: str = "q", timestamp: int = 5000) -> None:
        """Append records, one batch."""
        batch = build_batch([(b"k", value, (), timestamp) for value in values])
        self.broker.logs[topic, 0].append(bytes(batch))

    def done(self, first: int, last: int, *, group: str = "disque") -> None:
        """Append that a group has done some records of the queue."""
        changes = [Change(ChangeKind.ACKNOWLEDGED, first, last)]
        value = encode_shared(Shared(group, changes))
        batch = control_batch([(ControlType.SHARED, value)], 6000)
        self.broker.logs["q", 0].append(bytes(batch))

    def _offsets(self, request: offsets.QueueOffsetsRequest) -> offsets.QueueOffsetsResponse:
        wanted = [
            (topic.name, part.partition_index)
            for topic in request.topics or ()
            for part in topic.partitions
        ]
        return offsets.QueueOffsetsResponse(
            topics=[
                offsets.TopicResponse(
                    name=topic,
                    partitions=[
                        offsets.PartitionResponse(
                            partition_index=index, **self.states.get((topic, index), {})
                        )
                    ],
                )
                for topic, index in (self.states if request.topics is None else wanted)
            ]
        )

    def _describe(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        (resource,) = request.resources
        is_topic = resource.resource_type == ConfigKind.TOPIC
        settings = self.topic_configs if is_topic else self.group_configs
        entries = [
            DescribeConfigsResourceResult(
                name=name, value=value, config_source=ConfigSource.DEFAULT
            )
            for name, value in settings.items()
        ]
        result = DescribeConfigsResult(resource_name=resource.resource_name, configs=entries)
        return DescribeConfigsResponse(results=[result])

    def _alter(self, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        response = IncrementalAlterConfigsResponse()
        for resource in request.resources:
            changed = {config.name: config.value for config in resource.configs}
            self.configs.append((resource.resource_type, resource.resource_name, changed))
            response.responses.append(
                AlterConfigsResourceResponse(
                    resource_type=resource.resource_type, resource_name=resource.resource_name
                )
            )
        return response


@asynccontextmanager
async def fake_queue(topics: Mapping[str, int] | None = None) -> AsyncIterator[FakeQueue]:
    async with FakeBroker(topics or {"q": 1}) as broker:
        yield FakeQueue(broker)
