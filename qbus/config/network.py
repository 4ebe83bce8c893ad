"""Broker configuration: the broker's identity, its listeners, and the limits of connections."""

from collections.abc import Iterable

from qbus.config.address import (
    Address,
    ListenerInfo,
    SecurityProtocol,
    is_disque,
    parse_disque,
    parse_endpoint,
    parse_page,
)
from qbus.config.settings import Settings, boolean, integer, long, string, strings, unset
from qbus.config.types import ConfigType

_KIB = 1024
_MIB = 1024 * _KIB
_NO_LIMIT = 2**31 - 1

_PROTOCOLS = tuple(SecurityProtocol)


def _is_disque(listener: str) -> bool:
    name, separator, _ = listener.strip().partition("://")
    return bool(separator) and is_disque(name)


def _endpoint(listener: str) -> tuple[str, Address]:
    if _is_disque(listener):
        jobs = parse_disque(listener)
        return jobs.name, jobs.address
    return parse_endpoint(listener)


def _different_listeners(listeners: tuple[str, ...]) -> None:
    parsed = [_endpoint(one) for one in listeners]
    if all(is_disque(name) for name, _ in parsed):
        raise ValueError("a listener of Kafka's protocol, as SASL_SSL://host:9093")
    names = [name for name, _ in parsed]
    if len(set(names)) < len(names):
        raise ValueError("listeners with different names")
    taken = [address for _, address in parsed if address.port]
    if len(set(taken)) < len(taken):
        raise ValueError("listeners with different addresses")


def _reachable_addresses(listeners: tuple[str, ...]) -> None:
    names = []
    for name, address in map(_endpoint, listeners):
        names.append(name)
        if address.is_every_interface:
            raise ValueError("an address that clients can connect to")
    if len(set(names)) < len(names):
        raise ValueError("listeners with different names")


def _protocols_of_names(items: tuple[str, ...]) -> None:
    for item in items:
        name, colon, protocol = item.partition(":")
        if not (name and colon and protocol.upper() in _PROTOCOLS) or is_disque(name):
            raise ValueError(f"NAME:PROTOCOL, with one of {', '.join(_PROTOCOLS)}")


def _limits_of_addresses(items: tuple[str, ...]) -> None:
    for item in items:
        host, colon, count = item.rpartition(":")
        if not (host and colon and count.isascii() and count.isdigit() and len(count) < 10):
            raise ValueError("addresses with their limits, as 10.0.0.1:100,10.0.0.2:20")


def _maybe_page(text: str) -> None:
    if text:
        parse_page(text)


