"""A partition's way to the target: what is asked, held, acknowledged, and begun again."""

import pytest

from qbus.clients.batches import FetchedBatches
from qbus.clients.mirror.partitions import Copy, Phase
from qbus.clients.mirror.positions import Ends, place
from qbus.clients.mirror.provenance import Provenance
from qbus.clients.mirror.status import PartitionState, Trouble
from qbus.clients.types import TopicPartition
from qbus.errors import ApiError, ErrorCode
from qbus.records import CorruptBatch, build_batch, set_base_offset

NOW = 1_700_000_000_000
GONE = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def batch(base_offset: int, count: int = 5, at: int = NOW) -> bytes:
    made = build_batch([(None, b"value", (), at)] * count)
    set_base_offset(made, base_offset, 0)
    return bytes(made)


def fetched(data: bytes = b"", start: int = 0, end: int = 100) -> FetchedBatches:
    return FetchedBatches(memoryview(data), start, end)


def fresh() -> Copy:
    provenance = Provenance("a", "id", ("a",))
    return Copy(TopicPartition("orders", 0), TopicPartition("a.orders", 0), provenance)


def placed(*ends: int) -> Copy:
    copy = fresh()
    copy.placed(place(Ends(*ends)), Ends(*ends))
    return copy


def is_current(copy: Copy) -> bool:
    return copy.is_current


def test_from_nothing_to_everything() -> None:
    copy = fresh()
    assert copy.may_be_placed(0.0)
    assert copy.status(NOW).state is PartitionState.WAITING
    ends = Ends(0, 10, 0, 0)
    copy.placed(place(ends), ends)
    assert not is_current(copy)
    first = copy.fetched(fetched(batch(0), end=10))
    second = copy.fetched(fetched(batch(5), end=10))
    assert first is not None
    assert second is not None
    assert (first.follows, second.follows, copy.position) == (0, 5, 10)
    assert is_current(copy)
    assert copy.status(NOW).state is PartitionState.COPYING
    assert copy.held_bytes == 2 * len(batch(0))
    copy.acknowledged(first)
    assert copy.status(NOW).target_end == 5
    assert copy.status(NOW).lag_records == 5
    copy.acknowledged(second)
    assert copy.held_bytes == 0
    assert copy.status(NOW).state is PartitionState.CURRENT
    assert copy.status(NOW).lag_records == 0


def test_what_follows_is_acknowledged_before_what_a_former_leader_still_has() -> None:
    copy = placed(0, 15, 0, 0)
    chunks = [copy.fetched(fetched(batch(base), end=15)) for base in (0, 5, 10)]
    first, second, third = (chunk for chunk in chunks if chunk is not None)
    copy.acknowledged(second)
    assert (copy.target_end, copy.held_bytes) == (10, len(batch(0)))
    copy.acknowledged(first)
    assert (copy.target_end, copy.held_bytes) == (10, len(batch(0)))
    copy.acknowledged(third)
    assert (copy.target_end, copy.held_bytes) == (15, 0)


def test_a_copy_that_begins_late_follows_nothing() -> None:
    copy = placed(5_000_000, 5_000_010, 0, 0)
    chunk = copy.fetched(fetched(batch(5_000_000), start=5_000_000, end=5_000_010))
    assert chunk is not None
    assert (chunk.follows, chunk.end) == (0, 5_000_005)


def test_an_empty_answer_says_how_far_the_source_is() -> None:
    copy = placed(0, 10, 0, 10)
    assert is_current(copy)
    assert copy.fetched(fetched(end=12)) is None
    assert not is_current(copy)
    assert copy.status(NOW).lag_records == 2


def test_after_a_failure_everything_held_is_void() -> None:
    copy = placed(0, 10, 0, 0)
    chunk = copy.fetched(fetched(batch(0), end=10))
    assert chunk is not None
    run = copy.run
    copy.sent = 1
    copy.failed(GONE, now=100.0)
    assert copy.run != run
    assert copy.held_bytes == 0
    assert copy.phase is Phase.PLACING
    assert copy.status(NOW).error is not None
    assert not copy.may_be_placed(200.0), "something is still on its way to the target"
    copy.sent = 0
    assert not copy.may_be_placed(100.0)
    assert copy.may_be_placed(200.0)


def test_failing_again_and_again_takes_longer_until_something_is_done() -> None:
    copy, delays = placed(0, 10, 0, 0), []
    for _ in range(10):
        copy.failed(GONE, now=0.0)
        delays.append(copy.retry_at)
    assert delays == sorted(delays)
    assert delays[0] < 0.5
    assert delays[-1] == delays[-2] < 30
    ends = Ends(0, 10, 0, 0)
    copy.placed(place(ends), ends)
    chunk = copy.fetched(fetched(batch(0), end=10))
    assert chunk is not None
    copy.acknowledged(chunk)
    copy.failed(GONE, now=0.0)
    assert copy.retry_at == delays[0]


