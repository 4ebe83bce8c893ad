"""When a process that has ended is started again."""

from qbus.broker.workers.restarts import Restarts


def test_one_that_ran_well_is_started_at_once() -> None:
    restarts = Restarts()
    assert [restarts.ended(60.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert restarts.count == 3


def test_one_that_dies_again_and_again_is_started_ever_less_often() -> None:
    restarts = Restarts()
    pauses = [restarts.ended(0.1) for _ in range(9)]
    assert pauses == [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_a_long_life_is_a_new_beginning() -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.ended(0.1)
    assert restarts.ended(10.0) == 0.0
    assert restarts.ended(0.1) == 0.25
