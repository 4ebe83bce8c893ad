"""The fixtures of the suite: one server for all of it, a driver for each client, fresh names."""

import itertools
from collections.abc import Iterator
from typing import cast

import pytest

from tests.support.server_process import ServerProcess
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from . import targets
from .clients import Client, ClientError
from .clients.confluent import Confluent

_numbers = itertools.count()


@pytest.fixture(scope="session")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """Return the running server that ``--target`` names."""
    yield from targets.running(request, tmp_path_factory)


@pytest.fixture(scope="session")
def bootstrap(cluster: ServerProcess) -> str:
    """Return the server's address for clients."""
    return cluster.bootstrap


@pytest.fixture(scope="session")
def client(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[Client]:
    """Return the driver of one client; ``clients_with`` names which."""
    skip_because_of(request.param.missing())
    driver = request.param(bootstrap)
    yield driver
    driver.close()


@pytest.fixture(scope="session")
def reference(bootstrap: str) -> Iterator[Client]:
    """Return the driver that sets up what other clients are tested with."""
    driver = Confluent(bootstrap)
    wait_until(lambda: _serves_groups(driver), "the group coordinator", 100.0)
    yield cast("Client", driver)
    driver.close()


def _serves_groups(driver: Confluent) -> bool:
    """Tell whether the coordinator has loaded its groups; Kafka's does so when first asked."""
    try:
        driver.describe_group("none")
    except ClientError as error:
        return not error.code.retriable
    except TimeoutError:
        return False
    return True


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Return a fresh name, for a topic or a group."""
    return f"{request.function.__name__}-{next(_numbers)}"


@pytest.fixture
def topic(name: str, reference: Client) -> str:
    """Return a fresh topic of one partition."""
    reference.create_topic(name)
    return name
