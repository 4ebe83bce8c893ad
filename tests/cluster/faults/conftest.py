"""A separate cluster for each test, with a topic under load: faults never reach other tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from perf.peers import kafka
from tests.support import namespaces, zookeeper_process
from tests.support.namespaces import Network
from tests.support.tools import skip_because_of

from .run import Run
from .targets import Cluster, cluster, names


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> str:
    """``qbus``, or ``kafka`` with ``--target kafka``."""
    name = str(request.config.getoption("target"))
    skip_because_of(kafka.missing() if name == "kafka" else zookeeper_process.missing())
    return name


@pytest.fixture
def run(target: str, tmp_path: Path) -> Iterator[Run]:
    """Three brokers under load."""
    with cluster(target, tmp_path) as whole:
        yield from _run(whole, None)


@pytest.fixture
def network(target: str) -> Iterator[Network]:
    """A namespace for each broker and for the ZooKeeper."""
    skip_because_of(namespaces.missing())
    with Network(names(target, 1)) as network:
        yield network


@pytest.fixture
def networked_run(target: str, network: Network, tmp_path: Path) -> Iterator[Run]:
    """Three brokers and a ZooKeeper in network namespaces, under load."""
    with cluster(target, tmp_path, network) as whole:
        yield from _run(whole, network)


def _run(whole: Cluster, network: Network | None) -> Iterator[Run]:
    run = Run(whole, "faults")
    run.network = network
    try:
        run.start()
        yield run
    finally:
        run.close()
