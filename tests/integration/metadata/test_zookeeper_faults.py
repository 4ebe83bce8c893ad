"""Writes while servers die: acknowledged ones exist, unknown ones at most once."""

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from qbus.metadata import Create, MetadataStore, Set, StoreUnavailable, VersionConflict
from qbus.metadata.feed import announce, follow, newest
from tests.support.waiting import eventually
from tests.support.zookeeper_process import ZooKeeperEnsemble, ZooKeeperProcess

from .sessions import CONNECTED, LOST, SUSPENDED, Watched, session

pytestmark = pytest.mark.integration


class Writers:
    """Writers that record the outcomes of their writes."""

    def __init__(self, store: MetadataStore, count: int = 8) -> None:
        self.acknowledged: set[bytes] = set()
        self.unknown: set[bytes] = set()
        self.counted = 0
        self._store = store
        self._is_over = False
        self._tasks = [asyncio.ensure_future(self._write(number)) for number in range(count)]
        self._tasks.append(asyncio.ensure_future(self._count()))

    async def _write(self, number: int) -> None:
        for turn in range(1_000_000):
            if self._is_over:
                return
            mark = b"%d-%d" % (number, turn)
            try:
                await self._store.transaction(
                    [
                        Create("/seq/n-", mark, sequential=True),
                        Create(f"/named/{mark.decode()}/below", mark),
                    ]
                )
                self.acknowledged.add(mark)
            except StoreUnavailable:
                self.unknown.add(mark)
                await asyncio.sleep(0.01)

    async def _count(self) -> None:
        """Increment by compare-and-set; after an unknown outcome, read again."""
        with suppress(StoreUnavailable):
            await self._store.transaction([Create("/count", b"0")])
        while not self._is_over:
            try:
                node = await self._store.get("/count")
                assert node is not None
                value = int(node.data)
                await self._store.transaction([Set("/count", b"%d" % (value + 1), node.version)])
                self.counted += 1
            except StoreUnavailable:
                await asyncio.sleep(0.01)

    async def wrote(self, more: int) -> None:
        wanted = len(self.acknowledged) + more
        await eventually(lambda: len(self.acknowledged) >= wanted, 30)

    async def stop(self) -> None:
        self._is_over = True
        await asyncio.gather(*self._tasks)

    async def check(self, store: MetadataStore) -> None:
        """Compare the recorded outcomes with the store."""
        tree = await store.tree("/")
        stored = Counter(node.data for path, node in tree.items() if path.startswith("/seq/n-"))
        assert not [mark for mark, times in stored.items() if times > 1], "a write was repeated"
        assert self.acknowledged <= stored.keys(), "an acknowledged write is missing"
        assert stored.keys() <= self.acknowledged | self.unknown, "a write from nowhere"
        below = {path.split("/")[2].encode() for path in tree if path.endswith("/below")}
        assert below == stored.keys(), "half of a transaction"
        count = tree["/count"]
        assert int(count.data) == count.version, "somebody's turn was counted twice"
        assert count.version >= self.counted


Harm = Callable[[Watched, Writers], Awaitable[None]]


async def write_during(servers: str, harm: Harm) -> Watched:
    async with session(servers, timeout=6.0) as store:
        writers = Writers(store)
        await writers.wrote(50)
        await harm(store, writers)
        await writers.wrote(50)
        await writers.stop()
        await writers.check(store)
    async with session(servers) as after:
        await writers.check(after)
    return store


async def test_a_server_killed_in_the_middle_again_and_again(server: ZooKeeperProcess) -> None:
    async def harm(store: Watched, writers: Writers) -> None:
        for _ in range(3):
            await asyncio.to_thread(server.kill)
            await store.enters(SUSPENDED)
            await asyncio.to_thread(server.start)
            await writers.wrote(50)

    store = await write_during(server.bootstrap, harm)
    assert store.states.count(SUSPENDED) >= 3


