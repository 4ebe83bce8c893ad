"""A cluster for all tests that leave it whole, and a fresh topic under load for each."""

import itertools
from collections.abc import Iterator

import pytest

from perf.peers import kafka
from tests.support import namespaces, zookeeper_process
from tests.support.namespaces import Network

from .run import Run
from .targets import Cluster, cluster, names

_numbers = itertools.count()


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> str:
    """``qbus``, or ``kafka`` if chosen with ``--target``."""
    name = str(request.config.getoption("target"))
    reason = kafka.missing() if name == "kafka" else zookeeper_process.missing()
    if reason is not None:
        pytest.skip(reason)
    return name


@pytest.fixture(scope="module")
def running(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers."""
    with cluster(target, tmp_path_factory.mktemp("faults")) as whole:
        yield whole


@pytest.fixture
def run(running: Cluster) -> Iterator[Run]:
    """A topic on them under load."""
    yield from _run(running, None)


@pytest.fixture(scope="module")
def network(target: str) -> Iterator[Network]:
    """A namespace for each broker and for the ZooKeeper."""
    if reason := namespaces.missing():
        pytest.skip(reason)
    with Network(names(target, 1)) as network:
        yield network


@pytest.fixture(scope="module")
def networked(
    target: str, network: Network, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Three brokers and a ZooKeeper in these."""
    with cluster(target, tmp_path_factory.mktemp("faults"), network) as whole:
        yield whole


@pytest.fixture
def networked_run(networked: Cluster, network: Network) -> Iterator[Run]:
    """A topic on them under load."""
    yield from _run(networked, network)


def _run(whole: Cluster, network: Network | None) -> Iterator[Run]:
    run = Run(whole, f"faults-{next(_numbers)}")
    run.network = network
    try:
        run.start()
        yield run
    finally:
        run.close()
        run.heal()
