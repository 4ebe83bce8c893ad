"""``python -m perf.new_topics [kafka]``: how soon a mirror copies a new topic's first record."""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from perf.peers.kafka import KafkaProcess
from qbus.aio import Admin, Producer
from qbus.clients.types import LATEST, TopicPartition
from tests.support.broker_process import BrokerProcess
from tests.support.mirror_command import MirrorCommand
from tests.support.server_process import ServerProcess
from tests.support.waiting import until

TOPICS = 5
PAUSE_S = 1.3
"""Between two topics: no multiple of the time between two looks at the source."""


async def arrival(broker: ServerProcess, topic: str) -> None:
    """Return when ``topic`` has a record."""
    place = TopicPartition(topic, 0)
    async with Admin(broker.bootstrap) as admin:

        async def has_one() -> bool:
            names = {found.name for found in await admin.list_topics()}
            return topic in names and (await admin.list_offsets({place: LATEST}))[place].offset > 0

        await until(has_one, True)


async def measure(source: ServerProcess, target: ServerProcess) -> None:
    """Print the seconds for each new topic, once the mirror runs."""
    link = ("--source", f"a={source.bootstrap}", "--target", f"b={target.bootstrap}")
    async with Producer(source.bootstrap) as producer:
        await producer.send_and_wait("topic-0", b"v")
        with MirrorCommand(*link, "--topics", "topic-.*"):
            await arrival(target, "a.topic-0")
            for number in range(1, TOPICS + 1):
                await asyncio.sleep(PAUSE_S)
                await producer.send_and_wait(f"topic-{number}", b"v")
                sent = time.perf_counter()
                await arrival(target, f"a.topic-{number}")
                print(f"{time.perf_counter() - sent:.2f} s")


def main() -> None:
    """Start two brokers, the second one Kafka's if that is asked for, and measure."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        kind = KafkaProcess if "kafka" in sys.argv else BrokerProcess
        with BrokerProcess(root / "a") as source, kind(root / "b") as target:
            asyncio.run(measure(source, target))


if __name__ == "__main__":
    main()
