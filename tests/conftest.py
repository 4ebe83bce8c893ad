"""What every test shares: a failing test shows the logs of the brokers that it talked to."""

from collections.abc import Generator
from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for broker in BrokerProcess.instances:
            title = f"Qbus broker, {broker.bootstrap}, last of its log"
            report.sections.append((title, broker.log_text()[-8_000:]))
    return report
