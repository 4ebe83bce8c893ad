"""The secrets of a secure local cluster: its authority, its brokers' password, its administrator.

They are made at the first start and used again by later ones. Files that hold secrets have mode
0600. The brokers log in to each other, and the first administrator is made, with a user that they
know by their own configuration.
"""

import asyncio
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from qbus.errors import ApiError, QbusError
from qbus.local_cluster.layout import BROKER, ZOOKEEPER, Layout, LocalClusterError, node_name
from qbus.local_cluster.settings import HOST, ClusterSettings
from qbus.security.client import ClientSecurity, read_properties
from qbus.security.trial_ca import TrialAuthority, days_left
from qbus.service.files import replace_file

PROTOCOL: Final = "SASL_SSL"
MECHANISM: Final = "SCRAM-SHA-256"
ADMINISTRATOR: Final = "admin"
BROKERS: Final = "broker"

_MECHANISMS: Final = "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN"
_ITERATIONS: Final = 4096  # the password is random: more would protect nothing
_SOON_DAYS: Final = 30
_HOSTS: Final = (HOST, "localhost", "::1")
_POLL_S: Final = 0.05


def prepare(layout: Layout, settings: ClusterSettings) -> None:
    """Write what is missing of the files that the brokers start with. Raises LocalClusterError."""
    names = [node_name(kind, n) for kind in (ZOOKEEPER, BROKER) for n in settings.numbers(kind)]
    for directory in (layout.secrets, *map(layout.data, names)):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o700)  # what is in them is secret, or records
    authority = _authority(layout)
    for number in settings.numbers(BROKER):
        keystore = layout.keystore(node_name(BROKER, number))
        if not keystore.exists() or days_left(keystore) < _SOON_DAYS:
            certificate, key = authority.issue(node_name(BROKER, number), _HOSTS)
            _write_secret(keystore, certificate + key)
        document = _broker_settings(layout, number)
        text = "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in document)
        _write_secret(layout.broker_config(node_name(BROKER, number)), text.encode())
    _write_properties(
        layout, settings, layout.broker_properties, BROKERS, _password(layout, "brokers")
    )


def complete(layout: Layout, settings: ClusterSettings, deadline: float) -> None:
    """Make the administrator, if there is none yet, and wait until all brokers know all.

    Raises LocalClusterError after the ``deadline`` of the monotonic clock.
    """
    asyncio.run(_complete(layout, settings, deadline))


async def _complete(layout: Layout, settings: ClusterSettings, deadline: float) -> None:
    as_broker = ClientSecurity.from_properties(read_properties(layout.broker_properties))
    security = as_broker
    properties = layout.client_properties
    if properties.exists():
        kept = read_properties(properties)
        if kept.get("bootstrap.servers") != settings.bootstrap:
            _write_secret(properties, _text({**kept, "bootstrap.servers": settings.bootstrap}))
    else:
        password = secrets.token_urlsafe(24)
        security = replace(as_broker, sasl_username=ADMINISTRATOR, sasl_password=password)
        await _make_administrator(settings, as_broker, password, deadline)
    for number in settings.numbers(BROKER):
        await _wait_acquainted(settings, number, security, deadline)
    if security is not as_broker:
        assert security.sasl_password is not None
        _write_properties(layout, settings, properties, ADMINISTRATOR, security.sasl_password)


async def _make_administrator(
    settings: ClusterSettings, as_broker: ClientSecurity, password: str, deadline: float
) -> None:
    from qbus.clients import Admin  # noqa: PLC0415 - only secure clusters need it
    from qbus.clients.admin.types import ScramUpsert  # noqa: PLC0415

    async with Admin(settings.bootstrap, security=as_broker) as admin:
        while True:
            try:
                await admin.alter_user_scram_credentials(
                    [ScramUpsert(ADMINISTRATOR, password, MECHANISM, _ITERATIONS)]
                )
            except ApiError as error:
                _give_up_after(deadline, f"the administrator cannot be made: {error}")
                await asyncio.sleep(_POLL_S)
            else:
                return


async def _wait_acquainted(
    settings: ClusterSettings, number: int, security: ClientSecurity, deadline: float
) -> None:
    """Wait until a broker accepts ``security`` and knows all brokers."""
    from qbus.clients import Admin  # noqa: PLC0415

    problem = "does not know the other brokers"
    while True:
        address = f"{HOST}:{settings.port(BROKER, number)}"
        try:
            async with Admin(address, security=security, request_timeout_ms=2000) as admin:
                if len((await admin.describe_cluster()).nodes) >= settings.nodes:
                    return
        except QbusError as error:
            problem = str(error)
        _give_up_after(deadline, f"{node_name(BROKER, number)}: {problem}")
        await asyncio.sleep(_POLL_S)


def _give_up_after(deadline: float, problem: str) -> None:
    if time.monotonic() > deadline:
        raise LocalClusterError(problem)


def _broker_settings(layout: Layout, number: int) -> list[tuple[str, str]]:
    name = node_name(BROKER, number)
    return [
        ("inter.broker.listener.name", PROTOCOL),
        ("ssl.keystore.location", str(layout.keystore(name))),
        ("ssl.truststore.location", str(layout.ca_certificate)),
        ("sasl.enabled.mechanisms", _MECHANISMS),
        ("sasl.mechanism.inter.broker.protocol", MECHANISM),
        ("sasl.inter.broker.username", BROKERS),
        ("sasl.inter.broker.password", _password(layout, "brokers")),
        ("authorizer.class.name", "acl"),
        ("super.users", f"User:{ADMINISTRATOR}"),
        ("qbus.audit.log.path", str(layout.audit_log(name))),
        ("zookeeper.digest", f"qbus:{_password(layout, 'zookeeper')}"),
        ("zookeeper.set.acl", "true"),
    ]


def _authority(layout: Layout) -> TrialAuthority:
    if layout.ca_key.exists():
        return TrialAuthority.load(layout.ca_certificate, layout.ca_key)
    layout.ca_certificate.unlink(missing_ok=True)
    return TrialAuthority.create(layout.ca_certificate, layout.ca_key)


def _password(layout: Layout, owner: str) -> str:
    path = layout.secrets / f"{owner}.password"
    if not path.exists():
        _write_secret(path, secrets.token_urlsafe(24).encode())
    return path.read_text()


def _write_properties(
    layout: Layout, settings: ClusterSettings, path: Path, user: str, password: str
) -> None:
    """Write what a client of the cluster is given, in librdkafka's names."""
    properties = {
        "bootstrap.servers": settings.bootstrap,
        "security.protocol": PROTOCOL,
        "sasl.mechanism": MECHANISM,
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": str(layout.ca_certificate),
    }
    _write_secret(path, _text(properties))


def _write_secret(path: Path, content: bytes) -> None:
    replace_file(path, content, durable=False, mode=0o600)


def _text(properties: Mapping[str, str]) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in properties.items()).encode()
