"""ShareAcknowledge: what became of records, without asking for others."""

import asyncio
from typing import Any

import pytest

from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from qbus.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from tests.support.data_plane import over_the_wire

from .share_plane import SharePlane

ACCEPT, RENEW = 1, 4


def acks(first: int, last: int, *types: int) -> AcknowledgementBatch:
    return AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))


async def open_session(share: SharePlane, max_wait_ms: int = 0, topic: str = "t") -> Any:
    """Acquire what is there."""
    topics = [FetchTopic(topic_id=share.id_of(topic), partitions=[FetchPartition()])]
    request = ShareFetchRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=0,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_records=100,
        topics=topics,
    )
    return share.plane.begin(ApiKey.SHARE_FETCH, 2, request, peer=share.peer)


def request(
    share: SharePlane, epoch: int, *batches: AcknowledgementBatch, topic: str = "t", **fields: Any
) -> ShareAcknowledgeRequest:
    partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=list(batches))
    return ShareAcknowledgeRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=epoch,
        topics=[AcknowledgeTopic(topic_id=share.id_of(topic), partitions=[partition])],
        **fields,
    )


def begin(share: SharePlane, wanted: ShareAcknowledgeRequest, version: int = 2) -> Any:
    return share.plane.begin(ApiKey.SHARE_ACKNOWLEDGE, version, wanted, peer=share.peer)


async def send(share: SharePlane, *args: Any, version: int = 2, **fields: Any) -> Any:
    answer = await begin(share, request(share, *args, **fields), version)
    return over_the_wire(ApiKey.SHARE_ACKNOWLEDGE, version, answer)


def only(response: ShareAcknowledgeResponse) -> PartitionData:
    assert response.error_code == 0
    ((data,),) = [topic.partitions for topic in response.responses]
    return data


@pytest.mark.parametrize("version", [1, 2])
async def test_records_are_acknowledged(share: SharePlane, version: int) -> None:
    queue = share.queues.of("t")
    queue.put(0, 4)
    await (await open_session(share))
    response = await send(share, 1, acks(0, 4, ACCEPT), version=version)
    assert only(response).error_code == 0
    assert response.acquisition_lock_timeout_ms == (30_000 if version == 2 else 0)
    assert [(one.first, one.last) for one in queue.acknowledged] == [(0, 4)]


async def test_each_partition_succeeds_or_fails_for_itself(share: SharePlane) -> None:
    await share.plane.create("u")
    share.queues.of("t").put(0, 4)
    await (await open_session(share))
    wanted = request(share, 1, acks(0, 4, ACCEPT))
    wanted.topics += request(share, 1, acks(0, 4, ACCEPT), topic="u").topics
    response = await begin(share, wanted)
    codes = [topic.partitions[0].error_code for topic in response.responses]
    assert codes == [0, ErrorCode.INVALID_RECORD_STATE]


async def test_locks_are_renewed(share: SharePlane) -> None:
    queue = share.queues.of("t")
    queue.put(0, 0)
    await (await open_session(share))
    assert only(await send(share, 1, acks(0, 0, RENEW), is_renew_ack=True)).error_code == 0
    assert [one.type for one in queue.acknowledged] == [RENEW]
    for unasked in ({"version": 1}, {}):
        epoch = share.sessions._sessions["g", "m"].epoch
        data = only(await send(share, epoch, acks(0, 0, RENEW), **unasked))
        assert data.error_code == ErrorCode.INVALID_REQUEST


async def test_a_partition_that_is_led_elsewhere(share: SharePlane) -> None:
    await (await open_session(share))
    await share.plane.metadata.put(share.plane.metadata.new_topic("u", leader=2))
    data = only(await send(share, 1, acks(0, 0, ACCEPT), topic="u"))
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (0, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
        (2, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
    ],
)
async def test_a_request_out_of_turn(share: SharePlane, epoch: int, code: ErrorCode) -> None:
    await (await open_session(share))
    with pytest.raises(ApiError) as refused:
        begin(share, request(share, epoch))
    assert refused.value.code is code


async def test_without_a_session(share: SharePlane) -> None:
    with pytest.raises(ApiError) as refused:
        begin(share, request(share, 1))
    assert refused.value.code is ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_the_last_request_releases_what_is_left(share: SharePlane) -> None:
    queue = share.queues.of("t")
    queue.put(0, 4)
    await (await open_session(share))
    assert only(await send(share, -1, acks(0, 0, ACCEPT))).error_code == 0
    assert queue.released == [queue.held[1]]
    assert len(share.sessions) == 0


async def test_it_does_not_wait_behind_a_fetch(share: SharePlane) -> None:
    waiting = await open_session(share, max_wait_ms=10_000)
    await asyncio.sleep(0)
    assert only(await send(share, 1)).error_code == 0
    assert (await waiting).responses == []
