"""One cluster for the tests of a module; they leave it as they found it."""

from collections.abc import Iterator

import pytest

from tests.support import zookeeper_process
from tests.support.qbus_cluster import QbusCluster
from tests.support.tools import skip_because_of

from .faults.targets import cluster


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QbusCluster]:
    """Three brokers."""
    skip_because_of(zookeeper_process.missing())
    with cluster("qbus", tmp_path_factory.mktemp("running")) as whole:
        assert isinstance(whole, QbusCluster)
        yield whole
