"""Two datacenters of one broker each, their content, and a mirror between them."""

from collections.abc import Iterable

from qbus.aio import Admin, Consumer, Producer
from qbus.clients import LATEST, ConsumerRecord, TopicPartition
from qbus.clients.producer.lists import Headers
from tests.support.server_process import ServerProcess


def link(source: ServerProcess, target: ServerProcess, *topics: str) -> list[str]:
    """The options of a mirror from IDC a to IDC b."""
    patterns = [word for pattern in topics for word in ("--topics", pattern)]
    return [
        *("--source", f"a={source.bootstrap}"),
        *("--target", f"b={target.bootstrap}"),
        *patterns,
    ]


async def write(
    server: ServerProcess,
    topic: str,
    values: Iterable[bytes],
    partition: int,
    headers: Headers = (("h", b"1"),),
) -> None:
    """Write records with a key, headers and a time of their own."""
    async with Producer(server.bootstrap, compression="lz4") as producer:
        for number, value in enumerate(values):
            await producer.send(topic, value, b"k%d" % number, headers, partition, 1_000 + number)


async def read(server: ServerProcess, topic: str, partition: int) -> list[ConsumerRecord]:
    """Every record of a partition, to where it ends now."""
    async with Consumer(server.bootstrap) as consumer:
        where = TopicPartition(topic, partition)
        end = (await consumer.end_offsets([where]))[where]
        start = (await consumer.beginning_offsets([where]))[where]
        consumer.assign([(topic, partition, start)])
        found: list[ConsumerRecord] = []
        while start < end:
            for batch in await consumer.poll(5.0):
                found += batch.records
            start = consumer.position(topic, partition) or start
        return found


async def end_of(server: ServerProcess, topic: str, partition: int = 0) -> int:
    """The end offset of a partition; -1 if the partition does not exist."""
    async with Admin(server.bootstrap) as admin:
        where = TopicPartition(topic, partition)
        topics = {one.name: len(one.partitions) for one in await admin.list_topics()}
        if partition >= topics.get(topic, 0):
            return -1
        return (await admin.list_offsets({where: LATEST}))[where].offset


async def create(server: ServerProcess, topic: str, partitions: int = 1) -> None:
    """Create a topic whose records stay, however old their timestamps are."""
    async with Admin(server.bootstrap) as admin:
        config = {"retention.ms": "-1"}
        await admin.create_topic(topic, partitions=partitions, config=config)
