"""One partition's batches: when they are sent, and how an idempotent producer recovers."""

from collections.abc import Sequence

import pytest

from qbus.clients.producer.batch import Batch, ProducerIdentity
from qbus.clients.producer.lists import ListBatch
from qbus.clients.producer.queue import PartitionQueue
from qbus.clients.types import TopicPartition
from qbus.errors import ErrorCode

PARTITION = TopicPartition("t", 0)
LINGER = 0.5
LATER = 100.0


class Sending:
    """A queue, fed and emptied as accumulator and planner do; fresh ids are 1, 2, ..."""

    def __init__(self, max_in_flight: int = 5, *, idempotent: bool = True) -> None:
        self.queue = PartitionQueue(
            PARTITION, batch_bytes=100, max_in_flight=max_in_flight, idempotent=idempotent
        )
        self._is_idempotent = idempotent
        self._identities = 0

    def put(self, created_at: float = 0.0, size: int = 100, count: int = 1) -> ListBatch:
        if not self.queue.has_room(size):
            self.queue.open(ListBatch(PARTITION, 0, created_at))
        batch = self.queue.open_batch
        assert isinstance(batch, ListBatch)
        batch.add_many([b"value"] * count)
        batch.size += size
        return batch

    def take(self, now: float = LATER) -> Batch | None:
        batch = self.queue.take(now, LINGER)
        if batch is not None:
            if self._is_idempotent and self.queue.identity is None:
                self._identities += 1
                self.queue.set_identity(ProducerIdentity(self._identities, 0))
            self.queue.number(batch)
        return batch

    def take_all(self, now: float = LATER) -> list[Batch]:
        return list(iter(lambda: self.take(now), None))

    def established(self) -> "Sending":
        """With a first batch delivered, sequence 0."""
        self.put()
        first = self.take()
        assert first is not None
        self.queue.delivered(first)
        return self


def numbers(batches: Sequence[Batch]) -> list[tuple[int, int]]:
    """The epoch and the sequence of each."""
    return [(b.identity.epoch if b.identity else -1, b.sequence) for b in batches]


def test_a_batch_lingers_for_more_records() -> None:
    sending = Sending()
    batch = sending.put(created_at=1.0, size=40)
    assert sending.queue.next_at(LINGER) == 1.5
    assert sending.take(now=1.4) is None
    assert sending.put(created_at=1.3, size=40) is batch
    assert sending.take(now=1.5) is batch
    assert batch.count == 2


def test_a_batch_that_somebody_waits_for_does_not_linger() -> None:
    sending = Sending()
    batch = sending.put(created_at=1.0, size=40)
    batch.is_hurried = True
    assert sending.queue.next_at(LINGER) == 1.0
    assert sending.take(now=1.0) is batch


def test_but_while_another_is_in_flight_it_lingers_for_more_to_go_with_it() -> None:
    sending = Sending().established()
    in_flight = sending.put(created_at=1.0)
    assert sending.take(now=1.0) is in_flight
    batch = sending.put(created_at=1.0, size=40)
    batch.is_hurried = True
    assert sending.take(now=1.1) is None
    assert sending.put(created_at=1.2, size=40) is batch
    assert sending.queue.next_at(LINGER) == 1.5, "and no longer than others do"
    sending.queue.delivered(in_flight)
    assert sending.take(now=1.2) is batch
    assert batch.count == 2


def test_nor_is_it_sent_before_what_failed() -> None:
    sending = Sending().established()
    failed = sending.put(created_at=1.0)
    assert sending.take(now=1.0) is failed
    sending.queue.failed(failed, ErrorCode.NOT_LEADER_OR_FOLLOWER, 3.0)
    batch = sending.put(created_at=2.9, size=40)
    batch.is_hurried = True
    assert sending.take(now=2.9) is None
    assert sending.take_all(now=3.0) == [failed]
    sending.queue.delivered(failed)
    assert sending.take(now=3.0) is batch


