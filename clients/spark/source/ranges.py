"""What one task reads: a range of one partition."""

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from ...types import TopicPartition


@dataclass(frozen=True, order=True)
class OffsetRange(InputPartition):
    """The records from ``start`` to before ``end``, of the topic that has this id."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str

    def __len__(self) -> int:
        """How many offsets it spans: as many records, but for those that compaction removed."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} from {self.start} to {self.end}"

    @property
    def where(self) -> TopicPartition:
        """The partition that it is of."""
        return TopicPartition(self.topic, self.partition)
