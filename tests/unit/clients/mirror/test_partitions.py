"""A mirrored partition: fetched, held, acknowledged, and started again."""

import pytest

from qbus.clients.batches import FetchedBatches
from qbus.clients.mirror.log_comparison import LogBounds, start_offset
from qbus.clients.mirror.partitions import MirroredPartition, Phase
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


def fresh() -> MirroredPartition:
    provenance = Provenance("a", "id", ("a",))
    return MirroredPartition(TopicPartition("orders", 0), TopicPartition("a.orders", 0), provenance)


def resolved(*ends: int) -> MirroredPartition:
    mirrored = fresh()
    mirrored.resolved(start_offset(LogBounds(*ends)), LogBounds(*ends))
    return mirrored


def is_current(mirrored: MirroredPartition) -> bool:
    return mirrored.is_current


def test_a_partition_is_copied_from_start_to_end() -> None:
    mirrored = fresh()
    assert mirrored.may_be_resolved(0.0)
    assert mirrored.status(NOW).state is PartitionState.WAITING
    ends = LogBounds(0, 10, 0, 0)
    mirrored.resolved(start_offset(ends), ends)
    assert not is_current(mirrored)
    first = mirrored.fetched(fetched(batch(0), end=10))
    second = mirrored.fetched(fetched(batch(5), end=10))
    assert first is not None
    assert second is not None
    assert (first.follows, second.follows, mirrored.position) == (0, 5, 10)
    assert is_current(mirrored)
    assert mirrored.status(NOW).state is PartitionState.COPYING
    assert mirrored.held_bytes == 2 * len(batch(0))
    mirrored.acknowledged(first)
    assert mirrored.status(NOW).target_end == 5
    assert mirrored.status(NOW).lag_records == 5
    mirrored.acknowledged(second)
    assert mirrored.held_bytes == 0
    assert mirrored.status(NOW).state is PartitionState.CURRENT
    assert mirrored.status(NOW).lag_records == 0


def test_a_chunk_says_where_the_source_started_when_it_sent_it() -> None:
    mirrored = resolved(0, 10, 0, 0)
    first = mirrored.fetched(fetched(batch(0), start=0, end=30))
    later = mirrored.fetched(fetched(batch(20), start=3, end=30))
    mirrored.fetched(fetched(start=25, end=30))
    assert first is not None
    assert later is not None
    assert (first.source_start, later.source_start) == (0, 3)


def test_a_later_chunk_is_acknowledged_before_that_of_a_former_leader() -> None:
    mirrored = resolved(0, 15, 0, 0)
    chunks = [mirrored.fetched(fetched(batch(base), end=15)) for base in (0, 5, 10)]
    first, second, third = (chunk for chunk in chunks if chunk is not None)
    mirrored.acknowledged(second)
    assert (mirrored.target_end, mirrored.held_bytes) == (10, len(batch(0)))
    mirrored.acknowledged(first)
    assert (mirrored.target_end, mirrored.held_bytes) == (10, len(batch(0)))
    mirrored.acknowledged(third)
    assert (mirrored.target_end, mirrored.held_bytes) == (15, 0)


def test_a_copy_that_begins_late_follows_nothing() -> None:
    mirrored = resolved(5_000_000, 5_000_010, 0, 0)
    chunk = mirrored.fetched(fetched(batch(5_000_000), start=5_000_000, end=5_000_010))
    assert chunk is not None
    assert (chunk.follows, chunk.end) == (0, 5_000_005)


def test_an_empty_response_updates_the_sources_end() -> None:
    mirrored = resolved(0, 10, 0, 10)
    assert is_current(mirrored)
    assert mirrored.fetched(fetched(end=12)) is None
    assert not is_current(mirrored)
    assert mirrored.status(NOW).lag_records == 2


def test_after_a_failure_everything_held_is_void() -> None:
    mirrored = resolved(0, 10, 0, 0)
    chunk = mirrored.fetched(fetched(batch(0), end=10))
    assert chunk is not None
    run = mirrored.run
    mirrored.sent = 1
    mirrored.failed(GONE, now=100.0)
    assert mirrored.run != run
    assert mirrored.held_bytes == 0
    assert mirrored.phase is Phase.RESOLVING
    assert mirrored.status(NOW).error is not None
    assert not mirrored.may_be_resolved(200.0), "something is still on its way to the target"
    mirrored.sent = 0
    assert not mirrored.may_be_resolved(100.0)
    assert mirrored.may_be_resolved(200.0)


def test_repeated_failures_delay_longer_until_a_success() -> None:
    mirrored, delays = resolved(0, 10, 0, 0), []
    for _ in range(10):
        mirrored.failed(GONE, now=0.0)
        delays.append(mirrored.retry_at)
    assert delays == sorted(delays)
    assert delays[0] < 0.5
    assert delays[-1] == delays[-2] < 30
    ends = LogBounds(0, 10, 0, 0)
    mirrored.resolved(start_offset(ends), ends)
    chunk = mirrored.fetched(fetched(batch(0), end=10))
    assert chunk is not None
    mirrored.acknowledged(chunk)
    mirrored.failed(GONE, now=0.0)
    assert mirrored.retry_at == delays[0]


