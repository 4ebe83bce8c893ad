"""Delayed records of transactions: they count once committed, and come to nothing when aborted."""

from typing import Any, cast

import pytest

from qbus.broker.delay.fold import DelayFold
from qbus.broker.delay.incoming import NewBatch
from qbus.broker.log import AppendInfo, Verification
from qbus.broker.log.appender import RecordsRefusedError
from qbus.broker.partition.partition import ACKS_ALL, Partition
from qbus.errors import ApiError, ErrorCode
from qbus.records import iter_batches, iter_records
from qbus.records.control import Marker
from qbus.records.header import set_transactional

from .conftest import NewLine
from .delays import DAY, HOUR, Item, Line, WallClock, copy_log, encoded

DELAY = {"qbus-delay": "1h"}


class Transactions:
    """A producer whose transactions go to one partition."""

    def __init__(self, line: Line, producer_id: int = 7) -> None:
        self.line = line
        self.producer_id = producer_id
        self.sequence = 0
        # What the partition has, and the test's stand-in for it lacks.
        cast("Any", line).check_transaction = self._check

    def _check(
        self, producer_id: int, epoch: int, asked: Verification | None, sequence: int
    ) -> None:
        self.line.log.check_transaction(producer_id, epoch, sequence, asked)

    def send(self, *items: Item, asks: bool = True) -> AppendInfo:
        """Append a batch of the transaction that is open, or begin one."""
        log, line = self.line.log, self.line
        batch = encoded(
            *items,
            timestamp=line.clock.time_ms(),
            producer_id=self.producer_id,
            base_sequence=self.sequence,
        )
        set_transactional(batch)
        asked = (
            log.begin_verification(self.producer_id, 0, self.sequence, begins_with_zero=False)
            if asks
            else None
        )
        intake = line.service.intake(cast("Partition", line), memoryview(batch), ACKS_ALL, asked)
        self.sequence += len(items)
        if intake is None:
            return log.append(batch, 0, asked)
        assert isinstance(intake, NewBatch)
        if intake.needs_thread:
            intake.read()
        return intake.append()[0]

    def end(self, *, commit: bool) -> None:
        """Append the marker."""
        line = self.line
        line.log.end_transaction(self.producer_id, 0, Marker(commit, 0), 0, is_new_epoch=False)
        line.service.transaction_ended(cast("Partition", line), self.producer_id, 0, commit)


@pytest.fixture
def producer(line: Line) -> Transactions:
    return Transactions(line)


def visible(line: Line) -> list[bytes | None]:
    """The values of what consumers are sent, markers left out."""
    offset, found = 0, []
    while sent := line.log.read_visible(offset, 1 << 20, line.log.log_end_offset, wait=True):
        with_markers = iter_batches(sent.read())
        offset = sent.next_offset
        for header, batch in with_markers:
            if not header.is_control:
                found += [record.value for record in iter_records(batch)]
    return found


async def test_a_committed_one_is_delivered_when_it_is_due(
    line: Line, clock: WallClock, producer: Transactions
) -> None:
    producer.send((None, b"later", DELAY))
    assert line.log.first_unstable(line.log.log_end_offset) == 0
    producer.end(commit=True)
    assert line.fold.pending == 1
    assert await line.deliver() == 0
    clock.advance(HOUR)
    assert await line.deliver() == 1
    assert visible(line) == [b"later"]


async def test_it_waits_for_its_transaction_however_long_it_is_due(
    line: Line, clock: WallClock, producer: Transactions
) -> None:
    producer.send((None, b"later", DELAY))
    clock.advance(2 * HOUR)
    assert await line.deliver() == 0
    assert line.fold.pending == 1
    producer.end(commit=True)
    assert await line.deliver() == 1
    assert visible(line) == [b"later"]


async def test_an_aborted_one_comes_to_nothing(
    line: Line, clock: WallClock, producer: Transactions
) -> None:
    producer.send((None, b"never", DELAY))
    producer.end(commit=False)
    assert (line.fold.pending, line.fold.needed_from) == (0, None)
    clock.advance(DAY)
    assert await line.deliver() == 0
    assert visible(line) == []


async def test_each_transaction_decides_for_itself(new_line: NewLine, clock: WallClock) -> None:
    line = new_line()
    one = Transactions(line, 1)
    two = Transactions(line, 2)
    one.send((None, b"one", DELAY))
    two.send((None, b"two", DELAY))
    line.produce((None, b"plain", DELAY))
    one.end(commit=False)
    clock.advance(HOUR)
    assert await line.deliver() == 1
    two.end(commit=True)
    assert await line.deliver() == 1
    assert visible(line) == [b"plain", b"two"]


