"""Logs that are rotated while they are written, and an agent that is killed while it reads."""

import random
import time
from functools import partial
from pathlib import Path

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until

from .shipped import Shipped, check
from .writers import KINDS, Writer

pytestmark = pytest.mark.integration

SEED = 20261121
BATCH_BYTES = 64 * 1024
FILES = 2
"""The files that an agent may be reading: the rotated one and its successor."""


def ship(kind: str, *, kills: int, broker: BrokerProcess, topic: str, logs: Path) -> int:
    """Write, rotate, kill and compare; return the number of bytes that were shipped again."""
    chance = random.Random(f"{SEED} {kind}")
    print("seed", SEED)
    writer: Writer = KINDS[kind](logs, SEED)
    document = {
        "bootstrap": broker.bootstrap,
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
    with Shipped(broker.bootstrap, topic, writer) as shipped:
        with AgentProcess(logs.parent, document) as agent, writer:
            shipped.more(1)
            writer.handing_over.set()
            for _ in range(kills):
                shipped.more(chance.randrange(1, 1500))
                writer.handing_over.clear()  # what only the agent has dies with it
                shipped.have(writer.handed_over)
                assert agent.alive
                agent.kill()
                before = writer.count
                time.sleep(chance.random() * 0.2)
                agent.start()
                wait_until(partial(writer.has_more_than, before), "more lines", pause=0.001)
                shipped.have([writer.latest])  # so the new agent follows the file
                writer.handing_over.set()
            target = writer.generation + 2
            while writer.generation < target:
                shipped.more(100)
            writer.stop()
            shipped.until(lambda: len(shipped.seen) >= writer.count)
            agent.stop()
        shipped.rest()
    return check(shipped.values, writer.lines)


@pytest.mark.parametrize("kind", KINDS)
def test_every_line_arrives_once_and_in_order(
    kind: str, broker: BrokerProcess, topic: str, logs: Path
) -> None:
    assert not ship(kind, kills=0, broker=broker, topic=topic, logs=logs)


@pytest.mark.parametrize("kind", ["rename", "copytruncate"])
def test_an_agent_that_is_killed_repeats_a_batch_at_most(
    kind: str, broker: BrokerProcess, topic: str, logs: Path
) -> None:
    again = ship(kind, kills=2, broker=broker, topic=topic, logs=logs)
    assert again <= 2 * FILES * BATCH_BYTES


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_that_is_killed_many_times(
    kind: str, broker: BrokerProcess, topic: str, logs: Path
) -> None:
    again = ship(kind, kills=20, broker=broker, topic=topic, logs=logs)
    print(f"{again} bytes were repeated")
    assert again <= 20 * FILES * BATCH_BYTES
