"""Committed offsets in the log: what counts, for how long, and what transactions bring."""

import asyncio

import pytest

from qbus.broker.metadata.image import TopicDeleted
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import SessionState

from .offset_shell import (
    LOG,
    PARTITIONS,
    OffsetShell,
    P,
    alone,
    answering,
    bring,
    is_unstable,
    refused,
    switch,
    two,
)
from .shell import at


class TestCommitsInTheLog:
    async def test_leave_nothing_in_the_store(self) -> None:
        shell = await alone(**LOG)

        await shell.groups.commit("g", {("t", 0): at(5)})

        assert await shell.offset("g", "t", 0) == 5
        assert shell.store.data("/consumers/g") is None
        assert [group.group_id for group in await shell.groups.groups()] == ["g"]
        assert await shell.groups.describe("g") is not None

    async def test_of_members_are_checked_against_the_group_in_the_store(self) -> None:
        shell = await alone(**LOG)
        await shell.settle_group("g", "a")

        await shell.groups.commit("g", {("t", 0): at(5)}, member_id="a", generation=1)

        assert await shell.offset("g", "t", 0) == 5
        assert shell.store.database.tree("/consumers/g/offsets").keys() == {"/consumers/g/offsets"}
        late = shell.groups.commit("g", {("t", 0): at(6)}, member_id="a", generation=0)
        assert await refused(late) is ErrorCode.ILLEGAL_GENERATION
        unknown = shell.groups.commit("h", {("t", 0): at(6)}, member_id="a", generation=0)
        assert await refused(unknown) is ErrorCode.GROUP_ID_NOT_FOUND

    async def test_have_their_exact_time(self) -> None:
        shell = await alone(**LOG)

        await shell.groups.commit("g", {("t", 0): at(5)}, retention_ms=1_000)

        stored = (await shell.groups.offsets("g"))["t"][0]
        now = shell.clock.time_ms()
        assert (stored.committed_at, stored.expires_at) == (now, now + 1_000)

    async def test_survive_a_restart(self) -> None:
        shell = await alone(**LOG)
        await shell.groups.commit("g", {("t", 0): at(5)})

        shell.restart()
        await shell.groups.start()

        assert await shell.offset("g", "t", 0) == 5

    async def test_that_the_log_refuses_are_refused(self) -> None:
        shell = await alone(**LOG)
        shell.log.fails.append(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

        lost = shell.groups.commit("g", {("t", 0): at(5)})

        assert await refused(lost) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await shell.offset("g", "t", 0) is None

    async def test_go_to_the_leader_of_the_groups_partition(self) -> None:
        one, other = await two(**LOG)
        await one.groups.commit("g", {("t", 0): at(5)})
        elsewhere = other.groups.commit("g", {("t", 0): at(6)})
        assert await refused(elsewhere) is ErrorCode.NOT_COORDINATOR
        coordinator = await other.groups.find_coordinator("g")
        assert coordinator is not None
        assert coordinator.id == 0

        for index in range(PARTITIONS):
            await one.shared.elect(index, 1)

        assert await other.offset("g", "t", 0) == 5
        late = one.groups.commit("g", {("t", 0): at(6)})
        assert await refused(late) is ErrorCode.NOT_COORDINATOR
        coordinator = one.groups.coordinator("g")
        assert coordinator is not None
        assert coordinator.id == 1

    async def test_and_membership_fail_over_together(self) -> None:
        one, other = await two(**LOG)
        await one.settle_group("g", "a")
        await one.groups.commit("g", {("t", 0): at(5)}, member_id="a", generation=1)

        for index in range(PARTITIONS):
            await one.shared.elect(index, 1)

        assert await one.heartbeat("g", "a", 1) is ErrorCode.NOT_COORDINATOR
        assert await other.heartbeat("g", "a", 1) is ErrorCode.NONE
        await other.groups.commit("g", {("t", 0): at(6)}, member_id="a", generation=1)
        assert await other.offset("g", "t", 0) == 6

    async def test_are_counted(self) -> None:
        shell = await alone(**LOG)
        await shell.groups.commit("g", {("t", 0): at(5), ("t", 1): at(6)})

        assert shell.groups.commits == 2
        assert [*shell.groups.committed()] == [("g", "t", {0: 5, 1: 6})]

    async def test_expire(self) -> None:
        shell = await alone(**LOG, offsets_retention_minutes=1)
        await shell.groups.commit("g", {("t", 0): at(5)})

        await shell.timers.advance(59)
        assert await shell.offset("g", "t", 0) == 5
        await shell.timers.advance(20 * 60)

        assert await shell.offset("g", "t", 0) is None
        assert await shell.groups.describe("g") is None
        assert shell.groups.expired_offsets == 1

    async def test_that_a_transaction_may_replace_do_not_expire(self) -> None:
        shell = await alone(**LOG, offsets_retention_minutes=1)
        await shell.groups.commit("g", {("t", 0): at(5)})
        await bring(shell, 6)

        await shell.timers.advance(20 * 60)

        assert await shell.offset("g", "t", 0) == 5

    async def test_go_with_their_topic(self) -> None:
        shell = await alone(**LOG)
        topic = shell.metadata.add("t")
        await shell.groups.commit("g", {("t", 0): at(5), ("u", 0): at(6)})

        del shell.metadata.topics["t"]
        await shell.metadata.publish(TopicDeleted(topic))

        assert await shell.offset("g", "t", 0) is None
        assert await shell.offset("g", "u", 0) == 6

    async def test_of_a_topic_that_is_another_one_since_a_restart_go(self) -> None:
        shell = await alone(**LOG)
        shell.metadata.add("t")
        await shell.groups.commit("g", {("t", 0): at(5), ("u", 0): at(6)})

        shell.metadata.add("t", topic_id=b"n" * 16)
        shell.restart()
        await shell.groups.start()

        assert await shell.offset("g", "t", 0) is None
        assert await shell.offset("g", "u", 0) == 6

    async def test_are_deleted(self) -> None:
        shell = await alone(**LOG)
        await shell.groups.commit("g", {("t", 0): at(5), ("t", 1): at(6)})

        answers = await shell.groups.delete_offsets("g", [("t", 0), ("t", 7)])

        assert set(answers.values()) == {ErrorCode.NONE}
        assert await shell.offset("g", "t", 0) is None
        assert await shell.offset("g", "t", 1) == 6

    async def test_of_a_group_that_is_unloaded_amid_its_deletion_do_not_hang(self) -> None:
        shell = await alone(**LOG)
        await shell.groups.commit("g", {("t", 0): at(5)})

        def unload() -> None:
            shell.store.enter(SessionState.LOST)
            shell.store.enter(SessionState.CONNECTED)

        shell.log.meanwhile = unload
        async with asyncio.timeout(1):
            lost = await refused(shell.groups.delete("g"))

        assert lost is ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def test_superseded_in_a_group_that_is_unloaded_meanwhile_do_not_hang(self) -> None:
        shell = await alone()
        await bring(shell, 9)
        switch(shell, "log")
        await shell.look()

        def unload() -> None:
            shell.store.enter(SessionState.LOST)
            shell.store.enter(SessionState.CONNECTED)

        await shell.groups.offsets("g")
        shell.log.meanwhile = unload
        async with asyncio.timeout(1):
            lost = await refused(shell.groups.commit("g", {("t", 0): at(11)}))

        assert lost is ErrorCode.NOT_COORDINATOR

    async def test_of_a_group_that_somebody_joins_amid_its_deletion_go_alone(self) -> None:
        shell = await alone(**LOG)
        await shell.groups.commit("g", {("t", 0): at(5)})
        joining: list[asyncio.Task[None]] = []

        def join() -> None:
            joining.append(asyncio.ensure_future(shell.settle_group("g", "a")))

        shell.log.meanwhile = join
        shell.log.pause = 10
        assert await refused(shell.groups.delete("g")) is ErrorCode.NON_EMPTY_GROUP

        await joining[0]
        assert await shell.heartbeat("g", "a", 1) is ErrorCode.NONE

    async def test_are_deleted_with_their_group(self) -> None:
        shell = await alone(**LOG)
        await shell.groups.commit("g", {("t", 0): at(5)})
        await bring(shell, 6)

        await shell.groups.delete("g")
        shell.shared.mark((P, 0), committed=True)

        assert await shell.groups.describe("g") is None
        assert await refused(shell.groups.delete("g")) is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("storage", ["log", "zookeeper"])
class TestTransactions:
    async def end(self, shell: OffsetShell, *, committed: bool, epoch: int = 0) -> None:
        """As the transaction's coordinator does: markers, and messages about groups."""
        shell.shared.mark((P, epoch), committed=committed)
        await shell.groups.end_transaction("g", P, epoch, committed=committed)

    async def test_bring_offsets_that_count_when_they_are_committed(self, storage: str) -> None:
        shell = await alone(offsets_storage=storage)
        await shell.groups.commit("g", {("t", 0): at(5)})

        await bring(shell, 9)
        assert await shell.offset("g", "t", 0) == 5
        assert await is_unstable(shell)
        await self.end(shell, committed=True)

        assert await shell.offset("g", "t", 0) == 9
        assert not await is_unstable(shell)

    async def test_that_are_aborted_leave_what_was(self, storage: str) -> None:
        shell = await alone(offsets_storage=storage)
        await shell.groups.commit("g", {("t", 0): at(5)})

        await bring(shell, 9)
        await self.end(shell, committed=False)

        assert await shell.offset("g", "t", 0) == 5
        assert not await is_unstable(shell)

    async def test_of_a_group_that_has_nothing_else_are_its_first_offsets(
        self, storage: str
    ) -> None:
        shell = await alone(offsets_storage=storage)

        await bring(shell, 9)
        assert await is_unstable(shell)
        await self.end(shell, committed=True)

        assert await shell.offset("g", "t", 0) == 9

    async def test_survive_a_restart_whole(self, storage: str) -> None:
        shell = await alone(offsets_storage=storage)
        await bring(shell, 8)
        await bring(shell, 9)

        shell.restart()
        await shell.groups.start()
        assert await is_unstable(shell)
        await self.end(shell, committed=True)

        assert await shell.offset("g", "t", 0) == 9

    async def test_may_be_ended_again(self, storage: str) -> None:
        shell = await alone(offsets_storage=storage)
        await bring(shell, 9)
        await self.end(shell, committed=True)
        await shell.groups.commit("g", {("t", 0): at(11)})

        await self.end(shell, committed=True)

        assert await shell.offset("g", "t", 0) == 11

    async def test_do_not_undo_a_commit_that_came_later(self, storage: str) -> None:
        shell = await alone(offsets_storage=storage)
        await bring(shell, 9)
        await shell.groups.commit("g", {("t", 0): at(11)})

        await self.end(shell, committed=True)

        assert await shell.offset("g", "t", 0) == 11

    async def test_are_asked_for_once(self, storage: str) -> None:
        shell = await alone(offsets_storage=storage)
        asked: list[int | None] = []

        async def verify(partition: int | None) -> ErrorCode:
            asked.append(partition)
            return ErrorCode.NONE

        await bring(shell, 8, verify=verify)
        await bring(shell, 9, verify=verify)

        assert asked == [shell.groups.offsets_partition("g")]
        assert (asked[0] is None) == (storage == "zookeeper")

    async def test_that_their_coordinator_does_not_know_are_refused(self, storage: str) -> None:
        shell = await alone(offsets_storage=storage)
        unknown = answering(ErrorCode.TRANSACTION_ABORTABLE)

        late = bring(shell, 9, verify=unknown)

        assert await refused(late) is ErrorCode.TRANSACTION_ABORTABLE
        assert not await is_unstable(shell)
        assert await shell.groups.describe("g") is None

    async def test_that_end_while_they_are_asked_for_are_refused(self, storage: str) -> None:
        """Otherwise the offsets would hang: nobody would end them."""
        shell = await alone(offsets_storage=storage)

        async def verify(partition: int | None) -> ErrorCode:
            if partition is None:
                await shell.groups.end_transaction("g", P, 0, committed=False)
            else:
                shell.log.shard("g").partition.tokens.clear()  # as a marker does
            return ErrorCode.NONE

        assert await refused(bring(shell, 9, verify=verify)) is ErrorCode.INVALID_TXN_STATE
        assert not await is_unstable(shell)

    async def test_of_the_next_transaction_are_taken_while_the_end_of_the_last_is_told(
        self, storage: str
    ) -> None:
        """Its coordinator waits for that, and the producer has the marker's epoch by then."""
        shell = await alone(offsets_storage=storage)

        async def verify(partition: int | None) -> ErrorCode:
            if partition is None:
                await shell.groups.end_transaction("g", P, 0, committed=True)
            else:
                shell.log.shard("g").partition.marked(P, 1)
            return ErrorCode.NONE

        await bring(shell, 8)
        await bring(shell, 9, epoch=1, verify=verify, has_new_epoch=True)
        assert await is_unstable(shell)

    async def test_check_a_member_that_they_name(self, storage: str) -> None:
        shell = await alone(offsets_storage=storage)
        await shell.settle_group("g", "a")

        await bring(shell, 9, member_id="a", generation=1)

        old = bring(shell, 9, member_id="a", generation=0)
        assert await refused(old) is ErrorCode.ILLEGAL_GENERATION
        other = bring(shell, 9, member_id="b", generation=1)
        assert await refused(other) is ErrorCode.UNKNOWN_MEMBER_ID
        none = bring(shell, 9, group="h", member_id="b", generation=1)
        assert await refused(none) is ErrorCode.GROUP_ID_NOT_FOUND

    async def test_without_a_member_are_taken_as_older_clients_send_them(
        self, storage: str
    ) -> None:
        shell = await alone(offsets_storage=storage)
        await shell.settle_group("g", "a")

        await bring(shell, 9)

        assert await is_unstable(shell)

    async def test_of_a_group_without_a_name_are_refused(self, storage: str) -> None:
        shell = await alone(offsets_storage=storage)

        assert await refused(bring(shell, 9, group="")) is ErrorCode.INVALID_GROUP_ID


class TestTransactionsInTheStore:
    async def test_are_ended_with_the_epoch_that_comes_after(self) -> None:
        shell = await alone()
        await bring(shell, 9, epoch=4)

        await shell.groups.end_transaction("g", P, 5, committed=True)

        assert await shell.offset("g", "t", 0) == 9
        assert shell.store.database.children("/consumers/g/pending") == []

    async def test_of_a_newer_epoch_are_not_ended_by_an_older_one(self) -> None:
        shell = await alone()
        await bring(shell, 9, epoch=6)

        await shell.groups.end_transaction("g", P, 5, committed=True)

        assert await is_unstable(shell)
        fenced = bring(shell, 9, epoch=5)
        assert await refused(fenced) is ErrorCode.INVALID_PRODUCER_EPOCH

    async def test_that_cannot_be_stored_are_refused_and_do_not_hang(self) -> None:
        shell = await alone()
        await shell.groups.commit("g", {("t", 0): at(5)})
        shell.store.failures.append(RuntimeError("no"))

        assert await refused(bring(shell, 9)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not await is_unstable(shell)

    async def test_are_deleted_with_their_group(self) -> None:
        shell = await alone()
        await bring(shell, 9)

        await shell.groups.delete("g")

        assert shell.store.database.children("/consumers") == []

    async def test_take_one_transaction_of_the_store_to_end(self) -> None:
        """Otherwise a crash could leave some of it."""
        shell = await alone()
        await bring(shell, 9)
        before = len(shell.store.transactions)

        await shell.groups.end_transaction("g", P, 0, committed=True)

        assert len(shell.store.transactions) == before + 1
