"""The simulated store: partition state, live brokers and controller, by compare-and-set."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from qbus.metadata.znodes import PartitionStateNode

from .world import World

SESSION = 3.0
NEVER = -1


class Snapshot(NamedTuple):
    """The content of the store at one moment."""

    state: PartitionStateNode
    version: int
    live: Mapping[int, int]
    epochs: Mapping[int, int]
    controller: tuple[int, int] | None
    controller_epoch: int
    changes: int


class Refused(NamedTuple):
    """A refused transaction: a version has changed.

    ``is_stale``: that of the state itself.
    """

    is_stale: bool = False


class Store:
    """A store whose transactions happen at once; the network delays their results."""

    def __init__(self, world: World, state: PartitionStateNode) -> None:
        self.state = state
        self.version = 0
        self.live: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.controller: tuple[int, int] | None = None  # broker id and registration epoch
        self.controller_epoch = 0
        self.changes = 0
        self.on_change: Callable[[], None] = lambda: None
        self._world = world
        self._heard: dict[int, float] = {}
        self._expire()

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.state,
            self.version,
            dict(self.live),
            dict(self.epochs),
            self.controller,
            self.controller_epoch,
            self.changes,
        )

    def heartbeat(self, broker: int, epoch: int) -> bool:
        """Extend the session of a registration; return whether it still exists."""
        if self.live.get(broker) != epoch:
            return False
        self._heard[broker] = self._world.now
        return True

    def fence(self, broker: int, epoch: int) -> Snapshot | Refused:
        """Raise the broker's epoch, so that no change adds it under the former one."""
        if self.epochs.get(broker, NEVER) != epoch:
            return Refused()
        self.epochs[broker] = epoch + 1
        return self.snapshot()

    def register(self, broker: int) -> int | Refused:
        """Register with a new session, when the former one has ended."""
        if broker in self.live:
            return Refused()
        self.epochs[broker] = self.epochs.get(broker, NEVER) + 1
        self.live[broker] = self.epochs[broker]
        self._heard[broker] = self._world.now
        self._changed()
        return self.epochs[broker]

    def become_controller(self, broker: int, epoch: int) -> int | Refused:
        """Become the controller if there is none."""
        if self.controller is not None or self.live.get(broker) != epoch:
            return Refused()
        self.controller = (broker, epoch)
        self.controller_epoch += 1
        self._changed()
        return self.controller_epoch

    def set_state(
        self,
        state: PartitionStateNode,
        version: int,
        controller_epoch: int,
        added: Mapping[int, int] | None = None,
    ) -> int | Refused:
        """Replace the state; return the new version."""
        if version != self.version:
            return Refused(is_stale=True)
        if controller_epoch != self.controller_epoch:
            return Refused()
        if any(self.epochs.get(broker) != epoch for broker, epoch in (added or {}).items()):
            return Refused()
        self.state = state
        self.version += 1
        self._changed()
        return self.version

    def _expire(self) -> None:
        for broker, heard in list(self._heard.items()):
            if broker in self.live and self._world.now - heard > SESSION:
                epoch = self.live.pop(broker)
                if self.controller == (broker, epoch):
                    self.controller = None
                self._changed()
        self._world.later(0.2, self._expire)

    def _changed(self) -> None:
        self.changes += 1
        self.on_change()
