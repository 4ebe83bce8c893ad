"""One partition's batches: when they are sent, and how an idempotent producer recovers."""

import pytest

from qbus.clients.producer.batch import Batch, ProducerIdentity
from qbus.clients.producer.queue import PartitionQueue
from qbus.clients.types import TopicPartition
from qbus.errors import ErrorCode

PARTITION = TopicPartition("t", 0)
LINGER = 0.5
LATER = 100.0


class Sending:
    """A queue, fed and emptied as accumulator and sender do; fresh identities are 1, 2, ..."""

    def __init__(self, max_in_flight: int = 5) -> None:
        self.queue = PartitionQueue(PARTITION, batch_bytes=100, max_in_flight=max_in_flight)
        self._identities = 0

    def put(self, created_at: float = 0.0, size: int = 100) -> Batch:
        batch = self.queue.room_in_open(size)
        if batch is None:
            batch = Batch(PARTITION, 0, created_at)
            self.queue.open(batch)
        batch.add(None, b"value", (), None)
        batch.size += size
        return batch

    def take(self, now: float = LATER) -> Batch | None:
        batch = self.queue.take(now, LINGER)
        if batch is not None:
            if self.queue.needs_identity(batch):
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


def numbers(batches: list[Batch]) -> list[tuple[int, int]]:
    return [(b.identity.producer_id if b.identity else -1, b.sequence) for b in batches]


async def test_a_batch_lingers_for_more_records() -> None:
    sending = Sending()
    batch = sending.put(created_at=1.0, size=40)
    assert sending.queue.next_at(LINGER) == 1.5
    assert sending.take(now=1.4) is None
    assert sending.put(created_at=1.3, size=40) is batch
    assert sending.take(now=1.5) is batch
    assert batch.count == 2


async def test_a_full_batch_does_not_linger() -> None:
    sending = Sending()
    batch = sending.put(created_at=1.0, size=100)
    assert sending.take(now=1.0) is batch


async def test_a_record_that_does_not_fit_opens_the_next_batch() -> None:
    sending = Sending()
    first = sending.put(created_at=1.0, size=60)
    second = sending.put(created_at=1.0, size=60)
    assert first is not second
    assert sending.take(now=1.0) is first


async def test_a_record_larger_than_a_batch_goes_alone() -> None:
    sending = Sending()
    large = sending.put(size=1000)
    assert sending.put(size=10) is not large
    assert sending.take() is large


async def test_flush_lets_nothing_linger() -> None:
    sending = Sending()
    batch = sending.put(created_at=1.0, size=1)
    assert sending.queue.flush() == [batch]
    assert sending.take(now=1.0) is batch
    assert sending.queue.flush() == [batch]  # in flight still
    sending.queue.delivered(batch)
    assert sending.queue.flush() == []


async def test_only_one_is_in_flight_until_the_broker_has_met_the_identity() -> None:
    sending = Sending()
    first, second, third = (sending.put() for _ in range(3))
    assert sending.take_all() == [first]
    sending.queue.delivered(first)
    assert sending.take_all() == [second, third]
    assert numbers([first, second, third]) == [(1, 0), (1, 1), (1, 2)]


async def test_in_flight_is_bounded() -> None:
    sending = Sending(max_in_flight=2).established()
    first, second, third = (sending.put() for _ in range(3))
    assert sending.take_all() == [first, second]
    sending.queue.delivered(first)
    assert sending.take_all() == [third]


async def test_none_gets_further_ahead_of_the_oldest_than_a_broker_remembers() -> None:
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


async def test_sequences_wrap_to_zero() -> None:
    sending = Sending().established()
    sending.queue._next_sequence = 2**31 - 1
    sending.put()
    sending.put()
    assert numbers(sending.take_all()) == [(1, 2**31 - 1), (1, 0)]


async def test_what_failed_goes_again_first_in_order_with_the_same_numbers() -> None:
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
    assert numbers([first, second, third, waiting]) == [(1, 1), (1, 2), (1, 3), (1, 4)]


async def test_a_success_between_two_failures_is_not_repeated() -> None:
    sending = Sending().established()
    first, second, third = (sending.put() for _ in range(3))
    sending.take_all()
    sending.queue.failed(first, ErrorCode.REQUEST_TIMED_OUT, 0.0)
    sending.queue.delivered(second)
    sending.queue.failed(third, ErrorCode.REQUEST_TIMED_OUT, 0.0)
    assert sending.take_all() == [first, third]


async def test_after_a_refusal_what_follows_takes_a_fresh_identity() -> None:
    sending = Sending().established()
    refused, second, third = (sending.put() for _ in range(3))
    sending.take_all()
    sending.queue.given_up(refused)
    sending.queue.failed(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0)
    sending.queue.failed(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0)
    assert sending.take_all() == [second]
    sending.queue.delivered(second)
    assert sending.take_all() == [third]
    assert numbers([second, third]) == [(2, 0), (2, 1)]


async def test_what_may_be_stored_never_changes_its_numbers() -> None:
    sending = Sending().established()
    unknown, refused, third = (sending.put() for _ in range(3))
    sending.take_all()
    sending.queue.failed(unknown, ErrorCode.REQUEST_TIMED_OUT, 0.0)
    sending.queue.given_up(refused)
    sending.queue.failed(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0)
    assert sending.take_all() == [unknown, third]
    assert numbers([unknown, third]) == [(1, 1), (1, 3)]
    sending.queue.delivered(unknown)
    sending.queue.failed(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0)
    assert sending.take_all() == [third]
    assert numbers([third]) == [(2, 0)]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH])
async def test_a_broker_that_forgot_us_gets_a_fresh_identity(code: ErrorCode) -> None:
    sending = Sending().established()
    batch = sending.put()
    sending.take_all()
    sending.queue.failed(batch, code, 0.0)
    assert sending.take_all() == [batch]
    assert numbers([batch]) == [(2, 0)]


async def test_a_fresh_number_is_encoded_anew() -> None:
    sending = Sending().established()
    batch = sending.put()
    sending.take_all()
    batch.encoded = bytearray(b"with the old numbers")
    sending.queue.failed(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0)
    assert batch.encoded is None


async def test_what_waits_too_long_expires_but_not_what_is_in_flight() -> None:
    sending = Sending().established()
    flying = sending.put(created_at=1.0)
    sending.take_all()
    old, older, young = sending.put(2.0), sending.put(1.0), sending.put(9.0)
    assert sending.queue.expired(created_before=5.0) == [old, older]
    assert sending.queue.expired(created_before=10.0) == [young]
    assert sending.queue.flush() == [flying]
