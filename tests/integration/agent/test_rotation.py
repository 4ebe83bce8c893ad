"""Logs that are rotated while they are written, and an agent that is killed while it reads."""

import asyncio
import random
from functools import partial
from pathlib import Path

import pytest

from qbus.aio import Consumer
from tests.support.agent_process import AgentProcess
from tests.support.eventually import eventually

from .reading import Arrivals, check
from .writers import KINDS, Writer

SEED = 20261121
BATCH_BYTES = 64 * 1024
FILES = 2
"""The files that an agent may be reading: the rotated one and its successor."""


async def ship(kind: str, *, kills: int, bootstrap: str, topic: str, logs: Path) -> int:
    """Write, rotate, kill, compare; how many bytes were shipped again."""
    chance = random.Random(f"{SEED} {kind}")
    print("seed", SEED)
    writer: Writer = KINDS[kind](logs, SEED)
    document = {
        "bootstrap": bootstrap,
        "topic": topic,
        "source": [
            {
                "paths": [f"{logs}/{writer.pattern}"],
                "from_beginning": True,
                "gzip": True,
                "rotated_timeout_ms": 2000,
            }
        ],
        "delivery": {"linger_ms": 5, "batch_bytes": BATCH_BYTES},
        "tailing": {"poll_interval_ms": 100, "discovery_interval_ms": 1000},
    }
    async with Consumer(bootstrap, offset_reset="earliest") as consumer:
        arrivals = await Arrivals.of(consumer, topic, writer)
        with AgentProcess(logs.parent, document) as agent, writer:
            await arrivals.until(1)
            writer.handing_over.set()
            for _ in range(kills):
                await arrivals.until(len(arrivals.seen) + chance.randrange(1, 1500))
                writer.handing_over.clear()  # what only the agent has dies with it
                await arrivals.have(writer.handed_over)
                agent.kill()
                before = writer.count
                await asyncio.sleep(chance.random() * 0.2)
                agent.start()
                await eventually(partial(writer.has_more_than, before))
                await arrivals.have([writer.latest])  # so the new agent follows the file
                writer.handing_over.set()
            target = writer.generation + 2
            while writer.generation < target:
                await arrivals.until(len(arrivals.seen) + 100)
            writer.stop()
            await arrivals.until(writer.count)
            agent.stop()
        await arrivals.rest()
    return check(arrivals.values, writer.lines)


@pytest.mark.parametrize("kind", KINDS)
async def test_every_line_arrives_once_and_in_order(
    kind: str, bootstrap: str, topic: str, logs: Path
) -> None:
    assert not await ship(kind, kills=0, bootstrap=bootstrap, topic=topic, logs=logs)


@pytest.mark.parametrize("kind", ["rename", "copytruncate"])
async def test_an_agent_that_is_killed_repeats_a_batch_at_most(
    kind: str, bootstrap: str, topic: str, logs: Path
) -> None:
    again = await ship(kind, kills=2, bootstrap=bootstrap, topic=topic, logs=logs)
    assert again <= 2 * FILES * BATCH_BYTES


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
async def test_an_agent_that_is_killed_many_times(
    kind: str, bootstrap: str, topic: str, logs: Path
) -> None:
    again = await ship(kind, kills=20, bootstrap=bootstrap, topic=topic, logs=logs)
    print(f"{again} bytes were repeated")
    assert again <= 20 * FILES * BATCH_BYTES
