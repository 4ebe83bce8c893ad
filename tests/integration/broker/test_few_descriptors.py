"""A broker whose process may have 256 file descriptors, and has 400 partitions."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from qbus.clients import EARLIEST, LATEST, Admin, Consumer, Producer, TopicPartition
from tests.support.broker_process import BrokerProcess
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

LIMIT = 256
PARTITIONS = 400
LIMITED = """
import os, resource, sys
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
os.execv(sys.argv[2], sys.argv[2:])
"""


class LimitedBroker(BrokerProcess):
    """One with a hard limit of ``limit`` descriptors."""

    def __init__(self, data_dir: Path, *options: str, limit: int = LIMIT) -> None:
        super().__init__(data_dir, *options)
        self.limit = limit

    def command(self) -> list[str]:
        return [sys.executable, "-c", LIMITED, str(self.limit), *super().command()]

    def descriptors(self) -> int:
        """How many its process has."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LimitedBroker]:
    with LimitedBroker(tmp_path) as broker:
        yield broker


async def ends(broker: LimitedBroker) -> list[int]:
    """Where each partition ends."""
    async with Admin(broker.bootstrap) as admin:
        found = await admin.list_offsets(dict.fromkeys(PLACES, LATEST))
    return [found[place].offset for place in PLACES]


PLACES = [TopicPartition("big", number) for number in range(PARTITIONS)]


async def produce(broker: LimitedBroker, value: bytes) -> None:
    """Add a record to each partition, at once; the producer sends again what is refused."""
    async with Producer(broker.bootstrap) as producer:
        for topic, number in PLACES:
            await producer.send(topic, value, partition=number)
        await producer.flush()


async def test_more_partitions_than_descriptors_and_a_restart(broker: LimitedBroker) -> None:
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic("big", partitions=PARTITIONS)
    await produce(broker, b"1")
    assert await ends(broker) == [1] * PARTITIONS
    with ExitStack() as clients:
        for _ in range(40):
            assert clients.enter_context(RawClient(broker.port)).is_served()
        async with Admin(broker.bootstrap) as admin:
            (topic,) = await admin.list_topics()
            assert (topic.name, len(topic.partitions)) == ("big", PARTITIONS)
        await produce(broker, b"2")
        assert broker.descriptors() < LIMIT - 32
    broker.restart()
    assert await ends(broker) == [2] * PARTITIONS
    async with Consumer(broker.bootstrap) as consumer:
        consumer.assign([(topic, number, EARLIEST) for topic, number in PLACES])
        found: list[tuple[int, bytes | None]] = []
        async with asyncio.timeout(30):
            while len(found) < 2 * PARTITIONS:
                for records in await consumer.poll(1.0):
                    found += [(one.partition, one.value) for one in records]
    assert sorted(found) == sorted((n, v) for n in range(PARTITIONS) for v in (b"1", b"2"))
    assert broker.descriptors() < LIMIT
    assert "cannot read" not in broker.log_text()
    assert "goes offline" not in broker.log_text()
    assert "400 partitions, and their logs may keep" in broker.log_text()


def test_a_flood_of_connections_leaves_the_broker_working(broker: LimitedBroker) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(RawClient(broker.port))
        assert first.is_served()
        flood = [
            stack.enter_context(socket.create_connection(("127.0.0.1", broker.port)))
            for _ in range(2 * LIMIT)
        ]
        wait_until(lambda: "as many as descriptors allow" in broker.log_text(), "none is refused")
        assert broker.descriptors() < LIMIT
        assert first.is_served()
        refused = 0
        for client in flood:
            client.setblocking(False)
            try:
                refused += client.recv(1) == b""
            except BlockingIOError:
                pass
            except ConnectionResetError:
                refused += 1
        assert refused >= LIMIT
    wait_until(lambda: broker.descriptors() < 40, "the flood is not gone")
    with RawClient(broker.port) as later:
        assert later.is_served()


@pytest.mark.parametrize("limit", [6, 8, 10])  # for the listener, the store and the logs
def test_a_limit_too_low_to_start_is_named(tmp_path: Path, limit: int) -> None:
    command = LimitedBroker(tmp_path, limit=limit).command()
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert "Too many open files" in done.stderr
    assert "EMFILE" in done.stderr
    assert "ulimit -n" in done.stderr
    assert "missing" not in done.stderr
    with LimitedBroker(tmp_path) as broker:
        assert "is passed over" not in broker.log_text()
