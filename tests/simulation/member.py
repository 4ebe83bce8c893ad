"""A broker's session with the store: it comes back, registers, hears of changes, may decide."""

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
    """Acts on the store only when it has come back: has given up what it may not claim any more."""

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
        """Another incarnation is up, and knows nothing."""
        super().begin()
        self.is_back = self._is_fenced = False
        self._broker_epoch = self._seen = None
        self._come_back()

    def crash(self) -> None:
        """The process is gone at once."""
        super().crash()
        self.is_back = False

    def _ask_store(self, ask: Callable[[], T], told: Callable[[T], None]) -> None:
        incarnation = self._incarnation

        def arrived() -> None:
            answer = ask()
            self._world.send("store", self.name, self._of(incarnation, lambda: told(answer)))

        self._world.send(self.name, "store", arrived)

    def _come_back(self) -> None:
        """Ask again until it is done: words are lost."""
        if self._broker_epoch is None:
            # Fenced before it is removed: else a change under way may add it for what it had.
            self._ask_store(self._store.snapshot, self._resign if self._is_fenced else self._fence)
            self._later(1.0, self._come_back)

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
        """Whatever this broker does not know any more to be true; then register."""
        if self.is_back:
            return
        state = resigning(snapshot.state, self.id)
        keeps = self._rules.is_durable or self._rules.bugs.keeps_whoever_comes_back
        if self.lost_power and not keeps:
            state = forgetting(state, self.id, self._rules.wanted)
        if state == snapshot.state:
            self._seen = self._seen or snapshot  # what came before is not ours to act on
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
        """What is done from time to time; call it as often as heartbeats are due."""
        if self._broker_epoch is not None:
            self._heartbeat(self._broker_epoch)
            self._govern()

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
        """The session is over, but the process is what it was."""
        if self._broker_epoch is None:
            self._register()
            self._later(1.0, self._register_again)

    def hear(self, snapshot: Snapshot) -> Callable[[], None]:
        """What happens when this process is told."""
        return self._mine(lambda: self.learn(snapshot))

    def learn(self, snapshot: Snapshot) -> None:
        """Take in what the store has, unless it is old."""
        if self.is_back and self._seen is not None and snapshot.changes > self._seen.changes:
            self._seen = snapshot
            self._learned(snapshot)
            self._govern()

    @abstractmethod
    def _learned(self, snapshot: Snapshot) -> None:
        """Act on what the store has."""

    def _govern(self) -> None:
        snapshot = self._seen
        if self._broker_epoch is None or snapshot is None:
            return
        if snapshot.controller is None:
            broker_epoch = self._broker_epoch
            self._ask_store(lambda: self._store.take_office(self.id, broker_epoch), lambda _: None)
        elif snapshot.controller == (self.id, self._broker_epoch):
            state = decide(snapshot, self._rules.wanted)
            if state is not None:
                version, epoch = snapshot.version, snapshot.controller_epoch
                self._ask_store(
                    lambda: self._store.set_state(state, version, epoch), lambda _: None
                )
