"""Positions: found, moved, committed."""

import pytest

from qbus.clients.consumer.assignment import Assignment
from qbus.clients.types import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition
from qbus.errors import QbusError

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def assignment(*partitions: TopicPartition) -> Assignment:
    made = Assignment()
    made.replace(partitions)
    return made


def test_positions_have_to_be_found() -> None:
    made = assignment(P0, P1)
    assert made.topics == {"t"}
    assert made.without_position() == {P0: None, P1: None}
    made.found(P0, 5, committed=True)
    assert (made.position(P0), made.position(P1)) == (5, None)
    assert made.without_position() == {P1: None}


def test_what_was_found_does_not_undo_a_seek() -> None:
    made = assignment(P0)
    made.seek(P0, 7)
    made.found(P0, 5, committed=True)
    assert made.position(P0) == 7


@pytest.mark.parametrize("where", [EARLIEST, LATEST])
def test_a_seek_to_an_end_has_to_be_looked_up(where: int) -> None:
    made = assignment(P0)
    made.found(P0, 5, committed=False)
    made.seek(P0, where)
    assert made.position(P0) is None
    assert made.without_position() == {P0: where}


def test_an_offset_may_be_any_integer() -> None:
    class Number:
        def __index__(self) -> int:
            return 7

    made = assignment(P0)
    made.seek(P0, Number())  # type: ignore[arg-type]
    assert (made.position(P0), type(made.position(P0))) == (7, int)


def test_no_seek_outside_the_assignment() -> None:
    with pytest.raises(QbusError, match="not assigned"):
        assignment(P0).seek(P1, 0)
    assert assignment(P0).position(P1) is None


def test_only_what_moved_is_committed() -> None:
    made = assignment(P0, P1)
    made.found(P0, 5, committed=True)
    made.found(P1, 5, committed=False)
    assert made.to_commit() == {P1: OffsetAndMetadata(5)}
    made.committed({P1: OffsetAndMetadata(5)})
    assert made.to_commit() == {}
    made.seek(P0, 3)
    assert made.to_commit() == {P0: OffsetAndMetadata(3)}


def test_replacing_forgets_and_adding_keeps() -> None:
    made = assignment(P0)
    made.found(P0, 5, committed=False)
    made.add([P0, P1])
    assert (made.position(P0), list(made)) == (5, [P0, P1])
    made.replace([P0])
    assert (made.position(P0), list(made)) == (None, [P0])
    made.found(P1, 1, committed=False)  # an answer for what is no longer ours
    assert list(made) == [P0]


def test_partitions_take_turns() -> None:
    made = assignment(P0, P1)
    made.move_to_end(P0)
    assert list(made) == [P1, P0]


def test_a_stopped_partition_keeps_its_position_until_it_is_removed() -> None:
    made = assignment(P0, P1)
    made.seek(P0, 5)
    made.stop([P0, TopicPartition("elsewhere", 0)])
    assert made.states[P0].is_stopped
    assert made.to_commit() == {P0: OffsetAndMetadata(5)}
    made.remove([P0])
    assert list(made) == [P1]
