"""What every test shares: a failing test shows the logs of the servers that it talked to."""

import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support import zookeeper_process
from tests.support.child import restore_interrupts
from tests.support.server_process import ServerProcess
from tests.support.zookeeper_process import ZooKeeperProcess

_TESTS = Path(__file__).parent

settings.register_profile("no deadline", deadline=None)  # the machine's pace is no behaviour
settings.load_profile("no deadline")

restore_interrupts()


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


# A machine may stall for longer than a real process is given: such a test gets a second chance,
# which the summary shows as a rerun. What computes the same every time gets none.
_REAL_PROCESSES = {"cluster", "compat", "crash", "integration", "mirror", "sdk", "spark"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(_TESTS).parts[0] in _REAL_PROCESSES:
            item.add_marker(pytest.mark.flaky(reruns=1))


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


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine there; what is started meanwhile is there, too."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()
