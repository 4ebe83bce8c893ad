"""The server under test: Qbus, or Apache Kafka, whose behavior the tests state."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from perf.peers.kafka import KafkaProcess
from tests.support.broker_process import BrokerProcess
from tests.support.server_process import ServerProcess

#: The same for both: groups start at once, and a dead member is noticed soon.
_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
}
_KAFKA_SETTINGS = {**_SETTINGS, "offsets.topic.num.partitions": "1"}

NAMES = ("qbus", "kafka")


def server(target: str, directory: Path, settings: dict[str, str] | None = None) -> ServerProcess:
    """Return the server of that name, not yet started."""
    more = settings or {}
    if target == "kafka":
        return KafkaProcess(directory, {**_KAFKA_SETTINGS, **more})
    options = [f"{key}={value}" for key, value in {**_SETTINGS, **more}.items()]
    return BrokerProcess(directory, *(word for option in options for word in ("-o", option)))


def running(
    request: pytest.FixtureRequest, factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """Run the server that ``--target`` names: the body of a fixture."""
    with server(request.config.getoption("--target"), factory.mktemp("server")) as started:
        yield started


def log_dir(server: ServerProcess) -> Path:
    """Return the directory that holds one directory for each partition."""
    if isinstance(server, KafkaProcess):
        return server.log_dir
    assert isinstance(server, BrokerProcess)
    return server.data_dir
