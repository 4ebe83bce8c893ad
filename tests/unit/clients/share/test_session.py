"""A share session: what each request says, and what its outcome means."""

import asyncio
from typing import Any

import pytest

from qbus.clients.share.acknowledgements import Ack, AckType
from qbus.clients.share.options import ShareOptions
from qbus.clients.share.session import Lease, ShareSession
from qbus.clients.types import TopicPartition
from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages import share_acknowledge as acknowledging
from qbus.wire.messages import share_fetch as fetching

P0, P1, Q0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("q", 0)
T, Q = b"t" * 16, b"q" * 16
ACCEPT, RENEW, GAP = AckType.ACCEPT, AckType.RENEW, AckType.GAP
BROKEN = ApiError(ErrorCode.NETWORK_EXCEPTION, "broken")


@pytest.fixture
def session() -> ShareSession:
    options = ShareOptions(
        group="g",
        topics=("q", "t"),
        is_explicit=False,
        by_records=False,
        fetch_min_bytes=1,
        fetch_max_bytes=1000,
        fetch_max_wait=0.5,
        max_poll_records=7,
        max_poll_interval=300,
        check_crcs=True,
        rack=None,
        consumer_timeout=None,
        on_lost=None,
    )
    return ShareSession(options, "m", 1)


def fetch(session: ShareSession, *partitions: TopicPartition) -> Any:
    """Fetch, and have it answered: all is well."""
    request, sent = session.fetch({p: T if p.topic == "t" else Q for p in partitions}, 0.5)
    assert session.fetched(sent, fetched(request)) == []
    return request


