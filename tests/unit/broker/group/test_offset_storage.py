"""Moves of offsets between log and store while groups are in use, and who says where they are."""

from typing import Any

import pytest

from qbus.broker.group.storage import PATH, Storage
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import SessionState, Set, StoreUnavailable

from .offset_shell import (
    LOG,
    OffsetShell,
    P,
    SharedLog,
    alone,
    answering,
    bring,
    is_unstable,
    refused,
    switch,
    two,
    where,
)
from .shell import Shell, at, settle


class TestMovingToTheLog:
    async def test_leaves_the_store_as_it_is_when_the_storage_has_changed_meanwhile(self) -> None:
        shell = await alone()
        await shell.groups.commit("g", {("t", 0): at(5)})
        ask = shell.log.ask

        async def overtaken(*args: Any, **kwargs: Any) -> Any:
            answer = await ask(*args, **kwargs)
            if where(shell) is Storage.LOG:  # the way to the log, and all of the way back
                switch(shell, "zookeeper")
                shell.store.database.begin()
                shell.store.database.apply([Set(PATH, b'{"version":1,"storage":"zookeeper"}')])
                shell.store.database.commit()
            return answer

        shell.log.ask = overtaken  # type: ignore[method-assign]
        switch(shell, "log")
        await shell.look()

        assert where(shell) is Storage.STORE
        assert await shell.offset("g", "t", 0) == 5

    async def test_takes_what_is_in_the_store_along(self) -> None:
        shell = await alone()
        await shell.settle_group("g", "a")
        await shell.groups.commit("g", {("t", 0): at(5)}, member_id="a", generation=1)
        await shell.groups.commit("simple", {("t", 0): at(6)})

        switch(shell, "log")
        await shell.look()

        assert where(shell) is Storage.LOG
        assert await shell.offset("g", "t", 0) == 5
        assert await shell.offset("simple", "t", 0) == 6
        assert shell.store.database.children("/consumers/g/offsets") == []
        assert shell.store.database.children("/consumers/simple/offsets") == []

    async def test_costs_members_nothing_but_a_request_that_is_repeated(self) -> None:
        shell = await alone()
        await shell.settle_group("g", "a")

        switch(shell, "log")
        await shell.look()

        assert await shell.heartbeat("g", "a", 1) is ErrorCode.NONE
        await shell.groups.commit("g", {("t", 0): at(5)}, member_id="a", generation=1)

    async def test_loses_no_commit_between_two_brokers(self) -> None:
        """The former coordinator has not heard of the change yet."""
        one, other = await two()
        groups = [f"g{number}" for number in range(20)]
        theirs = [g for g in groups if (c := one.groups.coordinator(g)) and c.id == 1]
        assert theirs
        for group in theirs:
            await other.groups.commit(group, {("t", 0): at(5)})

        switch(one, "log")
        await one.look()
        assert where(other) is Storage.STORE
        for group in theirs:
            late = other.groups.commit(group, {("t", 0): at(6)})
            assert await refused(late) is ErrorCode.NOT_COORDINATOR

        for group in theirs:
            assert await one.offset(group, "t", 0) == 5
        await other.look(is_controller=False)
        assert where(other) is Storage.LOG

    async def test_a_broker_that_has_not_heard_of_it_loads_no_group(self) -> None:
        one, other = await two()
        switch(one, "log")
        await one.look()
        theirs = next(
            name
            for name in (f"g{number}" for number in range(20))
            if (c := other.groups.coordinator(name)) and c.id == 1
        )
        assert where(other) is Storage.STORE

        late = other.groups.commit(theirs, {("t", 0): at(6)})

        assert await refused(late) is ErrorCode.NOT_COORDINATOR
        assert other.store.data(f"/consumers/{theirs}") is None

    async def test_that_is_interrupted_is_done_again(self) -> None:
        shell = await alone()
        await shell.groups.commit("g", {("t", 0): at(5)})
        shell.log.fails.append(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

        switch(shell, "log")
        await shell.look()

        assert await shell.offset("g", "t", 0) == 5
        assert shell.store.database.children("/consumers/g/offsets") == []

    async def test_ends_what_transactions_brought_to_the_store(self) -> None:
        shell = await alone()
        await bring(shell, 9)

        switch(shell, "log")
        await shell.look()
        assert await is_unstable(shell)
        await shell.groups.end_transaction("g", P, 0, committed=True)

        assert await shell.offset("g", "t", 0) == 9
        assert not await is_unstable(shell)

    async def test_a_commit_afterwards_counts_instead_of_what_a_transaction_brought_before(
        self,
    ) -> None:
        shell = await alone()
        await bring(shell, 9)
        switch(shell, "log")
        await shell.look()

        await shell.groups.commit("g", {("t", 0): at(11)})
        await shell.groups.end_transaction("g", P, 0, committed=True)

        assert await shell.offset("g", "t", 0) == 11


class TestMovingBackToTheStore:
    async def test_takes_what_is_in_the_log_along(self) -> None:
        shell = await alone(**LOG)
        await shell.settle_group("g", "a")
        await shell.groups.commit("g", {("t", 0): at(5)}, member_id="a", generation=1)
        await shell.groups.commit("simple", {("t", 0): at(6), ("u", 1): at(7)})

        switch(shell, "zookeeper")
        await shell.look()

        assert where(shell) is Storage.STORE
        assert shell.store.data("/consumers/g/offsets/t/0") == b"5"
        assert shell.store.data("/consumers/simple/offsets/u/1") == b"7"
        assert await shell.offset("g", "t", 0) == 5
        assert await shell.heartbeat("g", "a", 1) is ErrorCode.NONE
        assert all(not machine.group_ids() for machine in shell.log.machines())
        assert shell.store.database.children(PATH) == []

    async def test_waits_for_transactions_in_the_log(self) -> None:
        shell = await alone(**LOG)
        await shell.groups.commit("g", {("t", 0): at(5)})
        await bring(shell, 9)

        switch(shell, "zookeeper")
        await shell.look()
        assert where(shell) is Storage.RETURNING
        assert await shell.offset("g", "t", 0) == 5
        assert await is_unstable(shell)
        shell.shared.mark((P, 0), committed=True)
        assert await shell.offset("g", "t", 0) == 9
        await shell.look()

        assert where(shell) is Storage.STORE
        assert shell.store.data("/consumers/g/offsets/t/0") == b"9"

    async def test_says_once_a_minute_what_holds_it_up(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        shell = await alone(**LOG)
        await bring(shell, 9)
        switch(shell, "zookeeper")
        for _ in range(3):
            await shell.look()

        (said,) = [line for line in caplog.messages if "still in the log" in line]
        assert "1 groups, as g" in said

    async def test_a_commit_meanwhile_is_not_undone(self) -> None:
        shell = await alone(**LOG)
        await bring(shell, 9)
        switch(shell, "zookeeper")
        await shell.look()

        await shell.groups.commit("g", {("t", 0): at(11)})
        shell.shared.mark((P, 0), committed=True)
        await shell.look()

        assert where(shell) is Storage.STORE
        assert await shell.offset("g", "t", 0) == 11

    async def test_new_transactions_meanwhile_go_to_the_store(self) -> None:
        shell = await alone(**LOG)
        await bring(shell, 9)
        switch(shell, "zookeeper")
        await shell.look()
        assert shell.groups.offsets_partition("g") is None

        await shell.groups.commit_in_transaction(
            "g", {("t", 1): at(3)}, producer_id=8, epoch=0, verify=answering()
        )
        shell.shared.mark((P, 0), committed=True)
        await shell.groups.end_transaction("g", 8, 0, committed=True)
        await shell.look()

        assert where(shell) is Storage.STORE
        assert await shell.offset("g", "t", 0) == 9
        assert await shell.offset("g", "t", 1) == 3

    async def test_waits_for_every_partition_of_the_log(self) -> None:
        one, other = await two(**LOG)
        groups = [f"g{number}" for number in range(10)]
        for group in groups:
            await one.groups.commit(group, {("t", 0): at(5)})
        await one.shared.elect(2, 1)

        switch(one, "zookeeper")
        await one.look()
        assert where(one) is Storage.RETURNING
        await other.look(is_controller=False)
        assert where(other) is Storage.STORE
        await one.look()

        assert where(one) is Storage.STORE
        for group in groups:
            coordinator = one.groups.coordinator(group)
            assert coordinator is not None
            assert await (one, other)[coordinator.id].offset(group, "t", 0) == 5

    async def test_may_be_turned_round(self) -> None:
        shell = await alone(**LOG)
        await shell.groups.commit("h", {("t", 0): at(3)})
        await bring(shell, 9)
        switch(shell, "zookeeper")
        await shell.look()
        assert where(shell) is Storage.RETURNING

        switch(shell, "log")
        await shell.look()
        shell.shared.mark((P, 0), committed=True)

        assert where(shell) is Storage.LOG
        assert await shell.offset("g", "t", 0) == 9
        assert await shell.offset("h", "t", 0) == 3
        assert shell.store.database.children("/consumers/h/offsets") == []

    async def test_of_a_log_that_was_never_made_is_over_at_once(self) -> None:
        shell = OffsetShell(SharedLog(), **LOG)
        del shell.metadata.topics["__consumer_offsets"]
        await shell.groups.start()

        switch(shell, "zookeeper")
        await shell.look()

        assert where(shell) is Storage.STORE

    async def test_a_broker_that_leads_no_more_does_not_say_that_all_is_moved(self) -> None:
        one, other = await two(**LOG)
        await one.groups.commit("g", {("t", 0): at(5)})
        switch(one, "zookeeper")
        one.log.loaded.clear()  # it has not heard that the other leads
        index = one.log.partition_for("g")
        await one.shared.elect(index, 1)
        one.log.load(index)
        one.log.loaded[index].machine.marker(0, 0, committed=True)

        await one.look()

        assert where(one) is Storage.RETURNING
        assert f"returned-{index}" not in one.store.database.children(PATH)
        assert other.log.loaded[index].machine.has("g")


class TestTheNodeOfTheStorage:
    async def test_is_made_by_the_first_broker_and_followed_by_others(self) -> None:
        shared = SharedLog()
        first = OffsetShell(shared, **LOG)
        other = OffsetShell(shared, first, node_id=1)

        await first.groups.start()
        await other.groups.start()

        assert first.store.data(PATH) == b'{"version":1,"storage":"log"}'
        assert where(other) is Storage.LOG

    async def test_is_not_changed_by_a_broker_that_is_no_controller(self) -> None:
        shell = await alone()
        switch(shell, "log")

        await shell.look(is_controller=False)

        assert where(shell) is Storage.STORE

    async def test_is_looked_at_again_when_the_store_did_not_answer(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        shell = await alone()
        switch(shell, "log")
        shell.store.failures.append(StoreUnavailable("gone"))
        await shell.groups.look_after_storage(is_controller=True)
        shell.store.enter(SessionState.SUSPENDED)
        await shell.look()
        assert where(shell) is Storage.STORE
        assert not [one for one in caplog.records if one.levelname == "ERROR"]

        shell.store.enter(SessionState.CONNECTED)
        await shell.look()

        assert where(shell) is Storage.LOG

    async def test_of_another_making_counts_as_the_store(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        shell = await alone()
        shell.store.database.begin()
        shell.store.database.apply([Set(PATH, b"?")])
        shell.store.database.commit()

        shell.restart()
        await shell.groups.start()
        await settle()

        assert where(shell) is Storage.STORE
        assert PATH in caplog.text

    async def test_is_of_no_concern_where_there_is_no_log(self) -> None:
        shell = Shell()
        await shell.groups.start()
        await shell.groups.look_after_storage(is_controller=True)

        assert where(shell) is Storage.STORE
        assert shell.store.data(PATH) is None
        assert shell.groups.offsets_partition("g") is None
