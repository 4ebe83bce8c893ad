"""The generations of a log arrive in the order in which they were written."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from qbus import Admin
from tests.support.agent_process import AgentProcess
from tests.support.broker_process import BrokerProcess

from .arrivals import Arrivals

pytestmark = pytest.mark.integration

SEED = 20261123


class Log:
    """A log that is rotated by renaming; its lines are numbered across generations."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "web.log"
        self.count = 0

    def write(self, count: int) -> None:
        with self.path.open("ab") as file:
            for number in range(self.count, self.count + count):
                file.write(b"%07d %s\n" % (number, b"." * 100))
        self.count += count

    def rotate(self) -> None:
        for number in (2, 1):
            older = self.path.with_name(f"web.log.{number}")
            if older.exists():
                older.rename(self.path.with_name(f"web.log.{number + 1}"))
        self.path.rename(self.path.with_name("web.log.1"))


def numbers(values: Sequence[bytes]) -> list[int]:
    """The lines by number, each where it came first."""
    return list(dict.fromkeys(int(value.split()[0]) for value in values))


@pytest.fixture
def one_partition(broker: BrokerProcess, topic: str) -> str:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=1)
    return topic


def document(broker: BrokerProcess, topic: str, logs: Path, **tailing: Any) -> dict[str, Any]:
    return {
        "bootstrap": broker.bootstrap,
        "topic": topic,
        "source": [
            {"paths": [f"{logs}/web.log", f"{logs}/web.log*"], "from_beginning": True},
        ],
        "delivery": {"linger_ms": 5, "batch_bytes": 16 * 1024},
        "tailing": {"poll_interval_ms": 100, "discovery_interval_ms": 1000, **tailing},
    }


@pytest.mark.parametrize("watch", ["auto", "poll"])
def test_an_agent_that_starts_reads_the_oldest_generation_first(
    broker: BrokerProcess, one_partition: str, logs: Path, tmp_path: Path, watch: str
) -> None:
    log = Log(logs)
    for _ in range(3):
        log.write(4_000)
        log.rotate()
    log.write(4_000)
    agent = AgentProcess(tmp_path, document(broker, one_partition, logs, watch=watch))
    with Arrivals(broker.bootstrap, one_partition, 1) as arrived, agent:
        arrived.until(lambda: len(arrived.values) >= log.count)
    assert numbers(arrived.values) == list(range(log.count))


@pytest.mark.parametrize("seed", range(4))
def test_an_agent_that_is_killed_around_a_rotation_keeps_the_order(
    broker: BrokerProcess, one_partition: str, logs: Path, tmp_path: Path, seed: int
) -> None:
    """Killed at any line, before, within or behind the rotation, with a backlog in each file."""
    chance = random.Random(f"{SEED} {seed}")
    log = Log(logs)
    agent = AgentProcess(tmp_path, document(broker, one_partition, logs))
    with Arrivals(broker.bootstrap, one_partition, 1) as arrived, agent:
        for _ in range(5):
            log.write(chance.randrange(1, 4_000))
            is_within = chance.random() < 0.5
            if is_within:
                log.rotate()
                log.write(chance.randrange(1, 2_000))
            wanted = len(arrived.seen) + chance.randrange(log.count - len(arrived.seen))
            arrived.until(lambda wanted=wanted: len(arrived.seen) >= wanted)  # type: ignore[misc]
            agent.kill()
            log.write(chance.randrange(1, 2_000))
            if not is_within:
                log.rotate()
                log.write(chance.randrange(1, 2_000))
            agent.start()
        arrived.until(lambda: len(arrived.seen) >= log.count)
        arrived.rest()
    assert numbers(arrived.values) == list(range(log.count))
