"""A broker that is unreachable, and a stop and a start of the agent."""

from pathlib import Path

from qbus.aio import Consumer
from tests.support.agent_process import AgentProcess
from tests.support.broker_process import BrokerProcess


def document(bootstrap: str, logs: Path) -> dict[str, object]:
    return {
        "bootstrap": bootstrap,
        "topic": "lines",
        "source": [{"paths": [f"{logs}/*.log"], "from_beginning": True}],
        "delivery": {"memory_bytes": 1 << 20, "batch_bytes": 64 * 1024},
    }


def lines(start: int, stop: int) -> list[bytes]:
    return [b"line %06d %b" % (number, b"x" * 50) for number in range(start, stop)]


def append(path: Path, values: list[bytes]) -> None:
    with path.open("ab") as file:
        file.write(b"".join(value + b"\n" for value in values))


async def stored(bootstrap: str, count: int) -> list[bytes]:
    values: list[bytes] = []
    async with Consumer(bootstrap, offset_reset="earliest") as consumer:
        consumer.assign([("lines", 0, 0)])
        while len(values) < count:
            values += [record.value or b"" for part in await consumer.poll(1.0) for record in part]
    return values


async def test_lines_wait_for_the_broker_and_arrive_once_and_in_order(
    tmp_path: Path, logs: Path
) -> None:
    log = logs / "a.log"
    with BrokerProcess(tmp_path / "broker") as broker:
        with AgentProcess(tmp_path, document(broker.bootstrap, logs)) as agent:
            append(log, lines(0, 1000))
            assert await stored(broker.bootstrap, 1000) == lines(0, 1000)
            broker.kill()
            append(log, lines(1000, 20_000))
            broker.start()
            assert await stored(broker.bootstrap, 20_000) == lines(0, 20_000)
            agent.stop()
        append(log, lines(20_000, 20_010))
        with AgentProcess(tmp_path, document(broker.bootstrap, logs)) as agent:
            assert await stored(broker.bootstrap, 20_010) == lines(0, 20_010)
            agent.stop()
