"""One broker for all of these tests: ours, or with ``--target kafka`` Apache Kafka's."""

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from qbus.clients import Admin
from tests.compat import targets
from tests.sdk.conftest import create_topic
from tests.support.server_process import ServerProcess

_numbers = itertools.count()


@pytest.fixture(scope="session")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """The running broker."""
    yield from targets.running(request, tmp_path_factory)


@pytest.fixture
def bootstrap(cluster: ServerProcess) -> str:
    """The broker's address."""
    return cluster.bootstrap


@pytest_asyncio.fixture
async def admin(bootstrap: str) -> AsyncIterator[Admin]:
    """An admin client."""
    async with Admin(bootstrap, request_timeout_ms=10_000) as connected:
        yield connected


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A fresh name, for a topic or a group."""
    return f"{request.function.__name__}-{next(_numbers)}"


@pytest_asyncio.fixture
async def topic(bootstrap: str, name: str) -> str:
    """A fresh topic of three partitions."""
    await create_topic(bootstrap, name)
    return name
