"""What every test shares: a failing test shows the logs of the servers that it talked to."""

from collections.abc import Generator
from typing import Any

import pytest

from tests.support.server_process import ServerProcess


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
