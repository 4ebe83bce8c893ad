"""The offsets of a streaming query, in the JSON that Spark stores in the query's checkpoint.

The format is that of Spark's Kafka connector, ``{"topic": {"0": 23}}``, with more fields whose
names no topic can have:

``#ids``    the id of each topic: one deleted and created again has another
``#query``  the name of the query, for that of its consumer group
``#begin``  only in the end offset of a query's first batch: where that batch began. If the query
            stops before the batch is done, Spark asks for the initial offset again; the answer
            "latest" would then skip records of the batch.

Spark compares offsets as text: equal offsets must be written in the same order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...types import TopicPartition
from ..errors import CheckpointError

_RESERVED = "#"
_IDS, _QUERY, _BEGIN = "#ids", "#query", "#begin"

Marks = Mapping[TopicPartition, int]
"""An offset for each partition."""


@dataclass(frozen=True)
class QueryOffsets:
    """The offset of the next record of each partition, and the ids of the topics."""

    query: str
    ids: Mapping[str, str]
    positions: Marks
    begin: Marks | None = None

    @property
    def is_initial(self) -> bool:
        """Whether nothing has been read yet."""
        return self.begin == self.positions

    def to_json(self) -> dict[str, Any]:
        """The JSON for the checkpoint."""
        written: dict[str, Any] = {}
        if self.begin is not None:
            written[_BEGIN] = _write(self.begin)
        written[_IDS] = dict(sorted(self.ids.items()))
        written[_QUERY] = self.query
        return written | _write(self.positions)

    @classmethod
    def from_json(cls, written: Any) -> "QueryOffsets":
        """Parse a checkpoint's JSON; raises :class:`~qbus.clients.spark.errors.CheckpointError`."""
        if not isinstance(written, Mapping):
            raise CheckpointError(f"{written!r:.200} is not a JSON object")
        rest = dict(written)
        ids, query = rest.pop(_IDS, None), rest.pop(_QUERY, None)
        begin = rest.pop(_BEGIN, None)
        if not isinstance(ids, Mapping) or not isinstance(query, str):
            raise CheckpointError(f"{_IDS} or {_QUERY} is missing in {written!r:.200}")
        later = [name for name in rest if name.startswith(_RESERVED)]
        if later:
            raise CheckpointError(f"the field {later[0]} is unknown")
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
