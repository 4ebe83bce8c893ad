"""Groups fail over without a rebalance, and only one broker at a time can write them."""

import asyncio
import json

import pytest

from qbus.broker.group import GroupState
from qbus.broker.group.requests import Leave, Leaver
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import Check, Delete, SessionState, Set

from .scene import make_join
from .shell import Shell, at, settle

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
OURS, THEIRS = "b", "a"  # of broker 1 and of broker 2 when both live


async def refused(work: object) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        await work  # type: ignore[misc]
    return caught.value.code


async def started(beside: Shell | None = None, node_id: int = 1) -> Shell:
    shell = Shell(beside, node_id=node_id)
    await shell.groups.start()
    await settle()
    return shell


async def pair() -> tuple[Shell, Shell]:
    """Two brokers that do not know of each other."""
    one = await started()
    return one, await started(one, 2)


class TestOwnership:
    async def test_of_another_brokers_groups_nothing_is_answered(self) -> None:
        shell = await started()
        await shell.metadata.set_brokers(1, 2)

        assert await shell.heartbeat(THEIRS, "m", 1) is NOT_COORDINATOR
        assert (await shell.groups.join(THEIRS, make_join(""))).error is NOT_COORDINATOR
        assert (await (await shell.sync(THEIRS, "m", 1))).error is NOT_COORDINATOR
        leave = Leave((Leaver("m", None),))
        assert (await shell.groups.leave(THEIRS, leave)).error is NOT_COORDINATOR
        for work in (
            shell.groups.commit(THEIRS, {("t", 0): at(1)}),
            shell.groups.offsets(THEIRS),
            shell.groups.delete_offsets(THEIRS, [("t", 0)]),
            shell.groups.describe(THEIRS),
            shell.groups.delete(THEIRS),
        ):
            assert await refused(work) is NOT_COORDINATOR
        assert shell.groups.states() == {}

    async def test_only_own_groups_are_listed(self) -> None:
        shell = await started()
        for group_id in (OURS, THEIRS):
            await shell.groups.commit(group_id, {("t", 0): at(1)})

        await shell.metadata.set_brokers(1, 2)

        assert [group.group_id for group in await shell.groups.groups()] == [OURS]

    async def test_a_group_that_moves_while_it_is_loaded_is_not_kept(self) -> None:
        shell = await started()
        shell.store.gate.clear()
        commit = await shell.soon(shell.groups.commit(THEIRS, {("t", 0): at(1)}))

        await shell.metadata.set_brokers(1, 2)
        shell.store.gate.set()

        assert await refused(commit) is NOT_COORDINATOR
        assert shell.groups.states() == {}


class TestLettingGo:
    async def test_members_that_wait_are_told_at_once(self) -> None:
        shell = await started()
        await shell.settle_group(OURS, "m")
        join = await shell.join(THEIRS, new_member_id="m", needs_known_id=False)

        await shell.metadata.set_brokers(1, 2)

        assert (await join).error is NOT_COORDINATOR
        assert await shell.heartbeat(OURS, "m", 1) is ErrorCode.NONE

    async def test_a_commit_on_its_way_is_refused_though_it_may_be_stored(self) -> None:
        shell = await started()
        await shell.groups.commit(THEIRS, {("t", 0): at(1)})
        shell.store.gate.clear()
        flying = await shell.soon(shell.groups.commit(THEIRS, {("t", 0): at(2)}))
        gathering = await shell.soon(shell.groups.commit(THEIRS, {("t", 0): at(3)}))

        await shell.metadata.set_brokers(1, 2)

        assert await refused(flying) is NOT_COORDINATOR
        assert await refused(gathering) is NOT_COORDINATOR
        shell.store.gate.set()
        await settle()
        assert shell.store.data(f"/consumers/{THEIRS}/offsets/t/0") == b"2"

    async def test_a_broker_that_is_stopping_lets_go_of_all(self) -> None:
        shell = await started()
        await shell.settle_group(OURS, "m")

        await shell.metadata.set_brokers(1, 2, stopping=[1])

        assert await shell.heartbeat(OURS, "m", 1) is NOT_COORDINATOR


