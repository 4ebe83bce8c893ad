"""One group of KIP-848, its clients as the protocol makes them behave, and the time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from qbus.broker.consumer_group import ConsumerGroup, Partitions
from qbus.broker.consumer_group.group import Settings
from qbus.broker.consumer_group.nodes import decode
from qbus.broker.consumer_group.patterns import TopicPattern
from qbus.broker.group.requests import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    Effect,
    Request,
    Respond,
    Save,
)
from qbus.broker.regular_expression import RegularExpression
from qbus.errors import ApiError, ErrorCode

NOTHING: Partitions = frozenset()


class Topics:
    """Topics by name, whose ids are their names."""

    def __init__(self, **sizes: int) -> None:
        self.sizes = dict(sizes)

    def find(self, name: str) -> tuple[bytes, int] | None:
        size = self.sizes.get(name)
        return None if size is None else (name.encode(), size)

    def name(self, topic_id: bytes) -> str | None:
        name = topic_id.decode()
        return name if name in self.sizes else None

    def pattern(self, text: str) -> TopicPattern | None:
        try:
            matches = RegularExpression(text).matches
        except ApiError:
            return None
        names = frozenset(self.sizes)
        return TopicPattern(text, frozenset(filter(matches, names)), names)


class Scene:
    """A group, the current time, and what the last event had for effects."""

    def __init__(self, settings: Settings | None = None, /, **sizes: int) -> None:
        self.topics = Topics(**(sizes or {"t": 4}))
        self.settings = settings or Settings()
        self.group = self.new_group()
        self.now = 100.0
        self.effects: list[Effect] = []
        self.clients: dict[str, Client] = {}

    def new_group(self, epoch: int = 0) -> ConsumerGroup:
        return ConsumerGroup("g", self.topics, lambda: self.settings, epoch)

    @property
    def saved(self) -> bool:
        """Whether the last event stored the group."""
        return Save() in self.effects

    def ask(self, request: Request) -> Any:
        """Send a request; return its only answer."""
        self.effects = self.group.handle(request, self.now)
        (answer,) = [
            effect.result
            for effect in self.effects
            if isinstance(effect, Respond) and effect.request is request
        ]
        return answer

    def beat(self, member_id: str, epoch: int, **said: Any) -> ConsumerHeartbeatResult:
        """Send a heartbeat that says nothing but this."""
        answer = self.ask(ConsumerHeartbeat(member_id, epoch, **said))
        assert isinstance(answer, ConsumerHeartbeatResult)
        return answer

    def refusal(self, member_id: str, epoch: int, **said: Any) -> ErrorCode:
        return self.beat(member_id, epoch, **said).error

    def pass_time(self, seconds: float) -> None:
        """Let time pass like a coordinator: tick whenever ``wake_at`` is reached."""
        end = self.now + seconds
        while self.group.wake_at <= end:
            self.now = max(self.now, self.group.wake_at)
            self.effects = self.group.tick(self.now)
        self.now = end

    def restart(self) -> None:
        """Restore the group from what is stored."""
        epoch, assignment_epoch, members = decode(self.group.nodes())
        self.group = self.new_group(epoch)
        self.group.restore(assignment_epoch, members, self.now)

    def change_topics(self, **sizes: int) -> None:
        """Create, grow or (0) delete topics."""
        for name, size in sizes.items():
            if size:
                self.topics.sizes[name] = size
            else:
                del self.topics.sizes[name]
        self.effects = self.group.topics_changed(sizes.keys(), self.now)

    def client(self, member_id: str, *topics: str, **said: Any) -> "Client":
        """A client that has joined."""
        client = self.clients[member_id] = Client(self, member_id, topics or ("t",), said)
        client.join()
        return client

    def settle(self, *clients: "Client") -> None:
        """Have all clients send heartbeats until nothing changes."""
        self.pass_time(1)
        for _ in range(100):
            before = [(client.epoch, client.owned) for client in clients]
            for client in clients:
                client.beat()
            if before == [(client.epoch, client.owned) for client in clients]:
                return
        raise AssertionError("no end")


@dataclass(eq=False)
class Client:
    """A member's client: it gives up at once what it is not to have, then takes the rest over."""

    scene: Scene
    member_id: str
    topics: tuple[str, ...]
    said: dict[str, Any]
    epoch: int = 0
    owned: Partitions = NOTHING
    wanted: Partitions | None = None
    acknowledges: bool = False
    error: ErrorCode = ErrorCode.NONE
    checks: list[Callable[[], None]] = field(default_factory=list)

    def join(self) -> ConsumerHeartbeatResult:
        self.owned, self.wanted = NOTHING, None
        said = {"topics": self.topics, "rebalance_timeout_ms": 60_000, "owned": NOTHING}
        return self._take(self.scene.beat(self.member_id, 0, **(said | self.said)))

    def beat(self, **said: Any) -> ConsumerHeartbeatResult:
        if self.acknowledges and "owned" not in said:
            said["owned"] = self.owned
        self.acknowledges = False
        return self._take(self.scene.beat(self.member_id, self.epoch, **said))

    def leave(self, epoch: int = -1) -> ConsumerHeartbeatResult:
        self.owned = NOTHING
        instance_id = self.said.get("instance_id")
        return self.scene.beat(self.member_id, epoch, instance_id=instance_id)

    def _take(self, result: ConsumerHeartbeatResult) -> ConsumerHeartbeatResult:
        self.error = result.error
        if not result.error:
            self.epoch = result.epoch
            if result.assignment is not None:
                self.owned = result.assignment
                self.acknowledges = True
        return result

    @property
    def indexes(self) -> list[int]:
        """The partitions that it has, by index."""
        return sorted(index for _, index in self.owned)
