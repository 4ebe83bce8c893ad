"""What is said of records: in few ranges, in order, and again in halves where it is refused."""

import asyncio

import pytest

from qbus.clients.share.acknowledgements import Ack, AckRange, AckType, PendingAcks, ranges_of
from qbus.clients.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
ACCEPT, RELEASE, RENEW = AckType.ACCEPT, AckType.RELEASE, AckType.RENEW


@pytest.mark.parametrize(
    ("acks", "ranges"),
    [
        ([], []),
        ([Ack(3, ACCEPT)], [AckRange(3, 3, [1], -1, None)]),
        ([Ack(3, ACCEPT), Ack(4, ACCEPT)], [AckRange(3, 4, [1], -1, None)]),
        ([Ack(3, ACCEPT), Ack(4, RELEASE)], [AckRange(3, 4, [1, 2], -1, None)]),
        (
            [Ack(3, ACCEPT), Ack(5, ACCEPT)],
            [AckRange(3, 3, [1], -1, None), AckRange(5, 5, [1], -1, None)],
        ),
        (
            [Ack(3, RELEASE, 5), Ack(4, RELEASE, 5), Ack(5, RELEASE, 6)],
            [AckRange(3, 4, [2], 5, None), AckRange(5, 5, [2], 6, None)],
        ),
        (
            [Ack(3, RELEASE), Ack(4, RELEASE, is_nack=True)],
            [AckRange(3, 3, [2], -1), AckRange(4, 4, [2], -1, None, is_nack=True)],
        ),
        (
            [Ack(3, ACCEPT), Ack(4, ACCEPT, result=b"r"), Ack(5, ACCEPT)],
            [
                AckRange(3, 3, [1], -1, None),
                AckRange(4, 4, [1], -1, b"r"),
                AckRange(5, 5, [1], -1, None),
            ],
        ),
    ],
)
def test_ranges_of_one_delay_and_single_results(acks: list[Ack], ranges: list[AckRange]) -> None:
    assert ranges_of(acks) == ranges


def test_one_request_says_what_there_is_in_the_order_of_the_offsets() -> None:
    pending = PendingAcks()
    for offset in (3, 1, 2):
        pending.add(P0, Ack(offset, ACCEPT))
    pending.add(P1, Ack(7, RELEASE))
    assert pending.take([P0]) == {P0: [Ack(1, ACCEPT), Ack(2, ACCEPT), Ack(3, ACCEPT)]}
    assert pending
    assert pending.take() == {P1: [Ack(7, RELEASE)]}
    assert not pending
    assert pending.take([P0]) == {}


def test_one_request_says_one_thing_of_a_record() -> None:
    pending = PendingAcks()
    pending.add(P0, Ack(1, RENEW))
    pending.add(P0, Ack(1, ACCEPT))
    assert pending.take() == {P0: [Ack(1, RENEW)]}
    assert pending.take() == {P0: [Ack(1, ACCEPT)]}


def test_what_is_refused_is_said_again_in_halves_before_all_else() -> None:
    pending = PendingAcks()
    refused = [Ack(offset, ACCEPT) for offset in range(5)]
    pending.add(P0, Ack(9, ACCEPT))
    assert pending.refused(P0, refused)
    assert pending.take() == {P0: refused[:2]}
    assert pending.take() == {P0: refused[2:]}
    assert pending.take() == {P0: [Ack(9, ACCEPT)]}
    assert not pending.refused(P0, refused[:1])
    assert not pending


def test_halves_stay_as_they_are() -> None:
    pending = PendingAcks()
    pending.refused(P0, [Ack(0, ACCEPT), Ack(1, ACCEPT)])
    pending.add(P0, Ack(2, ACCEPT))
    assert [pending.take()[P0] for _ in range(3)] == [[Ack(n, ACCEPT)] for n in range(3)]


def test_everything_at_once() -> None:
    pending = PendingAcks()
    pending.refused(P0, [Ack(0, ACCEPT), Ack(1, ACCEPT)])
    pending.add(P1, Ack(2, RELEASE))
    assert pending.take_all() == [
        (P0, Ack(0, ACCEPT)),
        (P0, Ack(1, ACCEPT)),
        (P1, Ack(2, RELEASE)),
    ]
    assert not pending


def test_renewals_alone() -> None:
    pending = PendingAcks()
    pending.add(P0, Ack(0, RENEW))
    pending.add(P0, Ack(1, ACCEPT))
    pending.add(P1, Ack(2, RENEW))
    assert pending.take_renewals() == [(P0, Ack(0, RENEW)), (P1, Ack(2, RENEW))]
    assert pending.take() == {P0: [Ack(1, ACCEPT)]}
    assert not pending


async def test_whether_somebody_waits() -> None:
    pending = PendingAcks()
    pending.add(P0, Ack(0, ACCEPT))
    assert not pending.is_awaited([P0, P1])
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    pending.add(P1, Ack(0, ACCEPT, told=told))
    assert pending.is_awaited([P0, P1])
    assert not pending.is_awaited([P0])


def test_rows_are_said_as_their_records_would_be() -> None:
    assert ranges_of([Ack(3, ACCEPT, size=4), Ack(7, ACCEPT), Ack(8, RELEASE, size=2)]) == [
        AckRange(3, 9, [1, 1, 1, 1, 1, 2, 2], -1, None)
    ]
    assert ranges_of([Ack(3, ACCEPT, size=4), Ack(8, ACCEPT, size=2)]) == [
        AckRange(3, 6, [1], -1, None),
        AckRange(8, 9, [1], -1, None),
    ]


@pytest.mark.parametrize("second", [Ack(5, RENEW), Ack(1, ACCEPT, size=3), Ack(4, ACCEPT, size=9)])
def test_one_request_says_one_thing_of_the_records_of_a_row(second: Ack) -> None:
    first = Ack(3, ACCEPT, size=4)
    pending = PendingAcks()
    pending.add(P0, first)
    pending.add(P0, second)
    assert pending.take() == {P0: [first]}
    assert pending.take() == {P0: [second]}


def test_what_lies_beside_a_row_goes_with_it() -> None:
    pending = PendingAcks()
    pending.add(P0, Ack(3, ACCEPT, size=4))
    pending.add(P0, Ack(1, ACCEPT, size=2))
    pending.add(P0, Ack(0, RELEASE))
    assert [ack.offset for ack in pending.take()[P0]] == [0, 1, 3]
    assert not pending


def test_a_row_that_is_refused_is_halved_until_it_is_one_record() -> None:
    pending = PendingAcks()
    assert pending.refused(P0, [Ack(3, ACCEPT, size=4)])
    assert pending.take() == {P0: [Ack(3, ACCEPT), Ack(4, ACCEPT)]}
    assert pending.take() == {P0: [Ack(5, ACCEPT), Ack(6, ACCEPT)]}
