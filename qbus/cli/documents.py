"""The documents that `--json` prints, made from the results of the clients.

Their keys are a public interface: keys may be added, but are never renamed. A missing offset, time
or node is null.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from uuid import UUID

from qbus.cli import failing_directories
from qbus.cli.output import Document
from qbus.clients.admin.types import DelayedRecords
from qbus.clients.types import (
    ConfigEntry,
    GroupDescription,
    GroupListing,
    GroupOffset,
    LogDir,
    PartitionDescription,
    TopicDescription,
    TopicPartition,
)

_OFFSET_FIELDS = ("committed", "metadata", "start_offset", "end_offset", "lag")


def topic_summary(topic: TopicDescription) -> Document:
    """A topic in a list."""
    return {
        "name": topic.name,
        "id": topic_id(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas) if topic.partitions else 0,
        "offline": [partition.index for partition in topic.partitions if partition.leader < 0],
    }


def topic_description(
    topic: TopicDescription,
    config: Iterable[ConfigEntry],
    offsets: Mapping[int, tuple[int, int]],
    sizes: Mapping[int, int],
    eligible: Mapping[int, Iterable[int]],
    *,
    delayed: Mapping[int, DelayedRecords] | None = None,
    uncompacted: Mapping[int, Mapping[int, str]] | None = None,
    damaged: Iterable[Document] = (),
    unread: Mapping[int, str] | None = None,
    failing: Iterable[LogDir] = (),
) -> Document:
    """A topic with its non-default settings and its partitions.

    By partition, where known: ``offsets`` holds the start and end offset, ``sizes`` the bytes on
    disk, ``eligible`` the eligible leader replicas, ``delayed`` what is held back (None: the topic
    holds nothing back), ``uncompacted`` why brokers do not compact their damaged replicas,
    ``unread`` why it cannot be read. ``damaged`` are batches that brokers cannot read, ``failing``
    data directories that are offline or full, of the brokers that have replicas.
    """
    return {
        "name": topic.name,
        "id": topic_id(topic.topic_id),
        "internal": topic.is_internal,
        "config": {entry.name: entry.value for entry in config if not entry.is_default},
        "partitions": [
            _partition(
                partition,
                offsets.get(partition.index, (None, None)),
                sizes.get(partition.index),
                eligible.get(partition.index),
                (unread or {}).get(partition.index),
            )
            for partition in topic.partitions
        ],
        "delayed": None
        if delayed is None
        else _held_back(delayed.values()) | {"unread": len(topic.partitions) - len(delayed)},
        "uncompacted": [
            {"partition": partition, "broker": broker, "reason": reason}
            for partition, brokers in sorted((uncompacted or {}).items())
            for broker, reason in sorted(brokers.items())
        ],
        "damaged": list(damaged),
        "failing_directories": [failing_directories.document(directory) for directory in failing],
    }


def _held_back(partitions: Iterable[DelayedRecords]) -> Document:
    known = [*partitions]
    due = [one.next_due for one in known if one.next_due is not None]
    return {"pending": sum(one.pending for one in known), "next_due": min(due, default=None)}


def _partition(
    partition: PartitionDescription,
    ends: tuple[int | None, int | None],
    size: int | None,
    eligible: Iterable[int] | None,
    unread: str | None,
) -> Document:
    return {
        "partition": partition.index,
        "leader": _node(partition.leader),
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "elr": None if eligible is None else list(eligible),
        "offline_replicas": list(partition.offline_replicas),
        "start_offset": ends[0],
        "end_offset": ends[1],
        "size": size,
        "unread": unread,
    }


def setting(entry: ConfigEntry) -> Document:
    """One key of a configuration."""
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name.lower(),
        "default": entry.is_default,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "documentation": entry.documentation,
    }


def group_summary(group: GroupListing) -> Document:
    """A group in a list."""
    return {
        "group": group.group,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "type": group.type or None,
    }


def group_description(group: GroupDescription, offsets: Iterable[GroupOffset]) -> Document:
    """A group with its members and its offset in each partition."""
    assigned = {partition: m.member_id for m in group.members for partition in m.assignment}
    # Any number of members of a share group take records of a partition.
    owners = dict.fromkeys(assigned, None) if group.type == "share" else assigned
    committed = {(offset.topic, offset.partition): offset for offset in offsets}
    return {
        "group": group.group,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "type": group.type,
        "epoch": group.epoch,
        "coordinator": _node(group.coordinator.id),
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": [
                    {"topic": topic, "partition": partition}
                    for topic, partition in member.assignment
                ],
                "epoch": member.epoch,
                "classic": member.is_classic,
                "reconciled": member.target is None or member.target == member.assignment,
            }
            for member in group.members
        ],
        "offsets": [
            _group_offset(
                TopicPartition(*key), committed.get(key), owners.get(TopicPartition(*key))
            )
            for key in sorted({*committed, *owners})
        ],
    }


def _group_offset(
    partition: TopicPartition, offset: GroupOffset | None, owner: str | None
) -> Document:
    document = {"topic": partition.topic, "partition": partition.partition, "member_id": owner}
    if offset is None:
        return document | dict.fromkeys((*_OFFSET_FIELDS, "unread"))
    values = (
        _offset(offset.committed_offset),
        offset.metadata,
        _offset(offset.start_offset),
        _offset(offset.end_offset),
        offset.lag if offset.end_offset >= 0 else None,
    )
    unread = {"unread": offset.problem or None}
    return document | dict(zip(_OFFSET_FIELDS, values, strict=True)) | unread


def _offset(offset: int) -> int | None:
    return None if offset < 0 else offset


def _node(node_id: int) -> int | None:
    return None if node_id < 0 else node_id


def topic_id(identifier: UUID) -> str:
    """As Kafka's tools print it: URL-safe base64 without padding."""
    return urlsafe_b64encode(identifier.bytes).decode().rstrip("=")
