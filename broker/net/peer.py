"""The client at the other end of a connection, whatever protocol it speaks."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from qbus.config import ListenerInfo


class Principal(NamedTuple):
    """Who a client is, in Kafka's form ``User:alice``."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


def never_muted(_seconds: float) -> None:
    """Stands for ``mute`` while there is no connection."""


def never_closed(_reason: str) -> None:
    """Stands for ``close`` while there is no connection."""


_MOST_DECISIONS: Final = 10_000


class Grants:
    """What was decided about one client's access, as long as the rules stay as they are.

    ``readable`` and ``writable`` have topics by name or id, for the lean way of requests.
    """

    def __init__(self) -> None:
        self.version = -1
        self.decisions: dict[Any, bool] = {}
        self.readable: set[str | bytes] = set()
        self.writable: set[str | bytes] = set()

    def renew(self, version: int) -> None:
        """Forget all: the rules are of this version now."""
        self.clear()
        self.version = version

    def clear(self) -> None:
        """Forget all: the client is another one now, or the rules are others."""
        self.version = -1
        self.decisions.clear()
        self.readable.clear()
        self.writable.clear()

    def keep(self, key: Any, *, allowed: bool) -> None:
        """Remember a decision; of too many the former ones are forgotten."""
        if len(self.decisions) >= _MOST_DECISIONS:
            self.decisions.clear()
        self.decisions[key] = allowed


@dataclass(slots=True, eq=False)
class Peer:
    """One client's connection: its number, where it comes from, and who it is.

    ``listener`` is the one it came through. ``is_authenticated`` is false until SASL is done, where
    the listener asks for it; ``authentication`` is the state of that. ``expires_at``: when the
    client must have authenticated again, or its certificate ends, in seconds of the event loop's
    clock; None: never. ``grants`` is what authorization remembers for this connection.
    ``software`` is what the client says of itself: ``name/version`` (KIP-511). ``on_close`` are
    called in the event loop when the connection is closed, whoever closes it. ``mute`` stops the
    reading of further requests for so many seconds, answers go out meanwhile; ``quota`` is what the
    client's quotas have to remember of the connection. ``close`` closes the connection at once;
    with ``closes_after_reply``, which says why, it reads no further request, and closes when all
    answers are sent.
    """

    connection_id: int
    host: str
    listener: ListenerInfo
    software: str = "unknown"
    principal: Principal = ANONYMOUS
    on_close: tuple[Callable[[], None], ...] = ()
    mute: Callable[[float], None] = never_muted
    quota: object | None = None
    is_authenticated: bool = True
    authentication: object | None = None
    expires_at: float | None = None
    grants: Grants = field(default_factory=Grants)
    close: Callable[[str], None] = never_closed
    closes_after_reply: str | None = None
