"""Each server runs once for the whole suite, each test with fresh names."""

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from qbus.aio import Admin
from qbus.clients import LATEST, TopicPartition
from qbus.errors import ApiError
from tests.support.fault_proxy import FaultProxy
from tests.support.tools import skip_because_of
from tests.support.waiting import eventually

from . import servers
from .sdk_clients import CLIENT_KINDS, SdkClients

_numbers = itertools.count()

PARTITIONS = 3

with_qbus = pytest.mark.parametrize("server", ["qbus"], indirect=True, scope="session")
"""For tests that need a server and not both."""
with_kafka = pytest.mark.parametrize("server", ["kafka"], indirect=True, scope="session")
"""For tests of what only Kafka can do."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session", params=servers.SERVERS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[servers.Server]:
    """Each of the servers in turn."""
    skip_because_of(servers.missing(request.param))
    with servers.SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture
def bootstrap(server: servers.Server) -> str:
    """The server's address."""
    return server.bootstrap


@pytest.fixture(params=CLIENT_KINDS)
def sdk(request: pytest.FixtureRequest) -> SdkClients:
    """The sync and the async clients in turn."""
    return CLIENT_KINDS[request.param]()


@pytest_asyncio.fixture
async def proxy(server: servers.Server) -> AsyncIterator[FaultProxy]:
    """A proxy in front of ``server.proxied_process``; clients that begin there come back there."""
    async with server.proxy() as listening:
        yield listening


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A fresh name, for a topic or a group."""
    return f"{request.function.__name__}-{next(_numbers)}"


@pytest_asyncio.fixture
async def topic(bootstrap: str, name: str) -> str:
    """A fresh topic of three partitions."""
    await create_topic(bootstrap, name)
    return name


@pytest_asyncio.fixture
async def proxied_topic(proxy: FaultProxy, name: str) -> str:
    """The same on the server behind the proxy."""
    await create_topic(proxy.bootstrap, name)
    return name


async def create_topic(bootstrap: str, name: str, partitions: int = PARTITIONS) -> None:
    """Create a topic and wait until its leader knows it (Kafka's learns of it later)."""
    ends = {TopicPartition(name, index): LATEST for index in range(partitions)}
    async with Admin(bootstrap, request_timeout_ms=20_000) as admin:
        await admin.create_topic(name, partitions=partitions)

        async def is_led() -> bool:
            try:
                return len(await admin.list_offsets(ends)) == partitions
            except ApiError:
                return False

        await eventually(is_led)
