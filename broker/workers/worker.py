"""What a broker process is given by the supervisor that it belongs to."""

import socket
from dataclasses import dataclass, field

_READY = b"\1"


@dataclass(frozen=True)
class Worker:
    """One of several brokers on a machine.

    ``machine`` is the same for all of them, in later lives too, and for no other broker. ``store``
    is the stream to the hub that keeps the metadata, None where ZooKeeper does. ``lifeline`` ends
    with the supervisor. ``metrics_secret`` is what the hub says when it asks for metrics on behalf
    of others; empty: anybody may read them.
    """

    machine: str
    store: socket.socket | None
    lifeline: socket.socket
    metrics_secret: str = field(default="", repr=False)

    def tell_ready(self) -> None:
        """Tell the supervisor that clients are served; no harm if it is gone."""
        tell_ready(self.lifeline)


def tell_ready(lifeline: socket.socket) -> None:
    """Tell the supervisor at the other end that this process does what it is for."""
    try:
        lifeline.send(_READY)
    except OSError:  # it is gone; the end of the lifeline says so
        return
