"""Records: where they are in partitions, deleting those no longer wanted, and who wrote them."""

from collections.abc import Iterable, Mapping

from qbus.wire import ApiKey
from qbus.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from qbus.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from qbus.wire.messages.describe_producers import PartitionResponse as ProducersOfPartition

from ..errors import api_error
from ..net.retry import Outcomes
from ..net.routing import asking_leaders
from ..offsets import list_offsets
from ..types import OffsetAndTimestamp, TopicPartition, by_topic
from .base import AdminBase
from .types import ProducerState


class Records(AdminBase):
    """The part of the admin client that is about what is in partitions."""

    async def list_offsets(
        self, partitions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The first offset at or after a time, in milliseconds since the Unix epoch.

        EARLIEST, LATEST and MAX_TIMESTAMP stand for the first offset, the one after the last, and
        the record with the largest timestamp.
        """
        return await list_offsets(self._cluster, partitions)

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset (LATEST: all); the partitions' new first offsets."""

        async def ask(node: int, led: list[TopicPartition]) -> Outcomes[TopicPartition, int]:
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            DeleteRecordsPartition(
                                partition_index=index, offset=before[TopicPartition(topic, index)]
                            )
                            for index in indexes
                        ],
                    )
                    for topic, indexes in by_topic(led).items()
                ],
                timeout_ms=self._server_timeout_ms,
            )
            response: DeleteRecordsResponse = await self._cluster.ask(
                node, ApiKey.DELETE_RECORDS, request
            )
            return {
                TopicPartition(topic.name, found.partition_index): api_error(
                    found.error_code, of=f"{topic.name}-{found.partition_index}"
                )
                if found.error_code
                else found.low_watermark
                for topic in response.topics
                for found in topic.partitions
            }

        return await asking_leaders(self._cluster, before, ask)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """The producers that the leader of each partition remembers, by their ids (KIP-664)."""

        async def ask(
            node: int, led: list[TopicPartition]
        ) -> Outcomes[TopicPartition, tuple[ProducerState, ...]]:
            request = DescribeProducersRequest(
                topics=[
                    TopicRequest(name=topic, partition_indexes=indexes)
                    for topic, indexes in by_topic(led).items()
                ]
            )
            response: DescribeProducersResponse = await self._cluster.ask(
                node, ApiKey.DESCRIBE_PRODUCERS, request
            )
            return {
                TopicPartition(topic.name, found.partition_index): api_error(
                    found.error_code,
                    found.error_message,
                    of=f"{topic.name}-{found.partition_index}",
                )
                if found.error_code
                else _states(found)
                for topic in response.topics
                for found in topic.partitions
            }

        return await asking_leaders(self._cluster, partitions, ask)


def _states(found: ProducersOfPartition) -> tuple[ProducerState, ...]:
    return tuple(
        ProducerState(
            producer_id=state.producer_id,
            epoch=state.producer_epoch,
            last_sequence=state.last_sequence,
            last_timestamp=state.last_timestamp,
            coordinator_epoch=state.coordinator_epoch,
            transaction_start=state.current_txn_start_offset,
        )
        for state in sorted(found.active_producers, key=lambda state: state.producer_id)
    )
