"""A broker that is unreachable, and a stop and a start of the agent."""

from pathlib import Path

import pytest

from tests.support.agent_process import AgentProcess
from tests.support.broker_process import BrokerProcess

from .arrivals import Arrivals

pytestmark = pytest.mark.integration


def document(bootstrap: str, topic: str, logs: Path) -> dict[str, object]:
    return {
        "bootstrap": bootstrap,
        "topic": topic,
        "source": [{"paths": [f"{logs}/*.log"], "from_beginning": True}],
        "delivery": {"memory_bytes": 1 << 20, "batch_bytes": 64 * 1024},
    }


def lines(start: int, stop: int) -> list[bytes]:
    return [b"line %06d %b" % (number, b"x" * 50) for number in range(start, stop)]


def append(path: Path, values: list[bytes]) -> None:
    with path.open("ab") as file:
        file.write(b"".join(value + b"\n" for value in values))


def test_lines_wait_for_the_broker_and_arrive_once_and_in_order(
    tmp_path: Path, broker: BrokerProcess, topic: str, logs: Path
) -> None:
    log = logs / "a.log"
    agent = AgentProcess(tmp_path, document(broker.bootstrap, topic, logs))
    with Arrivals(broker.bootstrap, topic) as arrived:
        with agent:
            append(log, lines(0, 1000))
            arrived.have(lines(0, 1000))
            broker.kill()
            append(log, lines(1000, 20_000))
            broker.start()
            arrived.have(lines(1000, 20_000))
        append(log, lines(20_000, 20_010))
        with agent:
            arrived.have(lines(20_000, 20_010))
        arrived.rest()
    assert arrived.values == lines(0, 20_010)
