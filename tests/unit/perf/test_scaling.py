"""The model of several workers: its arithmetic, and the requests that need the hub."""

from typing import Any

import pytest

from perf import scaling
from perf.scaling import ALONE, BESIDE, COMMIT, TOGETHER, Spent
from qbus.wire import API, ApiKey, decode, decode_request_header, encode_response
from qbus.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

PLAIN = Spent(rate=100.0, worker=0.01, hub=0.0, generator=0.005)


def test_a_core_of_workers_is_bound_by_the_workers_or_by_the_generator() -> None:
    assert scaling.one_core(PLAIN) == pytest.approx(100)
    assert scaling.one_core(Spent(1, 0.01, 0.01, 0.005)) == pytest.approx(50)
    assert scaling.one_core(Spent(1, 0.01, 0, 0.02)) == pytest.approx(50)


def test_cores_that_are_shared_divide_what_all_spend() -> None:
    assert scaling.shared_cores(PLAIN, 2) == pytest.approx(2 / 0.015)


def test_many_cores_are_between_ever_more_contention_and_none_that_is_new() -> None:
    each = scaling.contention(PLAIN, Spent(150, 0.011, 0, 0.005))
    assert each == pytest.approx(0.1)
    least, most = scaling.many_cores(PLAIN, 16, each)
    assert least == pytest.approx(1600 / 2.5)
    assert most == pytest.approx(1600 / 1.1)
    assert scaling.many_cores(PLAIN, 16, -0.1) == pytest.approx((1600, 1600))


def test_the_hub_is_one_however_many_workers_there_are() -> None:
    needy = Spent(rate=100.0, worker=0.01, hub=0.002, generator=0.005)
    assert scaling.many_cores(needy, 16, 0.0) == pytest.approx((500, 500))
    assert scaling.many_cores(needy, 2, 0.0) == pytest.approx((200, 200))


def test_offsets_are_modelled_from_brokers_that_have_a_hub() -> None:
    alone = Spent(rate=100.0, worker=0.01, hub=0.0, generator=0.005)
    beside = Spent(rate=50.0, worker=0.016, hub=0.004, generator=0.005)
    found = {ALONE: [alone], BESIDE: [beside], TOGETHER: [beside]}
    for case, model in ((COMMIT, 50.0), ("produce", 100.0)):
        rates = {
            figure.case: figure for figure in scaling.figures(case, found) if "model" in figure.unit
        }
        assert rates[f"{case}: {BESIDE}"].peer == pytest.approx([model])


def test_a_commit_frame_commits_one_offset() -> None:
    frame = memoryview(scaling.commit_frame("g", "t"))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, position = decode_request_header(frame[4:])
    assert header.api_key == ApiKey.OFFSET_COMMIT
    request: Any = decode(
        API[ApiKey.OFFSET_COMMIT].request, header.api_version, frame[4:], position
    )
    ((partition,),) = [topic.partitions for topic in request.topics]
    assert (request.group_id, request.topics[0].name) == ("g", "t")
    assert (partition.partition_index, partition.committed_offset) == (0, 7)


def test_a_commits_error_is_where_it_is_looked_for() -> None:
    partition = OffsetCommitResponsePartition(partition_index=0, error_code=0x0102)
    topics = [OffsetCommitResponseTopic(name="t", partitions=[partition])]
    response = OffsetCommitResponse(topics=topics)
    frame = b"".join(map(bytes, encode_response(ApiKey.OFFSET_COMMIT, 8, 9, response)))
    at = 4 + scaling.commit_error_position("t")
    assert frame[at : at + 2] == b"\1\2"