class TestTakingOver:
    async def test_members_keep_their_generation_and_their_assignment(self) -> None:
        one, two = await pair()
        await one.settle_group("g", "m", "n")
        await one.groups.commit("g", {("t", 0): at(5)}, member_id="m", generation=1)

        assert await two.heartbeat("g", "m", 1) is ErrorCode.NONE
        assert (await (await two.sync("g", "n", 1))).assignment == b"n"
        await two.groups.commit("g", {("t", 0): at(6)}, member_id="n", generation=1)
        assert await two.offset("g", "t", 0) == 6

    async def test_happens_unasked_when_brokers_go(self) -> None:
        one, two = await pair()
        await two.metadata.set_brokers(1, 2)
        await one.settle_group(OURS, "m", session_timeout_ms=10_000)
        assert two.groups.states() == {}

        await two.metadata.set_brokers(2)
        assert two.groups.states() == {GroupState.STABLE: 1}

        await two.timers.advance(10.1)  # the member died with its coordinator
        assert two.groups.states() == {GroupState.EMPTY: 1}

    async def test_happens_unasked_at_the_start_to_groups_without_members_too(self) -> None:
        shell = await started()
        await shell.groups.commit("g", {("t", 0): at(7)})
        shell.restart()
        assert [*shell.groups.committed()] == []
        await shell.groups.start()
        await settle()
        assert [*shell.groups.committed()] == [("g", "t", {0: 7})]

    async def test_starts_every_session_anew(self) -> None:
        one, two = await pair()
        await one.settle_group("g", "m", session_timeout_ms=10_000)
        await one.timers.advance(9)

        assert await two.heartbeat("g", "m", 1) is ErrorCode.NONE
        one.timers.set = [timer for timer in one.timers.set if timer.when > 20]
        await two.timers.advance(9)

        assert await two.heartbeat("g", "m", 1) is ErrorCode.NONE

    async def test_is_tried_again_when_the_store_fails(self) -> None:
        one, two = await pair()
        await two.metadata.set_brokers(1, 2)
        await one.groups.commit(OURS, {("t", 0): at(1)})
        two.store.failures.append(ConnectionError("cut"))

        await two.metadata.set_brokers(2)
        assert two.groups.states() == {}
        await two.timers.advance(1.1)

        assert two.groups.states() == {GroupState.EMPTY: 1}

    async def test_reads_nothing_before_the_groups_node_is_written(self) -> None:
        one, two = await pair()
        await one.groups.commit("g", {("t", 0): at(1)})
        before = one.store.data("/consumers/g") or b""
        fence = json.loads(before)["fence"]

        await two.offset("g", "t", 0)

        replaced, former, _ = two.store.transactions[0]
        assert isinstance(replaced, Set)
        assert (replaced.path, replaced.version) == ("/consumers/g", 0)
        assert former == Delete(f"/consumers/g/fence-{fence}")

    async def test_that_a_group_is_not_there_is_confirmed_by_a_write(self) -> None:
        shell = await started()

        assert await shell.offset("g", "t", 0) is None

        assert shell.store.transactions == [[Check("/consumers/g")]]


