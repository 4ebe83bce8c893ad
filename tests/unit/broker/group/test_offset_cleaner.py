"""The deletion of expired offsets and of those whose topic was deleted."""

import asyncio

import pytest

from qbus.broker.group import GroupState, Leave, Leaver, Offset
from qbus.broker.group.offsets import NO_TOPIC_ID
from qbus.broker.group.requests import GroupProtocol
from qbus.broker.group.storage import Storage
from qbus.broker.metadata.image import TopicConfigChanged, TopicDeleted
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import Set, StoreUnavailable

from .offset_shell import LOG, Log, OffsetShell, P, alone, answering, is_unstable, switch, where
from .shell import TOPIC_ID, Shell, at, settle

MINUTE = 60.0
CHECK = 10 * MINUTE
"""The default interval of the checks."""
OLD = b"1" * 16
NEW = b"2" * 16
"""The ids of a deleted topic, and of one of the same name."""
RETENTION = 100 * MINUTE  # so times of commit are rounded to a minute
SUBSCRIBED_TO_T = (GroupProtocol("range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"),)
LONG_SESSION_MS = 1_800_000


@pytest.fixture(params=["store", "log"])
async def place(request: pytest.FixtureRequest) -> Shell:
    """A broker whose groups' offsets are in the one place or the other."""
    return Shell() if request.param == "store" else await alone(**LOG)


async def started(**config: object) -> Shell:
    defaults = {"offsets_retention_minutes": 100, "offsets_retention_check_interval_ms": 60_000}
    shell = Shell(**(defaults | config))
    await shell.groups.start()
    await settle()
    return shell


