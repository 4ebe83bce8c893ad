"""Ensembles that tests may harm; each test gets them repaired, with its own chroot."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.integration.conftest import repair
from tests.support import zookeeper_process
from tests.support.tools import skip_because_of
from tests.support.zookeeper_process import ZooKeeperEnsemble

from . import sessions


@pytest.fixture(autouse=True)
def _chroot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "chroot", f"/{uuid4()}")


@pytest.fixture(scope="module")
def the_ensemble() -> Iterator[ZooKeeperEnsemble]:
    skip_because_of(zookeeper_process.missing())
    with ZooKeeperEnsemble() as ensemble:
        yield ensemble


@pytest.fixture
def ensemble(the_ensemble: ZooKeeperEnsemble) -> Iterator[ZooKeeperEnsemble]:
    yield the_ensemble
    repair(the_ensemble.servers)
