"""The discovery of brokers by clients that know only the ZooKeeper address."""

import asyncio
import json
import logging
from contextlib import suppress
from operator import methodcaller
from typing import TYPE_CHECKING

from qbus.errors import ConfigError
from qbus.metadata.errors import StoreUnavailable, StoreUnusable
from qbus.metadata.znodes import BROKERS
from qbus.metadata.zookeeper.address import ZooKeeperAddress

if TYPE_CHECKING:
    from qbus.metadata.zookeeper.session import Session

_log = logging.getLogger(__name__)

_PLAINTEXT = "PLAINTEXT"


async def find_brokers(
    address: str, timeout: float, protocol: str = _PLAINTEXT
) -> list[tuple[str, int]]:
    """Return host and port of each registered broker, ordered by broker id.

    ``address`` is ``zk://host:port,.../chroot``; ``timeout`` in seconds covers everything.
    ``protocol``: what the client speaks, such as SASL_SSL: the first listener of it counts. Reads
    registrations of Qbus and of Apache Kafka up to 3.x. How the session is secured, the environment
    says: see :class:`.security.ZooKeeperSecurity`.

    Raises:
        ConfigError: the address is invalid, or kazoo is not installed.
        StoreUnavailable: no ZooKeeper answered in time.
    """
    try:
        parsed = ZooKeeperAddress.parse(address)
    except ValueError as error:
        raise ConfigError(f"{address}: expected zk://{error}") from error
    try:
        async with asyncio.timeout(timeout):
            return await _read(parsed, timeout, protocol)
    except TimeoutError:
        raise StoreUnavailable(f"no ZooKeeper answers at {parsed}") from None
    except StoreUnusable as error:
        raise StoreUnavailable(str(error)) from None


async def _read(address: ZooKeeperAddress, timeout: float, protocol: str) -> list[tuple[str, int]]:
    from qbus.metadata.zookeeper.session import Session  # noqa: PLC0415 - kazoo is optional, and takes a while to import

    session = Session(address, timeout)
    await session.open(timeout)
    try:
        registrations = await _registrations(session, address.chroot.rstrip("/") + BROKERS)
    finally:
        await session.close()
    found = []
    for path, data in registrations:
        if (endpoint := _endpoint(data, protocol)) is not None:
            found.append(endpoint)
        else:
            _log.warning("%s: %s has no listener for %s", address.hosts, path, protocol)
    return found


async def _registrations(session: "Session", below: str) -> list[tuple[str, bytes]]:
    from qbus.metadata.zookeeper.library import exceptions  # noqa: PLC0415

    registrations = []
    with suppress(exceptions.NoNodeError):  # no broker has ever registered
        for name in sorted(
            await session.ask(methodcaller("get_children_async", below)), key=_numerically
        ):
            path = f"{below}/{name}"
            with suppress(exceptions.NoNodeError):  # it unregistered meanwhile
                data, _ = await session.ask(methodcaller("get_async", path))
                registrations.append((path, data))
    return registrations


def _numerically(name: str) -> tuple[bool, int, str]:
    return (False, int(name), name) if name.isdecimal() else (True, 0, name)


def _endpoint(registration: bytes, protocol: str = _PLAINTEXT) -> tuple[str, int] | None:
    """Return the first endpoint that speaks ``protocol``.

    For PLAINTEXT also host and port as of Kafka before 0.9.
    """
    try:
        broker = json.loads(registration)
        protocols = broker.get("listener_security_protocol_map", {})
        for endpoint in broker.get("endpoints", ()):
            listener, _, address = endpoint.partition("://")
            if protocols.get(listener, listener) == protocol:
                host, _, port = address.rpartition(":")
                return host.removeprefix("[").removesuffix("]"), _port(port)
        if protocol != _PLAINTEXT:
            return None
        host, port = broker["host"], _port(broker["port"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return (host, port) if isinstance(host, str) and host else None


def _port(value: object) -> int:
    port = int(str(value))
    if not 0 < port < 65536:
        raise ValueError
    return port
