"""What jobs need of the queues that both protocols stand on, see :mod:`qbus.broker.queues`."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from qbus.config import ShareGroupConfig
from qbus.jobs import GROUP, JobOptions, read_options
from qbus.records import Buffer
from qbus.records.record import Headers

from ..partition.partition import Partition
from ..queues import GroupSettings, QueueDescription, ShareQueue
from ..queues.taking import Terms
from ..share import group_settings

MEMBER: Final = "disque"
"""Who has a job: any client may acknowledge what another one took."""


class GroupConfigs(Protocol):
    """What is known of the configuration of share groups."""

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
            self._config, self._settings = config, group_settings(config)
        return self._settings


class JobSettings:
    """How jobs are taken: as the group says, and as each job says of itself."""

    def __init__(self, read: Callable[[], GroupSettings]) -> None:
        """``read`` returns the group's settings in force."""
        self._read = read
        # Of one record they are asked for several times, one after the other.
        self._headers: Sequence[tuple[str, bytes | None]] = ()
        self._options: JobOptions | None = None
        self._terms_for: JobOptions | None = None
        self._terms = Terms(0, is_once=False)

    @property
    def group(self) -> GroupSettings:
        """The group's settings."""
        return self._read()

    def options_of(self, headers: Sequence[tuple[str, bytes | None]]) -> JobOptions:
        """What a record's headers say of it as a job."""
        options = self._options
        if options is None or headers is not self._headers or options.ttl is None:
            if options is None or options.ttl is None or headers != self._headers:
                options = read_options(headers, max(self._read().lock_ms // 1000, 1))
                self._options = options
            self._headers = headers
        return options

    def terms_of(self, headers: Headers) -> Terms:
        """For how long whoever gets it has it for himself, and whether nobody else ever gets it."""
        options = self.options_of(headers)
        if options is not self._terms_for:
            self._terms_for, self._terms = options, Terms(options.retry * 1000, options.retry == 0)
        return self._terms


class Queues(Protocol):
    """The queues of all partitions that are led here."""

    def queue(self, partition: Partition, group: str, settings: GroupSettings) -> ShareQueue:
        """The queue of a partition and a group. Raises ApiError."""

    def offer(self, partition: Partition, batch: Buffer) -> None:
        """A batch was just appended to a partition: who waits need not read it."""

    def groups(self, partition: Partition) -> list[str]:
        """The groups that have state in a partition."""

    def describe(self, partition: Partition, group: str) -> QueueDescription | None:
        """A group's state in a partition."""
