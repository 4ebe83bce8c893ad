"""How a member gives partitions up: it commits what was read, and waits for what callbacks do."""

import asyncio
from collections.abc import Iterable

import pytest

from qbus.clients.consumer.assignment import Assignment
from qbus.clients.group.commits import Commits
from qbus.clients.group.handover import Handover
from qbus.clients.group.options import Callbacks, GroupOptions
from qbus.clients.group.poll_executor import PollExecutor
from qbus.clients.types import TopicPartition

from .test_commits import P0, P1, Coordinator, at, commits, stable


class Member:
    """A member with P0 and P1 of which offsets below 5 were read, whose callback commits 7."""

    def __init__(self, *, auto_commit: bool = True) -> None:
        self.coordinator = Coordinator()
        self.state = stable()
        self.commits: Commits = commits(self.coordinator, self.state)
        self.partitions = Assignment()
        self.partitions.add([P0, P1])
        for state in self.partitions.states.values():
            state.position = 5
        self.told: list[list[TopicPartition]] = []
        options = GroupOptions("g", None, 6.0, 60.0, 1.0, callbacks=Callbacks(None, self._revoked))
        self.executor = PollExecutor(asyncio.Event())
        self.handover = Handover(
            options,
            self.partitions,
            self.commits,
            self.state,
            self.executor,
            auto_commit=auto_commit,
        )

    def _revoked(self, partitions: Iterable[TopicPartition]) -> None:
        self.told.append([*partitions])
        self.commits.submit(dict.fromkeys(partitions, at(7)))

    async def give_up(self, *partitions: TopicPartition) -> None:
        """Give these up while the user polls."""
        giving = asyncio.create_task(self.handover.give_up(lambda: [*partitions]))
        while not giving.done():
            await self.executor.run_pending()
            await asyncio.sleep(0)
        await giving

    @property
    def committed(self) -> list[dict[int, int]]:
        return [offsets for _, offsets in self.coordinator.sent()]


async def test_what_was_read_is_committed_before_the_callback_and_what_it_commits_after() -> None:
    member = Member()
    await member.give_up(P1)
    assert member.told == [[P1]]
    assert member.committed == [{1: 5}, {1: 7}]
    assert [*member.partitions] == [P0]


async def test_a_partition_is_given_up_only_when_its_commits_are_done() -> None:
    member = Member(auto_commit=False)
    member.coordinator.open.clear()
    giving = asyncio.create_task(member.give_up(P1))
    await asyncio.sleep(0.01)
    assert (member.told, giving.done()) == ([[P1]], False)
    member.coordinator.open.set()
    await giving
    assert member.committed == [{1: 7}]


async def test_a_commit_under_way_delays_nothing_when_nothing_is_given_up() -> None:
    member = Member()
    member.coordinator.open.clear()
    done = member.commits.submit({P0: at(6)})
    await asyncio.wait_for(member.give_up(), 1)
    assert (member.told, done.done()) == ([], False)
    await member.commits.close()


@pytest.mark.parametrize("may_commit", [True, False])
async def test_closing_commits_calls_back_and_waits_for_all_commits(may_commit: bool) -> None:
    member = Member()
    await member.handover.finish(may_commit=may_commit)
    assert member.told == [[P0, P1]]
    assert member.committed == [{0: 5, 1: 5}] * may_commit + [{0: 7, 1: 7}]
    assert [*member.partitions] == []


async def test_a_member_that_lost_its_place_commits_nothing() -> None:
    member = Member()
    member.state.lose("expelled")
    await member.give_up(P1)
    await member.handover.finish(may_commit=True)
    assert member.told == [[P1], [P0]]
    assert member.committed == []