def _maybe_disque(text: str) -> None:
    if text:
        parse_disque(text)


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
        "The addresses to listen on, each as NAME://host:port. An empty host means all interfaces, "
        "port 0 any free port. With DISQUE://host:7711 besides, or DISQUES:// for TLS, jobs are "
        "served there, as disque.listen has it, too.",
        static=True,
        check=_different_listeners,
    )
    listener_security_protocol_map = strings(
        tuple(f"{one}:{one}" for one in _PROTOCOLS),
        "What listeners ask of their clients, as NAME:PROTOCOL with one of "
        f"{', '.join(_PROTOCOLS)}. Where it does not name one of these, that stands for itself.",
        static=True,
        check=_protocols_of_names,
    )
    inter_broker_listener_name = unset(
        ConfigType.STRING,
        "The name of the listener that brokers reach one another by. Not set: the one named as "
        "security.inter.broker.protocol, the only one, or PLAINTEXT.",
        static=True,
    )
    security_inter_broker_protocol = unset(
        ConfigType.STRING,
        "The protocol by which brokers reach one another, by the listener of that name. Either "
        "this or inter.broker.listener.name can be stated.",
        static=True,
        choices=_PROTOCOLS,
    )
    advertised_listeners = unset(
        ConfigType.LIST,
        "The addresses that clients and other brokers connect to, each as NAME://host:port, where "
        "they differ from those in listeners; besides, as DISQUE://host:7711, the one for jobs.",
        static=True,
        check=_reachable_addresses,
    )
    metrics_listen = string(
        "",
        "The address that serves Prometheus metrics, as host:port, or with TLS as "
        "https://host:port. Empty: metrics are not served.",
        static=True,
        check=_maybe_page,
    )
    metrics_authentication = unset(
        ConfigType.STRING,
        "How clients of metrics.listen say who they are: basic, with the name and the password of "
        "a user of SASL, who needs DESCRIBE on the cluster; or none. With TLS, "
        "listener.name.metrics.ssl.client.auth=required asks for certificates instead. Not set: "
        "basic if a listener has SASL, else none.",
        static=True,
        choices=("none", "basic"),
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
    max_connections = integer(
        _NO_LIMIT,
        "Maximum number of connections, and at most what the limit of open files leaves: half of it"
        " or more.",
        at_least=0,
        static=True,
    )
    max_connections_per_ip = integer(
        _NO_LIMIT, "Maximum number of connections from one IP address.", at_least=0, static=True
    )
    max_connections_per_ip_overrides = strings(
        (),
        "Limits of single IP addresses in place of max.connections.per.ip, as 10.0.0.1:100.",
        static=True,
        check=_limits_of_addresses,
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
    event_loop_slow_ms = integer(
        100,
        "A request, command or callback that holds the event loop for longer is logged and "
        "counted: all other clients wait for it.",
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
        "The address that serves jobs by Disque's protocol, as host:port, or with TLS as "
        "DISQUES://host:port. Empty: none does, unless listeners has one.",
        static=True,
        check=_maybe_disque,
    )
    disque_sasl_enable = unset(
        ConfigType.BOOLEAN,
        "Whether clients of jobs authenticate as users, with AUTH user password. Not set: if a "
        "listener does, by SASL.",
        static=True,
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
    disque_queue_idle_ms = long(
        300_000,
        "Idle time-out of queues that ADDJOB creates by itself: qbus.queue.idle.ms of their topics."
        " -1: they are never deleted. Queues that exist keep theirs.",
        unit="ms",
        at_least=-1,
    )
    disque_admin_enable = boolean(
        False,
        "Whether clients of jobs may stop the broker (SHUTDOWN) and use DEBUG, which deletes jobs.",
        static=True,
    )

    @property
    def kafka_listeners(self) -> tuple[ListenerInfo, ...]:
        """The listeners of Kafka's protocol, as they are configured; names are in capitals.

        Raises:
            ValueError: listener.security.protocol.map does not have the name of one.
        """
        return tuple(
            ListenerInfo(name, self.protocol_of(name), address)
            for name, address in map(parse_endpoint, self._without_jobs(self.listeners))
        )

    @property
    def advertised_addresses(self) -> dict[str, Address]:
        """The addresses that are advertised in place of those listened on, by names in capitals."""
        return dict(map(parse_endpoint, self._without_jobs(self.advertised_listeners or ())))

    def protocol_of(self, name: str) -> SecurityProtocol:
        """Return what the listener ``name`` asks of its clients.

        Raises:
            ValueError: the name is none of a protocol, and not in listener.security.protocol.map.
        """
        stated = {
            listener.upper(): SecurityProtocol(protocol.upper())
            for listener, _, protocol in (
                item.partition(":") for item in self.listener_security_protocol_map
            )
        }
        if name in stated:
            return stated[name]
        if name in _PROTOCOLS:
            return SecurityProtocol(name)
        raise ValueError(f"the protocol of listener {name}, as {name}:SASL_SSL")

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener that brokers reach one another by.

        Raises:
            ValueError: it does not follow from the configuration which one that is.
        """
        stated = self.inter_broker_listener_name or self.security_inter_broker_protocol
        if stated:
            return str(stated).upper()
        names = [name for name, _ in map(parse_endpoint, self._without_jobs(self.listeners))]
        if len(names) == 1:
            return names[0]
        if "PLAINTEXT" in names:
            return "PLAINTEXT"
        raise ValueError("which listener brokers reach one another by")

    @property
    def listen_address(self) -> Address:
        """The address of the first listener."""
        return parse_endpoint(self._without_jobs(self.listeners)[0])[1]

    @property
    def advertised_address(self) -> Address | None:
        """The address that is advertised for the first listener, if it is configured."""
        name, _ = parse_endpoint(self._without_jobs(self.listeners)[0])
        return self.advertised_addresses.get(name)

    @property
    def disque_listeners(self) -> tuple[ListenerInfo, ...]:
        """The listeners for jobs: none, one, or one with and one without TLS."""
        stated = [parse_disque(one) for one in self.listeners if _is_disque(one)]
        if self.disque_listen:
            more = parse_disque(self.disque_listen)
            stated += [more] if more.name not in {one.name for one in stated} else []
        return tuple(stated)

    @property
    def disque_address(self) -> Address | None:
        """The address that serves jobs, if any."""
        return next((one.address for one in self.disque_listeners), None)

    @property
    def advertised_disque_address(self) -> Address | None:
        """The address for clients of jobs, if it is configured."""
        return next(iter(self.advertised_disque_addresses.values()), None)

    @property
    def advertised_disque_addresses(self) -> dict[str, Address]:
        """The same for each listener for jobs, by its name."""
        stated = map(parse_disque, filter(_is_disque, self.advertised_listeners or ()))
        return {one.name: one.address for one in stated}

    @property
    def metrics_address(self) -> Address | None:
        """The address that serves metrics, if any."""
        return parse_page(self.metrics_listen)[0] if self.metrics_listen else None

    @property
    def metrics_listener(self) -> ListenerInfo | None:
        """The same as a listener, whose name is METRICS."""
        if not self.metrics_listen:
            return None
        address, is_encrypted = parse_page(self.metrics_listen)
        protocol = SecurityProtocol.SSL if is_encrypted else SecurityProtocol.PLAINTEXT
        return ListenerInfo("METRICS", protocol, address)

    @staticmethod
    def _without_jobs(listeners: Iterable[str]) -> list[str]:
        return [one for one in listeners if not _is_disque(one)]