async def test_a_server_that_stands_still_in_the_middle(server: ZooKeeperProcess) -> None:
    async def harm(store: Watched, writers: Writers) -> None:
        server.send_signal(signal.SIGSTOP)
        await store.enters(SUSPENDED)
        server.send_signal(signal.SIGCONT)

    store = await write_during(server.bootstrap, harm)
    assert LOST not in store.states[:-1]


async def test_an_ensemble_goes_on_without_its_leader(ensemble: ZooKeeperEnsemble) -> None:
    async def harm(store: Watched, writers: Writers) -> None:
        await asyncio.to_thread(ensemble.leader.kill)
        await writers.wrote(50)

    await write_during(ensemble.bootstrap, harm)


async def test_an_ensemble_goes_on_without_the_server_we_talked_to(
    ensemble: ZooKeeperEnsemble,
) -> None:
    async def harm(store: Watched, writers: Writers) -> None:
        port = store._session._client._connection._socket.getpeername()[1]
        ours = next(server for server in ensemble.servers if server.port == port)
        async with store.passing(SUSPENDED):
            await asyncio.to_thread(ours.kill)
        await writers.wrote(50)
        await asyncio.to_thread(ours.start)

    store = await write_during(ensemble.bootstrap, harm)
    assert LOST not in store.states[:-1]


async def test_a_minority_refuses_and_recovers_with_the_majority(
    ensemble: ZooKeeperEnsemble,
) -> None:
    async def harm(store: Watched, writers: Writers) -> None:
        await store.transaction([Create("/e", ephemeral=True)])
        first, second = ensemble.followers
        await asyncio.to_thread(first.kill)
        await writers.wrote(20)
        await asyncio.to_thread(second.kill)
        await store.enters(SUSPENDED)
        with pytest.raises(StoreUnavailable):
            await store.get("/count")
        before = len(writers.acknowledged)
        await asyncio.sleep(1.0)
        assert len(writers.acknowledged) == before, "acknowledged by one of three"
        await asyncio.to_thread(first.start)
        await store.enters(CONNECTED)
        assert await store.get("/e") is not None

    await write_during(ensemble.bootstrap, harm)


async def test_followers_of_the_feed_miss_nothing(server: ZooKeeperProcess) -> None:
    """Like the metadata cache, continue from the last position after a reconnect."""
    async with session(server.bootstrap) as writing, session(server.bootstrap) as reading:
        start = await newest(writing)
        seen: list[bytes] = []
        position = start

        async def keep_following() -> None:
            nonlocal position
            while b"last" not in seen:
                try:
                    async for changes in follow(reading, position):
                        seen.extend(change.data for change in changes)
                        position = changes[-1].sequence
                        if b"last" in seen:
                            return
                except StoreUnavailable:
                    await asyncio.sleep(0.01)

        following = asyncio.ensure_future(keep_following())
        acknowledged = []
        for turn in range(2):
            for number in range(30):
                mark = b"%d-%d" % (turn, number)
                await writing.transaction([announce(mark)])
                acknowledged.append(mark)
            server.kill()
            await writing.enters(SUSPENDED)
            await asyncio.to_thread(server.start)
            await writing.enters(CONNECTED)
        await writing.transaction([announce(b"last")])
        async with asyncio.timeout(10):
            await following
        assert seen == [*acknowledged, b"last"]


async def test_sessions_with_different_servers_agree(ensemble: ZooKeeperEnsemble) -> None:
    async with session(ensemble.bootstrap) as one, session(ensemble.bootstrap) as two:
        await one.transaction([Create("/n", b"")])

        async def take(store: Watched) -> int:
            won = 0
            for version in range(100):
                with suppress(VersionConflict):
                    await store.transaction([Set("/n", b"x", version)])
                    won += 1
            return won

        assert sum(await asyncio.gather(take(one), take(two))) == 100
        for number in range(10):
            await one.transaction([Create(f"/acknowledged/{number}")])
            async with session(ensemble.bootstrap) as begun_later:
                assert await begun_later.get(f"/acknowledged/{number}") is not None
