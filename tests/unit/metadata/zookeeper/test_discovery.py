"""Errors of discovery; tests/integration has its successes."""

import json
import subprocess
import sys

import pytest

from qbus.errors import ConfigError
from qbus.metadata import StoreUnavailable
from qbus.metadata.znodes import BrokerNode
from qbus.metadata.zookeeper import find_brokers
from qbus.metadata.zookeeper.discovery import _endpoint
from tests.support.ports import free_port

KAFKA = {
    "version": 5,
    "host": None,
    "port": -1,
    "endpoints": ["SSL://secure:9093", "INSIDE://10.0.0.1:9092", "PLAINTEXT://later:1"],
    "listener_security_protocol_map": {"SSL": "SSL", "INSIDE": "PLAINTEXT"},
}


@pytest.mark.parametrize(
    ("registration", "endpoint"),
    [
        (BrokerNode("bus.example", 9092, 3).encode(), ("bus.example", 9092)),
        (BrokerNode("::1", 9092, 3).encode(), ("::1", 9092)),
        (json.dumps(KAFKA).encode(), ("10.0.0.1", 9092)),
        (b'{"version":1,"host":"old","port":9092}', ("old", 9092)),
        (b'{"endpoints":["SSL://secure:9093"],"host":null,"port":-1}', None),
        (b'{"endpoints":["PLAINTEXT://x:99999"]}', None),
        (b'{"endpoints":"PLAINTEXT://x:1","host":"x","port":"1"}', ("x", 1)),
        (b'{"host":7,"port":1}', None),
        (b"\xff", None),
        (b"[]", None),
        (b"", None),
    ],
)
def test_reads_registrations_of_qbus_and_of_kafka(
    registration: bytes, endpoint: tuple[str, int] | None
) -> None:
    assert _endpoint(registration) == endpoint


@pytest.mark.parametrize("address", ["zk://", "zk:///bus", "zk://a:x", "zk://a:1//b"])
async def test_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="expected zk://host:port"):
        await find_brokers(address, 1)


async def test_an_unreachable_zookeeper_is_unavailable() -> None:
    address = f"127.0.0.1:{free_port()},localhost:{free_port()}"
    with pytest.raises(StoreUnavailable, match=f"no ZooKeeper answers at {address}/bus") as failed:
        await find_brokers(f"zk://{address}/bus", 0.2)
    assert failed.value.retriable


def test_without_kazoo_it_says_what_to_install() -> None:
    script = (
        "import sys, asyncio; sys.modules['kazoo'] = None\n"
        "from qbus.errors import ConfigError\n"
        "from qbus.metadata.zookeeper import find_brokers\n"
        "try: asyncio.run(find_brokers('zk://127.0.0.1:1', 1))\n"
        "except ConfigError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "pip install 'qbus[zookeeper]'" in done.stdout, done.stderr


def test_kazoo_is_imported_only_when_it_is_needed() -> None:
    script = (
        "import sys, qbus.metadata.zookeeper as z; z.find_brokers; print('kazoo' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "False", done.stderr
