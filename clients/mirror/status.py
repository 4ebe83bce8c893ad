"""The state of a mirror, as immutable values and as JSON documents of bounded size.

A link may have 10,000 partitions: the document lists those that fit, partitions with trouble and
with the most lag first. Its totals count all of them.
"""

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from qbus.service.status import MAX_BYTES, fitting, short


class PartitionState(Enum):
    """What is being done about a partition."""

    CURRENT = "current"
    """The target has all that the source had at the last look."""
    COPYING = "copying"
    """The target lacks records, and gets them."""
    WAITING = "waiting"
    """It cannot go on now, and tries again: a cluster cannot be reached, say."""
    STOPPED = "stopped"
    """It does not go on by itself; the trouble says why."""


class Trouble(Enum):
    """What makes source and target differ, so that a person has to decide."""

    SOURCE_LOST_DATA = "source_lost_data"
    """The source's log ends before the target's, or parts from it: an unclean election."""
    SOURCE_DELETED = "source_deleted"
    """The source's topic is gone; the copy is kept as it is."""
    SOURCE_RECREATED = "source_recreated"
    """The source's topic is another one, under the same name."""
    UNRELATED_TOPIC = "unrelated_topic"
    """The target's topic of that name is no mirror, or one of another topic or way."""
    OVERTAKEN = "overtaken"
    """Retention at the source removed records before they were copied: the target has a gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One partition of a link.

    ``topic`` is its name at the source, ``target_topic`` the one at the target. Offsets:
    ``source_start`` to ``source_end`` is what the source has, as far as consumers see it;
    ``target_end`` is where the target goes on; -1 where nobody can tell. ``lag_bytes`` is an
    estimate from the size of the source's log. ``lag_seconds``: how long ago the oldest record
    that the target lacks was written, by its timestamp; 0 when it lacks none. Both are None where
    nobody can tell. ``trouble`` and ``error`` say what is wrong.
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
        """Offsets that the source has and the target not yet; None where nobody can tell."""
        if self.source_end < 0:
            return None
        return max(0, self.source_end - max(self.target_end, self.source_start, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsStatus:
    """What was carried over of groups, since the start and at the last time.

    ``offsets``: those committed at the target since the start. ``carried_ms``: when it was done
    last, in milliseconds since the Unix epoch, 0: never. ``skipped``: groups that got nothing the
    last time, and why. ``error``: why it could not be done the last time.
    """

    offsets: int = 0
    carried_ms: int = 0
    skipped: tuple[tuple[str, str], ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatus:
    """One link, as one process sees it: the partitions that it copies.

    ``records`` (offsets, gaps left out) and ``bytes`` are those that the target acknowledged since
    the start; ``duplicates`` counts batches that were sent again, since nobody knew whether it had
    them. ``reproduces``: the target is no Qbus, and gets records anew. ``error``: why nothing can
    be mirrored, while that is so.
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
    """One link: totals, and as many partitions as take ``max_bytes``, worst first."""
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
    """What holds of all partitions together; the lag in seconds is the longest of any."""
    found = status.partitions
    return {
        "partitions": len(found),
        **{state.value: sum(one.state is state for one in found) for state in PartitionState},
        "troubled": sum(one.trouble is not None for one in found),
        "lag_records": sum(one.lag_records or 0 for one in found),
        "lag_bytes": sum(one.lag_bytes or 0 for one in found),
        "lag_seconds": round(max((one.lag_seconds or 0.0 for one in found), default=0.0), 3),
        "records": status.records,
        "bytes": status.bytes,
        "duplicates": status.duplicates,
    }


def partition_document(partition: PartitionStatus) -> dict[str, Any]:
    """One partition."""
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
