"""Two datacenters for all tests of the command; each test has its own topics."""

from collections.abc import Iterator

import pytest

from tests.support.broker_process import BrokerProcess

_SETTINGS = ("-o", "group.min.session.timeout.ms=500", "-o", "group.initial.rebalance.delay.ms=0")


@pytest.fixture(scope="package")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """IDC a."""
    with BrokerProcess(tmp_path_factory.mktemp("a"), *_SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="package")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """IDC b."""
    with BrokerProcess(tmp_path_factory.mktemp("b"), *_SETTINGS) as broker:
        yield broker
