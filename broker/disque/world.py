"""What jobs stand on: the parts of a broker that they use, and no more of them than that."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from qbus.config import Address, TopicConfig
from qbus.errors import ApiError

from ..authorization import AccessControl
from ..controller import NewTopic
from ..controller.controller import ConfigChange
from ..metadata.cache import Subscriber
from ..metadata.image import BrokerInfo, Topic
from ..partition.partition import Partition
from ..queues import GroupSettings
from .adding import Delays
from .authentication import Note, Users, tell_nobody
from .finding import HeldRecords
from .peers import Link
from .queues import Queues


class Metadata(Protocol):
    """What is known of the cluster."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics, by name."""

    @property
    def topics_by_id(self) -> Mapping[bytes, Topic]:
        """The topics, by id."""

    @property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        """The live brokers, by id."""

    def topic_config(self, topic: Topic) -> TopicConfig:
        """The effective configuration of a topic."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call ``subscriber`` with all events from now on."""


class Controller(Protocol):
    """Creates topics, and changes their configuration."""

    async def create_topics(self, topics: Sequence[NewTopic]) -> Sequence[Any]:
        """Create topics; the plan or the error of each."""

    async def alter_topic_configs(
        self, changes: Sequence[ConfigChange]
    ) -> Sequence[ApiError | None]:
        """Alter configurations; the error of each, if any."""


class Partitions(Protocol):
    """The partitions that this broker holds."""

    def get_partition(self, topic: str | bytes, index: int) -> Partition | None:
        """One partition, if it is here."""

    def leader_of(self, topic: str | bytes, index: int) -> Partition:
        """One partition that is led here. Raises ApiError."""


class DelayedRecords(Delays, HeldRecords, Protocol):
    """Takes, finds and lists delayed records."""


class Clients(Protocol):
    """Who is connected. ``refused`` connections had no room, ``failed_handshakes`` no TLS."""

    refused: int
    failed_handshakes: int

    @property
    def connections(self) -> int:
        """Number of connected clients."""


class Groups(Protocol):
    """The share groups of the cluster."""

    async def ensure(self, group_id: str) -> None:
        """Have a group be known, with its offsets and settings, to all tools. Raises ApiError."""


@dataclass(frozen=True, slots=True)
class World:
    """The parts of the broker that jobs stand on; ``settings`` of their share group.

    ``users``: who may authenticate besides those that have the password. ``access``: None:
    everything is allowed. ``link``: how other nodes are reached and told who asks; None: as clients
    reach them that have the password alone. ``tls_address``: where clients reach it with TLS.
    ``note`` is told of log-ins that ``users`` are not asked about. ``reclaim`` has partitions take
    jobs again that are paused as their queues are idle.
    """

    metadata: Metadata
    partitions: Partitions
    queues: Queues
    delays: DelayedRecords
    controller: Controller
    groups: Groups
    settings: Callable[[], GroupSettings]
    users: Users | None = None
    access: AccessControl | None = None
    link: Link | None = None
    tls_address: Address | None = None
    note: Note = tell_nobody
    reclaim: Callable[[Sequence[Partition]], Awaitable[None]] | None = None
