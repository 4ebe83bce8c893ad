"""The records of polls, whatever their partitions."""

from collections.abc import Iterable

from qbus.clients import ConsumerRecord, PartitionRecords


def flat(polled: Iterable[PartitionRecords]) -> list[ConsumerRecord]:
    """The records of all partitions."""
    return [record for batch in polled for record in batch]
