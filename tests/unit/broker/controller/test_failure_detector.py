"""Which brokers are probed, and how a dead process differs from a slow or cut-off one."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.controller.failure_detector import FailureDetector, probed_brokers
from qbus.broker.metadata.image import BrokerInfo
from tests.support.metadata_plane import MetadataPlane, metadata_plane
from tests.support.waiting import eventually

BROKERS = {number: BrokerInfo(number, f"b{number}", 9092) for number in (1, 2, 3)}


class Peer:
    """A listener at the address of another broker."""

    def __init__(self) -> None:
        self.accepted = 0
        self._connections: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None
        self.port = 0

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _accept(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._connections.append(writer)

    def hang_up(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def refuse(self) -> None:
        assert self._server is not None
        self._server.close()

    def die(self) -> None:
        self.refuse()
        self.hang_up()


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    await peer.listen()
    yield peer
    peer.die()


@pytest.fixture
async def plane(tmp_path: Path, peer: Peer) -> AsyncIterator[MetadataPlane]:
    other = BrokerInfo(2, "127.0.0.1", peer.port)
    async with metadata_plane(tmp_path, others=(other,)) as plane:
        yield plane


@pytest.fixture
async def detector(plane: MetadataPlane, peer: Peer) -> AsyncIterator[FailureDetector]:
    detector = FailureDetector(plane.store, plane.metadata, plane.node_id)
    detector.start()
    await eventually(lambda: peer.accepted > 0)
    yield detector
    await detector.stop()


def test_the_controller_probes_all_other_brokers() -> None:
    assert [broker.id for broker in probed_brokers(2, 2, BROKERS)] == [1, 3]


def test_other_brokers_probe_the_controller() -> None:
    assert [broker.id for broker in probed_brokers(1, 2, BROKERS)] == [2]


def test_without_a_controller_no_broker_is_probed() -> None:
    assert probed_brokers(1, -1, BROKERS) == []


def test_a_stopping_broker_is_not_probed() -> None:
    leaving = BrokerInfo(3, "b3", 9092, is_stopping=True)
    assert [broker.id for broker in probed_brokers(1, 1, {**BROKERS, 3: leaving})] == [2]


async def test_a_dead_broker_is_unregistered(
    plane: MetadataPlane, detector: FailureDetector, peer: Peer
) -> None:
    peer.die()
    await eventually(lambda: 2 not in plane.metadata.brokers)
    assert detector.noticed == 1


async def test_a_broker_that_closes_connections_stays_registered(
    plane: MetadataPlane, detector: FailureDetector, peer: Peer
) -> None:
    peer.hang_up()
    await eventually(lambda: peer.accepted == 2)
    assert 2 in plane.metadata.brokers
    assert detector.noticed == 0


async def test_a_broker_with_an_open_connection_stays_registered(
    plane: MetadataPlane, detector: FailureDetector, peer: Peer
) -> None:
    peer.refuse()
    await asyncio.sleep(0.3)
    assert 2 in plane.metadata.brokers
    assert detector.noticed == 0


async def test_a_broker_that_was_never_reached_stays_registered(
    plane: MetadataPlane, peer: Peer
) -> None:
    peer.die()
    detector = FailureDetector(plane.store, plane.metadata, plane.node_id)
    detector.start()
    await asyncio.sleep(0.3)
    await detector.stop()
    assert 2 in plane.metadata.brokers
    assert detector.noticed == 0
