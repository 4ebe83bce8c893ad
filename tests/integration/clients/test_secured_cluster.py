"""Brokers that replicate over TLS and SASL, and clients that find them in ZooKeeper."""

import asyncio
from collections.abc import Iterator

import pytest

from qbus.clients import Admin, ClientSecurity, Consumer, Producer
from qbus.security.client import read_properties
from tests.support import zookeeper_process
from tests.support.local_cluster import Up
from tests.support.tools import skip_because_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

REAUTH_MS = 2000


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    skip_because_of(zookeeper_process.missing())
    options = (
        f"connections.max.reauth.ms={REAUTH_MS}",
        "group.initial.rebalance.delay.ms=0",
        "min.insync.replicas=2",
    )
    directory = tmp_path_factory.mktemp("secured") / "cluster"
    with Up(directory, *options, nodes=3, secure=True) as up:
        yield up


async def test_replicas_stay_in_sync_through_renewed_sessions(up: Up) -> None:
    security = ClientSecurity.from_properties(read_properties(up.client_properties))
    loop = asyncio.get_running_loop()
    async with Admin(up.bootstrap, security=security) as admin:
        await admin.create_topic("orders", partitions=6, replication_factor=3)
        sent = 0
        async with Producer(up.bootstrap, security=security) as producer:
            end = loop.time() + 3 * REAUTH_MS / 1000
            while loop.time() < end:
                await (await producer.send("orders", b"%d" % sent))
                sent += 1
                if sent % 50 == 0:
                    topic = await admin.describe_topic("orders")
                    assert all(len(partition.isr) == 3 for partition in topic.partitions)
        found = 0
        async with Consumer(
            up.bootstrap, group="g", offset_reset="earliest", security=security
        ) as consumer:
            consumer.subscribe(["orders"])
            async with asyncio.timeout(30):
                while found < sent:
                    found += sum(len(part) for part in await consumer.poll(1.0))
    assert not told(up)


def told(up: Up) -> list[str]:
    """The secrets that anything wrote into a log."""
    properties = read_properties(up.client_properties)
    secrets = [value for name, value in properties.items() if "password" in name]
    assert secrets
    logs = [up.log, *up.directory.rglob("*.log")]
    return [
        secret for secret in secrets if any(secret.encode() in log.read_bytes() for log in logs)
    ]
