"""ZooKeeper servers that tests may harm; each test gets them repaired, with its own chroot."""

import signal
from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.support import zookeeper_process
from tests.support.tools import skip_because_of
from tests.support.zookeeper_process import ZooKeeperEnsemble, ZooKeeperProcess

from . import sessions


@pytest.fixture(autouse=True)
def _chroot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "chroot", f"/{uuid4()}")


@pytest.fixture(scope="module")
def the_server() -> Iterator[ZooKeeperProcess]:
    skip_because_of(zookeeper_process.missing())
    with ZooKeeperProcess() as server:
        yield server


@pytest.fixture
def server(the_server: ZooKeeperProcess) -> Iterator[ZooKeeperProcess]:
    yield the_server
    _mend([the_server])


@pytest.fixture(scope="module")
def the_ensemble() -> Iterator[ZooKeeperEnsemble]:
    skip_because_of(zookeeper_process.missing())
    with ZooKeeperEnsemble() as ensemble:
        yield ensemble


@pytest.fixture
def ensemble(the_ensemble: ZooKeeperEnsemble) -> Iterator[ZooKeeperEnsemble]:
    yield the_ensemble
    _mend(the_ensemble.servers)


def _mend(servers: list[ZooKeeperProcess]) -> None:
    for server in servers:
        if server.alive:
            server.send_signal(signal.SIGCONT)
        else:
            server.start(wait=False)
    for server in servers:
        server.wait_ready()
