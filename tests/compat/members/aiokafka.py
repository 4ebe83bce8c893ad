"""A group member by aiokafka: ``BOOTSTRAP TOPIC GROUP``."""

import asyncio
import contextlib
import sys

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from tests.compat.members.script import HEARTBEAT_MS, SESSION_TIMEOUT_MS, Stopping, Teller


async def main(bootstrap: str, topic: str, group: str) -> None:
    stopping, tell = Stopping(), Teller()
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    await consumer.start()
    while not stopping:
        polled = await consumer.getmany(timeout_ms=50)
        tell.assigned(consumer.assignment())
        if not polled:
            continue
        # A commit that a rebalance refuses is a record that its next owner reads again.
        with contextlib.suppress(KafkaError):
            await consumer.commit()
            for records in polled.values():
                for record in records:
                    tell.consumed(record.partition, record.offset)
    await consumer.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
