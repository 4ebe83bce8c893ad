"""A leader without the store: whether it still is one is told by who follows it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.kafka.handlers.topic_partitions import view
from qbus.broker.partition.partition import ACKS_ALL
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import SessionState
from tests.support.data_plane import NODE, DataPlane
from tests.support.following import OTHER, Follower, at, lead, put, state
from tests.support.logs import batch

SESSION_S = 9.0
SILENCE_S = 4 * 0.5


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[DataPlane]:
    plane = DataPlane(tmp_path, zookeeper_session_timeout_ms=9_000, replica_fetch_wait_max_ms=500)
    await plane.start()
    yield plane
    await plane.stop()


def be_cut_off(plane: DataPlane, seconds: float = SESSION_S) -> None:
    """Be without the store for some time."""
    plane.store.become(SessionState.SUSPENDED)
    plane.clock.advance(seconds)
    plane.replicas.lease.check()


def named_leader(plane: DataPlane) -> int:
    """Which leader clients are told."""
    return view(plane.metadata, plane.metadata.topics["orders"], 0).leader  # type: ignore[arg-type]


class Acks:
    """A produce that waits; remembers what it was told."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []

    def done(self) -> bool:
        return False

    def acknowledged(self, _: object, code: ErrorCode) -> None:
        self.codes.append(code)


async def test_whom_nobody_follows_any_more_leads_no_more(plane: DataPlane) -> None:
    partition, acks = await lead(plane), Acks()
    partition.append(batch(b"a"), ACKS_ALL)
    partition.when_acknowledged(1, acks, None)
    be_cut_off(plane)
    assert named_leader(plane) == -1
    assert partition.check() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert acks.codes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    with pytest.raises(ApiError) as refused:
        partition.append(batch(b"b"), 1)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_nobody_waits_for_what_is_never_acknowledged_once_the_session_is_lost(
    plane: DataPlane,
) -> None:
    """Else a broker that stops would wait for such requests, for as long as it may."""
    partition, acks = await lead(plane), Acks()
    partition.append(batch(b"a"), ACKS_ALL)
    partition.when_acknowledged(1, acks, None)
    plane.store.become(SessionState.SUSPENDED)
    assert acks.codes == [], "the session may go on"
    plane.store.become(SessionState.LOST)
    assert acks.codes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    assert partition.check() is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_nothing_is_in_doubt_before_the_sessions_time_is_over(plane: DataPlane) -> None:
    await lead(plane)
    be_cut_off(plane, SESSION_S - 0.1)
    assert named_leader(plane) == NODE


async def test_whom_somebody_follows_still_leads(plane: DataPlane) -> None:
    """The whole store is down: nobody can have been elected."""
    partition, follower = await lead(plane), Follower(plane)
    await follower.fetch(at(0))
    plane.store.become(SessionState.SUSPENDED)
    plane.clock.advance(SESSION_S)
    await follower.fetch()
    plane.clock.advance(SILENCE_S)
    plane.replicas.lease.check()
    assert (named_leader(plane), partition.check()) == (NODE, ErrorCode.NONE)
    plane.clock.advance(0.1)
    plane.replicas.lease.check()
    assert named_leader(plane) == -1


async def test_who_is_followed_elsewhere_is_followed_here_no_more(plane: DataPlane) -> None:
    """Though the follower goes on with other partitions."""
    await put(plane, state(), state(), qbus_durability="memory")
    follower = Follower(plane)
    await follower.fetch(at(0), at(0, 1))
    await follower.fetch(forgotten=(0,))
    be_cut_off(plane)
    await follower.fetch()
    plane.replicas.lease.check()
    first, second = (plane.partition("orders", index).check() for index in range(2))
    assert (first, second) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE)


@pytest.mark.parametrize("replicas", [(NODE,), (NODE, OTHER)])
async def test_whom_nobody_could_replace_still_leads(
    plane: DataPlane, replicas: tuple[int, ...]
) -> None:
    await put(plane, state((NODE,), replicas=replicas), qbus_durability="memory")
    be_cut_off(plane)
    assert named_leader(plane) == NODE
    plane.partition("orders").append(batch(b"a"), 1)


async def test_who_is_followed_again_leads_again(plane: DataPlane) -> None:
    partition, follower = await lead(plane), Follower(plane)
    be_cut_off(plane)
    await follower.fetch(at(0))
    plane.replicas.lease.check()
    assert (named_leader(plane), partition.check()) == (NODE, ErrorCode.NONE)


async def test_who_has_its_connection_back_leads_again(plane: DataPlane) -> None:
    partition = await lead(plane)
    be_cut_off(plane)
    plane.store.become(SessionState.CONNECTED)
    assert (named_leader(plane), partition.check()) == (NODE, ErrorCode.NONE)
    partition.append(batch(b"a"), ACKS_ALL)
    plane.clock.advance(60)
    plane.replicas.lease.check()
    assert named_leader(plane) == NODE


async def test_who_follows_by_now_stays_a_follower(plane: DataPlane) -> None:
    partition = await lead(plane)
    be_cut_off(plane)
    await put(plane, state(leader=OTHER, leader_epoch=1, version=1))
    plane.store.become(SessionState.CONNECTED)
    assert not partition.is_leader
    assert partition.check() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert named_leader(plane) == OTHER


async def test_who_stood_still_is_cut_off_from_the_beginning_of_the_stall(
    plane: DataPlane,
) -> None:
    partition = await lead(plane)
    plane.clock.advance(SESSION_S)  # nothing ran, and nothing was asked meanwhile
    plane.store.become(SessionState.SUSPENDED)
    plane.replicas.lease.stood_still(SESSION_S)
    assert named_leader(plane) == -1
    with pytest.raises(ApiError) as refused:
        partition.append(batch(b"a"), 1)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    plane.store.become(SessionState.CONNECTED)  # the session lives, so it leads
    assert (named_leader(plane), partition.check()) == (NODE, ErrorCode.NONE)


async def test_a_stall_that_is_shorter_than_the_session_deposes_nobody(plane: DataPlane) -> None:
    partition = await lead(plane)
    plane.clock.advance(SESSION_S)
    plane.store.become(SessionState.SUSPENDED)
    plane.replicas.lease.stood_still(SESSION_S - 0.1)
    assert (named_leader(plane), partition.check()) == (NODE, ErrorCode.NONE)


async def test_who_is_not_suspended_leads_however_long_it_stood_still(plane: DataPlane) -> None:
    """A store within the process has no session that could end."""
    partition = await lead(plane)
    plane.clock.advance(60 * SESSION_S)
    plane.replicas.lease.stood_still(60 * SESSION_S)
    assert (named_leader(plane), partition.check()) == (NODE, ErrorCode.NONE)