def test_an_overtaken_partition_is_resolved_at_once() -> None:
    mirrored = resolved(0, 10, 0, 0)
    mirrored.overtaken()
    assert mirrored.may_be_resolved(0.0)


def test_a_gap_stays_in_the_status_while_copying() -> None:
    mirrored = resolved(20, 30, 0, 10)
    chunk = mirrored.fetched(fetched(batch(20, 10), start=20, end=30))
    assert chunk is not None
    assert chunk.follows == 10
    mirrored.acknowledged(chunk)
    status = mirrored.status(NOW)
    assert status.state is PartitionState.CURRENT
    assert status.trouble is Trouble.OVERTAKEN
    assert status.error is not None


def test_a_partition_whose_source_lost_data_is_never_written() -> None:
    mirrored = resolved(0, 5, 0, 10)
    assert mirrored.phase is Phase.STOPPED
    assert mirrored.status(NOW).state is PartitionState.STOPPED
    assert mirrored.status(NOW).trouble is Trouble.SOURCE_LOST_DATA
    mirrored.failed(GONE, 0.0)
    assert mirrored.phase is Phase.STOPPED
    assert not mirrored.may_be_resolved(1e9)


def test_stopping_drops_what_is_held() -> None:
    mirrored = resolved(0, 10, 0, 0)
    mirrored.fetched(fetched(batch(0), end=10))
    mirrored.stop(Trouble.UNRELATED_TOPIC, "it is another one")
    assert mirrored.held_bytes == 0
    assert mirrored.status(NOW).error == "it is another one"


def test_a_batch_across_the_position_is_refused() -> None:
    mirrored = resolved(0, 10, 0, 3)
    with pytest.raises(CorruptBatch):
        mirrored.fetched(fetched(batch(0), end=10))
    assert (mirrored.position, mirrored.held_bytes) == (3, 0)


def test_lag_in_seconds_is_the_age_of_the_oldest_record_that_is_missing() -> None:
    mirrored = resolved(0, 15, 0, 0)
    assert mirrored.status(NOW).lag_seconds is None
    chunks = [mirrored.fetched(fetched(batch(5 * i, at=NOW - 1000 * i), end=15)) for i in range(3)]
    assert mirrored.status(NOW).lag_seconds == 0
    assert mirrored.status(NOW + 7000).lag_seconds == 7
    assert mirrored.status(NOW).lag_bytes is None
    assert chunks[0] is not None
    assert chunks[1] is not None
    mirrored.acknowledged(chunks[0])
    assert mirrored.status(NOW).lag_seconds == 1
    assert mirrored.status(NOW).lag_bytes == 2 * len(batch(0))
    mirrored.acknowledged(chunks[1])
    assert chunks[2] is not None
    mirrored.acknowledged(chunks[2])
    assert mirrored.status(NOW).lag_seconds == 0
    assert mirrored.status(NOW).lag_bytes == 0


def test_before_resolving_nothing_is_known() -> None:
    status = fresh().status(NOW)
    assert (status.lag_records, status.lag_bytes, status.lag_seconds) == (None, None, None)


def test_resent_batches_are_counted() -> None:
    mirrored = resolved(0, 10, 0, 0)
    chunk = mirrored.fetched(fetched(batch(0), end=10))
    assert chunk is not None
    assert not mirrored.sending(chunk)
    assert mirrored.sent == 1
    mirrored.failed(GONE, 0.0)
    mirrored.sent = 0
    ends = LogBounds(0, 10, 0, 0)
    mirrored.resolved(start_offset(ends), ends)
    first = mirrored.fetched(fetched(batch(0), end=10))
    second = mirrored.fetched(fetched(batch(5), end=10))
    assert first is not None
    assert second is not None
    assert mirrored.sending(first)
    assert not mirrored.sending(second)


STOPPED, GOES_ON = PartitionState.STOPPED, PartitionState.COPYING


@pytest.mark.parametrize(
    ("ends", "state"),
    [
        (LogBounds(0, 20, 0, 10), GOES_ON),  # it was not true: both have what is before 10
        (LogBounds(0, 5, 0, 10), STOPPED),  # it is still true
        (LogBounds(15, 20, 0, 10), STOPPED),  # nobody can tell any more
        (LogBounds(0, 20, 10, 10), STOPPED),
    ],
)
def test_lost_data_is_rechecked(ends: LogBounds, state: PartitionState) -> None:
    mirrored = resolved(0, 5, 0, 10)
    mirrored.recheck()
    assert mirrored.may_be_resolved(0.0)
    assert mirrored.status(NOW).state is PartitionState.STOPPED
    assert mirrored.resolved(start_offset(ends), ends) == (state is GOES_ON)
    assert mirrored.status(NOW).state is state
    assert (mirrored.status(NOW).error is not None) == (state is STOPPED)


def test_only_lost_data_is_rechecked() -> None:
    mirrored = resolved(0, 10, 0, 0)
    mirrored.stop(Trouble.UNRELATED_TOPIC, "it is another one")
    mirrored.recheck()
    assert not mirrored.may_be_resolved(1e9)
    mirrored = resolved(0, 10, 0, 0)
    mirrored.release()
    mirrored.recheck()
    assert not mirrored.may_be_resolved(1e9)
