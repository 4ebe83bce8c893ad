"""Records, groups and topics survive a stop or a kill of the broker."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import cast

import pytest

from tests.support.server_process import ServerProcess

from . import targets
from .clients import Client
from .clients.confluent import Confluent
from .records import numbered
from .selection import clients_with

pytestmark = pytest.mark.compat


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """Return a server that a test may end."""
    yield from targets.running(request, tmp_path_factory)


@pytest.mark.parametrize("end", ["stopped", "killed"])
@clients_with("produce", "consume", "consume_group")
def test_records_groups_and_topics_survive(
    client: Client, end: str, server: ServerProcess, name: str
) -> None:
    kind = cast("Callable[[str], Client]", type(client))
    with (
        closing(kind(server.bootstrap)) as survivor,
        closing(Confluent(server.bootstrap)) as keeper,
    ):
        keeper.create_topic(name, 2, {"retention.ms": "86400000"})
        survivor.produce(name, numbered(10), partition=1, idempotent=True)
        survivor.consume_group(name, name, 4)

        if end == "stopped":
            server.stop()
        else:
            server.kill()
        server.start()

        found = survivor.consume(name, 1, 0, 10)
        assert [one.record.value for one in found] == [record.value for record in numbered(10)]
        resumed = survivor.consume_group(name, name, 6)
        assert [one.offset for one in resumed] == [4, 5, 6, 7, 8, 9]
        survivor.produce(name, numbered(1), partition=1, idempotent=True)
        assert keeper.bounds(name, 1) == (0, 11)
        assert keeper.config(name)["retention.ms"] == "86400000"