class TestExpiry:
    async def test_of_an_emptied_group_counts_from_when_it_emptied(self) -> None:
        shell = await started()
        await shell.settle_group("g", "a", session_timeout_ms=LONG_SESSION_MS)
        await shell.groups.commit("g", {("t", 0): at(1)}, member_id="a", generation=1)
        await shell.timers.advance(20 * MINUTE)
        await shell.groups.leave("g", Leave((Leaver("a", None),)))

        await shell.timers.advance(RETENTION - 1)
        assert await shell.offset("g", "t", 0) == 1
        await shell.timers.advance(MINUTE + 1)

        assert await shell.offset("g", "t", 0) is None
        assert await shell.groups.describe("g") is None
        assert shell.groups.expired_offsets == 1

    async def test_of_a_simple_consumer_counts_from_each_commit(self) -> None:
        shell = await started()
        await shell.groups.commit("g", {("t", 0): at(1), ("t", 1): at(1)})
        await shell.timers.advance(50 * MINUTE)
        await shell.groups.commit("g", {("t", 1): at(2)})

        await shell.timers.advance(60 * MINUTE)

        assert await shell.offset("g", "t", 0) is None
        assert await shell.offset("g", "t", 1) == 2

    async def test_never_comes_early_and_not_much_later(self) -> None:
        shell = await started()
        await shell.timers.advance(12.34)
        await shell.groups.commit("g", {("t", 0): at(1)})

        await shell.timers.advance(RETENTION - 1)
        assert await shell.offset("g", "t", 0) == 1
        await shell.timers.advance(2 * MINUTE + 1)

        assert await shell.offset("g", "t", 0) is None

    async def test_spares_what_a_stable_group_subscribes_to_and_not_the_rest(self) -> None:
        shell = await started()
        both = {("t", 0): at(1), ("u", 0): at(2)}
        await shell.settle_group(
            "g", "a", session_timeout_ms=LONG_SESSION_MS, protocols=SUBSCRIBED_TO_T
        )
        await shell.groups.commit("g", both, member_id="a", generation=1)

        for _ in range(6):
            await shell.timers.advance(20 * MINUTE)
            await shell.heartbeat("g", "a", 1)

        assert await shell.offset("g", "t", 0) == 1
        assert await shell.offset("g", "u", 0) is None
        group = await shell.groups.describe("g")
        assert group is not None
        assert group.state is GroupState.STABLE

    async def test_goes_on_after_a_restart_where_it_was(self) -> None:
        shell = await started()
        await shell.groups.commit("g", {("t", 0): at(1)})
        await shell.timers.advance(90 * MINUTE)
        shell.restart()
        await shell.groups.start()

        await shell.timers.advance(13 * MINUTE)

        assert await shell.offset("g", "t", 0) is None

    async def test_may_be_set_by_old_clients_for_each_commit(self) -> None:
        shell = await started()
        await shell.groups.commit("g", {("t", 0): at(1)}, retention_ms=10 * 60_000)
        await shell.groups.commit("g", {("t", 1): at(1)}, retention_ms=200 * 60_000)

        await shell.timers.advance(13 * MINUTE)
        assert await shell.offset("g", "t", 0) is None
        await shell.timers.advance(120 * MINUTE)

        assert await shell.offset("g", "t", 1) == 1

    async def test_removes_an_emptied_group_without_offsets_at_the_next_check(self) -> None:
        shell = await started()
        await shell.settle_group("g", "a")
        await shell.groups.leave("g", Leave((Leaver("a", None),)))

        await shell.timers.advance(MINUTE)

        assert await shell.groups.describe("g") is None

    async def test_does_not_touch_what_is_being_committed(self) -> None:
        shell = await started(offsets_retention_check_interval_ms=101 * 60_000)
        await shell.groups.commit("g", {("t", 0): at(1)})
        await shell.timers.advance(RETENTION + MINUTE - 1)
        shell.store.gate.clear()
        commit = await shell.soon(shell.groups.commit("g", {("t", 0): at(2)}))
        await shell.timers.advance(2)  # the check comes while the commit is on its way
        shell.store.gate.set()
        await commit
        await settle()

        assert await shell.offset("g", "t", 0) == 2

    @pytest.mark.parametrize("turns", range(12))
    @pytest.mark.parametrize("others", [0, 1])
    async def test_spares_what_is_committed_at_that_moment(
        self, place: Shell, turns: int, others: int
    ) -> None:
        await place.groups.start()
        await place.groups.commit("g", {("t", 0): at(1)}, retention_ms=1)
        for index in range(others):
            await place.groups.commit("g", {("u", index): at(1)})

        check = asyncio.ensure_future(place.timers.advance(CHECK))
        for _ in range(turns + 50):  # the time passes after these turns
            await asyncio.sleep(0)
        is_refused = False
        try:
            await place.groups.commit("g", {("t", 0): at(2)})
        except ApiError as error:
            is_refused = error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await check

        assert await place.offset("g", "t", 0) == (None if is_refused else 2)

    async def test_that_cannot_be_stored_is_tried_again(self) -> None:
        shell = await started()
        await shell.groups.commit("g", {("t", 0): at(1), ("t", 1): at(1)}, retention_ms=1)
        await shell.groups.commit("g", {("u", 0): at(1)})
        shell.store.failures.append(StoreUnavailable("disk"))

        await shell.timers.advance(MINUTE)
        assert await shell.offset("g", "t", 0) == 1
        await shell.timers.advance(MINUTE)

        assert await shell.offset("g", "t", 0) is None
        assert await shell.offset("g", "u", 0) == 1


