"""One partition that is reproduced: where it starts, and its progress."""

from uuid import UUID

import pytest

from qbus.clients import TopicPartition
from qbus.clients.mirror.fallback.partition import ReproducedPartition
from qbus.clients.mirror.fallback.resuming import Found
from qbus.clients.mirror.status import PartitionState, Trouble
from qbus.errors import ApiError, ErrorCode

NOTHING = Found(None, is_empty=True)
FOREIGN = Found(None, is_empty=False)


class Sent:
    """Records on their way, until the test says what became of them."""

    def __init__(self) -> None:
        self.outcome: Exception | None = None
        self.is_done = False

    def done(self) -> bool:
        return self.is_done

    def result(self, timeout: float | None = None) -> None:
        if self.outcome is not None:
            raise self.outcome


@pytest.fixture
def reproduced() -> ReproducedPartition:
    return ReproducedPartition(TopicPartition("orders", 0), TopicPartition("a.orders", 0))


@pytest.mark.parametrize(
    ("found", "committed", "start", "end", "at", "trouble"),
    [
        (NOTHING, None, 0, 100, 0, None),
        (NOTHING, None, 30, 100, 30, None),
        (NOTHING, 60, 30, 100, 60, None),
        (NOTHING, 10, 30, 100, 30, Trouble.OVERTAKEN),
        (Found(50, False), None, 0, 100, 50, None),
        (Found(50, False), 40, 0, 100, 50, None),
        (Found(100, False), None, 0, 100, 100, None),
        (Found(50, False), None, 70, 100, 70, Trouble.OVERTAKEN),
        (Found(101, False), None, 0, 100, None, Trouble.SOURCE_LOST_DATA),
        (FOREIGN, None, 0, 100, None, Trouble.UNRELATED_TOPIC),
        (FOREIGN, 50, 0, 100, None, Trouble.UNRELATED_TOPIC),
    ],
)
def test_where_it_begins(
    reproduced: ReproducedPartition,
    found: Found,
    committed: int | None,
    start: int,
    end: int,
    at: int | None,
    trouble: Trouble | None,
) -> None:
    assert reproduced.resolve(found, committed, start, end) == at
    status = reproduced.status(0)
    assert status.trouble is trouble
    assert (status.error is None) is (trouble is None)
    assert (status.state is PartitionState.STOPPED) is (at is None)


@pytest.mark.parametrize(
    ("ours", "theirs", "is_stopped"),
    [("id", "id", False), ("id", "other", True), ("", "other", False), ("id", "", False)],
)
def test_copies_of_another_topic_of_the_same_name_are_left_alone(
    ours: str, theirs: str, is_stopped: bool
) -> None:
    reproduced = ReproducedPartition(
        TopicPartition("orders", 0), TopicPartition("a.orders", 0), ours
    )
    at = reproduced.resolve(Found(50, is_empty=False, topic_id=theirs), None, 0, 100)
    assert at == (None if is_stopped else 50)
    assert reproduced.trouble is (Trouble.SOURCE_RECREATED if is_stopped else None)


def test_progress_is_up_to_the_first_undelivered_record(reproduced: ReproducedPartition) -> None:
    reproduced.resolve(NOTHING, None, 0, 100)
    first, second = Sent(), Sent()
    reproduced.sent(first, 40, 40, 1_000)
    reproduced.sent(second, 100, 60, 2_000)
    second.is_done = True
    assert reproduced.collect() == 0
    assert reproduced.status(9_000).lag_records == 100
    first.is_done = True
    assert reproduced.collect() == 100
    status = reproduced.status(9_000)
    assert (status.lag_records, status.lag_seconds) == (0, 0.0)
    assert status.state is PartitionState.CURRENT


def test_markers_behind_the_last_record_need_no_copy(reproduced: ReproducedPartition) -> None:
    reproduced.resolve(NOTHING, None, 0, 42)
    sent = Sent()
    reproduced.sent(sent, 40, 40, 1_000)
    reproduced.reached(42)
    assert reproduced.acknowledged == 0
    sent.is_done = True
    reproduced.collect()
    reproduced.reached(42)
    assert reproduced.status(0).state is PartitionState.CURRENT


def test_a_failed_delivery_is_raised_and_the_progress_stays(
    reproduced: ReproducedPartition,
) -> None:
    reproduced.resolve(NOTHING, None, 0, 100)
    lost = Sent()
    lost.is_done, lost.outcome = True, RuntimeError("refused")
    reproduced.sent(lost, 40, 40, 1_000)
    with pytest.raises(RuntimeError, match="refused"):
        reproduced.collect()
    assert reproduced.acknowledged == 0


def test_the_lag_is_measured_by_the_last_delivered_record(
    reproduced: ReproducedPartition,
) -> None:
    reproduced.resolve(NOTHING, None, 0, 100)
    assert reproduced.status(5_000).lag_seconds is None
    sent = Sent()
    sent.is_done = True
    reproduced.sent(sent, 40, 40, 1_000)
    reproduced.collect()
    assert reproduced.status(5_000).lag_seconds == 4.0


def test_before_its_start_is_resolved_nothing_is_known(reproduced: ReproducedPartition) -> None:
    status = reproduced.status(0)
    assert status.state is PartitionState.WAITING
    assert status.lag_records is None


def test_records_of_another_topic_of_the_same_name_are_not_copied() -> None:
    reproduced = ReproducedPartition(TopicPartition("t", 0), TopicPartition("a.t", 0))
    first, other = UUID(int=1), UUID(int=2)
    reproduced.read(first)
    reproduced.read(first)
    with pytest.raises(ApiError, match="t was deleted and created again") as caught:
        reproduced.read(other)
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    assert reproduced.read_id == first
