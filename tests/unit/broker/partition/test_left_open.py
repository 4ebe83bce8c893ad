"""Transactions that a mirror's source left open are aborted once, and no others."""

import pytest

from qbus.broker.log import Producer, ProducerState
from qbus.broker.log.producers import RetainedBatch
from qbus.broker.partition.left_open import LeftOpen
from qbus.errors import ApiError, ErrorCode
from qbus.records.control import Marker


def producers(**starts: int) -> ProducerState:
    """Producers with open transactions, ``p7=3``: that of producer 7 begins at offset 3."""
    state = ProducerState(100)
    for name, start in starts.items():
        producer_id = int(name.removeprefix("p"))
        state.add(producer_id, 0, RetainedBatch(0, start, 0, 0), 0)
        state.begin(producer_id, start)
    return state


class Aborts:
    """What was aborted: producer ids and coordinator epochs."""

    def __init__(self) -> None:
        self.made: list[tuple[int, int]] = []
        self.refused: set[int] = set()

    def __call__(self, producer: Producer, coordinator_epoch: int) -> None:
        if producer.producer_id in self.refused:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "alone")
        self.made.append((producer.producer_id, coordinator_epoch))


def test_what_was_open_is_aborted_once() -> None:
    state, left_open, aborts = producers(p7=3, p8=5), LeftOpen(is_mirror=True), Aborts()
    left_open.become(is_mirror=False, producers=state)
    assert len(left_open) == 2
    for _ in range(2):
        left_open.abort(state, aborts, "t-0")
    assert aborts.made == [(7, 0), (8, 0)]
    assert not left_open


def test_it_is_aborted_in_the_epoch_of_the_coordinator_that_is_known() -> None:
    state, left_open, aborts = producers(p7=3), LeftOpen(is_mirror=True), Aborts()
    state.end(7, 0, 4, Marker(True, 6), 0)
    state.begin(7, 5)
    left_open.become(is_mirror=False, producers=state)
    left_open.abort(state, aborts, "t-0")
    assert aborts.made == [(7, 6)]


def test_what_has_ended_meanwhile_is_left_alone() -> None:
    state, left_open, aborts = producers(p7=3, p8=5), LeftOpen(is_mirror=True), Aborts()
    left_open.become(is_mirror=False, producers=state)
    state.end(7, 0, 6, Marker(True, 0), 0)
    state.end(8, 0, 7, Marker(True, 0), 0)
    state.begin(8, 8)  # a new transaction of this cluster
    left_open.abort(state, aborts, "t-0")
    assert aborts.made == []


def test_what_cannot_be_aborted_yet_is_told_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    state, left_open, aborts = producers(p7=3, p8=5), LeftOpen(is_mirror=True), Aborts()
    left_open.become(is_mirror=False, producers=state)
    aborts.refused = {7}
    left_open.abort(state, aborts, "t-0")
    assert aborts.made == [(8, 0)]
    assert "t-0: the transaction of producer 7, which its source left open, cannot be" in (
        caplog.text
    )
    aborts.refused = set()
    left_open.abort(state, aborts, "t-0")
    assert aborts.made == [(8, 0), (7, 0)]


def test_a_mirror_again_leaves_it_to_its_source() -> None:
    state, left_open, aborts = producers(p7=3), LeftOpen(is_mirror=True), Aborts()
    left_open.become(is_mirror=False, producers=state)
    left_open.become(is_mirror=True, producers=state)
    left_open.abort(state, aborts, "t-0")
    assert (aborts.made, len(left_open)) == ([], 0)