def in_transactions() -> PartitionQueue:
    """A queue that had a batch of a transaction stored, begun at 10.0, epoch 0 of producer 1."""
    queue = PartitionQueue(
        PARTITION, batch_bytes=100, max_in_flight=5, idempotent=True, transactional=True
    )
    queue.set_identity(ProducerIdentity(1, 0, is_transactional=True), 10.0)
    (first,) = in_flight(queue, 1, 10.0)
    queue.delivered(first)
    return queue


def in_flight(queue: PartitionQueue, count: int, now: float) -> list[Batch]:
    """Those of ``count`` full batches that may be sent at once."""
    for _ in range(count):
        batch = ListBatch(PARTITION, 0, now)
        batch.add_many([b"value"])
        batch.size = 100
        queue.push(batch)
    taken = list(iter(lambda: queue.take(now, LINGER), None))
    for one in taken:
        queue.number(one)
    return taken


def test_the_next_transaction_waits_for_nothing_where_the_broker_remembers_the_producer() -> None:
    queue = in_transactions()
    queue.set_identity(ProducerIdentity(1, 1, is_transactional=True), 11.0)
    assert numbers(in_flight(queue, 3, 11.0)) == [(1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize(
    ("identity", "now"),
    [
        (ProducerIdentity(2, 0, is_transactional=True), 11.0),  # another producer
        (ProducerIdentity(1, 1, is_transactional=True), 70.0),  # it may be forgotten
        (ProducerIdentity(1, 1), 11.0),  # after an error: nobody knows what is stored
    ],
)
def test_else_its_first_batch_is_stored_before_others_are_sent(
    identity: ProducerIdentity, now: float
) -> None:
    queue = in_transactions()
    queue.set_identity(identity, now)
    assert len(in_flight(queue, 3, now)) == 1


def test_what_the_broker_refuses_because_the_first_batch_was_refused_follows_it() -> None:
    queue = in_transactions()
    queue.set_identity(ProducerIdentity(1, 1, is_transactional=True), 11.0)
    first, second = in_flight(queue, 2, 11.0)
    queue.failed(first, ErrorCode.CONCURRENT_TRANSACTIONS, 11.0)
    queue.failed(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 11.0)
    assert not queue.is_displaced
    assert in_flight(queue, 0, 12.0) == [first, second]
    assert numbers([first, second]) == [(1, 0), (1, 1)]


def test_a_transactions_first_batch_lingers_shortly_while_its_partition_is_not_taken_in() -> None:
    queue = PartitionQueue(
        PARTITION, batch_bytes=100, max_in_flight=5, idempotent=True, transactional=True
    )
    queue.set_identity(ProducerIdentity(1, 0, is_transactional=True))
    queue.open(ListBatch(PARTITION, 0, 0.0))
    assert queue.take(0.002, LINGER) is None
    first = queue.take(0.003, LINGER)
    assert first is not None
    queue.number(first)
    queue.open(ListBatch(PARTITION, 0, 0.0))
    assert queue.take(LATER, LINGER) is None, "the only one in flight"
    queue.delivered(first)
    assert queue.take(LINGER - 0.1, LINGER) is None
    assert queue.take(LINGER, LINGER) is not None


def test_a_full_batch_does_not_linger() -> None:
    sending = Sending()
    batch = sending.put(created_at=1.0, size=100)
    assert sending.take(now=1.0) is batch


def test_a_record_that_does_not_fit_opens_the_next_batch() -> None:
    sending = Sending()
    first = sending.put(created_at=1.0, size=60)
    second = sending.put(created_at=1.0, size=60)
    assert first is not second
    assert sending.take(now=1.0) is first


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    sending = Sending()
    large = sending.put(size=1000)
    assert sending.put(size=10) is not large
    assert sending.take() is large


def test_a_seal_lets_nothing_linger() -> None:
    sending = Sending()
    batch = sending.put(created_at=1.0, size=1)
    sending.queue.seal()
    assert not batch.is_quick
    assert sending.take(now=1.0) is batch
    assert not sending.queue.is_empty, "it is in flight"
    sending.queue.delivered(batch)
    assert sending.queue.is_empty


def test_without_sequences_several_are_in_flight_from_the_start() -> None:
    sending = Sending(idempotent=False)
    batches = [sending.put() for _ in range(6)]
    assert sending.take_all() == batches[:5]
    assert numbers(batches) == [(-1, -1)] * 6
    sending.queue.failed(batches[0], ErrorCode.NETWORK_EXCEPTION, 0.0)
    for batch in batches[1:5]:
        sending.queue.failed(batch, ErrorCode.NETWORK_EXCEPTION, 0.0)
    assert sending.take_all() == batches[:5], "again in their order"


def test_only_one_is_in_flight_until_the_broker_has_met_the_identity() -> None:
    sending = Sending()
    first, second, third = (sending.put() for _ in range(3))
    assert sending.take_all() == [first]
    sending.queue.delivered(first)
    assert sending.take_all() == [second, third]
    assert numbers([first, second, third]) == [(0, 0), (0, 1), (0, 2)]


def test_in_flight_is_bounded() -> None:
    sending = Sending(max_in_flight=2).established()
    first, second, third = (sending.put() for _ in range(3))
    assert sending.take_all() == [first, second]
    sending.queue.delivered(first)
    assert sending.take_all() == [third]


def test_no_batch_gets_further_ahead_than_a_broker_remembers() -> None:
    sending = Sending(max_in_flight=3).established()
    unknown, second, third, fourth = (sending.put() for _ in range(4))
    assert sending.take_all() == [unknown, second, third]
    sending.queue.delivered(second)
    sending.queue.delivered(third)
    assert sending.take_all() == [], "the fourth might push the first out of the broker's memory"
    sending.queue.failed(unknown, ErrorCode.REQUEST_TIMED_OUT, 0.0)
    assert sending.take_all() == [unknown]
    sending.queue.delivered(unknown)
    assert sending.take_all() == [fourth]


def test_sequences_wrap_to_zero() -> None:
    sending = Sending().established()
    sending.queue._next_sequence = 2**31 - 1
    sending.put()
    sending.put()
    assert numbers(sending.take_all()) == [(0, 2**31 - 1), (0, 0)]


def test_failed_batches_are_sent_again_first_with_the_same_sequences() -> None:
    sending = Sending().established()
    first, second, third = (sending.put() for _ in range(3))
    assert sending.take_all() == [first, second, third]
    waiting = sending.put()
    sending.queue.failed(first, ErrorCode.NETWORK_EXCEPTION, 50.0)
    sending.queue.failed(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 50.0)
    assert sending.take() is None, "the second is not answered"
    sending.queue.failed(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 50.0)
    assert sending.take(now=49.0) is None, "it is too early"
    assert sending.take_all(now=50.0) == [first, second, third, waiting]
    assert numbers([first, second, third, waiting]) == [(0, 1), (0, 2), (0, 3), (0, 4)]


def test_a_success_between_two_failures_is_not_repeated() -> None:
    sending = Sending().established()
    first, second, third = (sending.put() for _ in range(3))
    sending.take_all()
    sending.queue.failed(first, ErrorCode.REQUEST_TIMED_OUT, 0.0)
    sending.queue.delivered(second)
    sending.queue.failed(third, ErrorCode.REQUEST_TIMED_OUT, 0.0)
    assert sending.take_all() == [first, third]


def test_batches_after_a_refused_one_take_a_new_identity() -> None:
    sending = Sending().established()
    refused, second, third = (sending.put() for _ in range(3))
    sending.take_all()
    sending.queue.given_up(refused)
    sending.queue.failed(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0)
    sending.queue.failed(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0)
    assert sending.take_all() == [second]
    sending.queue.delivered(second)
    assert sending.take_all() == [third]
    assert numbers([second, third]) == [(1, 0), (1, 1)]


def test_what_may_be_stored_never_changes_its_numbers() -> None:
    sending = Sending().established()
    unknown, refused, third = (sending.put() for _ in range(3))
    sending.take_all()
    sending.queue.failed(unknown, ErrorCode.REQUEST_TIMED_OUT, 0.0)
    sending.queue.given_up(refused)
    sending.queue.failed(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0)
    assert sending.take_all() == [unknown, third]
    assert numbers([unknown, third]) == [(0, 1), (0, 3)]
    sending.queue.delivered(unknown)
    sending.queue.failed(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0)
    assert sending.take_all() == [third]
    assert numbers([third]) == [(1, 0)]


def test_a_broker_that_forgot_us_gets_the_next_epoch() -> None:
    sending = Sending().established()
    batch = sending.put()
    sending.take_all()
    sending.queue.failed(batch, ErrorCode.UNKNOWN_PRODUCER_ID, 0.0)
    assert sending.take_all() == [batch]
    assert batch.identity == ProducerIdentity(1, 1)
    assert batch.sequence == 0


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(0x7FFF, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (3, ErrorCode.INVALID_PRODUCER_EPOCH)],
)
def test_without_a_next_epoch_there_is_a_fresh_id(epoch: int, code: ErrorCode) -> None:
    sending = Sending()
    sending.queue.set_identity(ProducerIdentity(70, epoch))
    batch = sending.put()
    sending.take_all()
    sending.queue.failed(batch, code, 0.0)
    assert sending.queue.rejected_id == 70
    assert sending.take_all() == [batch]
    assert batch.identity == ProducerIdentity(1, 0)


def test_batches_to_be_sent_again_take_the_next_epoch() -> None:
    sending = Sending().established()
    first, second = sending.put(), sending.put()
    sending.take_all()
    for batch in (first, second):
        sending.queue.failed(batch, ErrorCode.NETWORK_EXCEPTION, 0.0)
    assert sending.take() is first
    sending.queue.failed(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0)
    assert sending.take_all() == [first]
    sending.queue.delivered(first)
    assert sending.take_all() == [second]
    assert numbers([first, second]) == [(1, 0), (1, 1)]


def test_the_halves_of_a_large_batch_keep_its_sequences() -> None:
    sending = Sending().established()
    large, behind = sending.put(count=5), sending.put()
    assert sending.take_all() == [large, behind]
    left, right = large.split()
    sending.queue.too_large(large, left, right)
    assert sending.take() is None, "the one behind is not answered"
    sending.queue.failed(behind, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0)
    assert sending.take_all() == [left, right, behind]
    assert numbers([left, right, behind]) == [(0, 1), (0, 3), (0, 6)]


def test_halves_count_as_batches_in_flight() -> None:
    sending = Sending(max_in_flight=3).established()
    large = sending.put(count=4)
    behind = [sending.put() for _ in range(3)]
    assert sending.take_all() == [large, *behind[:2]]
    halves = large.split()
    sending.queue.too_large(large, *halves)
    for batch in behind[:2]:
        sending.queue.failed(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0)
    assert sending.take_all() == [*halves, behind[0]]


def test_a_fresh_number_is_encoded_anew() -> None:
    sending = Sending().established()
    batch = sending.put()
    sending.take_all()
    batch.encoded = bytearray(b"with the old numbers")
    sending.queue.failed(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0)
    assert batch.encoded is None


def test_old_batches_are_taken_out_unless_in_flight() -> None:
    sending = Sending().established()
    flying = sending.put(created_at=1.0)
    sending.take_all()
    old, older, young = sending.put(2.0), sending.put(1.0), sending.put(9.0)
    assert sending.queue.expired(created_before=5.0) == [flying, old, older]
    flying.is_given_up = True
    assert sending.queue.expired(created_before=10.0) == [young]
    assert not sending.queue.is_empty
    sending.queue.failed(flying, ErrorCode.REQUEST_TIMED_OUT, 0.0)
    assert sending.queue.is_empty, "what is given up does not go again"


def test_unsent_batches_for_any_partition_can_move() -> None:
    sending = Sending().established()
    sent, free, bound, other = (sending.put() for _ in range(4))
    for batch in (sent, free, other):
        batch.is_movable = True
    assert sending.take(LATER) is sent
    assert sending.queue.movable() == [free, other]
    sending.queue.delivered(sent)
    assert sending.take_all() == [bound]
