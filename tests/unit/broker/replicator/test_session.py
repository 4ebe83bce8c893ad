"""Incremental fetch sessions, as their followers keep them (KIP-227)."""

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
        session.ask(key, wanted(key))
    session.request()
    session.answered(7)
    return session


def test_the_first_request_names_everything() -> None:
    session = FetchSession()
    session.ask(A, wanted(A, 3))
    session.ask(C, wanted(C, 5))
    request = session.request()
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert named(request) == {A: 3, C: 5}
    assert not session.is_established


def test_later_ones_name_what_is_different() -> None:
    session = established(A, B, C)
    assert session.is_established
    session.ask(B, wanted(B, 9))
    session.drop(C)
    assert session.has_news
    request = session.request()
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert named(request) == {B: 9}
    assert forgotten(request) == {C}
    following = session.request()
    assert following.session_epoch == 2
    assert named(following) == {}
    assert forgotten(following) == set()


def test_what_was_never_named_is_not_forgotten() -> None:
    session = established(A)
    session.ask(B, wanted(B))
    session.drop(B)
    request = session.request()
    assert (named(request), forgotten(request)) == ({}, set())


def test_what_is_asked_for_again_is_not_forgotten() -> None:
    session = established(A, B)
    session.drop(B)
    session.ask(B, wanted(B, 4))
    request = session.request()
    assert (named(request), forgotten(request)) == ({B: 4}, set())


def test_what_was_forgotten_is_named_anew() -> None:
    session = established(A, B)
    session.drop(B)
    assert forgotten(session.request()) == {B}
    session.ask(B, wanted(B, 4))
    assert named(session.request()) == {B: 4}
    session.drop(B)
    assert forgotten(session.request()) == {B}


def test_an_answer_counts_only_for_what_its_request_asked() -> None:
    session = established(A)
    asked = session.request().number
    assert session.is_current(A, asked)
    session.ask(A, wanted(A, 1))
    assert not session.is_current(A, asked)
    assert session.is_current(A, session.request().number)
    session.drop(A)
    assert not session.is_current(A, asked + 1)
    assert not session.is_current(B, asked + 1)


def test_a_session_that_is_lost_begins_anew() -> None:
    session = established(A, B)
    before = session.request().number
    session.drop(B)
    session.restart()
    assert not session.is_established
    assert not session.is_of(before)
    assert not session.is_current(A, before)
    request = session.request()
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert (named(request), forgotten(request)) == ({A: 0}, set())
    assert session.is_of(request.number)
    assert session.is_current(A, request.number)


def test_a_leader_without_sessions_is_asked_for_everything() -> None:
    session = FetchSession()
    session.ask(A, wanted(A))
    session.ask(B, wanted(B))
    session.request()
    session.answered(0)
    session.drop(B)
    request = session.request()
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert named(request) == {A: 0}


def test_epochs_come_round_to_1_never_to_0() -> None:
    session = established(A)
    session._epoch = 2**31 - 2
    assert [session.request().session_epoch for _ in range(3)] == [2**31 - 1, 1, 2]
