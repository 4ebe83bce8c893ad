"""ZooKeepers that tests may harm."""

from collections.abc import Iterator

import pytest

from tests.support import zookeeper_process
from tests.support.zookeeper_process import ZooKeeperEnsemble, ZooKeeperProcess


@pytest.fixture
def server() -> Iterator[ZooKeeperProcess]:
    if reason := zookeeper_process.missing():
        pytest.skip(reason)
    with ZooKeeperProcess() as server:
        yield server


@pytest.fixture
def ensemble() -> Iterator[ZooKeeperEnsemble]:
    if reason := zookeeper_process.missing():
        pytest.skip(reason)
    with ZooKeeperEnsemble() as ensemble:
        yield ensemble
