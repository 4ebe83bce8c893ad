"""Broker configuration: the broker's identity, its listeners, and the limits of connections."""

from qbus.config.address import Address, parse_address, parse_disque_address
from qbus.config.settings import Settings, boolean, integer, long, string, strings, unset
from qbus.config.types import ConfigType

_KIB = 1024
_MIB = 1024 * _KIB
_NO_LIMIT = 2**31 - 1


def _is_disque(listener: str) -> bool:
    return listener.strip().upper().startswith("DISQUE:")


def _one_address(listeners: tuple[str, ...]) -> None:
    plain = [one for one in listeners if not _is_disque(one)]
    if len(plain) != 1 or len(listeners) > 2:
        raise ValueError("one listener, and at most one for jobs, as DISQUE://host:7711")
    parse_address(plain[0])
    for one in listeners:
        if _is_disque(one):
            parse_disque_address(one)


def _one_reachable_address(listeners: tuple[str, ...]) -> None:
    _one_address(listeners)
    for one in listeners:
        parse = parse_disque_address if _is_disque(one) else parse_address
        if parse(one).host in {"", "0.0.0.0", "::"}:  # noqa: S104 - refused here
            raise ValueError("an address that clients can connect to")


def _maybe_address(text: str) -> None:
    if text:
        parse_address(text)


class NetworkKeys(Settings):
    """Identity, listeners, and the limits of connections."""

    __slots__ = ()

    node_id = integer(1, "The id of this broker, unique in the cluster.", at_least=0, static=True)
    broker_rack = unset(
        ConfigType.STRING,
        "The rack of this broker; the replicas of a partition are spread over racks.",
        static=True,
    )
    listeners = strings(
        ("PLAINTEXT://127.0.0.1:9092",),
        "The address to listen on. An empty host means all interfaces, port 0 any free port. With "
        "DISQUE://host:7711 besides, jobs are served there, as disque.listen has it, too.",
        static=True,
        check=_one_address,
    )
    advertised_listeners = unset(
        ConfigType.LIST,
        "The address that clients and other brokers connect to, if it differs from listeners; "
        "besides, as DISQUE://host:7711, the one for jobs.",
        static=True,
        check=_one_reachable_address,
    )
    metrics_listen = string(
        "",
        "The address that serves Prometheus metrics, as host:port. Empty: metrics are not served.",
        static=True,
        check=_maybe_address,
    )
    socket_request_max_bytes = integer(
        100 * _MIB,
        "Maximum size of a request. A larger one closes its connection.",
        unit="bytes",
        at_least=1024,
        static=True,
    )
    socket_send_buffer_bytes = integer(
        -1,
        "Send buffer of a connection's socket. -1: the system's default.",
        unit="bytes",
        at_least=-1,
        static=True,
    )
    socket_receive_buffer_bytes = integer(
        -1,
        "Receive buffer of a connection's socket. -1: the system's default.",
        unit="bytes",
        at_least=-1,
        static=True,
    )
    queued_max_request_bytes = long(
        256 * _MIB,
        "Memory for incomplete requests, over all connections. When it is used up, connections "
        "wait. -1: no limit.",
        unit="bytes",
        at_least=-1,
        static=True,
    )
    max_connections = integer(_NO_LIMIT, "Maximum number of connections.", at_least=0, static=True)
    max_connections_per_ip = integer(
        _NO_LIMIT, "Maximum number of connections from one IP address.", at_least=0, static=True
    )
    connections_max_idle_ms = long(
        10 * 60_000,
        "A connection without requests for this time is closed.",
        unit="ms",
        at_least=1,
        static=True,
    )
    request_frame_timeout_ms = long(
        30_000,
        "A request must arrive completely within this time; large requests get more.",
        unit="ms",
        at_least=1,
        static=True,
    )
    response_stall_timeout_ms = long(
        60_000,
        "A client that receives nothing of its responses for this time is disconnected.",
        unit="ms",
        at_least=1,
        static=True,
    )
    fetch_max_bytes = integer(
        55 * _MIB,
        "Maximum size of a fetch response, whatever the request asks for.",
        unit="bytes",
        at_least=1024,
        static=True,
    )
    shutdown_drain_timeout_ms = long(
        30_000,
        "How long a broker that shuts down waits for requests in flight.",
        unit="ms",
        at_least=0,
        static=True,
    )

    disque_listen = string(
        "",
        "The address that serves jobs by Disque's protocol, as host:port. Empty: none does, unless "
        "listeners has one.",
        static=True,
        check=_maybe_address,
    )
    disque_requirepass = unset(
        ConfigType.PASSWORD,
        "The password that clients of jobs give with AUTH, and the nodes one another.",
        static=True,
    )
    disque_max_clients = integer(
        10_000, "Maximum number of clients of jobs.", at_least=1, static=True
    )
    disque_client_timeout_ms = long(
        0,
        "A client of jobs that asks nothing for this time is disconnected. 0: never.",
        unit="ms",
        at_least=0,
        static=True,
    )
    disque_admin_enable = boolean(
        False,
        "Whether clients of jobs may stop the broker (SHUTDOWN) and use DEBUG, which deletes jobs.",
        static=True,
    )

    @property
    def listen_address(self) -> Address:
        """The address to listen on."""
        return parse_address(next(one for one in self.listeners if not _is_disque(one)))

    @property
    def advertised_address(self) -> Address | None:
        """The address for clients, if it is configured."""
        advertised = self.advertised_listeners
        if not advertised:
            return None
        return parse_address(next(one for one in advertised if not _is_disque(one)))

    @property
    def disque_address(self) -> Address | None:
        """The address that serves jobs, if any."""
        for one in self.listeners:
            if _is_disque(one):
                return parse_disque_address(one)
        return parse_address(self.disque_listen) if self.disque_listen else None

    @property
    def advertised_disque_address(self) -> Address | None:
        """The address for clients of jobs, if it is configured."""
        for one in self.advertised_listeners or ():
            if _is_disque(one):
                return parse_disque_address(one)
        return None

    @property
    def metrics_address(self) -> Address | None:
        """The address that serves metrics, if any."""
        return parse_address(self.metrics_listen) if self.metrics_listen else None
