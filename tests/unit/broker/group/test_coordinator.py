"""The coordinator: answers are stored first, restarts change nothing, failures are reported."""

import asyncio

import pytest

from qbus.broker.group import GroupState, Leave, Leaver
from qbus.broker.group.coordinator import MAX_MEMBER_BYTES
from qbus.broker.group.requests import GroupProtocol, Heartbeat
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import StoreUnavailable

from .scene import make_join, make_sync
from .shell import Shell, at, settle


async def refused(work: object) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        await work  # type: ignore[misc]
    return caught.value.code


class TestMembership:
    async def test_members_join_sync_and_heartbeat(self) -> None:
        shell = Shell()

        await shell.settle_group("g", "a", "b")

        assert await shell.heartbeat("g", "a", 1) is ErrorCode.NONE
        assert await shell.heartbeat("g", "b", 0) is ErrorCode.ILLEGAL_GENERATION

    async def test_sessions_end_on_time(self) -> None:
        shell = Shell()
        await shell.settle_group("g", "a", session_timeout_ms=10_000)

        await shell.timers.advance(9.9)
        assert await shell.heartbeat("g", "a", 1) is ErrorCode.NONE
        await shell.timers.advance(10)

        assert await shell.heartbeat("g", "a", 1) is ErrorCode.UNKNOWN_MEMBER_ID

    async def test_nobody_is_told_of_a_generation_before_it_is_stored(self) -> None:
        shell = Shell()
        join = await shell.join("g", new_member_id="a", needs_known_id=False)
        shell.store.gate.clear()
        await shell.timers.advance(3)
        assert not join.done()
        assert shell.store.data("/consumers/g") is None

        shell.store.gate.set()

        assert (await join).generation == 1
        assert b'"generation":1' in (shell.store.data("/consumers/g") or b"")

    async def test_nobody_is_told_an_assignment_before_it_is_stored(self) -> None:
        shell = Shell()
        joins = [
            await shell.join("g", new_member_id=name, needs_known_id=False) for name in ("a", "b")
        ]
        await shell.timers.advance(6)
        await asyncio.gather(*joins)
        shell.store.gate.clear()

        leader = await shell.sync("g", "a", 1, assignments={"a": b"1", "b": b"2"})
        late_follower = await shell.sync("g", "b", 1)
        heartbeat = await shell.soon(shell.heartbeat("g", "a", 1))
        assert not any(waiting.done() for waiting in (leader, late_follower, heartbeat))
        shell.store.gate.set()

        assert (await leader).assignment == b"1"
        assert (await late_follower).assignment == b"2"
        assert await heartbeat is ErrorCode.NONE

    @pytest.mark.parametrize(
        ("session_ms", "error"),
        [
            (5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
            (1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT),
            (-1, ErrorCode.INVALID_SESSION_TIMEOUT),
            (6_000, ErrorCode.MEMBER_ID_REQUIRED),
            (1_800_000, ErrorCode.MEMBER_ID_REQUIRED),
        ],
    )
    async def test_session_timeouts_have_bounds(self, session_ms: int, error: ErrorCode) -> None:
        shell = Shell()

        result = await shell.groups.join("g", make_join("", session_timeout_ms=session_ms))

        assert result.error is error

    async def test_an_empty_group_id_is_none(self) -> None:
        groups = Shell().groups
        invalid = ErrorCode.INVALID_GROUP_ID

        assert (await groups.join("", make_join(""))).error is invalid
        assert (await groups.sync("", make_sync("a", 1))).error is invalid
        assert await groups.heartbeat("", Heartbeat("a", None, 1)) is invalid
        assert (await groups.leave("", Leave((Leaver("a", None),)))).error is invalid
        assert await refused(groups.delete_offsets("", [])) is invalid

    async def test_metadata_too_large_for_a_znode_are_refused(self) -> None:
        groups = Shell().groups
        huge = bytes(MAX_MEMBER_BYTES + 1)

        join = await groups.join("g", make_join("", protocols=(GroupProtocol("range", huge),)))
        sync = await groups.sync("g", make_sync("a", 1, assignments={"a": huge}))

        assert join.error is ErrorCode.INVALID_REQUEST
        assert sync.error is ErrorCode.INVALID_REQUEST

    @pytest.mark.parametrize(
        "group_id", ["/", "..", ".", "a/b", "%", "\0", "ü\u202e", "x" * 30_000, "offsets", " "]
    )
    async def test_a_group_may_have_any_name(self, group_id: str) -> None:
        shell = Shell()
        await shell.settle_group(group_id, "../a", client_id="/\0")
        await shell.groups.commit(group_id, {("t", 0): at(7)}, member_id="../a", generation=1)
        await shell.groups.commit("other", {("t", 0): at(8)})
        shell.restart()

        assert await shell.heartbeat(group_id, "../a", 1) is ErrorCode.NONE
        assert await shell.offset(group_id, "t", 0) == 7
        assert {group.group_id for group in await shell.groups.groups()} == {group_id, "other"}

    async def test_many_unknown_groups_are_found_by_one_look_at_the_store(self) -> None:
        shell = Shell()
        await shell.settle_group("stored", "a")
        shell.restart()
        await shell.settle_group("loaded", "a")
        names = [f"unknown-{number}" for number in range(1000)]
        before = len(shell.store.transactions)

        found = await shell.groups.unknown(["stored", "loaded", "", *names])

        assert found == set(names)
        assert len(shell.store.transactions) == before + 1
        assert await shell.groups.uncommitted(["stored", "loaded", *names]) == set(names)

    async def test_a_group_that_is_made_during_the_look_is_not_unknown(self) -> None:
        shell = Shell()
        names = [f"g{number}" for number in range(100)]
        shell.store.gate.clear()
        looking = await shell.soon(shell.groups.unknown(names))
        committing = await shell.soon(shell.groups.commit("g7", {("t", 0): at(5)}))
        shell.store.gate.set()
        await committing

        assert "g7" not in await looking

    async def test_a_look_that_fails_finds_no_unknown_groups(self) -> None:
        shell = Shell()
        shell.store.failures.append(StoreUnavailable("cut"))

        assert await shell.groups.unknown([f"g{number}" for number in range(100)]) == frozenset()

    async def test_questions_about_unknown_groups_leave_nothing_behind(self) -> None:
        shell = Shell()

        assert await shell.heartbeat("nobody", "a", 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await shell.offset("nobody", "t", 0) is None
        assert await shell.groups.describe("nobody") is None
        assert await refused(shell.groups.commit("nobody", {}, generation=1)) is (
            ErrorCode.GROUP_ID_NOT_FOUND
        )

        assert shell.groups.states() == {}
        assert shell.store.data("/consumers/nobody") is None

    async def test_a_member_id_that_is_not_used_leaves_nothing_behind(self) -> None:
        shell = Shell()
        await shell.groups.join("g", make_join(""))

        await shell.timers.advance(10)

        assert shell.groups.states() == {}
        assert shell.timers.set == []


async def test_clients_cannot_forge_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    shell = Shell()

    await shell.join("g\n", new_member_id="a\nFORGED", reason="x\nFORGED", needs_known_id=False)
    await shell.timers.advance(6)

    assert caplog.messages
    assert not any("\n" in message for message in caplog.messages)


class TestRestart:
    async def test_changes_nothing_for_the_members(self) -> None:
        shell = Shell()
        await shell.settle_group("g", "a", "b")
        shell.restart()

        assert await shell.heartbeat("g", "a", 1) is ErrorCode.NONE
        await shell.groups.commit("g", {("t", 0): at(5)}, member_id="b", generation=1)
        sync = await (await shell.sync("g", "b", 1))
        assert sync.assignment == b"b"

    async def test_starts_every_session_anew(self) -> None:
        shell = Shell()
        await shell.settle_group("g", "a", session_timeout_ms=10_000)
        await shell.timers.advance(9)
        shell.restart()
        await shell.groups.start()
        await settle()

        await shell.timers.advance(9)
        assert await shell.heartbeat("g", "a", 1) is ErrorCode.NONE
        await shell.timers.advance(10)

        group = await shell.groups.describe("g")
        assert group is not None
        assert group.state is GroupState.EMPTY

    async def test_remembers_who_left(self) -> None:
        shell = Shell()
        await shell.settle_group("g", "a", "b")
        await shell.groups.leave("g", Leave((Leaver("b", None),)))
        shell.restart()

        assert await shell.heartbeat("g", "b", 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await shell.heartbeat("g", "a", 1) is ErrorCode.REBALANCE_IN_PROGRESS

    async def test_of_many_groups_needs_one_read_for_each(self) -> None:
        shell = Shell()
        for i in range(50):
            await shell.groups.commit(f"g{i}", {("t", 0): at(i)})
        shell.restart()

        groups = await shell.groups.groups()

        assert len(groups) == 50
        assert await shell.offset("g7", "t", 0) == 7


class TestCommits:
    async def test_are_stored_as_plain_integers(self) -> None:
        shell = Shell()

        await shell.groups.commit("g", {("t", 3): at(1030430)})

        assert shell.store.data("/consumers/g/offsets/t/3") == b"1030430"

    async def test_are_seen_only_when_stored(self) -> None:
        shell = Shell()
        await shell.groups.commit("g", {("t", 0): at(1)})
        shell.store.gate.clear()
        commit = await shell.soon(shell.groups.commit("g", {("t", 0): at(2)}))

        question = await shell.soon(shell.offset("g", "t", 0))
        assert not commit.done()
        assert not question.done()
        shell.store.gate.set()
        await commit

        assert await question == 2

    async def test_of_a_group_never_overtake_each_other_and_others_do_not_wait(self) -> None:
        shell = Shell()
        for group_id in ("g", "h"):
            await shell.groups.commit(group_id, {("t", 0): at(0)})
        shell.store.gate.clear()
        before = len(shell.store.transactions)

        commits = [
            await shell.soon(shell.groups.commit(group_id, {("t", 0): at(offset)}))
            for offset in (1, 2)
            for group_id in ("g", "h")
        ]

        paths = [ops[0].path for ops in shell.store.transactions[before:]]
        assert [path.rpartition("/")[0] for path in paths] == ["/consumers/g", "/consumers/h"]
        shell.store.gate.set()
        await asyncio.gather(*commits)
        assert shell.store.data("/consumers/g/offsets/t/0") == b"2"
        assert shell.store.data("/consumers/h/offsets/t/0") == b"2"

    async def test_that_come_while_others_are_on_their_way_go_together(self) -> None:
        shell = Shell()
        for i in range(10):
            await shell.groups.commit(f"g{i}", {("t", 0): at(0)})
        shell.store.gate.clear()
        first = await shell.soon(shell.groups.commit("g0", {("t", 0): at(1)}))
        before = len(shell.store.transactions)

        rest = [
            await shell.soon(shell.groups.commit(f"g{i}", {("t", 0): at(i + n)}))
            for i in range(10)
            for n in range(10)
        ]
        shell.store.gate.set()
        await asyncio.gather(first, *rest)

        assert len(shell.store.transactions) <= before + 3
        assert await shell.offset("g7", "t", 0) == 16, "the last one wins"

    async def test_of_an_older_generation_are_refused(self) -> None:
        shell = Shell()
        await shell.settle_group("g", "a", "b")
        await shell.groups.leave("g", Leave((Leaver("b", None),)))
        rejoin = await shell.soon(shell.groups.join("g", make_join("a")))
        assert (await rejoin).generation == 2

        error = await refused(
            shell.groups.commit("g", {("t", 0): at(1)}, member_id="a", generation=1)
        )

        assert error is ErrorCode.ILLEGAL_GENERATION
        assert await shell.offset("g", "t", 0) is None

    async def test_of_strangers_are_refused_while_there_are_members(self) -> None:
        shell = Shell()
        await shell.settle_group("g", "a")

        error = await refused(shell.groups.commit("g", {("t", 0): at(1)}))

        assert error is ErrorCode.UNKNOWN_MEMBER_ID

    async def test_are_fenced_by_the_groups_version(self) -> None:
        """Another coordinator has loaded the group: this one cannot write any more."""
        shell = Shell()
        await shell.settle_group("g", "a")
        zombie = shell.groups
        shell.restart()
        await shell.groups.leave("g", Leave((Leaver("a", None),)))

        error = await refused(zombie.commit("g", {("t", 0): at(1)}, member_id="a", generation=1))

        assert error is ErrorCode.NOT_COORDINATOR
        assert await shell.offset("g", "t", 0) is None

    async def test_of_others_do_not_fail_with_a_fenced_one(self) -> None:
        shell = Shell()
        for name in ("g", "other"):
            await shell.groups.commit(name, {("t", 0): at(0)})
        zombie = shell.groups
        shell.restart()
        await shell.groups.delete("g")
        shell.store.gate.clear()

        commits = [
            await shell.soon(zombie.commit(name, {("t", 0): at(1)}))
            for name in ("other", "g", "other")
        ]
        shell.store.gate.set()
        outcomes = await asyncio.gather(*commits, return_exceptions=True)

        assert [getattr(outcome, "code", None) for outcome in outcomes] == [
            None,
            ErrorCode.NOT_COORDINATOR,
            None,
        ]
        assert await shell.offset("other", "t", 0) == 1

    async def test_of_others_do_not_fail_with_one_that_is_too_large(self) -> None:
        shell = Shell()
        for name in ("g", "other"):
            await shell.groups.commit(name, {("t", 0): at(0)})
        shell.store.max_bytes = 1_000
        shell.store.gate.clear()
        large = at(1)._replace(metadata="x" * 1_000)

        commits = [
            await shell.soon(shell.groups.commit(name, {("t", 0): offset}))
            for name, offset in (("other", at(1)), ("g", large), ("other", at(2)))
        ]
        shell.store.gate.set()
        outcomes = await asyncio.gather(*commits, return_exceptions=True)

        assert [getattr(outcome, "code", None) for outcome in outcomes] == [
            None,
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            None,
        ]
        assert await shell.offset("other", "t", 0) == 2
        assert await shell.offset("g", "t", 0) == 0

    async def test_that_are_too_large_are_no_fault_of_members_that_wait(self) -> None:
        shell = Shell()
        await shell.settle_group("g", "a")
        joining = await shell.join("g", new_member_id="b", needs_known_id=False)
        shell.store.max_bytes = 1_000
        large = at(1)._replace(metadata="x" * 1_000)
        error = await refused(
            shell.groups.commit("g", {("t", 0): large}, member_id="a", generation=1)
        )
        assert error is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        assert (await joining).error is ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def test_large_ones_are_parted(self) -> None:
        shell = Shell()

        await shell.groups.commit("g", {("t", i): at(i) for i in range(5_000)})
        shell.restart()

        assert await shell.offset("g", "t", 4_999) == 4_999
        assert max(map(len, shell.store.transactions)) <= 1_000


class TestFailures:
    """The store fails: clients get retriable errors, and the group is loaded again."""

    @pytest.mark.parametrize("done_all_the_same", [False, True])
    async def test_a_commit_is_not_acknowledged(self, done_all_the_same: bool) -> None:
        shell = Shell()
        await shell.groups.commit("g", {("t", 0): at(1)})
        shell.store.failures.append(StoreUnavailable("disk"))
        shell.store.loses_answers = done_all_the_same

        error = await refused(shell.groups.commit("g", {("t", 0): at(2)}))

        assert error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await shell.offset("g", "t", 0) == (2 if done_all_the_same else 1)

    async def test_an_unexpected_error_of_the_store_is_handled_alike(self) -> None:
        shell = Shell()
        shell.store.failures.append(TypeError("a defect"))

        error = await refused(shell.groups.commit("g", {("t", 0): at(2)}))

        assert error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await shell.groups.commit("g", {("t", 0): at(3)})

    async def test_an_unloaded_group_is_not_woken(self) -> None:
        shell = Shell()
        await shell.settle_group("g", "a")
        shell.store.failures.append(StoreUnavailable("disk"))

        await refused(shell.groups.commit("g", {("t", 0): at(2)}, member_id="a", generation=1))

        assert shell.timers.set == []

    @pytest.mark.parametrize("done_all_the_same", [False, True])
    async def test_a_new_generation_is_not_told(self, done_all_the_same: bool) -> None:
        shell = Shell()
        await shell.settle_group("g", "a", "b")
        await shell.groups.leave("g", Leave((Leaver("b", None),)))
        shell.store.failures.append(StoreUnavailable("disk"))
        shell.store.loses_answers = done_all_the_same

        failed = await shell.groups.join("g", make_join("a"))
        again = await (await shell.soon(shell.groups.join("g", make_join("a"))))

        assert failed.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert again.error is ErrorCode.NONE
        assert again.generation == 2

    async def test_an_assignment_is_not_told_and_can_be_handed_in_again(self) -> None:
        shell = Shell()
        joins = [
            await shell.join("g", new_member_id=name, needs_known_id=False) for name in ("a", "b")
        ]
        await shell.timers.advance(6)
        await asyncio.gather(*joins)
        follower = await shell.sync("g", "b", 1)
        shell.store.failures.append(StoreUnavailable("disk"))

        leader = await shell.sync("g", "a", 1, assignments={"b": b"first"})
        assert (await leader).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await follower).error is ErrorCode.COORDINATOR_NOT_AVAILABLE

        follower = await shell.sync("g", "b", 1)
        await shell.sync("g", "a", 1, assignments={"b": b"second"})
        assert (await follower).assignment == b"second"

    async def test_a_group_that_cannot_be_read_is_tried_again(self) -> None:
        shell = Shell()
        await shell.settle_group("g", "a")
        shell.restart()
        shell.store.failures.append(StoreUnavailable("disk"))

        assert await shell.heartbeat("g", "a", 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await shell.heartbeat("g", "a", 1) is ErrorCode.NONE

    async def test_a_store_that_does_not_answer_is_not_waited_for(self) -> None:
        shell = Shell()
        await shell.groups.commit("g", {("t", 0): at(1)})
        shell.store.gate.clear()
        commits = [
            await shell.soon(shell.groups.commit("g", {("t", 0): at(n)})) for n in range(2, 4)
        ]

        await shell.timers.advance(5)
        outcomes = await asyncio.gather(*commits, return_exceptions=True)
        load = await shell.soon(shell.groups.commit("g", {("t", 0): at(4)}))
        await shell.timers.advance(5)

        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert [getattr(outcome, "code", None) for outcome in outcomes] == [unavailable] * 2
        assert await refused(load) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

        shell.store.gate.set()
        await settle()
        assert await shell.offset("g", "t", 0) == 2, "the late write was done, and is known"
        await shell.groups.commit("g", {("t", 0): at(5)})
        assert await shell.offset("g", "t", 0) == 5

    async def test_a_malformed_group_is_refused_and_does_not_affect_others(self) -> None:
        shell = Shell()
        await shell.groups.commit("good", {("t", 0): at(1)})
        await shell.groups.commit("bad", {("t", 0): at(1)})
        shell.store.database.begin()
        from qbus.metadata import Set

        shell.store.database.apply([Set("/consumers/bad", b"rubbish")])
        shell.store.database.commit()
        shell.restart()

        assert await shell.heartbeat("bad", "a", 1) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert [group.group_id for group in await shell.groups.groups()] == ["good"]

    async def test_a_client_that_goes_away_leaves_nothing_undone(self) -> None:
        shell = Shell()
        shell.store.gate.clear()
        commit = await shell.soon(shell.groups.commit("g", {("t", 0): at(1)}))
        commit.cancel()
        shell.store.gate.set()
        await settle()

        assert await shell.offset("g", "t", 0) in {None, 1}
        await shell.groups.commit("g", {("t", 0): at(2)})
        assert await shell.offset("g", "t", 0) == 2


class TestAdministration:
    async def test_lists_groups_of_every_kind(self) -> None:
        shell = Shell()
        await shell.settle_group("members", "a")
        await shell.groups.commit("simple", {("t", 0): at(1)})

        groups = {group.group_id: group.state for group in await shell.groups.groups()}

        assert groups == {"members": GroupState.STABLE, "simple": GroupState.EMPTY}

    async def test_deletes_a_group_with_its_offsets(self) -> None:
        shell = Shell()
        await shell.groups.commit("g", {("t", 0): at(1), ("u", 1): at(2)})

        await shell.groups.delete("g")

        assert shell.store.database.tree("/consumers/g") == {}
        assert await shell.offset("g", "t", 0) is None
        assert await refused(shell.groups.delete("g")) is ErrorCode.GROUP_ID_NOT_FOUND

    async def test_deletes_a_group_too_large_for_one_transaction(self) -> None:
        shell = Shell()
        await shell.groups.commit("g", {("t", i): at(i) for i in range(3_000)})

        await shell.groups.delete("g")

        assert shell.store.database.tree("/consumers/g") == {}
        assert max(map(len, shell.store.transactions)) <= 1_000

    async def test_keeps_a_group_that_has_members(self) -> None:
        shell = Shell()
        await shell.settle_group("g", "a")

        assert await refused(shell.groups.delete("g")) is ErrorCode.NON_EMPTY_GROUP
        assert await shell.heartbeat("g", "a", 1) is ErrorCode.NONE

    async def test_a_group_being_deleted_takes_nobody_in(self) -> None:
        shell = Shell()
        await shell.groups.commit("g", {("t", 0): at(1)})
        shell.store.gate.clear()
        deletion = await shell.soon(shell.groups.delete("g"))

        meanwhile = await shell.groups.join("g", make_join(""))
        shell.store.gate.set()
        await deletion
        afterwards = await shell.groups.join("g", make_join(""))

        assert meanwhile.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert afterwards.error is ErrorCode.MEMBER_ID_REQUIRED

    async def test_a_deletion_that_failed_left_the_group(self) -> None:
        shell = Shell()
        await shell.groups.commit("g", {("t", 0): at(1)})
        shell.store.failures.append(StoreUnavailable("disk"))

        assert await refused(shell.groups.delete("g")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await shell.offset("g", "t", 0) == 1

    async def test_a_deletion_goes_on_when_its_client_has_gone(self) -> None:
        shell = Shell()
        await shell.groups.commit("g", {("t", 0): at(1)})
        shell.store.gate.clear()
        deletion = await shell.soon(shell.groups.delete("g"))
        deletion.cancel()
        shell.store.gate.set()
        await settle()

        assert await shell.groups.describe("g") is None

    async def test_deletes_single_offsets(self) -> None:
        shell = Shell()
        await shell.groups.commit("g", {("t", 0): at(1), ("t", 1): at(2)})

        outcome = await shell.groups.delete_offsets("g", [("t", 0), ("t", 9)])
        shell.restart()

        assert outcome == {("t", 0): ErrorCode.NONE, ("t", 9): ErrorCode.NONE}
        assert await shell.offset("g", "t", 0) is None
        assert await shell.offset("g", "t", 1) == 2

    async def test_keeps_offsets_of_topics_that_are_consumed(self) -> None:
        shell = Shell()
        subscription = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
        protocols = (GroupProtocol("range", subscription),)
        await shell.settle_group("g", "a", protocols=protocols)
        both = {("t", 0): at(1), ("u", 0): at(2)}
        await shell.groups.commit("g", both, member_id="a", generation=1)

        outcome = await shell.groups.delete_offsets("g", both)

        assert outcome == {
            ("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ("u", 0): ErrorCode.NONE,
        }
        assert await shell.offset("g", "u", 0) is None

    async def test_keeps_offsets_of_members_whose_topics_it_cannot_know(self) -> None:
        shell = Shell()
        await shell.settle_group("g", "a", protocol_type="connect")

        error = await refused(shell.groups.delete_offsets("g", [("t", 0)]))

        assert error is ErrorCode.NON_EMPTY_GROUP

    async def test_deletes_no_offsets_of_unknown_groups(self) -> None:
        error = await refused(Shell().groups.delete_offsets("g", [("t", 0)]))

        assert error is ErrorCode.GROUP_ID_NOT_FOUND


class TestShutdown:
    async def test_answers_everyone_who_is_parked(self) -> None:
        shell = Shell()
        join = await shell.join("g", new_member_id="a", needs_known_id=False)

        shell.groups.drain()

        assert (await join).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await shell.heartbeat("g", "a", 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def test_stores_what_was_accepted(self) -> None:
        shell = Shell()
        commit = await shell.soon(shell.groups.commit("g", {("t", 0): at(1)}))

        await shell.groups.close()
        await commit
        shell.restart()

        assert await shell.offset("g", "t", 0) == 1

    async def test_leaves_the_group_as_it_was(self) -> None:
        shell = Shell()
        await shell.settle_group("g", "a", "b")
        rejoin = await shell.soon(shell.groups.join("g", make_join("a")))

        await shell.groups.close()
        assert (await rejoin).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        shell.restart()

        assert await shell.heartbeat("g", "a", 1) is ErrorCode.REBALANCE_IN_PROGRESS
        assert await shell.heartbeat("g", "b", 1) is ErrorCode.REBALANCE_IN_PROGRESS

    async def test_leaves_no_timers(self) -> None:
        shell = Shell()
        await shell.groups.start()
        await shell.settle_group("g", "a")

        await shell.groups.close()

        assert shell.timers.set == []
