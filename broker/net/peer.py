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
    grants: dict[Any, Any] = field(default_factory=dict)
    close: Callable[[str], None] = never_closed
    closes_after_reply: str | None = None
