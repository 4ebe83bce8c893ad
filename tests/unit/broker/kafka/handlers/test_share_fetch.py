"""ShareFetch: sessions, acknowledgements, records, and those who wait for them."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.share_acknowledge import AcknowledgementBatch
from qbus.wire.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from tests.support.data_plane import over_the_wire

from .share_plane import SharePlane

ACCEPT, RELEASE, RENEW = 1, 2, 4


def acks(first: int, last: int, *types: int, **fields: Any) -> AcknowledgementBatch:
    return AcknowledgementBatch(
        first_offset=first, last_offset=last, acknowledge_types=list(types), **fields
    )


def request(
    share: SharePlane,
    epoch: int,
    *batches: AcknowledgementBatch,
    topics: tuple[str, ...] = ("t",),
    forgotten: tuple[str, ...] = (),
    **fields: Any,
) -> ShareFetchRequest:
    partition = FetchPartition(partition_index=0, acknowledgement_batches=list(batches))
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1_000_000, "max_records": 100} | fields
    return ShareFetchRequest(
        group_id=fields.pop("group", "g"),
        member_id=fields.pop("member", "m"),
        share_session_epoch=epoch,
        topics=[FetchTopic(topic_id=share.id_of(one), partitions=[partition]) for one in topics],
        forgotten_topics_data=[
            ForgottenTopic(topic_id=share.id_of(one), partitions=[0]) for one in forgotten
        ],
        **fields,
    )


def begin(share: SharePlane, wanted: ShareFetchRequest, version: int = 2) -> Any:
    return share.plane.begin(ApiKey.SHARE_FETCH, version, wanted, peer=share.peer)


async def fetch(share: SharePlane, *args: Any, version: int = 2, **fields: Any) -> Any:
    return over_the_wire(
        ApiKey.SHARE_FETCH, version, await begin(share, request(share, *args, **fields), version)
    )


def only(response: ShareFetchResponse) -> PartitionData:
    assert response.error_code == 0
    ((data,),) = [topic.partitions for topic in response.responses]
    return data


def acquired(data: PartitionData) -> list[tuple[int, int, int]]:
    return [(a.first_offset, a.last_offset, a.delivery_count) for a in data.acquired_records]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("version", [1, 2])
async def test_what_is_there_is_acquired(share: SharePlane, version: int) -> None:
    share.queues.of("t").put(0, 9, b"records")
    response = await fetch(share, 0, version=version)
    data = only(response)
    assert (bytes(data.records), acquired(data)) == (b"records", [(0, 9, 1)])
    assert response.acquisition_lock_timeout_ms == 30_000
    assert data.error_code == data.acknowledge_error_code == 0


async def test_partitions_without_news_are_left_out(share: SharePlane) -> None:
    assert (await fetch(share, 0)).responses == []


async def test_a_session_knows_its_partitions(share: SharePlane) -> None:
    await fetch(share, 0)
    share.queues.of("t").put(0, 0)
    assert acquired(only(await fetch(share, 1, topics=()))) == [(0, 0, 1)]
    share.queues.of("t").put(1, 1)
    assert (await fetch(share, 2, topics=(), forgotten=("t",))).responses == []


async def test_records_are_acknowledged(share: SharePlane) -> None:
    queue = share.queues.of("t")
    queue.put(0, 4)
    await fetch(share, 0)
    data = only(await fetch(share, 1, acks(0, 3, 1, 1, 2, 2), acks(4, 4, 3)))
    assert data.acknowledge_error_code == 0
    ranges = [(a.first, a.last, a.type) for a in queue.acknowledged]
    assert ranges == [(0, 1, 1), (2, 3, 2), (4, 4, 3)]


async def test_a_release_may_say_how_long_to_wait(share: SharePlane) -> None:
    queue = share.queues.of("t")
    queue.put(0, 1)
    await fetch(share, 0)
    await fetch(share, 1, acks(0, 0, RELEASE, delay_ms=5000), acks(1, 1, RELEASE))
    assert [one.delay_ms for one in queue.acknowledged] == [5000, -1]


async def test_a_release_may_say_that_the_work_failed(share: SharePlane) -> None:
    queue = share.queues.of("t")
    queue.put(0, 2)
    await fetch(share, 0)
    await fetch(share, 1, acks(0, 1, RELEASE, RELEASE, nack=True), acks(2, 2, RELEASE))
    assert [(one.first, one.nack) for one in queue.acknowledged] == [(0, True), (2, False)]


async def test_a_job_may_have_a_result(share: SharePlane) -> None:
    queue = share.queues.of("t")
    queue.put(0, 1)
    await fetch(share, 0)
    assert only(await fetch(share, 1, acks(0, 0, ACCEPT, result=b"42"))).acknowledge_error_code == 0
    assert queue.settled == {0: b"42"}
    refused = only(await fetch(share, 2, acks(7, 7, ACCEPT, result=b"42")))
    assert refused.acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE


async def test_a_result_is_no_larger_than_a_batch_may_be(share: SharePlane) -> None:
    queue = share.queues.of("t")
    queue.put(0, 1)
    await fetch(share, 0)
    large = bytes(share.plane.partition("t").log.config.max_message_bytes + 1)
    data = only(
        await fetch(share, 1, acks(0, 0, ACCEPT, result=b"42"), acks(1, 1, ACCEPT, result=large))
    )
    assert data.acknowledge_error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert queue.settled == {}


async def test_results_count_with_the_rest_or_not_at_all(share: SharePlane) -> None:
    queue = share.queues.of("t")
    queue.put(0, 2)
    await fetch(share, 0)
    for epoch, others in enumerate((acks(1, 7, ACCEPT), acks(5, 5, RELEASE)), 1):
        data = only(await fetch(share, epoch, acks(0, 0, ACCEPT, result=b"42"), others))
        assert data.acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE
    assert queue.settled == {}
    assert queue.acknowledged == []


async def test_what_is_done_already_does_not_spoil_a_result(share: SharePlane) -> None:
    queue = share.queues.of("t")
    queue.start = 2
    queue.put(2, 3)
    await fetch(share, 0)
    said = acks(0, 2, ACCEPT), acks(3, 3, ACCEPT, result=b"42")
    assert only(await fetch(share, 1, *said)).acknowledge_error_code == 0
    assert queue.settled == {3: b"42"}


async def test_a_result_that_comes_too_late_is_refused(share: SharePlane) -> None:
    queue = share.queues.of("t")
    queue.put(0, 0)
    await fetch(share, 0)
    queue.is_late = True
    data = only(await fetch(share, 1, acks(0, 0, ACCEPT, result=b"42")))
    assert data.acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE


async def test_an_acknowledgement_of_what_another_has_is_refused_and_records_come_all_the_same(
    share: SharePlane,
) -> None:
    await fetch(share, 0)
    share.queues.of("t").put(0, 4)
    data = only(await fetch(share, 1, acks(10, 11, ACCEPT)))
    assert data.acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE
    assert data.error_code == 0
    assert acquired(data) == [(0, 4, 1)]


@pytest.mark.parametrize(
    "batches",
    [
        [acks(3, 2, ACCEPT)],
        [acks(-1, 2, ACCEPT)],
        [acks(0, 2)],
        [acks(0, 2, ACCEPT, ACCEPT)],
        [acks(0, 0, 5)],
        [acks(0, 0, -1)],
        [acks(0, 0, RENEW)],
        [acks(0, 4, ACCEPT), acks(4, 5, ACCEPT)],
        [acks(5, 6, ACCEPT), acks(0, 1, ACCEPT)],
        [acks(0, 1, ACCEPT, result=b"two")],
        [acks(0, 0, RELEASE, result=b"not done")],
    ],
    ids=repr,
)
async def test_acknowledgements_that_make_no_sense(
    share: SharePlane, batches: list[AcknowledgementBatch]
) -> None:
    share.queues.of("t").put(0, 9)
    await fetch(share, 0)
    data = only(await fetch(share, 1, *batches))
    assert data.acknowledge_error_code == ErrorCode.INVALID_REQUEST
    assert share.queues.of("t").acknowledged == []


async def test_locks_are_renewed_and_nothing_is_acquired(share: SharePlane) -> None:
    queue = share.queues.of("t")
    queue.put(0, 0)
    await fetch(share, 0)
    queue.put(1, 1)
    nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    data = only(await fetch(share, 1, acks(0, 0, RENEW), is_renew_ack=True, **nothing))
    assert (data.acknowledge_error_code, acquired(data)) == (0, [])
    assert [(a.first, a.type) for a in queue.acknowledged] == [(0, RENEW)]


async def test_a_group_may_forbid_to_renew(share: SharePlane) -> None:
    share.configs["g"] = {"share.renew.acknowledge.enable": "false"}
    share.queues.of("t").put(0, 0)
    await fetch(share, 0)
    nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    data = only(await fetch(share, 1, acks(0, 0, RENEW), is_renew_ack=True, **nothing))
    assert data.acknowledge_error_code == ErrorCode.INVALID_REQUEST


async def refusal(share: SharePlane, wanted: ShareFetchRequest) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        await begin(share, wanted)
    return refused.value.code


async def test_whoever_renews_asks_for_nothing(share: SharePlane) -> None:
    await fetch(share, 0)
    wanted = request(share, 1, acks(0, 0, RENEW), is_renew_ack=True)
    assert await refusal(share, wanted) is ErrorCode.INVALID_REQUEST


async def test_no_bytes_acknowledge_and_acquire_nothing(share: SharePlane) -> None:
    queue = share.queues.of("t")
    queue.put(0, 0)
    await fetch(share, 0)
    queue.put(1, 1)
    data = only(await fetch(share, 1, acks(0, 0, ACCEPT), max_bytes=0, max_wait_ms=60_000))
    assert (data.acknowledge_error_code, acquired(data), bytes(data.records)) == (0, [], b"")
    assert [(a.first, a.last) for a in queue.acknowledged] == [(0, 0)]
    assert len(queue.asked) == 1


async def test_limits_reach_the_queue(share: SharePlane) -> None:
    queue = share.queues.of("t")
    await fetch(share, 0, max_records=7, max_bytes=99)
    assert queue.asked[-1] == {"max_records": 7, "max_bytes": 99, "min_one": True, "exact": False}
    await fetch(share, 1, share_acquire_mode=1)
    assert queue.asked[-1]["exact"]


async def test_limits_are_those_of_all_partitions(share: SharePlane) -> None:
    await share.plane.create("u")
    share.queues.of("t").put(0, 9)
    share.queues.of("u").put(0, 9)
    response = await fetch(share, 0, topics=("t", "u"), max_records=10)
    assert acquired(only(response)) == [(0, 9, 1)]
    response = await fetch(share, 1, topics=(), max_records=20)
    assert acquired(only(response)) == [(0, 9, 1)]


async def test_settings_of_the_group_reach_the_queue(share: SharePlane) -> None:
    share.configs["g"] = {"share.record.lock.duration.ms": "20000", "qbus.filter": "any:red"}
    assert (await fetch(share, 0)).acquisition_lock_timeout_ms == 20_000
    settings = share.queues.of("t").settings
    assert (settings.lock_ms, settings.filter) == (20_000, "any:red")


async def test_a_partition_that_is_led_elsewhere(share: SharePlane) -> None:
    await share.plane.metadata.put(share.plane.metadata.new_topic("u", leader=2))
    data = only(await fetch(share, 0, topics=("u",), max_wait_ms=10_000))
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert data.current_leader.leader_id == -1


async def test_a_topic_that_is_unknown(share: SharePlane) -> None:
    topic = FetchTopic(topic_id=b"?" * 16, partitions=[FetchPartition(partition_index=0)])
    wanted = request(share, 0, max_wait_ms=10_000)
    wanted.topics = [topic]
    data = only(await begin(share, wanted))
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_queue_that_fails(share: SharePlane) -> None:
    share.queues.of("t").error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "a bad disk")
    data = only(await fetch(share, 0, max_wait_ms=10_000))
    assert (data.error_code, data.error_message) == (ErrorCode.KAFKA_STORAGE_ERROR, "a bad disk")


# Sessions


@pytest.mark.parametrize("epoch", [1, 7, -1])
async def test_a_session_that_is_not_there(share: SharePlane, epoch: int) -> None:
    assert await refusal(share, request(share, epoch)) is ErrorCode.SHARE_SESSION_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 7])
async def test_a_request_out_of_turn(share: SharePlane, epoch: int) -> None:
    await fetch(share, 0)
    wanted = request(share, epoch)
    assert await refusal(share, wanted) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert (await fetch(share, 1)).error_code == 0


async def test_a_request_that_comes_twice(share: SharePlane) -> None:
    await fetch(share, 0)
    await fetch(share, 1)
    assert await refusal(share, request(share, 1)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH


async def test_nothing_is_acknowledged_when_a_session_begins(share: SharePlane) -> None:
    wanted = request(share, 0, acks(0, 0, ACCEPT))
    assert await refusal(share, wanted) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("names", "code"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group": None}, ErrorCode.INVALID_GROUP_ID),
        ({"member": ""}, ErrorCode.INVALID_REQUEST),
        ({"member": None}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_names_are_needed(share: SharePlane, names: Any, code: ErrorCode) -> None:
    assert await refusal(share, request(share, 0, **names)) is code


async def test_sessions_are_limited(share: SharePlane) -> None:
    share.plane.config.set_dynamic({}, {"group.share.max.share.sessions": "1"})
    await fetch(share, 0)
    wanted = request(share, 0, member="other")
    assert await refusal(share, wanted) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert (await fetch(share, 0)).error_code == 0


async def test_the_last_request_of_a_session_releases_what_is_left(share: SharePlane) -> None:
    queue = share.queues.of("t")
    queue.put(0, 9)
    await fetch(share, 0)
    data = only(await fetch(share, -1, acks(0, 0, ACCEPT)))
    assert (data.acknowledge_error_code, acquired(data)) == (0, [])
    assert len(queue.acknowledged) == len(queue.released) == 1
    assert len(share.sessions) == 0


async def test_a_new_session_releases_what_the_former_had(share: SharePlane) -> None:
    queue = share.queues.of("t")
    queue.put(0, 9)
    await fetch(share, 0)
    former = set(queue.held.values())
    queue.put(10, 19)
    await fetch(share, 0)
    assert set(queue.released) == former
    assert queue.held[10] not in former


async def test_a_closed_connection_releases_what_its_members_had(share: SharePlane) -> None:
    queue = share.queues.of("t")
    queue.put(0, 9)
    await fetch(share, 0)
    for callback in share.peer.on_close:
        callback()
    await settle()
    assert queue.released == [queue.held[0]]
    assert len(share.sessions) == 0


async def test_a_closed_connection_that_waited(share: SharePlane) -> None:
    queue = share.queues.of("t")
    answer = begin(share, request(share, 0, max_wait_ms=10_000))
    await settle()
    assert len(queue.waiting) == 1
    answer.cancel()
    for callback in share.peer.on_close:
        callback()
    await settle()
    assert queue.waiting == []
    assert len(share.sessions) == 0


# Waiting


async def test_a_fetch_waits_for_records(share: SharePlane) -> None:
    queue = share.queues.of("t")
    answer = begin(share, request(share, 0, max_wait_ms=10_000))
    await settle()
    assert not answer.done()
    queue.put(0, 3)
    assert acquired(only(await answer)) == [(0, 3, 1)]
    assert queue.waiting == []
    assert answer.waited_s > 0


async def test_a_fetch_waits_no_longer_than_it_wants(share: SharePlane) -> None:
    response = await fetch(share, 0, max_wait_ms=20)
    assert response.responses == []
    assert share.queues.of("t").waiting == []


async def test_a_fetch_waits_in_all_its_partitions(share: SharePlane) -> None:
    await share.plane.create("u")
    answer = begin(share, request(share, 0, topics=("t", "u"), max_wait_ms=10_000))
    await settle()
    share.queues.of("u").put(0, 3)
    assert acquired(only(await answer)) == [(0, 3, 1)]
    assert share.queues.of("t").waiting == share.queues.of("u").waiting == []


async def test_records_come_in_the_order_of_those_who_wait(share: SharePlane) -> None:
    queue = share.queues.of("t")
    first = begin(share, request(share, 0, member="one", max_wait_ms=10_000))
    second = begin(share, request(share, 0, member="two", max_wait_ms=10_000))
    await settle()
    queue.put(0, 0)
    assert acquired(only(await first)) == [(0, 0, 1)]
    assert not second.done()
    queue.put(1, 1)
    assert acquired(only(await second)) == [(1, 1, 1)]


async def test_whoever_is_woken_in_vain_waits_on_in_its_place(share: SharePlane) -> None:
    queue = share.queues.of("t")
    first = begin(share, request(share, 0, member="one", max_wait_ms=10_000))
    await settle()
    begin(share, request(share, 0, member="two", max_wait_ms=10_000))
    await settle()
    queue.call()
    await settle()
    assert len(queue.waiting) == 2
    queue.put(0, 0)
    assert acquired(only(await first)) == [(0, 0, 1)]
    await fetch(share, 1, member="two")


async def test_a_fetch_may_want_more_than_is_there(share: SharePlane) -> None:
    await share.plane.create("u")
    share.queues.of("t").put(0, 3, b"x" * 60)
    wanted = request(share, 0, topics=("t", "u"), min_bytes=100, max_wait_ms=10_000)
    answer = begin(share, wanted)
    await settle()
    assert not answer.done()
    share.queues.of("u").put(0, 3, b"x" * 60)
    response = await answer
    assert [len(topic.partitions[0].records) for topic in response.responses] == [60, 60]


async def test_the_next_request_of_the_session_ends_the_wait(share: SharePlane) -> None:
    queue = share.queues.of("t")
    queue.put(0, 0)
    await fetch(share, 0)
    waiting = begin(share, request(share, 1, max_wait_ms=10_000))
    await settle()
    next_one = begin(share, request(share, 2, acks(0, 0, ACCEPT)))
    assert (await waiting).responses == []
    assert only(await next_one).acknowledge_error_code == 0


async def test_it_ends_the_wait_even_if_both_come_at_once(share: SharePlane) -> None:
    await fetch(share, 0)
    waiting = begin(share, request(share, 1, max_wait_ms=10_000))
    next_one = begin(share, request(share, 2))
    assert (await waiting).responses == (await next_one).responses == []


async def test_acknowledgements_are_answered_with_a_wait_for_records(share: SharePlane) -> None:
    queue = share.queues.of("t")
    queue.put(0, 0)
    await fetch(share, 0)
    answer = begin(share, request(share, 1, acks(0, 0, ACCEPT), max_wait_ms=10_000))
    await settle()
    assert len(queue.acknowledged) == 1
    queue.put(1, 1)
    assert acquired(only(await answer)) == [(1, 1, 1)]


async def test_a_broker_that_stops_answers_those_who_wait(share: SharePlane) -> None:
    waiting = begin(share, request(share, 0, max_wait_ms=10_000))
    await settle()
    share.sessions.drain()
    assert (await waiting).responses == []
    assert (await fetch(share, 1, max_wait_ms=10_000)).responses == []


async def pause(share: SharePlane, what: str) -> None:
    topic = share.plane.metadata.topics["t"]
    await share.plane.metadata.put(replace(topic, config={"qbus.queue.pause": what}))


@pytest.mark.parametrize("what", ["out", "all"])
async def test_nothing_is_given_out_of_a_topic_that_is_paused(share: SharePlane, what: str) -> None:
    await pause(share, what)
    share.queues.of("t").put(0, 0)
    assert (await fetch(share, 0, max_wait_ms=20)).responses == []
    await pause(share, "in")
    assert acquired(only(await fetch(share, 1))) == [(0, 0, 1)]


async def test_a_topic_may_be_paused_while_somebody_waits(share: SharePlane) -> None:
    answer = begin(share, request(share, 0, max_wait_ms=200))
    await settle()
    await pause(share, "out")
    share.queues.of("t").put(0, 0)
    assert (await answer).responses == []
