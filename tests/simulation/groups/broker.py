"""A broker with nothing but groups, across restarts."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from qbus.broker.group import GroupCoordinator
from qbus.broker.metadata.cache import Subscriber
from qbus.broker.metadata.image import BrokerInfo, BrokersChanged, Topic
from qbus.config import BrokerConfig
from qbus.metadata import SessionState

from .loop import Process, World
from .store import SESSION, Ensemble, Session

_CONFIG = {"group.initial.rebalance.delay.ms": 500}


_APART = 1e-6


class _Metadata:
    def __init__(self, live: Mapping[int, BrokerInfo]) -> None:
        self.topics: Mapping[str, Topic] = MappingProxyType({})
        self.brokers = live
        self.subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        self.subscribers.append(subscriber)


class Broker:
    """A broker; each run has a process, a session and a coordinator."""

    def __init__(self, world: World, ensemble: Ensemble, node_id: int) -> None:
        self.id = node_id
        self._world = world
        self._ensemble = ensemble
        self._heard = 0.0
        self.begin()

    def begin(self) -> None:
        """Start a run that knows nothing."""
        self.process = Process(self._world)
        self.session = Session(self._world, self._ensemble, self.process, self.id)
        self._metadata = _Metadata(self._live())
        config = BrokerConfig({"node.id": self.id, **_CONFIG})
        self.groups = GroupCoordinator(
            self.session, self._metadata, config, self._world, timers=self.process
        )
        self.session.on_state(self._on_state)
        self.process.spawn(self.groups.start())

    def crash(self, away: float) -> None:
        """Crash, let the session end, and come back."""
        session = self.session
        self.process.kill()
        self._world.later(min(SESSION, away), session.expire)
        self._world.later(away, self.begin)

    def pause(self, seconds: float) -> None:
        """Pause; the end of the session is noticed only a while afterwards."""
        process, session = self.process, self.session
        process.is_paused = True
        if seconds > SESSION:
            self._world.later(SESSION, session.expire)
        self._world.later(seconds, process.resume)
        if seconds > SESSION:
            self._world.later(seconds + self._world.random.uniform(0, 2), session.reconnect)

    def cut(self, seconds: float) -> None:
        """Lose the connection to the store."""
        session = self.session
        session.cut()
        if seconds > SESSION:
            self._world.later(SESSION, session.expire)
        self._world.later(seconds, session.reconnect)

    def hear(self) -> None:
        """Learn the live brokers after a delay."""
        live, process = self._live(), self.process
        slow = not self._world.is_calm and self._world.random.random() < 0.3
        at = self._world.loop.now + self._world.random.uniform(0.001, 4.0 if slow else 0.1)
        self._heard = max(self._heard + _APART, at)  # at one time the loop keeps no order
        self._world.loop.call_at(self._heard, process.do, lambda: self._learn(process, live))

    def _learn(self, process: Process, live: Mapping[int, BrokerInfo]) -> None:
        if process is self.process:
            self._metadata.brokers = live
            for subscriber in self._metadata.subscribers:
                if (outcome := subscriber([BrokersChanged()])) is not None:
                    process.spawn(outcome)  # type: ignore[arg-type] # a coroutine

    def _live(self) -> dict[int, BrokerInfo]:
        return {node_id: BrokerInfo(node_id, "", 0) for node_id in self._ensemble.live}

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self.process.kill()
            self._world.later(self._world.random.uniform(0.1, 1.0), self.begin)

    @property
    def is_free(self) -> bool:
        """Whether no fault affects it now."""
        is_running = self.process.is_up and not self.process.is_paused
        return is_running and self.session.state is SessionState.CONNECTED

    def receive(self, work: Callable[[GroupCoordinator, Process], None]) -> None:
        """Handle a request that arrived."""
        process, groups = self.process, self.groups
        process.do(lambda: work(groups, process))