class TestTopicDeletion:
    async def test_does_not_hold_up_what_comes_next_while_nothing_can_be_stored(self) -> None:
        shell = Shell()
        topic = shell.metadata.add("t")
        await shell.groups.commit("g", {("t", 0): at(1), ("u", 0): at(2)})
        shell.store.gate.clear()
        async with asyncio.timeout(2.0):
            await shell.metadata.publish(TopicDeleted(topic))
        shell.store.gate.set()
        await settle()
        assert await shell.offset("g", "t", 0) is None
        assert await shell.offset("g", "u", 0) == 2

    async def test_deletes_what_all_groups_committed_for_it(self) -> None:
        shell = Shell()
        topic = shell.metadata.add("t")
        await shell.groups.commit("g", {("t", 0): at(1), ("u", 0): at(2)})
        await shell.groups.commit("h", {("t", 1): at(3)})
        shell.restart()

        await shell.metadata.publish(TopicConfigChanged(topic), TopicDeleted(topic))
        shell.restart()

        assert await shell.offset("g", "t", 0) is None
        assert await shell.offset("g", "u", 0) == 2
        assert await shell.offset("h", "t", 1) is None

    async def test_spares_a_namesake_that_was_created_meanwhile(self) -> None:
        shell = Shell()
        old = shell.metadata.add("t", topic_id=b"1" * 16)
        shell.metadata.add("t", topic_id=b"2" * 16)
        await shell.groups.commit("g", {("t", 0): at(1, b"1" * 16), ("t", 1): at(9, b"2" * 16)})

        await shell.metadata.publish(TopicDeleted(old))

        assert await shell.offset("g", "t", 0) is None
        assert await shell.offset("g", "t", 1) == 9

    @pytest.mark.parametrize("storage", ["store", "log"])
    @pytest.mark.parametrize("turns", range(12))
    async def test_spares_what_is_committed_for_a_namesake_meanwhile(
        self, turns: int, storage: str
    ) -> None:
        shell = Shell() if storage == "store" else await alone(**LOG)
        old = shell.metadata.add("t", topic_id=b"1" * 16)
        await shell.groups.commit("g", {("t", 0): at(1, b"1" * 16)})
        shell.metadata.add("t", topic_id=b"2" * 16)

        deletion = asyncio.ensure_future(shell.metadata.publish(TopicDeleted(old)))
        for _ in range(turns):
            await asyncio.sleep(0)
        await shell.groups.commit("g", {("t", 0): at(9, b"2" * 16)})
        await deletion

        assert await shell.offset("g", "t", 0) == 9

    async def test_that_takes_long_does_not_have_a_namesake_begin_where_the_topic_was_read(
        self,
    ) -> None:
        shell = await alone(**LOG)
        old = shell.metadata.add("t", topic_id=b"1" * 16)
        await shell.groups.commit("g", {("t", 0): at(1, b"1" * 16), ("u", 0): at(2)})
        shell.log.fails.append(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

        await shell.metadata.publish(TopicDeleted(old))
        shell.metadata.add("t", topic_id=b"2" * 16)
        assert await shell.offset("g", "t", 0) is None
        assert await shell.offset("g", "u", 0) == 2
        await shell.groups.commit("g", {("t", 1): at(9, b"2" * 16)})
        assert await shell.offset("g", "t", 1) == 9

        await shell.timers.advance(10)
        offsets = (await shell.groups.offsets("g"))["t"]
        assert {index: one.offset for index, one in offsets.items()} == {1: 9}

    @pytest.mark.parametrize("committed", [True, False])
    async def test_leaves_what_a_transaction_brings_for_a_namesake(
        self, place: Shell, *, committed: bool
    ) -> None:
        old = place.metadata.add("t", topic_id=OLD)
        await place.groups.commit("g", {("t", 0): at(1, OLD), ("t", 1): at(2, OLD)})
        place.metadata.add("t", topic_id=NEW)
        await bring(place, at(9, NEW))

        await place.metadata.publish(TopicDeleted(old))
        assert await place.offset("g", "t", 0) is None
        assert await is_unstable(place)
        await end(place, committed=committed)
        await place.timers.advance(10)

        assert await place.offset("g", "t", 0) == (9 if committed else None)
        await restart(place)
        assert await place.offset("g", "t", 0) == (9 if committed else None)
        del place.metadata.topics["t"]
        assert await committed_at(place) == ({0: 9} if committed else {})

    async def test_deletes_what_a_transaction_brought_for_the_topic_when_it_has_ended(
        self, place: Shell
    ) -> None:
        old = place.metadata.add("t", topic_id=OLD)
        await place.groups.commit("g", {("t", 0): at(1, OLD)})
        await bring(place, at(2, OLD))

        await place.metadata.publish(TopicDeleted(old))
        del place.metadata.topics["t"]
        assert await committed_at(place) == {}
        await end(place, committed=True)
        await place.timers.advance(10)

        await restart(place)
        assert await committed_at(place) == {}

    async def test_that_fails_unexpectedly_is_told_and_tried_again(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        shell = await alone(**LOG)
        topic = shell.metadata.add("t")
        await shell.groups.commit("g", {("t", 0): at(1)})
        shell.log.fails.append(ValueError("what nobody thought of"))

        await shell.metadata.publish(TopicDeleted(topic))
        assert "groups cannot be cleaned up" in caplog.text
        assert "what nobody thought of" in caplog.text
        await shell.timers.advance(10)

        await restart(shell)
        assert await shell.offset("g", "t", 0) is None

    async def test_deletes_a_commit_that_was_on_its_way(self) -> None:
        shell = Shell()
        topic = shell.metadata.add("t")
        await shell.groups.commit("g", {("u", 0): at(0)})
        shell.store.gate.clear()
        commit = await shell.soon(shell.groups.commit("g", {("t", 0): at(1)}))
        deletion = await shell.soon(shell.metadata.publish(TopicDeleted(topic)))
        shell.store.gate.set()
        await commit
        await deletion

        assert await shell.offset("g", "t", 0) is None

    @pytest.mark.parametrize("seconds", [10, 25])
    async def test_that_cannot_be_stored_is_tried_until_it_can(self, seconds: int) -> None:
        shell = await started()
        topic = shell.metadata.add("t")
        await shell.groups.commit("g", {("t", 0): at(1)})
        shell.store.failures += [StoreUnavailable("disk")] * (seconds // 10)

        await shell.metadata.publish(TopicDeleted(topic))
        await shell.timers.advance(seconds + 10)

        assert await shell.offset("g", "t", 0) is None

    async def test_missed_by_a_broker_that_was_down_is_made_up_for(self) -> None:
        shell = Shell()
        shell.metadata.add("t", topic_id=TOPIC_ID)
        await shell.groups.commit("g", {("t", 0): at(1), ("u", 0): at(2)})
        shell.metadata.add("t", topic_id=b"new" + bytes(13))
        shell.restart()

        assert await shell.offset("g", "t", 0) is None
        assert await shell.offset("g", "u", 0) == 2
        assert shell.store.data("/consumers/g/offsets/t/0") is None


class TestNamesakes:
    """Topics under the names of deleted ones whose offsets nobody has deleted."""

    async def loaded_without_the_topic(self, place: Shell) -> None:
        """A group has offsets of a topic that is deleted while the broker is down."""
        place.metadata.add("t", topic_id=OLD)
        await place.groups.commit("g", {("t", 0): at(1, OLD), ("t", 1): at(2, OLD)})
        await place.groups.commit("g", {("u", 0): at(3)})
        del place.metadata.topics["t"]
        await restart(place)
        assert await committed_at(place) == {0: 1, 1: 2}  # it may be of a topic yet to be seen

    async def test_begin_anew(self, place: Shell) -> None:
        await self.loaded_without_the_topic(place)

        place.metadata.add("t", topic_id=NEW)

        assert await committed_at(place) == {}
        assert [*await place.groups.offsets("g")] == ["u"]
        assert len(await place.groups.offsets("g")) == 1
        assert await place.offset("g", "u", 0) == 3
        lags = {topic: at for _, topic, at in place.groups.committed()}
        assert lags == {"t": {}, "u": {0: 3}}

    async def test_have_what_is_committed_for_them_beside_what_is_of_the_deleted_one(
        self, place: Shell
    ) -> None:
        await self.loaded_without_the_topic(place)
        place.metadata.add("t", topic_id=NEW)
        assert await committed_at(place) == {}

        await place.groups.commit("g", {("t", 1): at(0, NEW)})

        assert await committed_at(place) == {1: 0}
        await place.groups.commit("g", {("t", 2): at(5, NO_TOPIC_ID)})
        assert await committed_at(place) == {1: 0, 2: 5}
        await place.groups.commit("g", {("t", 0): at(7, NEW)})
        assert await committed_at(place) == {0: 7, 1: 0, 2: 5}

    async def test_have_the_offsets_of_the_deleted_one_deleted_at_the_next_check(
        self, place: Shell
    ) -> None:
        await self.loaded_without_the_topic(place)
        place.metadata.add("t", topic_id=NEW)
        await place.groups.commit("g", {("t", 1): at(9, NEW)})

        await place.timers.advance(CHECK)

        del place.metadata.topics["t"]
        assert await committed_at(place) == {1: 9}
        assert await place.offset("g", "u", 0) == 3
        assert place.groups.expired_offsets == 0

    async def test_leave_no_group_that_has_nothing_else(self, place: Shell) -> None:
        place.metadata.add("t", topic_id=OLD)
        await place.groups.commit("g", {("t", 0): at(1, OLD)})
        await place.groups.start()
        place.metadata.add("t", topic_id=NEW)

        await place.timers.advance(CHECK)

        assert await place.groups.describe("g") is None

    @pytest.mark.parametrize("committed", [True, False])
    @pytest.mark.parametrize("is_loaded_anew", [True, False])
    async def test_keep_what_a_transaction_brings_while_the_former_offsets_are_deleted(
        self, place: Shell, *, committed: bool, is_loaded_anew: bool
    ) -> None:
        await self.loaded_without_the_topic(place)
        place.metadata.add("t", topic_id=NEW)
        await bring(place, at(9, NEW))

        if is_loaded_anew:
            await restart(place)
        await place.timers.advance(CHECK)
        assert await is_unstable(place)
        assert await committed_at(place) == {}
        await end(place, committed=committed)

        assert await committed_at(place) == ({0: 9} if committed else {})
        await place.timers.advance(CHECK)
        del place.metadata.topics["t"]
        assert await committed_at(place) == ({0: 9} if committed else {})

    async def test_do_not_get_what_a_transaction_brings_for_the_deleted_one(
        self, place: Shell
    ) -> None:
        place.metadata.add("t", topic_id=OLD)
        await bring(place, at(9, OLD))
        place.metadata.add("t", topic_id=NEW)
        await place.groups.commit("g", {("t", 1): at(3, NEW)})
        assert await committed_at(place) == {1: 3}

        await end(place, committed=True)

        assert await committed_at(place) == {1: 3}

    async def test_are_told_apart_while_something_waits_to_be_acknowledged(self) -> None:
        shell = await alone(**LOG)
        await self.loaded_without_the_topic(shell)
        shell.metadata.add("t", topic_id=NEW)
        for shard in shell.log.loaded.values():
            shard.partition.log = Log(1)

        assert await committed_at(shell) == {}
        await shell.groups.commit("g", {("t", 1): at(9, NEW)})
        assert await committed_at(shell) == {1: 9}

    async def test_do_not_keep_offsets_from_moving_back_to_the_store(self) -> None:
        shell = await alone(**LOG)
        await self.loaded_without_the_topic(shell)
        shell.metadata.add("t", topic_id=NEW)
        await shell.groups.commit("g", {("t", 1): at(9, NEW)})

        switch(shell, "zookeeper")
        await shell.look()

        assert where(shell) is Storage.STORE
        assert await committed_at(shell) == {1: 9}


async def restart(shell: Shell) -> None:
    shell.restart()
    await shell.groups.start()
    await settle()


async def bring(shell: Shell, offset: Offset) -> None:
    """Commit an offset of t-0 in a transaction of the producer P."""
    place = {("t", 0): offset}
    await shell.groups.commit_in_transaction("g", place, producer_id=P, epoch=0, verify=answering())


async def end(shell: Shell, *, committed: bool) -> None:
    """End that transaction, wherever its offsets are."""
    if isinstance(shell, OffsetShell):
        shell.shared.mark((P, 0), committed=committed)
    await shell.groups.end_transaction("g", P, 0, committed=committed)


async def committed_at(shell: Shell) -> dict[int, int]:
    """What the group is told of t, by partition."""
    offsets = (await shell.groups.offsets("g")).get("t", {})
    return {index: one.offset for index, one in offsets.items()}


async def test_offsets_written_by_hand_are_taken_as_they_are() -> None:
    shell = await started()
    topic = shell.metadata.add("t")
    await shell.groups.commit("g", {("u", 0): at(1)})
    shell.store.database.begin()
    from qbus.metadata import Create

    shell.store.database.apply([Create("/consumers/g/offsets/t/0", b"1030430")])
    shell.store.database.commit()
    shell.restart()

    assert await shell.offset("g", "t", 0) == 1030430
    await shell.groups.commit("g", {("t", 0): at(1030431)})
    assert await shell.groups.delete_offsets("g", [("t", 0)]) == {("t", 0): ErrorCode.NONE}
    shell.store.database.begin()
    shell.store.database.apply([Create("/consumers/g/offsets/t/0", b"7")])
    shell.store.database.commit()
    shell.restart()
    await shell.metadata.publish(TopicDeleted(topic))

    assert await shell.offset("g", "t", 0) is None


async def test_an_offset_changed_by_hand_beneath_a_running_broker_is_no_harm() -> None:
    shell = await started()
    await shell.groups.commit("g", {("t", 0): at(1)})
    shell.store.database.begin()
    shell.store.database.apply([Set("/consumers/g/offsets/t/0", b"5")])
    shell.store.database.commit()

    await shell.groups.commit("g", {("t", 0): at(2)})
    shell.restart()

    assert await shell.offset("g", "t", 0) == 2
