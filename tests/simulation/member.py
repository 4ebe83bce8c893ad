"""A broker's session with the store: it resigns, registers, hears of changes and may decide."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from qbus.broker.metadata.partition_states import forgetting, resigning

from .deciding import decide
from .process import Process
from .rules import Rules
from .store import NEVER, Refused, Snapshot, Store
from .world import World

T = TypeVar("T")


class Member(Process, ABC):
    """A broker that acts on the store only after it has resigned its former claims."""

    def __init__(self, world: World, store: Store, node_id: int, rules: Rules) -> None:
        super().__init__(world, f"broker-{node_id}")
        self.id = node_id
        self.is_back = False
        self._store = store
        self._rules = rules
        self._broker_epoch: int | None = None
        self._is_fenced = False
        self._seen: Snapshot | None = None

    def begin(self) -> None:
        """Start another incarnation, which knows nothing."""
        super().begin()
        self.is_back = self._is_fenced = False
        self._broker_epoch = self._seen = None
        self._keep_resigning()

    def crash(self) -> None:
        """Kill the process."""
        super().crash()
        self.is_back = False

    def _ask_store(self, ask: Callable[[], T], told: Callable[[T], None]) -> None:
        incarnation = self._incarnation

        def arrived() -> None:
            answer = ask()
            self._world.send("store", self.name, self._of(incarnation, lambda: told(answer)))

        self._world.send(self.name, "store", arrived)

    def _keep_resigning(self) -> None:
        """Retry until it is done, because messages are lost."""
        if self._broker_epoch is None:
            # Fence first: else a change under way may add it for its former records (KIP-903).
            self._ask_store(self._store.snapshot, self._resign if self._is_fenced else self._fence)
            self._later(1.0, self._keep_resigning)

    def _fence(self, snapshot: Snapshot) -> None:
        if self._is_fenced:
            self._resign(snapshot)
            return
        epoch = snapshot.epochs.get(self.id, NEVER)

        def told(answer: Snapshot | Refused) -> None:
            if not isinstance(answer, Refused):
                self._is_fenced = True
                self._resign(answer)

        self._ask_store(lambda: self._store.fence(self.id, epoch), told)

    def _resign(self, snapshot: Snapshot) -> None:
        """Resign what this broker no longer knows to be true; then register."""
        if self.is_back:
            return
        state = resigning(snapshot.state, self.id)
        keeps = self._rules.is_durable or self._rules.bugs.trusts_replicas_after_power_cuts
        if self.lost_power and not keeps:
            state = forgetting(state, self.id, self._rules.wanted)
        if state == snapshot.state:
            self._seen = self._seen or snapshot  # earlier changes concern the former incarnation
            self._register()
            return
        version, epoch = snapshot.version, snapshot.controller_epoch
        self._ask_store(lambda: self._store.set_state(state, version, epoch), lambda _: None)

    def _register(self) -> None:
        def told(epoch: int | Refused) -> None:
            if not isinstance(epoch, Refused) and self._broker_epoch is None:
                self._broker_epoch = epoch
                self.is_back = True
                self.lost_power = False

        self._ask_store(lambda: self._store.register(self.id), told)

    def tick(self) -> None:
        """Do the periodic work; call it as often as heartbeats are due."""
        if self._broker_epoch is not None:
            self._heartbeat(self._broker_epoch)
            self._decide()

    def _heartbeat(self, epoch: int) -> None:
        def told(answer: tuple[bool, Snapshot]) -> None:
            is_live, snapshot = answer
            if not is_live and self._broker_epoch == epoch:
                self._broker_epoch = None
                self._register_again()
            self.learn(snapshot)

        self._ask_store(
            lambda: (self._store.heartbeat(self.id, epoch), self._store.snapshot()), told
        )

    def _register_again(self) -> None:
        """Register again: the session ended, but the process goes on."""
        if self._broker_epoch is None:
            self._register()
            self._later(1.0, self._register_again)

    def hear(self, snapshot: Snapshot) -> Callable[[], None]:
        """Return the event of this process learning a snapshot."""
        return self._mine(lambda: self.learn(snapshot))

    def learn(self, snapshot: Snapshot) -> None:
        """Learn a snapshot, unless it is old."""
        if self.is_back and self._seen is not None and snapshot.changes > self._seen.changes:
            self._seen = snapshot
            self._learned(snapshot)
            self._decide()

    @abstractmethod
    def _learned(self, snapshot: Snapshot) -> None:
        """Act on a snapshot."""

    def _decide(self) -> None:
        snapshot = self._seen
        if self._broker_epoch is None or snapshot is None:
            return
        if snapshot.controller is None:
            broker_epoch = self._broker_epoch
            self._ask_store(
                lambda: self._store.become_controller(self.id, broker_epoch), lambda _: None
            )
        elif snapshot.controller == (self.id, self._broker_epoch):
            state = decide(snapshot, self._rules.wanted)
            if state is not None:
                version, epoch = snapshot.version, snapshot.controller_epoch
                self._ask_store(
                    lambda: self._store.set_state(state, version, epoch), lambda _: None
                )
