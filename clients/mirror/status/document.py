"""The status as a JSON document of bounded size: what is worst comes first.

ZooKeeper takes no node above 1 MiB, and a link may have 10,000 partitions: those that fit are
named, those with trouble and the most lag before others; the totals are of all of them.
"""

from dataclasses import asdict
from typing import Any

from qbus.service.control.document import fitting, short

from .model import LinkStatus, PartitionState, PartitionStatus

MAX_BYTES = 256 * 1024
"""The longest list of partitions of a link, in bytes of JSON, that goes to ZooKeeper."""


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
