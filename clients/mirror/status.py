"""The state of a mirror, as immutable values and as JSON documents of bounded size.

A link may have 10,000 partitions: the document lists those that fit, partitions with trouble and
with the most lag first. Its totals count all of them.
"""

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from qbus.service.status import MAX_BYTES, fitting, short


class PartitionState(Enum):
    """The state of a partition."""

    CURRENT = "current"
    """The target has everything that the source had at the last fetch."""
    COPYING = "copying"
    """The target lacks records, and they are being copied."""
    WAITING = "waiting"
    """Copying cannot go on now and is retried: a cluster cannot be reached, for example."""
    STOPPED = "stopped"
    """Copying does not go on by itself; the trouble says why."""


class Trouble(Enum):
    """Why source and target differ, so that a person has to decide."""

    SOURCE_LOST_DATA = "source_lost_data"
    """The source's log ends before the target's or diverges from it: an unclean election."""
    SOURCE_DELETED = "source_deleted"
    """The source's topic is gone; the copy is kept as it is."""
    SOURCE_RECREATED = "source_recreated"
    """The source's topic was deleted and created again."""
    UNRELATED_TOPIC = "unrelated_topic"
    """The target's topic of that name is no mirror, or the mirror of another topic."""
    OVERTAKEN = "overtaken"
    """Retention at the source removed records before they were copied: the target has a gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """The status of one partition of a link.

    ``topic`` is its name at the source, ``target_topic`` the one at the target. The source has the
    offsets ``source_start`` to ``source_end``, as far as consumers see; the target goes on at
    ``target_end``; -1 if unknown. ``lag_bytes`` is an estimate from the size of the source's log.
    ``lag_seconds`` is the age of the oldest record that the target lacks, by its timestamp; 0 if it
    lacks none. Both are None if unknown. ``trouble`` and ``error`` say what is wrong.
    """

    topic: str
    target_topic: str
    partition: int
    state: PartitionState
    source_start: int = -1
    source_end: int = -1
    target_end: int = -1
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    trouble: Trouble | None = None
    error: str | None = None

    @property
    def lag_records(self) -> int | None:
        """The number of offsets that the target lacks; None if unknown."""
        if self.source_end < 0:
            return None
        return max(0, self.source_end - max(self.target_end, self.source_start, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsStatus:
    """The status of syncing group offsets.

    ``offsets``: the number committed at the target since the start. ``carried_ms``: the time of the
    last sync, in milliseconds since the Unix epoch, 0: never. ``skipped``: the groups that the last
    sync skipped, and why. ``error``: why the last sync failed, if it did.
    """

    offsets: int = 0
    carried_ms: int = 0
    skipped: tuple[tuple[str, str], ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatus:
    """The status of one link, with the partitions that one process copies.

    The target has stored ``records`` and ``bytes`` since the start;
    ``duplicates`` counts batches that were sent again because it was unknown whether the target had
    stored them. ``reproduces``: the target is no Qbus, and records are reproduced. ``error``: why
    nothing can be mirrored now.
    """

    name: str
    source: str
    target: str
    partitions: tuple[PartitionStatus, ...] = ()
    records: int = 0
    bytes: int = 0
    duplicates: int = 0
    groups: GroupsStatus = GroupsStatus()
    reproduces: bool = False
    error: str | None = None


def link_document(status: LinkStatus, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Return the document of a link, with the worst partitions that fit into ``max_bytes``."""
    ranked = sorted(status.partitions, key=_badness)
    partitions = list(fitting(map(partition_document, ranked), max_bytes))
    return {
        "name": status.name,
        "source": status.source,
        "target": status.target,
        "reproduces": status.reproduces,
        "error": short(status.error),
        "totals": totals(status),
        "groups": {
            "offsets": status.groups.offsets,
            "carried_ms": status.groups.carried_ms,
            "skipped": dict(status.groups.skipped),
            "error": short(status.groups.error),
        },
        "partitions": partitions,
        "partitions_left_out": len(ranked) - len(partitions),
    }


def totals(status: LinkStatus) -> dict[str, Any]:
    """Return the sums over all partitions; the lag in seconds is the longest of any."""
    partitions = status.partitions
    return {
        "partitions": len(partitions),
        **{
            state.value: sum(partition.state is state for partition in partitions)
            for state in PartitionState
        },
        "troubled": sum(partition.trouble is not None for partition in partitions),
        "lag_records": sum(partition.lag_records or 0 for partition in partitions),
        "lag_bytes": sum(partition.lag_bytes or 0 for partition in partitions),
        "lag_seconds": round(
            max((partition.lag_seconds or 0.0 for partition in partitions), default=0.0), 3
        ),
        "records": status.records,
        "bytes": status.bytes,
        "duplicates": status.duplicates,
    }


def partition_document(partition: PartitionStatus) -> dict[str, Any]:
    """Return the document of one partition."""
    lag_s = partition.lag_seconds
    return {
        **asdict(partition),
        "state": partition.state.value,
        "lag_records": partition.lag_records,
        "lag_seconds": None if lag_s is None else round(lag_s, 3),
        "trouble": None if partition.trouble is None else partition.trouble.value,
        "error": short(partition.error),
    }


def _badness(partition: PartitionStatus) -> tuple[bool, bool, int, str, int]:
    return (
        partition.trouble is None,
        partition.error is None,
        -(partition.lag_records or 0),
        partition.topic,
        partition.partition,
    )
