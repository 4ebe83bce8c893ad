"""Files through ``qbus agent run``: every byte of them, whatever else is beside them."""

import os
import signal
from pathlib import Path

import pytest

from qbus import Consumer, ConsumerRecord
from tests.support.agent_command import AgentCommand
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until
from tests.support.web_log import access_log

from .arrivals import Arrivals

pytestmark = pytest.mark.integration

_LIMIT_BYTES = 200 * 1024 * 1024
_LONG_BYTES = 20_000_000


def agent(
    tmp_path: Path, broker: BrokerProcess, topic: str, *paths: str, options: tuple[str, ...] = ()
) -> AgentCommand:
    arguments = ("--bootstrap", broker.bootstrap, "--topic", topic, "--from-beginning", *options)
    return AgentCommand(tmp_path / "data", *arguments, *paths)


def test_an_access_log_arrives_byte_for_byte(
    tmp_path: Path, broker: BrokerProcess, topic: str, logs: Path
) -> None:
    lines = access_log(20_000, seed=5)
    path = logs / "access.log"
    path.write_bytes(b"".join(line + b"\n" for line in lines[:5_000]))
    with (
        agent(tmp_path, broker, topic, f"{logs}/*.log") as shipping,
        Arrivals(broker.bootstrap, topic) as arrived,
        path.open("ab", buffering=0) as log,
    ):
        for line in lines[5_000:5_500]:  # one by one, some in two pieces
            half = len(line) // 2
            log.write(line[:half])
            log.write(line[half:] + b"\n")
        for start in range(5_500, len(lines), 2_900):  # in bursts
            log.write(b"".join(line + b"\n" for line in lines[start : start + 2_900]))
        arrived.until(lambda: len(arrived.values) >= len(lines))
        arrived.rest()
        assert arrived.values == lines
        wait_until(
            lambda: shipping.status()["totals"]["records"] == len(lines), "all are acknowledged"
        )
        (status,) = shipping.status()["files"]
        assert (status["position"], status["lag_bytes"]) == (path.stat().st_size, 0)


def test_keys_and_headers_are_those_of_the_templates(
    tmp_path: Path, broker: BrokerProcess, topic: str, logs: Path
) -> None:

    path = logs / "a.log"
    path.write_bytes(b"first\nsecond\n")
    options = ("--key", "{name}@{offset}", "--header", "inode={inode}")
    with agent(tmp_path, broker, topic, str(path), options=options):
        with Arrivals(broker.bootstrap, topic) as arrived:
            arrived.have([b"second"])
        with Consumer(broker.bootstrap) as consumer:
            consumer.assign([(topic, 0, 0), (topic, 1, 0)])
            records: list[ConsumerRecord] = []
            while len(records) < 2:
                records += [record for part in consumer.poll(1) for record in part]
    inode = str(path.stat().st_ino).encode()
    assert [(record.key, record.headers) for record in records] == [
        (b"a.log@0", (("inode", inode),)),
        (b"a.log@6", (("inode", inode),)),
    ]


def test_unreadable_files_do_not_disturb_other_logs(
    tmp_path: Path, broker: BrokerProcess, topic: str, logs: Path
) -> None:
    (logs / "directory.log").mkdir()
    os.mkfifo(logs / "fifo.log")
    (logs / "dangling.log").symlink_to(logs / "nowhere")
    (logs / "loop.log").symlink_to(logs / "loop.log")
    (logs / os.fsdecode(b"n\xffme.log")).write_bytes(b"odd name\n")
    (logs / "denied.log").write_bytes(b"denied\n")
    (logs / "denied.log").chmod(0)
    (logs / "long.log").write_bytes(b"x" * _LONG_BYTES + b"\n")
    with (logs / "sparse.log").open("wb") as sparse:
        sparse.truncate(100_000_000)
    (logs / "vanishing.log").write_bytes(b"now you see me\n")
    lines = access_log(2_000, seed=7)
    ours = {b"odd name", *lines}
    with (
        agent(tmp_path, broker, topic, f"{logs}/*.log") as shipping,
        Arrivals(broker.bootstrap, topic) as arrived,
        (logs / "good.log").open("wb", buffering=0) as log,
    ):
        for start in range(0, len(lines), 100):
            log.write(b"".join(line + b"\n" for line in lines[start : start + 100]))
        (logs / "vanishing.log").unlink()
        arrived.have(ours)
        arrived.until(lambda: sum(map(len, pieces(arrived))) == _LONG_BYTES)
        assert [value for value in arrived.values if value in set(lines)] == lines
        assert shipping.memory_bytes() < _LIMIT_BYTES
        assert shipping.alive


def pieces(arrived: Arrivals) -> list[bytes]:
    """The pieces of the long line that have arrived."""
    return [value for value in arrived.values if value[:1] == b"x"]


def test_one_agent_at_a_time_has_a_data_directory(
    tmp_path: Path, broker: BrokerProcess, topic: str, logs: Path
) -> None:
    (logs / "a.log").write_bytes(b"1\n")
    with agent(tmp_path, broker, topic, f"{logs}/*.log"):
        second = agent(tmp_path, broker, topic, f"{logs}/*.log").start(wait=False)
        wait_until(lambda: not second.alive, "it gives up")
        assert "another agent uses" in second.log_text()
        assert "Traceback" not in second.log_text()


def test_a_file_of_its_own_is_read_again_at_sighup_unless_it_is_bad(
    tmp_path: Path, broker: BrokerProcess, topic: str, logs: Path
) -> None:
    config = tmp_path / "agent.toml"

    def write(paths: str) -> None:
        config.write_text(
            f'bootstrap = "{broker.bootstrap}"\ntopic = "{topic}"\n[[source]]\n'
            f"from_beginning = true\npaths = {paths}\n"
        )

    (logs / "a.log").write_bytes(b"a\n")
    (logs / "b.log").write_bytes(b"b\n")
    write(f'["{logs}/a.log"]')
    with (
        AgentCommand(tmp_path / "data", "--config", str(config)) as shipping,
        Arrivals(broker.bootstrap, topic) as arrived,
    ):
        arrived.have([b"a"])
        write("17")
        shipping.send_signal(signal.SIGHUP)
        wait_until(lambda: shipping.status()["configuration"]["reason"], "it is refused")
        assert "paths = 17: expected a list" in shipping.status()["configuration"]["reason"]
        write(f'["{logs}/*.log"]')
        shipping.send_signal(signal.SIGHUP)
        arrived.have([b"b"])
        wait_until(lambda: shipping.status()["configuration"]["reason"] is None, "it is taken")
        arrived.rest()
    assert sorted(arrived.values) == [b"a", b"b"]