def test_where_the_source_begins_now_is_asked_at_once() -> None:
    copy = placed(0, 10, 0, 0)
    copy.overtaken()
    assert copy.may_be_placed(0.0)


def test_a_gap_is_told_of_as_long_as_the_copy_runs() -> None:
    copy = placed(20, 30, 0, 10)
    chunk = copy.fetched(fetched(batch(20, 10), start=20, end=30))
    assert chunk is not None
    assert chunk.follows == 10
    copy.acknowledged(chunk)
    status = copy.status(NOW)
    assert status.state is PartitionState.CURRENT
    assert status.trouble is Trouble.OVERTAKEN
    assert status.error is not None


def test_what_lost_data_is_never_written_to() -> None:
    copy = placed(0, 5, 0, 10)
    assert copy.phase is Phase.STOPPED
    assert copy.status(NOW).state is PartitionState.STOPPED
    assert copy.status(NOW).trouble is Trouble.SOURCE_LOST_DATA
    copy.failed(GONE, 0.0)
    assert copy.phase is Phase.STOPPED
    assert not copy.may_be_placed(1e9)


def test_stopping_drops_what_is_held() -> None:
    copy = placed(0, 10, 0, 0)
    copy.fetched(fetched(batch(0), end=10))
    copy.stop(Trouble.UNRELATED_TOPIC, "it is another one")
    assert copy.held_bytes == 0
    assert copy.status(NOW).error == "it is another one"


def test_a_batch_across_the_position_is_not_taken() -> None:
    copy = placed(0, 10, 0, 3)
    with pytest.raises(CorruptBatch):
        copy.fetched(fetched(batch(0), end=10))
    assert (copy.position, copy.held_bytes) == (3, 0)


def test_lag_in_seconds_is_the_age_of_the_oldest_record_that_is_missing() -> None:
    copy = placed(0, 15, 0, 0)
    assert copy.status(NOW).lag_seconds is None
    chunks = [copy.fetched(fetched(batch(5 * i, at=NOW - 1000 * i), end=15)) for i in range(3)]
    assert copy.status(NOW).lag_seconds == 0
    assert copy.status(NOW + 7000).lag_seconds == 7
    assert copy.status(NOW).lag_bytes is None
    assert chunks[0] is not None
    assert chunks[1] is not None
    copy.acknowledged(chunks[0])
    assert copy.status(NOW).lag_seconds == 1
    assert copy.status(NOW).lag_bytes == 2 * len(batch(0))
    copy.acknowledged(chunks[1])
    assert chunks[2] is not None
    copy.acknowledged(chunks[2])
    assert copy.status(NOW).lag_seconds == 0
    assert copy.status(NOW).lag_bytes == 0


def test_of_a_copy_that_was_never_placed_nothing_is_known() -> None:
    status = fresh().status(NOW)
    assert (status.lag_records, status.lag_bytes, status.lag_seconds) == (None, None, None)


def test_what_is_sent_again_is_counted() -> None:
    copy = placed(0, 10, 0, 0)
    chunk = copy.fetched(fetched(batch(0), end=10))
    assert chunk is not None
    assert not copy.sending(chunk)
    assert copy.sent == 1
    copy.failed(GONE, 0.0)
    copy.sent = 0
    ends = Ends(0, 10, 0, 0)
    copy.placed(place(ends), ends)
    first = copy.fetched(fetched(batch(0), end=10))
    second = copy.fetched(fetched(batch(5), end=10))
    assert first is not None
    assert second is not None
    assert copy.sending(first)
    assert not copy.sending(second)


STOPPED, GOES_ON = PartitionState.STOPPED, PartitionState.COPYING


@pytest.mark.parametrize(
    ("ends", "state"),
    [
        (Ends(0, 20, 0, 10), GOES_ON),  # it was not true: both have what is before 10
        (Ends(0, 5, 0, 10), STOPPED),  # it is still true
        (Ends(15, 20, 0, 10), STOPPED),  # nobody can tell any more
        (Ends(0, 20, 10, 10), STOPPED),
    ],
)
def test_what_lost_data_is_looked_at_again(ends: Ends, state: PartitionState) -> None:
    copy = placed(0, 5, 0, 10)
    copy.doubt()
    assert copy.may_be_placed(0.0)
    assert copy.status(NOW).state is PartitionState.STOPPED
    assert copy.placed(place(ends), ends) == (state is GOES_ON)
    assert copy.status(NOW).state is state
    assert (copy.status(NOW).error is not None) == (state is STOPPED)


def test_only_what_lost_data_is_looked_at_again() -> None:
    copy = placed(0, 10, 0, 0)
    copy.stop(Trouble.UNRELATED_TOPIC, "it is another one")
    copy.doubt()
    assert not copy.may_be_placed(1e9)
    copy = placed(0, 10, 0, 0)
    copy.release()
    copy.doubt()
    assert not copy.may_be_placed(1e9)
