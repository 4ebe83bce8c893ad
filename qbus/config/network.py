"""Broker configuration: who the broker is, where it listens, and what connections may cost."""

from qbus.config.address import Address, parse_address
from qbus.config.settings import Settings, integer, long, string, strings, unset
from qbus.config.types import ConfigType

_KIB = 1024
_MIB = 1024 * _KIB
_NO_LIMIT = 2**31 - 1


def _one_address(listeners: tuple[str, ...]) -> None:
    if len(listeners) != 1:
        raise ValueError("one listener")
    parse_address(listeners[0])


def _one_reachable_address(listeners: tuple[str, ...]) -> None:
    _one_address(listeners)
    if parse_address(listeners[0]).host in {"", "0.0.0.0", "::"}:  # noqa: S104 - refused here
        raise ValueError("an address that clients can connect to")


def _maybe_address(text: str) -> None:
    if text:
        parse_address(text)


class NetworkKeys(Settings):
    """Identity, listeners, and the limits of connections."""

    __slots__ = ()

    node_id = integer(
        1, "The number of this broker, unlike that of any other.", at_least=0, static=True
    )
    broker_rack = unset(
        ConfigType.STRING, "Where the broker stands, so that replicas are spread.", static=True
    )
    listeners = strings(
        ("PLAINTEXT://127.0.0.1:9092",),
        "The address to listen on; an empty host stands for every interface, port 0 for any.",
        static=True,
        check=_one_address,
    )
    advertised_listeners = unset(
        ConfigType.LIST,
        "The address that clients are told to connect to, if not the one listened on.",
        static=True,
        check=_one_reachable_address,
    )
    metrics_listen = string(
        "",
        "The address to serve Prometheus metrics on, as host:port; empty: none.",
        static=True,
        check=_maybe_address,
    )
    socket_request_max_bytes = integer(
        100 * _MIB,
        "The largest request that is read; a larger one closes its connection.",
        unit="bytes",
        at_least=1024,
        static=True,
    )
    socket_send_buffer_bytes = integer(
        -1,
        "The system's send buffer of a connection. -1: the system decides.",
        unit="bytes",
        at_least=-1,
        static=True,
    )
    socket_receive_buffer_bytes = integer(
        -1,
        "The system's receive buffer of a connection. -1: the system decides.",
        unit="bytes",
        at_least=-1,
        static=True,
    )
    queued_max_request_bytes = long(
        256 * _MIB,
        "Memory for requests that have not been received whole, of all connections together. "
        "When it is used up, connections wait. -1: no limit.",
        unit="bytes",
        at_least=-1,
        static=True,
    )
    max_connections = integer(
        _NO_LIMIT, "How many connections are accepted.", at_least=0, static=True
    )
    max_connections_per_ip = integer(
        _NO_LIMIT, "How many connections are accepted from one address.", at_least=0, static=True
    )
    connections_max_idle_ms = long(
        10 * 60_000,
        "A connection that asked for nothing for so long is closed.",
        unit="ms",
        at_least=1,
        static=True,
    )
    request_frame_timeout_ms = long(
        30_000,
        "A request must arrive whole within this time; large ones get longer.",
        unit="ms",
        at_least=1,
        static=True,
    )
    response_stall_timeout_ms = long(
        60_000,
        "A client that takes nothing of its responses for so long is disconnected.",
        unit="ms",
        at_least=1,
        static=True,
    )
    fetch_max_bytes = integer(
        55 * _MIB,
        "The most that one fetch is answered with, whatever it asks for.",
        unit="bytes",
        at_least=1024,
        static=True,
    )
    shutdown_drain_timeout_ms = long(
        30_000,
        "On shutdown, how long requests in flight may take until their connections are closed.",
        unit="ms",
        at_least=0,
        static=True,
    )

    @property
    def listen_address(self) -> Address:
        """Where to listen."""
        return parse_address(self.listeners[0])

    @property
    def advertised_address(self) -> Address | None:
        """Where clients are told to connect to, if that is configured."""
        advertised = self.advertised_listeners
        return parse_address(advertised[0]) if advertised else None

    @property
    def metrics_address(self) -> Address | None:
        """Where to serve metrics, if at all."""
        return parse_address(self.metrics_listen) if self.metrics_listen else None