class TestZombies:
    """Broker 1 does not know that broker 2 has loaded the group."""

    async def test_cannot_commit(self) -> None:
        one, two = await pair()
        await one.groups.commit("g", {("t", 0): at(5)})
        await two.groups.commit("g", {("t", 0): at(6)})

        assert await refused(one.groups.commit("g", {("t", 0): at(4)})) is NOT_COORDINATOR

        assert await two.offset("g", "t", 0) == 6

    async def test_cannot_hand_out_old_offsets(self) -> None:
        one, two = await pair()
        await one.groups.commit("g", {("t", 0): at(5)})
        await two.groups.commit("g", {("t", 0): at(6)})

        assert await refused(one.groups.offsets("g")) is NOT_COORDINATOR

    async def test_cannot_start_a_generation(self) -> None:
        one, two = await pair()
        await one.settle_group("g", "m")
        assert await two.heartbeat("g", "m", 1) is ErrorCode.NONE

        join = await one.join("g", new_member_id="n", needs_known_id=False)

        assert (await join).error is NOT_COORDINATOR
        assert await two.heartbeat("g", "m", 1) is ErrorCode.NONE

    async def test_cannot_assign(self) -> None:
        one, two = await pair()
        join = await one.join("g", new_member_id="m", needs_known_id=False)
        await one.timers.advance(3)
        await join
        assert await two.heartbeat("g", "m", 1) is ErrorCode.NONE

        sync = await one.sync("g", "m", 1, assignments={"m": b"all"})

        assert (await sync).error is NOT_COORDINATOR

    async def test_that_saw_no_group_cannot_hide_one(self) -> None:
        one, two = await pair()
        join = await one.join("g", new_member_id="m", needs_known_id=False)
        await two.groups.commit("g", {("t", 0): at(6)})

        assert await refused(one.groups.offsets("g")) is NOT_COORDINATOR
        assert (await join).error is NOT_COORDINATOR
        assert await one.offset("g", "t", 0) == 6

    async def test_two_that_load_at_once_do_not_both_win(self) -> None:
        one, two = await pair()
        await one.groups.commit("g", {("t", 0): at(1)})
        one.restart()
        two.restart()

        both = one.offset("g", "t", 0), two.offset("g", "t", 0)
        seen = await asyncio.gather(*both, return_exceptions=True)
        outcomes = await asyncio.gather(
            one.groups.commit("g", {("t", 0): at(2)}),
            two.groups.commit("g", {("t", 0): at(2)}),
            return_exceptions=True,
        )

        assert 1 in seen
        assert sorted(outcome is None for outcome in outcomes) == [False, True]


class TestSessions:
    async def test_heartbeats_alone_are_answered_while_suspended(self) -> None:
        shell = await started()
        await shell.settle_group("g", "m")

        shell.store.enter(SessionState.SUSPENDED)

        assert await shell.heartbeat("g", "m", 1) is ErrorCode.NONE
        assert await shell.heartbeat("unknown", "m", 1) is NOT_AVAILABLE
        assert (await shell.groups.join("g", make_join("m"))).error is NOT_AVAILABLE
        assert await refused(shell.groups.offsets("g")) is NOT_AVAILABLE
        commit = shell.groups.commit("g", {("t", 0): at(1)}, member_id="m", generation=1)
        assert await refused(commit) is NOT_AVAILABLE

    async def test_a_short_suspension_goes_unnoticed_by_members(self) -> None:
        shell = await started()
        await shell.settle_group("g", "m")

        shell.store.enter(SessionState.SUSPENDED)
        await shell.timers.advance(4)
        shell.store.enter(SessionState.CONNECTED)
        await shell.timers.advance(4)

        assert await shell.heartbeat("g", "m", 1) is ErrorCode.NONE

    async def test_a_long_suspension_ends_what_is_in_memory_and_no_members_session(self) -> None:
        shell = await started()
        await shell.settle_group("g", "m", session_timeout_ms=10_000)

        shell.store.enter(SessionState.SUSPENDED)
        await shell.timers.advance(5.1)
        assert await shell.heartbeat("g", "m", 1) is NOT_AVAILABLE
        await shell.timers.advance(60)
        shell.store.enter(SessionState.CONNECTED)
        await settle()

        assert shell.groups.states() == {GroupState.STABLE: 1}
        assert await shell.heartbeat("g", "m", 1) is ErrorCode.NONE

    async def test_with_the_session_all_groups_are_lost(self) -> None:
        shell = await started()
        join = await shell.join("g", new_member_id="m", needs_known_id=False)

        shell.store.enter(SessionState.LOST)

        assert (await join).error is NOT_COORDINATOR
        assert shell.groups.states() == {}
