"""The broker keys that are defaults of topic keys (Kafka's table of synonyms).

Of several, the first that is set counts. A factor converts its value to the topic key's unit.
"""

from typing import NamedTuple

_HOUR_MS = 60 * 60 * 1000
_MINUTE_MS = 60 * 1000


class Synonym(NamedTuple):
    """A broker key; ``factor`` converts its unit to the topic key's."""

    name: str
    factor: int = 1


SYNONYMS: dict[str, tuple[Synonym, ...]] = {
    "segment.bytes": (Synonym("log.segment.bytes"),),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
    "segment.jitter.ms": (
        Synonym("log.roll.jitter.ms"),
        Synonym("log.roll.jitter.hours", _HOUR_MS),
    ),
    "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
    "index.interval.bytes": (Synonym("log.index.interval.bytes"),),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", _MINUTE_MS),
        Synonym("log.retention.hours", _HOUR_MS),
    ),
    "retention.bytes": (Synonym("log.retention.bytes"),),
    "max.message.bytes": (Synonym("message.max.bytes"),),
    "message.timestamp.type": (Synonym("log.message.timestamp.type"),),
    "message.timestamp.before.max.ms": (Synonym("log.message.timestamp.before.max.ms"),),
    "message.timestamp.after.max.ms": (Synonym("log.message.timestamp.after.max.ms"),),
    "min.insync.replicas": (Synonym("min.insync.replicas"),),
    "qbus.durability": (Synonym("durability"),),
    "flush.messages": (Synonym("log.flush.interval.messages"),),
    "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
    "preallocate": (Synonym("log.preallocate"),),
    "cleanup.policy": (Synonym("log.cleanup.policy"),),
    "delete.retention.ms": (Synonym("log.cleaner.delete.retention.ms"),),
    "min.compaction.lag.ms": (Synonym("log.cleaner.min.compaction.lag.ms"),),
    "max.compaction.lag.ms": (Synonym("log.cleaner.max.compaction.lag.ms"),),
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
    "compression.type": (Synonym("compression.type"),),
    "unclean.leader.election.enable": (Synonym("unclean.leader.election.enable"),),
}
"""Topic key -> broker keys."""

RELATIVES: dict[str, tuple[str, ...]] = {
    synonym.name: tuple(other.name for other in synonyms)
    for synonyms in SYNONYMS.values()
    for synonym in synonyms
}
"""Broker key -> the broker keys with the same meaning in any unit, itself included."""
