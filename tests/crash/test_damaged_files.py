"""Files beside the log are damaged while a broker is down: clients see no difference.

``tests/crash/log/test_derived_files.py`` damages all files in all ways, below a log.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.support.broker_process import BrokerProcess, free_port
from tests.support.resp_client import RespClient

from .test_sigkill import create_topic

pytestmark = [pytest.mark.crash, pytest.mark.integration]

_JOBS, _DONE = 60, 20

Damage = Callable[[bytes], bytes]


def flipped(data: bytes) -> bytes:
    """But not in the last byte, of which an id has two bits."""
    return data[:-2] + bytes([data[-2] ^ 4]) + data[-1:]


DAMAGES: dict[str, Damage | None] = {
    "missing": None,
    "empty": lambda _: b"",
    "halved": lambda data: data[: len(data) // 2],
    "a byte short": lambda data: data[:-1],
    "a bit flipped": flipped,
}


def damage(path: Path, change: Damage | None) -> None:
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))


def read(bootstrap: str, topic: str) -> tuple[list[int], int]:
    """The offsets of all records, and where the partition ends."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    offsets: list[int] = []
    try:
        while True:
            message = consumer.poll(20)
            assert message is not None, f"{len(offsets)} records, and no end"
            offset, error = message.offset(), message.error()
            assert offset is not None
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return offsets, offset
            offsets.append(offset)
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a queue of jobs, some of them done."""
    directory, port = tmp_path_factory.mktemp("queue") / "data", free_port()
    with BrokerProcess(directory, "--disque-listen", f"127.0.0.1:{port}") as broker:
        with RespClient(port) as client:
            for number in range(_JOBS):
                assert client("ADDJOB", "q", f"job {number}", 10_000, "RETRY", 600)
            for job in client("GETJOB", "COUNT", _DONE, "FROM", "q"):
                assert client("ACKJOB", job[1]) == 1
        assert len(read(broker.bootstrap, "q")[0]) == _JOBS
    return directory


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("stop", ["clean", "unclean"])
def test_an_index_of_hidden_batches(queue: Path, tmp_path: Path, stop: str, kind: str) -> None:
    directory, port = Path(shutil.copytree(queue, tmp_path / "data")), free_port()
    if stop == "unclean":
        (directory / ".kafka_cleanshutdown").unlink()
    (index,) = (directory / "q-0").glob("*.controlindex")
    damage(index, DAMAGES[kind])
    with BrokerProcess(directory, "--disque-listen", f"127.0.0.1:{port}") as broker:
        offsets, end = read(broker.bootstrap, "q")
        assert len(offsets) == _JOBS
        assert end == offsets[-1] + 1
        with RespClient(port) as client:
            given = client("GETJOB", "NOHANG", "COUNT", 1000, "FROM", "q")
        assert len(given) == _JOBS - _DONE
        assert index.name in broker.log_text()


@pytest.mark.parametrize("kind", DAMAGES)
def test_the_id_of_the_topic(tmp_path: Path, kind: str) -> None:
    """The log of a topic is not set aside, nor an empty one served in its place."""
    with BrokerProcess(tmp_path / "data") as broker:
        create_topic(broker.bootstrap, "t", 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
        for number in range(100):
            producer.produce("t", b"%d" % number, partition=0)
        assert producer.flush(30) == 0
    metadata = tmp_path / "data" / "t-0" / "partition.metadata"
    sound = metadata.read_bytes()
    damage(metadata, DAMAGES[kind])
    with BrokerProcess(tmp_path / "data") as broker:
        assert read(broker.bootstrap, "t") == ([*range(100)], 100)
        assert "partition.metadata is" in broker.log_text()
    assert metadata.read_bytes() == sound
    assert [*(tmp_path / "data").glob("*-stray")] == []
