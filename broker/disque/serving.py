"""The listener for RESP, put together with what answers the commands."""

import socket
import ssl
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING, Final

from qbus.config import Address, BrokerConfig, ListenerInfo
from qbus.errors import ConfigError
from qbus.service.event_loop import SlowHandlers

from ..net.memory_budget import MemoryBudget
from ..net.peer import Peer, Principal
from ..quotas import ClientQuotas
from .admin import AdminCommands
from .connection import Client
from .dispatch import Dispatcher
from .listener import DisqueListener, Encryption, Entrance, Identity, Limits
from .peers import Link
from .service import DisqueService

if TYPE_CHECKING:
    from qbus.security.principals import PrincipalMapper

WITH_TLS: Final = "DISQUES"
"""The name of the listener for jobs that speaks TLS."""


def make_listener(
    entrances: Sequence[Entrance],
    service: DisqueService,
    limits: Limits,
    budget: MemoryBudget,
    admit: Callable[[str], float] = lambda _: 0.0,
    quotas: ClientQuotas | None = None,
    slow: SlowHandlers | None = None,
) -> DisqueListener:
    """A listener for jobs; ``admit`` as there. Make it in a running event loop.

    ``quotas``: what clients may produce and fetch: what they send, and what they get. ``slow`` is
    given the commands that hold the event loop for too long.
    """
    admin = AdminCommands(service)
    dispatcher = Dispatcher(service, admin, slow)
    listener = DisqueListener(
        entrances, dispatcher, limits, budget, service.authentication, admit, use_of(quotas)
    )
    admin.listener = listener
    admin.processed = lambda: dispatcher.processed
    service.clients = listener
    return listener


def use_of(quotas: ClientQuotas | None) -> Callable[[Client, int, int], float]:
    """What counts bytes against the quotas of clients."""

    def use(client: Client, received: int, sent: int) -> float:
        if quotas is None or not quotas.is_active:
            return 0.0
        peer = client.peer
        if peer is None:
            listener = ListenerInfo.plaintext(client.host, 0)
            peer = client.peer = Peer(client.id, client.host, listener)
        peer.principal = client.principal
        now = perf_counter()
        own = quotas.of_client(peer, client.name.decode("utf-8", "replace"), now)
        delay_s = 0.0
        for kind, meter, size in (
            (quotas.produce, own.produce, received),
            (quotas.fetch, own.fetch, sent),
        ):
            if meter is not None and size:
                owes_s = meter.charge(size, now)
                if owes_s > 0.0:
                    kind.count_throttled(owes_s)
                    delay_s = max(delay_s, owes_s)
        return delay_s

    return use


def make_entrance(config: BrokerConfig, info: ListenerInfo, sock: socket.socket) -> Entrance:
    """How clients come in at a socket that listens for the listener ``info``.

    Raises ConfigError: a certificate cannot be read.
    """
    if not info.protocol.is_encrypted:
        return Entrance(sock, info.address)
    from qbus.security.principals import PrincipalMapper  # noqa: PLC0415 - only where TLS is used
    from qbus.security.tls import ServerTls  # noqa: PLC0415 - as above

    own = config.for_listener(info.name)
    mapper = PrincipalMapper(own.ssl_principal_mapping_rules)
    encryption = Encryption(
        ServerTls(own, info.name).context, lambda certificate: identify(mapper, certificate)
    )
    return Entrance(sock, info.address, encryption)


def identify(mapper: "PrincipalMapper", certificate: bytes) -> Identity | None:
    """Who has a certificate; None: nobody follows from it."""
    from cryptography import x509  # noqa: PLC0415 - only where clients have certificates

    from qbus.security.principals import subject  # noqa: PLC0415 - as above

    try:
        name = mapper.name(subject(certificate))
    except ConfigError:
        return None
    if not name:
        return None
    ends = x509.load_der_x509_certificate(certificate).not_valid_after_utc
    return Identity(Principal("User", name), (ends - datetime.now(UTC)).total_seconds())


def link_of(config: BrokerConfig) -> Link:
    """How a node connects to others: as the user that brokers are, else with the password."""
    tls = _client_tls(config)
    if config.disque_authenticates and config.sasl_inter_broker_username:
        password = config.sasl_inter_broker_password or ""
        return Link(config.sasl_inter_broker_username, password.encode(), tls)
    return Link("", (config.disque_requirepass or "").encode(), tls)


def is_told_in_clear(link: Link, plain: Address | None, tls: Address | None) -> bool:
    """Whether others on the network could read what nodes say of themselves.

    ``plain`` and ``tls``: where nodes serve jobs without and with TLS, if they do.
    """
    return bool(link.password) and tls is None and plain is not None and not plain.is_loopback


def _client_tls(config: BrokerConfig) -> Callable[[], ssl.SSLContext]:
    """What makes the context of a connection to another node, which has a listener like this."""

    def make() -> ssl.SSLContext:
        from qbus.security.client import ClientSecurity  # noqa: PLC0415 - only where TLS is used
        from qbus.security.tls import client_context  # noqa: PLC0415 - as above

        own = config.for_listener(WITH_TLS)
        return client_context(
            ClientSecurity(
                protocol="SSL",
                ssl_ca_location=own.ssl_truststore_location,
                ssl_certificate_location=own.ssl_keystore_location or own.ssl_certificate_location,
                ssl_key_location=None if own.ssl_keystore_location else own.ssl_key_location,
                ssl_key_password=own.ssl_key_password,
                check_hostname=own.ssl_endpoint_identification_algorithm == "https",
            )
        )

    return make
