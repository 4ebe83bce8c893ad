"""Connections between brokers: encrypted and authenticated as the inter-broker listener says."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from qbus.broker.metadata.image import BrokerInfo
from qbus.broker.peers.client import PeerClient, PeerSettings
from qbus.broker.peers.connection import PeerConnection, PeerError
from qbus.broker.peers.security import inter_broker_security
from qbus.config import BrokerConfig
from qbus.security.client import ClientSecurity
from qbus.security.connecting import OutgoingSecurity
from qbus.wire import ApiKey
from qbus.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tests.support.secure_broker import SecureBroker, certificates
from tests.support.waiting import eventually

REQUEST = ListOffsetsRequest(replica_id=1, topics=[])


def security(**more: Any) -> ClientSecurity:
    values = {
        "protocol": "SASL_SSL",
        "ssl_ca_location": certificates().ca,
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_username": "broker",
        "sasl_password": "secret",
    }
    return ClientSecurity(**{**values, **more})


@pytest.fixture
async def peer() -> AsyncIterator[SecureBroker]:
    async with SecureBroker({"broker": "secret"}, tls=certificates().context()) as broker:
        yield broker


async def connect(
    peer: SecureBroker, settings: ClientSecurity, timeout: float = 5.0
) -> PeerConnection:
    return await PeerConnection.open(
        "127.0.0.1",
        peer.port,
        client_id="test",
        timeout=timeout,
        max_frame=100_000,
        security=OutgoingSecurity(settings),
    )


async def ask(connection: PeerConnection) -> Any:
    return await connection.request(ApiKey.LIST_OFFSETS, 7, REQUEST, 5)


async def test_a_broker_authenticates_over_tls(peer: SecureBroker) -> None:
    connection = await connect(peer, security())
    answers = await asyncio.gather(*(ask(connection) for _ in range(20)))
    assert {type(answer) for answer in answers} == {ListOffsetsResponse}
    assert peer.authenticated == ["broker"]
    connection.abort()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"sasl_password": "hunter2"}, "authentication of 'broker' with SCRAM-SHA-256 failed"),
        ({"ssl_ca_location": certificates().other_ca}, "its certificate is not trusted"),
        ({"sasl_mechanism": "PLAIN", "sasl_password": "hunter2"}, "with PLAIN failed"),
    ],
)
async def test_what_is_wrong_is_said(peer: SecureBroker, more: Any, message: str) -> None:
    with pytest.raises(PeerError, match=message) as caught:
        await connect(peer, security(**more))
    assert "hunter2" not in str(caught.value)
    assert caught.value.retriable  # an operator corrects it while the broker runs


async def test_a_peer_that_stalls(peer: SecureBroker) -> None:
    async def stall(_: Any) -> None:
        await asyncio.sleep(60)

    peer.handlers[ApiKey.SASL_HANDSHAKE] = stall
    with pytest.raises(PeerError, match="no response to SASL_HANDSHAKE in time"):
        await connect(peer, security(), timeout=0.2)


async def test_a_session_is_renewed_while_requests_go_on(peer: SecureBroker) -> None:
    peer.lifetime_ms = 200
    connection = await connect(peer, security())
    while len(peer.authenticated) < 3:
        answers = await asyncio.gather(*(ask(connection) for _ in range(5)))
        assert {type(answer) for answer in answers} == {ListOffsetsResponse}
    assert peer.connections == 1
    assert connection.failure is None
    connection.abort()


async def test_a_session_that_cannot_be_renewed_fails_what_waits(peer: SecureBroker) -> None:
    peer.lifetime_ms = 200
    connection = await connect(peer, security())
    peer.users["broker"] = "changed"
    await eventually(lambda: connection.failure is not None)
    with pytest.raises(PeerError, match="authentication of 'broker'"):
        await ask(connection)


class Registered:
    """One broker, at two listeners."""

    def __init__(self, *listeners: Any) -> None:
        self.brokers = {2: BrokerInfo(2, "127.0.0.1", 1, listeners=listeners)}


async def test_the_listener_of_brokers_is_used(peer: SecureBroker) -> None:
    from qbus.config.address import Address, ListenerInfo, SecurityProtocol

    listener = ListenerInfo("INTERNAL", SecurityProtocol.SASL_SSL, Address("127.0.0.1", peer.port))
    settings = PeerSettings("test", 5.0, 0.1, 100_000, -1, "INTERNAL", OutgoingSecurity(security()))
    client = PeerClient(Registered(listener), settings)
    try:
        response = await client.send(2, ApiKey.LIST_OFFSETS, 7, REQUEST, 5.0)
        assert isinstance(response, ListOffsetsResponse)
        absent = PeerClient(Registered(listener), settings._replace(listener="OTHER"))
        with pytest.raises(PeerError, match="broker 2 has no listener OTHER"):
            await absent.send(2, ApiKey.LIST_OFFSETS, 7, REQUEST, 5.0)
    finally:
        client.close()


def config(**more: str) -> BrokerConfig:
    stated = {key.replace("_", "."): value for key, value in more.items()}
    return BrokerConfig({"node.id": 1, **stated})


def test_plaintext_needs_nothing() -> None:
    assert inter_broker_security(config()) == ClientSecurity()
    assert PeerSettings.of(config(), "broker-1").security is None


def test_what_the_configuration_says() -> None:
    made = certificates()
    stated = BrokerConfig(
        {
            "node.id": 1,
            "listeners": "SASL_SSL://127.0.0.1:9093,PLAINTEXT://127.0.0.1:9092",
            "inter.broker.listener.name": "SASL_SSL",
            "ssl.certificate.location": made.server,
            "ssl.key.location": made.server_key,
            "ssl.truststore.location": made.ca,
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.inter.broker.username": "broker",
            "sasl.inter.broker.password": "secret",
        }
    )
    assert inter_broker_security(stated) == ClientSecurity(
        protocol="SASL_SSL",
        ssl_ca_location=made.ca,
        ssl_certificate_location=made.server,
        ssl_key_location=made.server_key,
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="broker",
        sasl_password="secret",
    )
    settings = PeerSettings.of(stated, "broker-1")
    assert settings.listener == "SASL_SSL"
    assert settings.security is not None
    assert "secret" not in repr(settings)
