"""The admin client's face: one method for each thing that can be asked."""

from collections.abc import Iterable, Mapping
from typing import Self

from ..cluster import Cluster
from ..offsets import list_offsets
from ..types import (
    ClusterDescription,
    ConfigEntry,
    ConfigKind,
    GroupDescription,
    GroupListing,
    GroupOffset,
    LogDir,
    OffsetAndTimestamp,
    TopicDescription,
    TopicPartition,
)
from . import configs, group_offsets, groups, log_dirs, records, topics


class Admin:
    """Looks at a cluster and changes it.

    An async context manager. Every method raises :class:`~qbus.errors.ApiError` with the broker's
    code and message; errors that may pass are retried until ``request_timeout_ms`` is over.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "qbus-admin",
        request_timeout_ms: int = 30_000,
    ) -> None:
        """``bootstrap``: ``host:port,...``; ``request_timeout_ms``: for each method."""
        self._cluster = Cluster(bootstrap, client_id, request_timeout_ms / 1000)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._cluster.close()

    # The cluster.

    async def describe_cluster(self) -> ClusterDescription:
        """The brokers and the controller."""
        return await topics.describe_cluster(self._cluster)

    async def describe_log_dirs(self, nodes: Iterable[int] | None = None) -> list[LogDir]:
        """The log directories of ``nodes`` (None: of every broker) and the replicas in them."""
        return await log_dirs.describe(self._cluster, nodes)

    # Topics.

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Create a topic; -1 leaves a number to the broker.

        ``validate_only``: only say whether it could be done.
        """
        await topics.create(
            self._cluster, name, partitions, replication_factor, config or {}, validate_only
        )

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records."""
        await topics.delete(self._cluster, name)

    async def list_topics(self, *, internal: bool = False) -> list[TopicDescription]:
        """Every topic, by name; ``internal`` ones only when asked for."""
        return await topics.list_all(self._cluster, internal)

    async def describe_topic(self, name: str) -> TopicDescription:
        """One topic; UNKNOWN_TOPIC_OR_PARTITION when there is none of that name."""
        return await topics.describe(self._cluster, name)

    async def create_partitions(self, topic: str, total: int) -> None:
        """Let a topic have ``total`` partitions, more than it has."""
        await topics.create_partitions(self._cluster, topic, total)

    # Configuration.

    async def describe_config(self, kind: ConfigKind, name: str) -> list[ConfigEntry]:
        """The configuration of a topic, or of a broker by its id, ordered by key."""
        return await configs.describe(self._cluster, kind, name)

    async def alter_config(
        self,
        kind: ConfigKind,
        name: str,
        *,
        set: Mapping[str, str] | None = None,  # noqa: A002 - reads well where it is called
        unset: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set some keys and return others to their default; the rest stays as it is."""
        await configs.alter(self._cluster, kind, name, set or {}, unset, validate_only)

    # Records and offsets.

    async def list_offsets(
        self, partitions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The first offset at or after a time, in milliseconds since the Unix epoch.

        EARLIEST, LATEST and MAX_TIMESTAMP stand for the first offset, the one after the last, and
        the record with the largest timestamp.
        """
        return await list_offsets(self._cluster, partitions)

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset (LATEST: all); the partitions' new first offsets."""
        return await records.delete(self._cluster, before)

    # Groups.

    async def list_groups(self) -> list[GroupListing]:
        """Every group, by name."""
        return await groups.list_all(self._cluster)

    async def describe_group(self, group: str) -> GroupDescription:
        """One group; GROUP_ID_NOT_FOUND when there is none of that name."""
        return await groups.describe(self._cluster, group)

    async def delete_group(self, group: str) -> None:
        """Delete a group without members, and its offsets."""
        await groups.delete(self._cluster, group)

    async def group_offsets(self, group: str) -> list[GroupOffset]:
        """What a group has committed, with its lag, by topic and partition."""
        return await group_offsets.describe(self._cluster, group)

    async def reset_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit ``offsets`` for a group without members."""
        await group_offsets.reset(self._cluster, group, offsets)

    async def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget what a group has committed for partitions that it does not read."""
        await group_offsets.delete(self._cluster, group, partitions)
