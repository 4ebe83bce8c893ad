"""Which partition a record goes to."""

from qbus.errors import ApiError, ErrorCode
from qbus.records.crc import Buffer

from ..partitioner import StickyPartitioner, partition_for_key
from ..types import TopicDescription
from .options import Partitioner


class Router:
    """What was asked for, else the partitioner's choice, else the key's, else the sticky one.

    ``silent``: brokers that do not answer now, whose partitions are left alone while others are
    there. Replaced, never changed in place: other threads read it.
    """

    def __init__(self, partitioner: Partitioner | None) -> None:
        self.silent: frozenset[int] = frozenset()
        self._partitioner = partitioner
        self._sticky = StickyPartitioner()

    def fixed(
        self,
        topic: TopicDescription,
        key: Buffer | None,
        value: Buffer | None,
        partition: int | None,
        broker: int | None,
    ) -> int | None:
        """The one partition that it must be; None: any.

        Raises :class:`~qbus.errors.ApiError`, and whatever a partitioner raises.
        """
        if partition is not None:
            _check(topic, partition, broker)
            return partition
        if self._partitioner is not None and broker is None:
            partition = self._partitioner(topic, key, value)
            if partition is not None:
                _check(topic, partition, None)
            return partition
        if broker is not None:
            led = [part.index for part in topic.partitions if part.leader == broker]
            if not led:
                raise ApiError(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"broker {broker} leads nothing of {topic.name}"
                )
            if key is None:
                return self._sticky.among(topic, led)
            return led[partition_for_key(key, len(led))]
        return None if key is None else partition_for_key(key, len(topic.partitions))

    @property
    def is_by_key(self) -> bool:
        """Whether keys alone decide."""
        return self._partitioner is None

    def current(self, topic: TopicDescription) -> int:
        """The partition for records that may go to any."""
        return self._sticky.current(topic, self.silent)

    def move_on(self, topic: TopicDescription) -> int:
        """Another one, for the next batch."""
        return self._sticky.move_on(topic, self.silent)


def _check(topic: TopicDescription, partition: int, broker: int | None) -> None:
    if not 0 <= partition < len(topic.partitions):
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {partition}"
        )
    if broker is not None and topic.partitions[partition].leader != broker:
        raise ApiError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {broker} does not lead {topic.name}-{partition}",
        )
