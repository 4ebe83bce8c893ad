"""What jobs need of the queues that both protocols stand on, see :mod:`qbus.broker.queues`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from qbus.config import ShareGroupConfig
from qbus.jobs import GROUP, JobOptions, read_options
from qbus.records import ConsumerRecord

from ..partition.partition import Partition
from ..queues import GroupSettings, QueueDescription, ShareQueue
from ..share import group_settings

MEMBER: Final = "disque"
"""Who has a job: any client may acknowledge what another one took."""

# Of the group of jobs, where nobody set them: a job has no end but its time to live.
_DEFAULTS: Final[Mapping[str, tuple[str, int]]] = {
    "share.record.lock.duration.ms": ("lock_ms", 300_000),
    "share.delivery.count.limit": ("delivery_limit", 0),
    "share.partition.max.record.locks": ("partition_max_locks", 100_000),
}


def job_settings(config: ShareGroupConfig, own: Mapping[str, str]) -> GroupSettings:
    """How the share group of jobs takes records; ``own``: what was set for it."""
    changes: dict[str, Any] = {
        name: value for key, (name, value) in _DEFAULTS.items() if key not in own
    }
    return replace(group_settings(config), **changes)


class GroupConfigs(Protocol):
    """What is known of the configuration of share groups."""

    group_configs: Mapping[str, Mapping[str, str]]

    def group_config(self, group: str) -> ShareGroupConfig:
        """The effective configuration of a group: another object once it has changed."""


class SettingsReader:
    """The settings of the group of jobs in force, made anew when they change."""

    def __init__(self, configs: GroupConfigs) -> None:
        self._configs = configs
        self._config: ShareGroupConfig | None = None
        self._settings: GroupSettings = GroupSettings()

    def __call__(self) -> GroupSettings:
        """The settings."""
        config = self._configs.group_config(GROUP)
        if config is not self._config:
            own = self._configs.group_configs.get(GROUP, {})
            self._config, self._settings = config, job_settings(config, own)
        return self._settings


class JobSettings:
    """How jobs are taken: as the group says, and as each job says of itself."""

    def __init__(self, read: Callable[[], GroupSettings]) -> None:
        """``read`` returns the group's settings in force."""
        self._read = read

    @property
    def group(self) -> GroupSettings:
        """The group's settings."""
        return self._read()

    def options_of(self, headers: Sequence[tuple[str, bytes | None]]) -> JobOptions:
        """What a record's headers say of it as a job."""
        return read_options(headers, max(self._read().lock_ms // 1000, 1))

    def is_at_most_once(self, record: ConsumerRecord) -> bool:
        """Whether it is never given out again."""
        return self.options_of(record.headers).retry == 0

    def lock_ms(self, record: ConsumerRecord) -> int:
        """How long whoever gets it has it for himself, in milliseconds."""
        return self.options_of(record.headers).retry * 1000


class Queues(Protocol):
    """The queues of all partitions that are led here."""

    def queue(self, partition: Partition, group: str, settings: GroupSettings) -> ShareQueue:
        """The queue of a partition and a group. Raises ApiError."""

    def groups(self, partition: Partition) -> list[str]:
        """The groups that have state in a partition."""

    def describe(self, partition: Partition, group: str) -> QueueDescription | None:
        """A group's state in a partition."""
