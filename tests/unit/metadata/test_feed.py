"""The feed: every change in order and none missed, or an error."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from qbus.metadata import (
    Change,
    ChangesLost,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeError,
    StoreUnavailable,
)
from qbus.metadata.feed import PATH, announce, decide, follow, newest, prune, sequence_of
from qbus.metadata.znodes import ChangeNode

from .conftest import Backend


async def put(store: MetadataStore, *data: bytes) -> list[int]:
    paths = [(await store.transaction([announce(one)]))[0] for one in data]
    return [sequence_of(str(path)) for path in paths]


async def take(changes: AsyncIterator[list[Change]], count: int) -> list[bytes]:
    taken: list[Change] = []
    async with asyncio.timeout(10):
        while len(taken) < count:
            taken += await anext(changes)
    sequences = [change.sequence for change in taken]
    assert sequences == sorted(set(sequences))
    return [change.data for change in taken]


async def test_an_empty_feed_gets_a_first_change_to_start_from(store: MetadataStore) -> None:
    position = await newest(store)
    assert await newest(store) == position
    await put(store, b"x")
    assert await take(follow(store, position), 1) == [b"x"]


async def test_changes_come_in_order_those_there_already_first(store: MetadataStore) -> None:
    position = await newest(store)
    await put(store, b"1", b"2")
    changes = follow(store, position)
    assert await take(changes, 2) == [b"1", b"2"]
    await put(store, b"3")
    assert await take(changes, 1) == [b"3"]


async def test_a_follower_waits_for_the_next_change(store: MetadataStore) -> None:
    changes = follow(store, await newest(store))
    waiting = asyncio.ensure_future(take(changes, 1))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await put(store, b"x")
    assert await waiting == [b"x"]


async def test_many_writers_lose_nothing(store: MetadataStore) -> None:
    changes = follow(store, await newest(store))
    following = asyncio.ensure_future(take(changes, 200))
    await asyncio.gather(*(put(store, b"%d" % i) for i in range(200)))
    assert sorted(map(int, await following)) == list(range(200))


async def test_every_follower_sees_everything(store: MetadataStore) -> None:
    position = await newest(store)
    following = [asyncio.ensure_future(take(follow(store, position), 5)) for _ in range(3)]
    await put(store, b"1", b"2", b"3", b"4", b"5")
    assert await asyncio.gather(*following) == [[b"1", b"2", b"3", b"4", b"5"]] * 3


async def test_pruning_keeps_the_newest(store: MetadataStore) -> None:
    *_, last = await put(store, *(b"%d" % i for i in range(10)))
    assert await prune(store, keep=3) == 7
    assert await newest(store) == last
    assert len(await store.children(PATH)) == 3
    assert await prune(store, keep=3) == 0
    assert await prune(store, keep=0) == 2
    assert await newest(store) == last


async def test_a_follower_that_kept_up_does_not_notice_the_pruning(store: MetadataStore) -> None:
    changes = follow(store, await newest(store))
    await put(store, b"1", b"2")
    await take(changes, 2)
    await prune(store, keep=1)
    await put(store, b"3")
    assert await take(changes, 1) == [b"3"]


async def test_a_follower_of_pruned_changes_gets_an_error(store: MetadataStore) -> None:
    position = await newest(store)
    await put(store, b"1", b"2")
    await prune(store, keep=1)
    with pytest.raises(ChangesLost):
        await anext(follow(store, position))


async def test_numbers_go_on_after_everything_was_pruned(store: MetadataStore) -> None:
    (last,) = await put(store, b"1")
    await store.transaction([Delete(f"{PATH}/{name}") for name in await store.children(PATH)])
    assert await newest(store) > last
    with pytest.raises(ChangesLost):
        await anext(follow(store, last))


async def test_following_ends_with_the_session(backend: Backend) -> None:
    store = await backend.open()
    waiting = asyncio.ensure_future(take(follow(store, await newest(store)), 1))
    await asyncio.sleep(0.01)
    await store.close()
    with pytest.raises(StoreUnavailable):
        await waiting


async def test_the_feed_outlives_the_session(backend: Backend) -> None:
    store = await backend.open()
    position = await newest(store)
    await put(store, b"before")
    await store.close()
    store = await backend.open()
    await put(store, b"after")
    assert await take(follow(store, position), 2) == [b"before", b"after"]


async def test_a_change_belongs_to_its_transaction(store: MetadataStore) -> None:
    position = await newest(store)
    await store.transaction([Create("/a")])
    with pytest.raises(Exception, match="NodeExists"):
        await store.transaction([announce(b"never"), Create("/a")])
    await store.transaction([announce(b"this"), Create("/b")])
    assert await take(follow(store, position), 1) == [b"this"]


async def test_a_decision_is_written_and_announced_together(store: MetadataStore) -> None:
    position = await newest(store)
    change = ChangeNode(topics=("t",))
    await store.transaction([Create("/guard")])
    written = await decide(store, [Check("/guard", 0)], [Create("/a")], change)
    assert await take(follow(store, position), 1) == [change.encode()]
    assert written == await newest(store)


async def test_a_decision_with_an_outdated_guard_has_no_effect(store: MetadataStore) -> None:
    position = await newest(store)
    await store.transaction([Create("/guard")])
    with pytest.raises(NodeError) as refused:
        await decide(store, [Check("/guard", 1)], [Create("/a")], ChangeNode())
    assert refused.value.path == "/guard"
    assert await store.get("/a") is None
    assert await newest(store) == position