async def test_visible_records_of_the_same_batch_stay_transactional(
    line: Line, clock: WallClock, producer: Transactions
) -> None:
    producer.send((None, b"now", {}), (None, b"later", DELAY), (None, b"too", {}))
    records = line.log.read(0, 1 << 20, wait=True)
    assert records is not None
    headers = [header for header, _ in iter_batches(records.read())]
    assert [(one.is_transactional, one.is_hidden, one.in_transaction) for one in headers] == [
        (True, False, True),
        (False, True, True),
        (True, False, True),
    ]
    assert [one.base_sequence for one in headers] == [0, 1, 2]
    producer.end(commit=False)
    clock.advance(HOUR)
    assert await line.deliver() == 0
    (aborted,) = line.log.aborted_between(0, 3)
    assert (aborted.first_offset, aborted.last_offset) == (0, 3)


async def test_a_transaction_that_was_not_asked_for_is_refused(
    line: Line, producer: Transactions
) -> None:
    with pytest.raises(ApiError) as refused:
        producer.send((None, b"v", DELAY), asks=False)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE
    assert line.log.log_end_offset == 0


@pytest.mark.parametrize("header", ["qbus-cancel", "qbus-reschedule"])
async def test_a_transaction_gives_no_orders(
    line: Line, producer: Transactions, header: str
) -> None:
    line.send(key=b"k", delay="1h")
    order = {"qbus-cancel": "key"} if header == "qbus-cancel" else {header: "key", **DELAY}
    with pytest.raises(RecordsRefusedError):
        producer.send((b"k", None, order))
    assert line.fold.pending == 1


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("commit", [False, True])
async def test_a_restart_while_it_is_open(
    line: Line, clock: WallClock, producer: Transactions, clean: bool, commit: bool
) -> None:
    line.send(b"plain", delay="2h")
    producer.send((b"k", b"later", DELAY))
    line.reopen(clean=clean)
    assert line.fold.undecided == {7: [(clock.time_ms() + HOUR, 1, line.fold.undecided[7][0][2])]}
    assert line.fold.needed_from == 0
    producer.end(commit=commit)
    clock.advance(HOUR)
    assert await line.deliver() == int(commit)


@pytest.mark.parametrize("commit", [False, True])
async def test_a_restart_after_it_ended_that_reads_the_log(
    line: Line, clock: WallClock, producer: Transactions, commit: bool
) -> None:
    producer.send((None, b"later", DELAY))
    line.log.append(encoded((None, b"between", {})), 0)
    producer.end(commit=commit)
    line.log.append(encoded((None, b"behind", {})), 0)
    line.log.flush()
    line.reopen(clean=False)
    line.log.drop_snapshots()
    line.service.stop()
    line.log = line._open(clean=False, recovery_point=0)
    line.lead()
    assert line.fold.undecided == {}
    assert line.fold.pending == int(commit)
    clock.advance(HOUR)
    assert await line.deliver() == int(commit)


@pytest.mark.parametrize("commit", [False, True])
async def test_a_copy_decides_as_its_leader(
    line: Line, clock: WallClock, producer: Transactions, new_line: NewLine, commit: bool
) -> None:
    producer.send((None, b"later", DELAY))
    line.send(b"plain", delay="3h")
    producer.end(commit=commit)
    follower = new_line()
    copy_log(line, follower)
    assert follower.fold.pending == line.fold.pending == 1 + commit
    clock.advance(HOUR)
    assert await follower.deliver() == int(commit)


async def test_retention_does_not_carry_what_may_come_to_nothing(
    line: Line, producer: Transactions
) -> None:
    line.send(b"plain", delay="2h")
    producer.send((None, b"later", DELAY))
    end = line.log.log_end_offset
    await line.delayed.carrying.carry_all_before(end)
    assert (line.fold.carried_count, line.fold.bound) == (1, 1)
    assert line.fold.needed_from == 1
    producer.end(commit=True)
    await line.delayed.carrying.carry_all_before(end)
    assert line.fold.carried_count == 2


def test_what_is_undecided_is_in_a_snapshot() -> None:
    fold, other = DelayFold(), DelayFold()
    fold.undecided = {7: [(5, 1, 9), (6, 2, 8)], 8: [(7, 3, 2**32 - 1)]}
    other.restore(b"".join(fold.encode()))
    assert other.undecided == fold.undecided
    assert other.pending == 3
    with pytest.raises(ValueError, match="cut"):
        other.restore(b"".join(fold.encode())[:-1])
