"""How far a streaming query has come, in the JSON that Spark keeps in the query's checkpoint.

As Spark's own Kafka connector writes it, ``{"topic": {"0": 23}}``, and beside that, under names
that no topic can have:

``#ids``    the id of each topic: one deleted and created again has another
``#query``  names the query, for the consumer group that shows how far it has come
``#begin``  only in the end of a query's first batch: where that began. Spark asks again where to
            begin if the first batch is not done when the query stops, and the answer "latest" would
            skip what the batch was planned with.

Spark compares offsets as texts: equal ones must be written in the same order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...types import TopicPartition
from ..errors import CheckpointError

_RESERVED = "#"
_IDS, _QUERY, _BEGIN = "#ids", "#query", "#begin"

Marks = Mapping[TopicPartition, int]
"""An offset in each of some partitions."""


@dataclass(frozen=True)
class QueryOffsets:
    """The offset of the next record of each partition, and what those partitions are."""

    query: str
    ids: Mapping[str, str]
    positions: Marks
    begin: Marks | None = None

    @property
    def is_initial(self) -> bool:
        """Whether nothing was read yet."""
        return self.begin == self.positions

    def to_json(self) -> dict[str, Any]:
        """What Spark is to keep; raises nothing."""
        written: dict[str, Any] = {}
        if self.begin is not None:
            written[_BEGIN] = _write(self.begin)
        written[_IDS] = dict(sorted(self.ids.items()))
        written[_QUERY] = self.query
        return written | _write(self.positions)

    @classmethod
    def from_json(cls, written: Any) -> "QueryOffsets":
        """What Spark has kept; raises :class:`~qbus.clients.spark.errors.CheckpointError`."""
        if not isinstance(written, Mapping):
            raise CheckpointError(f"{written!r:.200} is no JSON object")
        rest = dict(written)
        ids, query = rest.pop(_IDS, None), rest.pop(_QUERY, None)
        begin = rest.pop(_BEGIN, None)
        if not isinstance(ids, Mapping) or not isinstance(query, str):
            raise CheckpointError(f"{_IDS} or {_QUERY} is missing in {written!r:.200}")
        later = [name for name in rest if name.startswith(_RESERVED)]
        if later:
            raise CheckpointError(f"nothing is known of {later[0]}")
        positions = _read(rest)
        unnamed = {partition.topic for partition in positions} - ids.keys()
        if unnamed:
            raise CheckpointError(f"topic {min(unnamed)} has no id")
        return cls(query, dict(ids), positions, None if begin is None else _read(begin))


def _write(marks: Marks) -> dict[str, dict[str, int]]:
    written: dict[str, dict[str, int]] = {}
    for (topic, index), offset in sorted(marks.items()):
        written.setdefault(topic, {})[str(index)] = offset
    return written


def _read(written: Any) -> dict[TopicPartition, int]:
    try:
        return {
            TopicPartition(topic, int(index)): int(offset)
            for topic, offsets in written.items()
            for index, offset in offsets.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise CheckpointError(f"no offsets by topic and partition: {written!r:.200}") from None