def fetched(request: fetching.ShareFetchRequest, code: int = 0) -> fetching.ShareFetchResponse:
    return fetching.ShareFetchResponse(
        responses=[
            fetching.ShareFetchableTopicResponse(
                topic_id=topic.topic_id,
                partitions=[
                    fetching.PartitionData(
                        partition_index=part.partition_index,
                        acknowledge_error_code=code,
                        records=b"",
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def acknowledged(
    request: acknowledging.ShareAcknowledgeRequest, code: int = 0
) -> acknowledging.ShareAcknowledgeResponse:
    return acknowledging.ShareAcknowledgeResponse(
        responses=[
            acknowledging.ShareAcknowledgeTopicResponse(
                topic_id=topic.topic_id,
                partitions=[
                    acknowledging.PartitionData(
                        partition_index=part.partition_index, error_code=code
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def named(request: Any) -> list[tuple[bytes, list[int]]]:
    return [(t.topic_id, [p.partition_index for p in t.partitions]) for t in request.topics]


def forgotten(request: Any) -> list[tuple[bytes, list[int]]]:
    return [(topic.topic_id, topic.partitions) for topic in request.forgotten_topics_data]


def test_the_first_request_names_all_partitions_later_ones_what_changed(
    session: ShareSession,
) -> None:
    request = fetch(session, P0, Q0)
    assert (request.group_id, request.member_id, request.share_session_epoch) == ("g", "m", 0)
    assert (request.max_records, request.batch_size, request.max_wait_ms) == (7, 7, 500)
    assert (named(request), forgotten(request)) == ([(Q, [0]), (T, [0])], [])
    assert session.is_open
    request = fetch(session, P0, Q0)
    assert (request.share_session_epoch, named(request), forgotten(request)) == (1, [], [])
    request = fetch(session, P0, P1)
    assert (named(request), forgotten(request)) == ([(T, [1])], [(Q, [0])])
    assert request.share_session_epoch == 2


def test_epochs_begin_again_after_the_last(session: ShareSession) -> None:
    session._epoch = 2**31 - 1
    epochs = [fetch(session, P0).share_session_epoch for _ in range(2)]
    assert epochs == [2**31 - 1, 1]


def test_acknowledgements_go_along(session: ShareSession) -> None:
    fetch(session, P0)
    session.pending.add(P0, Ack(3, ACCEPT))
    session.pending.add(Q0, Ack(4, ACCEPT))
    assert not session.is_idle
    request = fetch(session, P0)
    assert named(request) == [(T, [0])]
    (batch,) = request.topics[0].partitions[0].acknowledgement_batches
    assert (batch.first_offset, batch.last_offset, batch.acknowledge_types) == (3, 3, [1])
    assert not session.is_idle, "those of a partition that is not fetched go by themselves"


async def test_not_those_that_somebody_waits_for(session: ShareSession) -> None:
    fetch(session, P0)
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    session.pending.add(P0, Ack(3, ACCEPT, told=told))
    assert named(fetch(session, P0)) == []
    request, sent = session.acknowledge()
    assert named(request) == [(T, [0])]
    assert session.acknowledged(sent, acknowledged(request)) == []
    assert told.done()
    assert told.exception() is None
    assert session.is_idle


def test_renewals_are_told_as_such(session: ShareSession) -> None:
    fetch(session, P0)
    session.pending.add(P0, Ack(3, RENEW))
    request, _ = session.acknowledge()
    assert (request.is_renew_ack, request.share_session_epoch) == (True, 1)
    session.pending.add(P0, Ack(3, ACCEPT))
    request, _ = session.acknowledge(is_last=True)
    assert (request.is_renew_ack, request.share_session_epoch) == (False, -1)


def test_what_is_refused_is_said_in_halves_until_it_is_one(session: ShareSession) -> None:
    fetch(session, P0)
    for offset in (3, 4):
        session.pending.add(P0, Ack(offset, ACCEPT))
    request, sent = session.acknowledge()
    refusal = ErrorCode.INVALID_RECORD_STATE
    assert session.acknowledged(sent, acknowledged(request, refusal)) == []
    losses = []
    for _ in range(2):
        request, sent = session.acknowledge()
        losses += session.acknowledged(sent, acknowledged(request, refusal))
    assert [loss.place for loss in losses] == [("t", 0, 3), ("t", 0, 4)]
    assert {loss.error.code for loss in losses} == {refusal}
    assert session.is_idle


@pytest.mark.parametrize(
    "gone", [{0}, {31, 32}, set(range(0, 64, 7)), set(range(64))], ids=lambda gone: f"{len(gone)}"
)
def test_whoever_is_refused_gets_through_with_what_it_has(
    session: ShareSession, gone: set[int]
) -> None:
    """The broker takes all of a request or nothing; few more requests say all the rest."""
    fetch(session, P0)
    session.pending.add_all(P0, [Ack(offset, ACCEPT) for offset in range(64)])
    taken: set[int] = set()
    lost: set[int] = set()
    requests = 0
    while session.pending:
        request, sent = session.acknowledge()
        said = {
            offset
            for batch in request.topics[0].partitions[0].acknowledgement_batches
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        code = ErrorCode.INVALID_RECORD_STATE if said & gone else ErrorCode.NONE
        if not code:
            taken |= said
        losses = session.acknowledged(sent, acknowledged(request, code))
        lost |= {loss.place.offset for loss in losses}
        requests += 1
    assert (taken, lost) == (set(range(64)) - gone, gone)
    assert requests <= min(1 + 12 * len(gone), 127)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_REQUEST])
def test_other_refusals_lose_all_of_a_partition(session: ShareSession, code: ErrorCode) -> None:
    fetch(session, P0)
    for offset in (3, 4):
        session.pending.add(P0, Ack(offset, ACCEPT))
    request, sent = session.fetch({P0: T}, 0.5)
    losses = session.fetched(sent, fetched(request, code))
    assert [loss.place.offset for loss in losses] == [3, 4]
    assert losses[0].error.code is code


def test_what_the_broker_says_nothing_of_is_lost(session: ShareSession) -> None:
    fetch(session, P0)
    session.pending.add(P0, Ack(3, ACCEPT))
    _, sent = session.acknowledge()
    (loss,) = session.acknowledged(sent, acknowledging.ShareAcknowledgeResponse())
    assert "did not say what came of it" in str(loss.error)


def test_a_failure_loses_everything_once_and_begins_anew(session: ShareSession) -> None:
    fetch(session, P0)
    lease = Lease(session, session.life)
    session.pending.add(P0, Ack(3, ACCEPT))
    session.pending.add(P0, Ack(9, GAP))
    _, first = session.acknowledge()
    session.pending.add(P0, Ack(4, ACCEPT))
    request, second = session.acknowledge()
    session.pending.add(P0, Ack(5, ACCEPT))
    assert [loss.place.offset for loss in session.failed(first, BROKEN)] == [3, 4, 5]
    assert not lease.is_valid
    assert session.failed(second, BROKEN) == []
    assert session.acknowledged(second, acknowledged(request)) == []
    assert session.is_idle
    request = fetch(session, P0)
    assert (request.share_session_epoch, named(request)) == (0, [(T, [0])])


async def test_whoever_waits_is_told_of_a_failure(session: ShareSession) -> None:
    fetch(session, P0)
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    session.pending.add(P0, Ack(3, ACCEPT, told=told))
    assert session.lose(BROKEN) == []
    assert told.exception() is BROKEN


async def test_renewals_that_a_broker_does_not_know(session: ShareSession) -> None:
    fetch(session, P0)
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    session.pending.add(P0, Ack(3, RENEW, told=told))
    session.pending.add(P0, Ack(4, ACCEPT))
    session.renews_nothing(BROKEN)
    assert told.exception() is BROKEN
    request, _ = session.acknowledge()
    assert not request.is_renew_ack


class TestATopicThatWasCreatedAgain:
    """Its partitions go by another id: the session knows those of the former topic."""

    NEW = b"n" * 16

    def test_is_noticed_by_its_id(self, session: ShareSession) -> None:
        fetch(session, P0, Q0)
        assert session.recreated({P0: T, Q0: Q}) == []
        assert session.recreated({P0: self.NEW, P1: self.NEW, Q0: Q}) == ["t"]

    def test_is_asked_for_in_a_new_session(self, session: ShareSession) -> None:
        fetch(session, P0, Q0)
        session.lose(BROKEN)
        wanted = {P0: self.NEW, Q0: Q}
        assert session.recreated(wanted) == []
        request, _ = session.fetch(wanted, 0.5)
        assert request.share_session_epoch == 0
        assert named(request) == [(Q, [0]), (self.NEW, [0])]

    def test_takes_no_acknowledgement_of_the_former_one(self, session: ShareSession) -> None:
        fetch(session, P0)
        session.pending.add(P0, Ack(4, ACCEPT))
        with pytest.raises(AssertionError):
            session.fetch({P0: self.NEW}, 0.5)
        assert [loss.place.offset for loss in session.lose(BROKEN)] == [4]
        request, sent = session.fetch({P0: self.NEW}, 0.5)
        assert sent.acks == {}
        assert all(not p.acknowledgement_batches for t in request.topics for p in t.partitions)
