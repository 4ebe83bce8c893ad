"""What can be chosen about a member of a group."""

from dataclasses import dataclass, field

from qbus.errors import ConfigError

from .assignors import DEFAULT_ASSIGNORS, Assignor, assignors_of
from .callbacks import Callbacks


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """How a consumer is a member of its group. Times are in seconds.

    assignors: in order of preference; the group takes one that all its members have.
    max_poll_interval: a member that is not polled for longer leaves.
    rebalance_timeout: for how long a rebalance waits for members.
    rack: where the member runs, for assignors that look at that (KIP-881).
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

    def __post_init__(self) -> None:
        """Raise :class:`~qbus.errors.ConfigError` for what cannot work."""
        if self.heartbeat_interval >= self.session_timeout:
            raise ConfigError("heartbeats have to be more frequent than sessions time out")
        if self.max_poll_interval <= 0 or self.rebalance_timeout <= 0:
            raise ConfigError("max_poll_interval_ms and rebalance_timeout_ms are more than 0")
        if self.instance_id == "":
            raise ConfigError("an instance_id is not empty")

    @property
    def is_cooperative(self) -> bool:
        """Whether a rebalance stops only what moves: if every assignor goes about it so (KIP-429).

        With one that does not among them everything stops, since that one may be chosen.
        """
        return all(assignor.is_cooperative for assignor in self.assignors)
