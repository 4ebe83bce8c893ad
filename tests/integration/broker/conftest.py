"""One broker for the tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.support.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("broker")
    with BrokerProcess(directory, "-o", "request.frame.timeout.ms=2000") as process:
        yield process
        assert process.alive, "whatever the tests sent, the broker goes on"
