"""Spools through ``qbus agent run``: writers and the agent are killed, and nothing is lost."""

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qbus import Producer
from qbus.clients.spool import SpoolWriter
from tests.support.agent_command import AgentCommand
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until

from .arrivals import Arrivals

pytestmark = pytest.mark.integration

_WRITERS = 2
_KILLS = 3
_PACKAGE = "tests.integration.agent_command"


class Script:
    """A process that spools, and says what it has kept."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{_PACKAGE}.{module}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )

    def lines(self, count: int) -> list[bytes]:
        """The next lines that it prints."""
        assert self._process.stdout is not None
        found = [self._process.stdout.readline().rstrip(b"\n") for _ in range(count)]
        assert all(found), "it has ended"
        return found

    def kill(self) -> list[bytes]:
        """SIGKILL it in the middle of what it does; the lines that it has printed meanwhile."""
        if self._process.returncode is not None:
            return []
        self._process.kill()
        rest, _ = self._process.communicate()
        return rest.split(b"\n")[:-1]


Start = Callable[..., Script]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts scripts, none of which outlives the test."""
    started: list[Script] = []

    def start(module: str, *arguments: str) -> Script:
        started.append(Script(module, *arguments))
        return started[-1]

    yield start
    for script in started:
        script.kill()


def agent(tmp_path: Path, broker: BrokerProcess, spool: Path) -> AgentCommand:
    config = tmp_path / "agent.toml"
    config.write_text(
        f'bootstrap = "{broker.bootstrap}"\n[[spool]]\ndirectory = "{spool}"\n'
        "[tailing]\npoll_interval_ms = 20\n"
    )
    return AgentCommand(tmp_path / "data", "--config", str(config))


def test_nothing_is_lost_when_writers_and_agents_are_killed(
    tmp_path: Path, broker: BrokerProcess, topic: str, start: Start
) -> None:
    draw = random.Random(3)
    spool = tmp_path / "spool"
    kept: dict[str, list[bytes]] = {}
    shipping = agent(tmp_path, broker, spool)
    for life in range(_KILLS):
        names = [f"{life}.{number}" for number in range(_WRITERS)]
        writers = [(name, start("spool_writer", str(spool), topic, name)) for name in names]
        for name, writer in writers:
            kept[name] = writer.lines(draw.randint(2, 40))
        with shipping:
            for name, writer in writers:
                kept[name] += writer.lines(draw.randint(1, 40)) + writer.kill()
            wait_until(lambda: delivered(shipping), "it ships")
            shipping.kill()
    with shipping, Arrivals(broker.bootstrap, topic) as arrived:
        arrived.have(value for values in kept.values() for value in values)
        wait_until(lambda: not list(spool.glob("*/")), "the spool is empty")
        arrived.rest()
    check_order(arrived.values, kept)
    repeated = sum(count - 1 for count in Counter(arrived.values).values())
    assert repeated <= 2 * 2 * _KILLS  # a batch of two for each partition and kill


def delivered(shipping: AgentCommand) -> int:
    return sum(spool["delivered_records"] for spool in shipping.status()["spools"])


def check_order(arrived: list[bytes], kept: dict[str, list[bytes]]) -> None:
    """Each writer's values come in its order in each partition, repetitions aside."""
    seen: dict[tuple[bytes, int], int] = {}
    for value in dict.fromkeys(arrived):
        name, number = value.split()
        assert name.decode() in kept
        key = name, int(number) // 2 % 2
        assert int(number) > seen.get(key, -1)
        seen[key] = int(number)


def test_records_that_a_killed_producer_spooled_are_delivered(
    tmp_path: Path, topic: str, start: Start
) -> None:
    spool = tmp_path / "spool"
    with BrokerProcess(tmp_path / "broker", "-o", "num.partitions=2") as broker:
        producer = start("spool_producer", broker.bootstrap, str(spool), topic)
        producer.lines(1)
        broker.kill()
        kept = producer.lines(12)
        kept += producer.kill()
        broker.start()
        with agent(tmp_path, broker, spool), Arrivals(broker.bootstrap, topic) as arrived:
            arrived.have(kept)
            wait_until(lambda: not list(spool.glob("*/")), "the spool is empty")
            arrived.rest()
        values = [value for value in arrived.values if value in set(kept)]
        assert values == sorted(values, key=lambda value: int(value[1:]))


def test_a_batch_that_was_stored_after_all_is_not_stored_again(
    tmp_path: Path, broker: BrokerProcess, topic: str
) -> None:
    """A producer that never heard of it keeps what the broker has: with its sequence number."""
    spool = tmp_path / "spool"
    with Producer(broker.bootstrap) as producer:
        producer.send(topic, b"known", partition=0).result()
    stored = segment(tmp_path / f"{topic}-0", broker)

    with SpoolWriter(spool) as writer:
        writer.append(topic, 0, stored)
        writer.append(topic, 1, stored)  # which is news to this partition
    with agent(tmp_path, broker, spool), Arrivals(broker.bootstrap, topic) as arrived:
        wait_until(lambda: not list(spool.glob("*/")), "the spool is empty")
        arrived.have([b"known"])
        arrived.rest()
    assert arrived.values == [b"known", b"known"]


def segment(name: Path, broker: BrokerProcess) -> bytes:
    """The only segment of a partition of the broker."""
    (path,) = (broker.data_dir / name.name).glob("*.log")
    return path.read_bytes()
