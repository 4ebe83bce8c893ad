"""Producer ids: never twice, whoever asks and whatever restarts."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbus.broker import producer_ids
from qbus.broker.kafka.context import RequestContext
from qbus.broker.kafka.handlers.init_producer_id import handle
from qbus.broker.net.peer import Peer
from qbus.broker.producer_ids import (
    BLOCK_SIZE,
    MAX_EPOCH,
    MAX_PRODUCER_ID,
    PATH,
    ProducerIds,
    first_id,
)
from qbus.config import ListenerInfo
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import Create, EmbeddedStore, MetadataStore, Node
from qbus.wire import API, ApiKey
from qbus.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.support.data_plane import over_the_wire


@pytest.fixture(autouse=True)
def from_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ids that can be counted."""
    monkeypatch.setattr(producer_ids, "first_id", lambda: 0)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MetadataStore]:
    async with EmbeddedStore(tmp_path / "metadata.db") as store:
        yield store


def test_clusters_begin_in_places_far_apart() -> None:
    begun = sorted(first_id() for _ in range(20))
    assert all(start % 2**32 == 0 for start in begun)
    assert 0 <= begun[0] < begun[-1] < 2**62


async def test_ids_begin_somewhere_and_follow_one_another(store: MetadataStore) -> None:
    ids = ProducerIds(store, node_id=1)
    assert [await ids.allocate() for _ in range(3)] == [0, 1, 2]


async def test_a_block_is_written_down_before_any_of_it_is_used(store: MetadataStore) -> None:
    await ProducerIds(store, node_id=7).allocate()
    node = await store.get(PATH)
    assert node is not None
    assert json.loads(node.data) == {
        "version": 1,
        "broker": 7,
        "block_start": "0",
        "block_end": "999",
    }


async def test_after_a_restart_no_id_comes_again(store: MetadataStore) -> None:
    before = ProducerIds(store, node_id=1)
    given = {await before.allocate() for _ in range(5)}
    after = ProducerIds(store, node_id=1)
    assert await after.allocate() == BLOCK_SIZE
    assert BLOCK_SIZE not in given


async def test_a_used_up_block_is_followed_by_another(store: MetadataStore) -> None:
    ids = ProducerIds(store, node_id=1)
    given = [await ids.allocate() for _ in range(2 * BLOCK_SIZE + 1)]
    assert given == list(range(2 * BLOCK_SIZE + 1))


async def test_many_at_once_and_two_brokers_never_share_one(store: MetadataStore) -> None:
    brokers = [ProducerIds(store, node_id=node) for node in (1, 2)]
    given = await asyncio.gather(
        *(broker.allocate() for _ in range(BLOCK_SIZE) for broker in brokers)
    )
    assert len(set(given)) == 2 * BLOCK_SIZE


class Contended(ProducerIds):
    """Another broker reserves a block between this one's look and its write."""

    def __init__(self, store: MetadataStore) -> None:
        super().__init__(Racing(store), node_id=1)  # type: ignore[arg-type]


class Racing:
    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._other = ProducerIds(store, node_id=2)
        self._races = 2

    async def get(self, path: str) -> Node | None:
        seen = await self._store.get(path)
        if self._races:
            self._races -= 1
            self._other._next = self._other._end
            await self._other.allocate()
        return seen

    async def transaction(self, operations: Any) -> Any:
        return await self._store.transaction(operations)


async def test_whoever_loses_a_race_takes_the_next_block(store: MetadataStore) -> None:
    assert await Contended(store).allocate() == 2 * BLOCK_SIZE


async def test_the_last_block(store: MetadataStore) -> None:
    end = json.dumps({"version": 1, "broker": 1, "block_end": str(MAX_PRODUCER_ID - 1)}).encode()
    await store.transaction([Create(PATH, end)])
    with pytest.raises(ApiError, match="used up"):
        await ProducerIds(store, node_id=1).allocate()


class TestNextEpoch:
    async def test_an_id_that_was_given_out_keeps_its_number(self, store: MetadataStore) -> None:
        ids = ProducerIds(store, node_id=1)
        given = await ids.allocate()
        assert await ids.bump(given, 0) == (given, 1)
        assert await ids.bump(given, 0) == (given, 1)  # asked again: the answer was lost

    async def test_it_is_known_after_a_restart(self, store: MetadataStore) -> None:
        given = await ProducerIds(store, node_id=1).allocate()
        assert await ProducerIds(store, node_id=1).bump(given, 4) == (given, 5)

    async def test_an_id_that_was_never_given_out_is_replaced(self, store: MetadataStore) -> None:
        ids = ProducerIds(store, node_id=1)
        assert await ids.bump(123_456, 0) == (0, 0)
        assert await ids.bump(1, 0) == (1, 0)

    async def test_an_id_of_another_cluster_is_replaced(
        self, store: MetadataStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(producer_ids, "first_id", lambda: 5 << 32)
        ids = ProducerIds(store, node_id=1)
        assert await ids.bump(7, 3) == (5 << 32, 0)
        assert await ids.bump(7, 3) == ((5 << 32) + 1, 0)
        assert await ids.bump(5 << 32, 3) == (5 << 32, 4)

    async def test_after_the_last_epoch_comes_another_id(self, store: MetadataStore) -> None:
        ids = ProducerIds(store, node_id=1)
        given = await ids.allocate()
        assert await ids.bump(given, MAX_EPOCH - 1) == (given, MAX_EPOCH)
        assert await ids.bump(given, MAX_EPOCH) == (given + 1, 0)


class TestInitProducerId:
    """The request's own rules."""

    @staticmethod
    async def ask(store: MetadataStore, version: int = 5, **fields: Any) -> InitProducerIdResponse:
        broker: Any = SimpleNamespace(producer_ids=ProducerIds(store, node_id=1))
        request = InitProducerIdRequest(**{"transactional_id": None} | fields)
        peer = Peer(1, "127.0.0.1", ListenerInfo.plaintext("127.0.0.1", 9092))
        context = RequestContext(ApiKey.INIT_PRODUCER_ID, version, "test", peer)
        response = await handle(broker, context, request)
        return over_the_wire(ApiKey.INIT_PRODUCER_ID, version, response)

    @pytest.mark.parametrize("version", range(API[ApiKey.INIT_PRODUCER_ID].max_version + 1))
    async def test_every_version_gives_an_identity(
        self, store: MetadataStore, version: int
    ) -> None:
        response = await self.ask(store, version)
        assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 0, 0)

    async def test_the_next_epoch_of_a_known_identity(self, store: MetadataStore) -> None:
        await ProducerIds(store, node_id=1).allocate()
        response = await self.ask(store, producer_id=0, producer_epoch=2)
        assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 0, 3)

    @pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5), (-2, -2)])
    async def test_half_an_identity(
        self, store: MetadataStore, producer_id: int, epoch: int
    ) -> None:
        response = await self.ask(store, producer_id=producer_id, producer_epoch=epoch)
        assert ErrorCode(response.error_code) is ErrorCode.INVALID_REQUEST
        assert response.producer_id == -1

    async def test_without_the_store_it_is_to_be_asked_again(self, tmp_path: Path) -> None:
        closed = EmbeddedStore(tmp_path / "metadata.db")
        response = await self.ask(closed)
        code = ErrorCode(response.error_code)
        assert code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert code.retriable
