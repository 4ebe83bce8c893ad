"""What jobs need of the queues that both protocols stand on, see :mod:`qbus.broker.queues`."""

from typing import Final, Protocol

from qbus.jobs import JobOptions, read_options
from qbus.records import ConsumerRecord

from ..partition.partition import Partition
from ..queues import GroupSettings, QueueDescription, ShareQueue, TakenRecord

SETTINGS: Final = GroupSettings(
    lock_ms=300_000,
    delivery_limit=0,
    partition_max_locks=100_000,
    auto_offset_reset="earliest",
)
"""How the share group of jobs takes records, where nobody configured it."""

MEMBER: Final = "disque"
"""Who has a job: any client may acknowledge what another one took."""


def options_of(record: ConsumerRecord | TakenRecord) -> JobOptions:
    """What a record's headers say of it as a job."""
    return read_options(record.headers, SETTINGS.lock_ms // 1000)


def is_at_most_once(record: ConsumerRecord) -> bool:
    """Whether it is never given out again."""
    return options_of(record).retry == 0


def lock_ms(record: ConsumerRecord) -> int:
    """How long whoever gets it has it for himself, in milliseconds."""
    return options_of(record).retry * 1000


class Queues(Protocol):
    """The queues of all partitions that are led here."""

    def queue(self, partition: Partition, group: str, settings: GroupSettings) -> ShareQueue:
        """The queue of a partition and a group. Raises ApiError."""

    def groups(self, partition: Partition) -> list[str]:
        """The groups that have state in a partition."""

    def describe(self, partition: Partition, group: str) -> QueueDescription | None:
        """A group's state in a partition."""
