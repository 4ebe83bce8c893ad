"""A ZooKeeper that a test may harm: it is repaired for the next one."""

import signal
from collections.abc import Iterable, Iterator

import pytest

from tests.support import zookeeper_process
from tests.support.tools import skip_because_of
from tests.support.zookeeper_process import ZooKeeperProcess


@pytest.fixture(scope="module")
def the_server() -> Iterator[ZooKeeperProcess]:
    skip_because_of(zookeeper_process.missing())
    with ZooKeeperProcess() as server:
        yield server


@pytest.fixture
def server(the_server: ZooKeeperProcess) -> Iterator[ZooKeeperProcess]:
    yield the_server
    repair([the_server])


def repair(servers: Iterable[ZooKeeperProcess]) -> None:
    """Let stopped servers go on, and start dead ones."""
    for server in servers:
        if server.alive:
            server.send_signal(signal.SIGCONT)
        else:
            server.start(wait=False)
    for server in servers:
        server.wait_ready()
