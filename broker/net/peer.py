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


@dataclass(slots=True, eq=False)
class Peer:
    """One client's connection: its number, where it comes from, and who it is.

    ``software`` is what the client says of itself: ``name/version`` (KIP-511). ``on_close`` are
    called in the event loop when the connection is closed, whoever closes it.
    """

    connection_id: int
    host: str
    listener: Address
    software: str = "unknown"
    principal: Principal = ANONYMOUS
    on_close: tuple[Callable[[], None], ...] = ()
