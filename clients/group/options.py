"""The options of a group member, and its callbacks."""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

from qbus.errors import ConfigError

from ..types import TopicPartition
from .assignors import DEFAULT_ASSIGNORS, Assignor, assignors_of

GroupProtocol = Literal["classic", "consumer"]
Callback = Callable[[list[TopicPartition]], Awaitable[None] | None]
"""A plain function or a coroutine function."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What to call in a rebalance, always inside a poll or close; None: nothing.

    on_assigned: the partitions are assigned; called after each rebalance, even without new ones.
    on_revoked: the partitions go to other members after this returns: the time to commit.
    on_lost: the member lost its place, and other members may have the partitions already. By
        default on_revoked.

    The poll raises what a callback raises, after the change is made all the same.
    """

    on_assigned: Callback | None = None
    on_revoked: Callback | None = None
    on_lost: Callback | None = None

    async def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Report assigned partitions."""
        await _call(self.on_assigned, partitions)

    async def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Report partitions that go to other members next."""
        await _call(self.on_revoked, partitions)

    async def lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Report partitions that other members may have already."""
        await _call(self.on_lost or self.on_revoked, partitions)


async def _call(callback: Callback | None, partitions: Iterable[TopicPartition]) -> None:
    if callback is not None:
        result = callback(sorted(partitions))
        if inspect.isawaitable(result):
            await result


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """How a consumer is a member of its group. Times are in seconds.

    assignors: in order of preference; the group uses one that all its members have.
    max_poll_interval: a member that does not poll for longer leaves.
    rebalance_timeout: how long a rebalance waits for members.
    rack: where the member runs, for rack-aware assignors (KIP-881).
    protocol: "classic", or "consumer": the broker assigns the partitions (KIP-848).
    remote_assignor: the broker's assignor that the member asks for; None: the broker's choice.
    """

    group: str
    instance_id: str | None
    session_timeout: float
    rebalance_timeout: float
    heartbeat_interval: float
    max_poll_interval: float = 300.0
    assignors: tuple[Assignor, ...] = field(default_factory=lambda: assignors_of(DEFAULT_ASSIGNORS))
    rack: str | None = None
    callbacks: Callbacks = field(default_factory=Callbacks)
    protocol: GroupProtocol = "classic"
    remote_assignor: str | None = None

    def __post_init__(self) -> None:
        """Raise :class:`~qbus.errors.ConfigError` for options that cannot work."""
        if self.heartbeat_interval >= self.session_timeout:
            raise ConfigError("heartbeats have to be more frequent than sessions time out")
        if self.max_poll_interval <= 0 or self.rebalance_timeout <= 0:
            raise ConfigError("max_poll_interval_ms and rebalance_timeout_ms are more than 0")
        if self.instance_id == "":
            raise ConfigError("an instance_id is not empty")
        if self.protocol not in get_args(GroupProtocol):
            raise ConfigError(f"group_protocol is classic or consumer, not {self.protocol!r}")
        if self.protocol == "classic" and self.remote_assignor is not None:
            raise ConfigError("remote_assignor needs group_protocol='consumer'")

    @property
    def is_cooperative(self) -> bool:
        """Whether rebalances stop only partitions that move: if all assignors are cooperative
        (KIP-429).

        A single eager assignor makes rebalances stop everything, because the group may choose it.
        """
        return all(assignor.is_cooperative for assignor in self.assignors)
