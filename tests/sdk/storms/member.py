"""A member of a group that reports what it owns, sees and commits.

As a process of its own, which a storm kills, it prints its reports as JSON:
``BOOTSTRAP GROUP TOPIC OPTIONS``.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from qbus.aio import Consumer
from qbus.errors import ApiError
from tests.sdk.reading import records

from .chronicle import Report

#: A storm is quick: the dead are noticed after half a second.
TIMES = {
    "session_timeout_ms": 600,
    "heartbeat_interval_ms": 100,
    "rebalance_timeout_ms": 5_000,
    "fetch_max_wait_ms": 50,
}


async def live(
    bootstrap: str, group: str, topic: str, options: dict[str, Any], report: Callable[[Report], Any]
) -> None:
    """Be a member until cancelled: read, report, commit."""
    consumer = Consumer(
        bootstrap,
        group=group,
        offset_reset="earliest",
        auto_commit=False,
        max_poll_records=100,
        **{**TIMES, **options},
    )
    async with consumer:
        consumer.subscribe([topic])
        owned: tuple[int, ...] = ()
        while True:
            found = records(await consumer.poll(0.1))
            now = _ownership(consumer)
            if now != owned:
                owned = now
                if owned[0] >= 0:
                    report(("owns", list(owned)))
            for record in found:
                report(("saw", [record.partition, record.offset]))
            if found:
                await _commit(consumer, report)


def _ownership(consumer: Consumer) -> tuple[int, ...]:
    """The generation, and the partitions owned in it."""
    generation = consumer._coordinator.membership.generation  # nothing public tells
    return generation, *(partition.partition for partition in consumer.assignment)


async def _commit(consumer: Consumer, report: Callable[[Report], Any]) -> None:
    positions = {p.partition: consumer.position(*p) for p in consumer.assignment}
    try:
        await consumer.commit()
    except ApiError:
        return  # the partitions go to others, who begin before what this one has had
    for partition, position in positions.items():
        if position:
            report(("committed", [partition, position]))


def _print(report: Report) -> None:
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    address, group_id, topic_name, options_json = sys.argv[1:]
    asyncio.run(live(address, group_id, topic_name, json.loads(options_json), _print))
