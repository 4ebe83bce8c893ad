"""Commits: in order, each for the generation it was asked in, merged while they wait."""

import asyncio
from typing import Any

import pytest

from qbus.clients.errors import ConnectionFailed
from qbus.clients.group.commits import Commits
from qbus.clients.group.state import MemberState
from qbus.clients.net.trouble import TroubleLog
from qbus.clients.types import OffsetAndMetadata, TopicPartition
from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Coordinator:
    """Answers when it is let, with ``codes`` in turn (by partition), then with none."""

    request_timeout = 5.0
    troubles = TroubleLog("test")

    def __init__(self) -> None:
        self.requests: list[OffsetCommitRequest] = []
        self.codes: list[ErrorCode | dict[int, ErrorCode]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def ask_coordinator(
        self,
        group: str,
        api: Any,
        request: OffsetCommitRequest,
        *,
        connection_group: Any,
        by_id: bool,
    ) -> OffsetCommitResponse:
        self.requests.append(request)
        await self.open.wait()
        codes = self.codes.pop(0) if self.codes else {}
        if codes is ErrorCode.NETWORK_EXCEPTION:
            raise ConnectionFailed("cut")
        (topic,) = request.topics
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name="t",
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=part.partition_index,
                            error_code=(
                                codes.get(part.partition_index, ErrorCode.NONE)
                                if isinstance(codes, dict)
                                else codes
                            ),
                        )
                        for part in topic.partitions
                    ],
                )
            ]
        )

    def forget_coordinator(self, group: str, kind: object = None) -> None:
        pass

    def sent(self) -> list[tuple[int, dict[int, int]]]:
        return [
            (
                request.generation_id_or_member_epoch,
                {p.partition_index: p.committed_offset for p in request.topics[0].partitions},
            )
            for request in self.requests
        ]


def stable(generation: int = 1) -> MemberState:
    state = MemberState()
    state.start()
    state.synced(state.joined("m", generation, "range"), ())
    return state


def commits(coordinator: Coordinator, state: MemberState | None = None) -> Commits:
    cluster: Any = coordinator
    return Commits(cluster, "g", state)


def at(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, f"to {offset}")


async def test_offsets_metadata_and_place_are_sent() -> None:
    coordinator = Coordinator()
    await commits(coordinator, stable(7)).submit({P0: OffsetAndMetadata(5, "mine", 2)})
    (request,) = coordinator.requests
    assert (request.member_id, request.generation_id_or_member_epoch) == ("m", 7)
    (part,) = request.topics[0].partitions
    assert (part.committed_offset, part.committed_metadata, part.committed_leader_epoch) == (
        (5, "mine", 2)
    )


async def test_waiting_commits_share_the_next_request() -> None:
    coordinator = Coordinator()
    coordinator.open.clear()
    made = commits(coordinator, stable())
    futures = [made.submit({P0: at(1)})]
    await asyncio.sleep(0)
    futures += [made.submit({P0: at(2)}), made.submit({P0: at(3), P1: at(9)})]
    await asyncio.sleep(0.01)
    assert len(coordinator.requests) == 1
    coordinator.open.set()
    await asyncio.gather(*futures)
    assert coordinator.sent() == [(1, {0: 1}), (1, {0: 3, 1: 9})]


async def test_a_commit_is_retried_until_a_coordinator_accepts_it() -> None:
    coordinator = Coordinator()
    coordinator.codes = [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    ]
    made = commits(coordinator, stable())
    first, second = made.submit({P0: at(1)}), made.submit({P0: at(2)})
    await asyncio.gather(first, second)
    assert {offsets[0] for _, offsets in coordinator.sent()} == {2}


async def test_a_commit_of_an_old_generation_is_not_sent_again() -> None:
    coordinator, state = Coordinator(), stable(1)
    coordinator.codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    late = commits(coordinator, state).submit({P0: at(1)})
    await asyncio.sleep(0)
    state.start()
    state.synced(state.joined("m", 2, "range"), ())
    with pytest.raises(ApiError) as caught:
        await late
    assert caught.value.code is ErrorCode.ILLEGAL_GENERATION
    assert not caught.value.retriable
    assert {generation for generation, _ in coordinator.sent()} <= {1}
    assert not state.is_lost, "the refusal is about the past"


