"""`qbus mirror status`: its exit code tells a lag that was measured from one that was not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from click.testing import Result

from qbus.cli.failures import NOTHING_CHECKED
from qbus.cli.mirror import status
from qbus.clients.mirror.config import LinkConfig
from qbus.clients.mirror.status import LinkStatus, PartitionState, PartitionStatus
from qbus.errors import QbusError
from tests.unit.cli.mirror.test_command import ROUTE, run


def shown(monkeypatch: pytest.MonkeyPatch, found: LinkStatus | QbusError) -> Result:
    """What the command does when the lag of its link is this."""

    class LagProbe:
        def __init__(self, *_: object) -> None:
            pass

        async def measure(self) -> LinkStatus:
            if isinstance(found, QbusError):
                raise found
            return found

    @asynccontextmanager
    async def clusters(_: LinkConfig) -> AsyncIterator[tuple[None, None]]:
        yield None, None

    async def reachable(_: object) -> None:
        pass

    monkeypatch.setattr(status, "LagProbe", LagProbe)
    monkeypatch.setattr(status, "clusters", clusters)
    monkeypatch.setattr(status, "ensure_reachable", reachable)
    return run("status", *ROUTE)


def link(*partitions: PartitionStatus) -> LinkStatus:
    return LinkStatus(name="a->b", source="a", target="b", partitions=partitions)


PARTITION = PartitionStatus(
    topic="orders", target_topic="a.orders", partition=0, state=PartitionState.CURRENT
)


def test_partitions_that_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    result = shown(monkeypatch, link(PARTITION))
    assert result.exit_code == 0, result.output


def test_a_link_without_topics_has_an_exit_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = shown(monkeypatch, link())
    assert result.exit_code == NOTHING_CHECKED, result.output
    assert "Nothing is mirrored: no topic of a source is chosen, or none exists." in result.stderr


def test_a_link_that_cannot_be_measured_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    result = shown(monkeypatch, QbusError("a is away"))
    assert result.exit_code == 1, result.output
    assert "a is away" in result.stdout
    assert "Nothing is mirrored" not in result.output
