"""What every test shares: a failing test shows the logs of the servers that it talked to."""

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tests.support import zookeeper_process
from tests.support.server_process import ServerProcess
from tests.support.zookeeper_process import ZooKeeperProcess


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for server in ServerProcess.instances:
            title = f"{server.name}, {server.bootstrap}, last of its log"
            report.sections.append((title, server.log_text()[-8_000:]))
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--target",
        choices=("qbus", "kafka"),
        default="qbus",
        help="the broker that tests/compat drives; Apache Kafka's is the truth that they state",
    )


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeperProcess]:
    """One ZooKeeper for all tests that do it no harm; each takes a chroot of its own."""
    if reason := zookeeper_process.missing():
        pytest.skip(reason)
    with ZooKeeperProcess() as server:
        yield server
