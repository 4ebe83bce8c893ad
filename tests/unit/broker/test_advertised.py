"""Where clients and other brokers are told to connect."""

import socket

import pytest

from qbus.broker.startup import advertised
from qbus.config import Address, BrokerConfig, ListenerInfo, SecurityProtocol
from qbus.metadata.znodes import EndpointNode

INSIDE = ListenerInfo("INSIDE", SecurityProtocol.PLAINTEXT, Address("127.0.0.1", 41234))
OUTSIDE = ListenerInfo("OUTSIDE", SecurityProtocol.SASL_SSL, Address("", 9093))
SETTINGS = {
    "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://:9093",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL",
    "inter.broker.listener.name": "INSIDE",
    "ssl.keystore.location": "broker.pem",
}


def test_each_listener_is_advertised_where_it_listens() -> None:
    inside, outside = advertised(BrokerConfig(SETTINGS), [INSIDE, OUTSIDE])
    assert inside == EndpointNode("INSIDE", "PLAINTEXT", "127.0.0.1", 41234)  # no longer port 0
    assert outside == EndpointNode("OUTSIDE", "SASL_SSL", socket.getfqdn(), 9093)


@pytest.mark.parametrize("name", ["OUTSIDE", "outside"])
def test_or_where_it_is_said_to_be(name: str) -> None:
    config = BrokerConfig({**SETTINGS, "advertised.listeners": f"{name}://bus.example:19093"})
    inside, outside = advertised(config, [INSIDE, OUTSIDE])
    assert outside == EndpointNode("OUTSIDE", "SASL_SSL", "bus.example", 19093)
    assert (inside.host, inside.port) == ("127.0.0.1", 41234)
