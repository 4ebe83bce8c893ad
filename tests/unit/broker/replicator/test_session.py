"""The follower's side of incremental fetch sessions (KIP-227)."""

from qbus.broker.replicator.session import FetchSession, SessionRequest
from qbus.wire.messages.fetch import FetchPartition

A, B, C = (b"a" * 16, 0), (b"a" * 16, 1), (b"c" * 16, 0)


def wanted(key: tuple[bytes, int], offset: int = 0) -> FetchPartition:
    return FetchPartition(partition=key[1], fetch_offset=offset, partition_max_bytes=1)


def named(request: SessionRequest) -> dict[tuple[bytes, int], int]:
    return {
        (topic.topic_id, one.partition): one.fetch_offset
        for topic in request.topics
        for one in topic.partitions
    }


def forgotten(request: SessionRequest) -> set[tuple[bytes, int]]:
    return {(topic.topic_id, index) for topic in request.forgotten for index in topic.partitions}


def established(*keys: tuple[bytes, int]) -> FetchSession:
    session = FetchSession()
    for key in keys:
        session.add(key, wanted(key))
    session.next_request()
    session.answered(7)
    return session


def test_the_first_request_names_everything() -> None:
    session = FetchSession()
    session.add(A, wanted(A, 3))
    session.add(C, wanted(C, 5))
    request = session.next_request()
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert named(request) == {A: 3, C: 5}
    assert not session.is_established


def test_later_session_requests_name_only_changes() -> None:
    session = established(A, B, C)
    assert session.is_established
    session.add(B, wanted(B, 9))
    session.remove(C)
    assert session.has_changes
    request = session.next_request()
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert named(request) == {B: 9}
    assert forgotten(request) == {C}
    following = session.next_request()
    assert following.session_epoch == 2
    assert named(following) == {}
    assert forgotten(following) == set()


def test_a_partition_that_was_never_sent_is_not_forgotten() -> None:
    session = established(A)
    session.add(B, wanted(B))
    session.remove(B)
    request = session.next_request()
    assert (named(request), forgotten(request)) == ({}, set())


def test_a_partition_added_again_is_not_forgotten() -> None:
    session = established(A, B)
    session.remove(B)
    session.add(B, wanted(B, 4))
    request = session.next_request()
    assert (named(request), forgotten(request)) == ({B: 4}, set())


def test_a_forgotten_partition_is_sent_again_when_added() -> None:
    session = established(A, B)
    session.remove(B)
    assert forgotten(session.next_request()) == {B}
    session.add(B, wanted(B, 4))
    assert named(session.next_request()) == {B: 4}
    session.remove(B)
    assert forgotten(session.next_request()) == {B}


def test_a_response_counts_only_for_the_partitions_of_its_request() -> None:
    session = established(A)
    asked = session.next_request().number
    assert session.is_current(A, asked)
    session.add(A, wanted(A, 1))
    assert not session.is_current(A, asked)
    assert session.is_current(A, session.next_request().number)
    session.remove(A)
    assert not session.is_current(A, asked + 1)
    assert not session.is_current(B, asked + 1)


def test_a_restarted_session_sends_everything() -> None:
    session = established(A, B)
    before = session.next_request().number
    session.remove(B)
    session.restart()
    assert not session.is_established
    assert not session.is_of_session(before)
    assert not session.is_current(A, before)
    request = session.next_request()
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert (named(request), forgotten(request)) == ({A: 0}, set())
    assert session.is_of_session(request.number)
    assert session.is_current(A, request.number)


def test_without_a_session_id_every_request_names_everything() -> None:
    session = FetchSession()
    session.add(A, wanted(A))
    session.add(B, wanted(B))
    session.next_request()
    session.answered(0)
    session.remove(B)
    request = session.next_request()
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert named(request) == {A: 0}


def test_session_epochs_wrap_to_1() -> None:
    session = established(A)
    session._epoch = 2**31 - 2
    assert [session.next_request().session_epoch for _ in range(3)] == [2**31 - 1, 1, 2]
