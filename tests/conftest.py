"""What every test shares: a failing test shows the logs of the servers that it talked to."""

import os
import time
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import settings

from qbus import compiled
from tests.security import secrets
from tests.support import zookeeper_process
from tests.support.child import restore_interrupts
from tests.support.server_process import ServerProcess, StartupTimeout
from tests.support.tools import require_tools, skip_because_of
from tests.support.zookeeper_process import ZooKeeperProcess

_NEED_TOOLS = bool(os.environ.get("QBUS_TESTS_NEED_TOOLS"))

settings.register_profile("no deadline", deadline=None)  # the machine's pace is no behaviour
settings.load_profile("no deadline")

restore_interrupts()


# A developer's contexts decide nothing here, and tests leave none behind.
os.environ["XDG_CONFIG_HOME"] = os.devnull


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if _NEED_TOOLS:
        require_tools(report)
    told = secrets.in_report(report)
    if told:
        report.outcome = "failed"
        report.longrepr = "secrets were told:\n" + "\n".join(told)
        report.sections.clear()
    elif report.failed:
        for server in ServerProcess.instances:
            title = f"{server.name}, {server.bootstrap}, last of its log"
            report.sections.append((title, server.log_text()[-8_000:]))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if _NEED_TOOLS:
        require_tools(report)
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a test once more if a server process did not start in time, and for nothing else.

    What a failure may have found, a lost or repeated record, must not be hidden by a second try.
    """
    for item in items:
        if not compiled.WHY_NOT and item.get_closest_marker("sources"):
            item.add_marker(pytest.mark.skip("it replaces a part of what is compiled here"))
        if "unit" not in item.path.parts:
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=[StartupTimeout]))


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
    skip_because_of(zookeeper_process.missing())
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