async def test_commits_of_two_generations_never_go_together() -> None:
    coordinator, state = Coordinator(), stable(1)
    coordinator.open.clear()
    made = commits(coordinator, state)
    first = made.submit({P0: at(1)})
    await asyncio.sleep(0)
    old = made.submit({P0: at(2)})
    state.start()
    state.synced(state.joined("m", 2, "range"), ())
    new = made.submit({P1: at(3)})
    coordinator.open.set()
    outcomes = await asyncio.gather(first, old, new, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), ApiError, type(None)]
    assert coordinator.sent() == [(1, {0: 1}), (2, {1: 3})]


async def test_each_hears_of_its_own_partitions() -> None:
    coordinator = Coordinator()
    coordinator.codes = [{1: ErrorCode.OFFSET_METADATA_TOO_LARGE}]
    made = commits(coordinator, stable())
    good, bad = made.submit({P0: at(1)}), made.submit({P1: at(1)})
    await good
    with pytest.raises(ApiError) as caught:
        await bad
    assert caught.value.code is ErrorCode.OFFSET_METADATA_TOO_LARGE


async def test_a_commit_tells_that_the_place_is_lost() -> None:
    coordinator, state = Coordinator(), stable()
    coordinator.codes = [ErrorCode.UNKNOWN_MEMBER_ID]
    with pytest.raises(ApiError):
        await commits(coordinator, state).submit({P0: at(1)})
    assert state.is_lost


async def test_between_two_generations_nothing_can_be_committed() -> None:
    state = MemberState()
    state.start()
    state.joined("m", 1, "range")
    with pytest.raises(ApiError) as caught:
        await commits(Coordinator(), state).submit({P0: at(1)})
    assert caught.value.code is ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_member_without_a_place_does_not_commit() -> None:
    coordinator, state = Coordinator(), stable()
    state.lose("expelled")
    with pytest.raises(ApiError) as caught:
        await commits(coordinator, state).submit({P0: at(1)})
    assert caught.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.requests == []


async def test_who_is_no_member_commits_as_nobody() -> None:
    coordinator = Coordinator()
    await commits(coordinator).submit({P0: at(1)})
    assert coordinator.sent() == [(-1, {0: 1})]


async def test_who_gives_up_waiting_stops_nothing() -> None:
    coordinator = Coordinator()
    coordinator.open.clear()
    made = commits(coordinator, stable())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(made.submit({P0: at(1)}), 0.01)
    rest = made.submit({P0: at(2)})
    coordinator.open.set()
    await rest
    await made.drain()
    assert [offsets for _, offsets in coordinator.sent()] == [{0: 1}, {0: 2}]


async def test_who_waits_for_commits_does_not_wait_for_later_ones() -> None:
    coordinator = Coordinator()
    coordinator.open.clear()
    made = commits(coordinator, stable())
    made.submit({P0: at(1)})
    waiting = asyncio.create_task(made.drain())
    await asyncio.sleep(0.01)
    later = made.submit({P0: at(2)})
    coordinator.open, held = asyncio.Event(), coordinator.open
    held.set()
    await asyncio.wait_for(waiting, 1)
    assert not later.done()
    await made.close()
    await asyncio.wait_for(made.drain(), 1)


async def test_what_is_given_up_is_cancelled() -> None:
    coordinator = Coordinator()
    coordinator.open.clear()
    made = commits(coordinator, stable())
    asked = made.submit({P0: at(1)})
    await asyncio.sleep(0.01)
    waiting = made.submit({P0: at(2)})
    await made.close()
    assert asked.cancelled()
    assert waiting.cancelled()


async def test_a_defect_leaves_nobody_waiting() -> None:
    class Broken(Coordinator):
        async def ask_coordinator(self, *asked: Any, **how: Any) -> OffsetCommitResponse:
            await super().ask_coordinator(*asked, **how)
            raise RuntimeError("a defect")

    coordinator = Broken()
    coordinator.open.clear()
    made = commits(coordinator, stable())
    asked = made.submit({P0: at(1)})
    await asyncio.sleep(0.01)
    waiting = made.submit({P0: at(2)})
    coordinator.open.set()
    await asyncio.wait_for(made.drain(), 1)
    assert asked.cancelled()
    assert waiting.cancelled()
