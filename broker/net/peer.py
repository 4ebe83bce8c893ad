"""The client at the other end of a connection, whatever protocol it speaks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from qbus.config import Address


class Principal(NamedTuple):
    """Who a client is, in Kafka's form ``User:alice``."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


def never_muted(_seconds: float) -> None:
    """Stands for ``mute`` while there is no connection."""


@dataclass(slots=True, eq=False)
class Peer:
    """One client's connection: its number, where it comes from, and who it is.

    ``software`` is what the client says of itself: ``name/version`` (KIP-511). ``on_close`` are
    called in the event loop when the connection is closed, whoever closes it. ``mute`` stops the
    reading of further requests for so many seconds, answers go out meanwhile; ``quota`` is what the
    client's quotas have to remember of the connection.
    """

    connection_id: int
    host: str
    listener: Address
    software: str = "unknown"
    principal: Principal = ANONYMOUS
    on_close: tuple[Callable[[], None], ...] = ()
    mute: Callable[[float], None] = never_muted
    quota: object | None = None
