"""Since when a partition is idle, with clocks that tests move."""

import math

from qbus.broker.queues.idle import GRACE_S, IdleTime, Use

LIMIT_S = 300.0


def use(end: int = 5, read: int = 0, *, used_at: float = -math.inf, now: bool = False) -> Use:
    return Use(end, read, used_at, now)


def test_it_is_over_once_nothing_was_seen_for_its_time() -> None:
    idle = IdleTime(100.0, 0.0)
    idle.saw(use(), 100.0)
    assert not idle.is_over(LIMIT_S, 399.9)
    assert idle.is_over(LIMIT_S, 400.0)


def test_an_append_begins_it_anew() -> None:
    idle = IdleTime(100.0, 0.0)
    idle.saw(use(end=5), 100.0)
    idle.saw(use(end=6), 250.0)
    assert not idle.is_over(LIMIT_S, 400.0)
    assert idle.is_over(LIMIT_S, 550.0)


def test_so_does_what_a_consumer_reads() -> None:
    idle = IdleTime(100.0, 0.0)
    idle.saw(use(read=0), 100.0)
    idle.saw(use(read=70), 250.0)
    assert not idle.is_over(LIMIT_S, 400.0)


def test_so_does_a_worker_that_took_or_waited_between_two_looks() -> None:
    idle = IdleTime(100.0, 0.0)
    idle.saw(use(used_at=240.0), 250.0)
    assert not idle.is_over(LIMIT_S, 539.9)
    assert idle.is_over(LIMIT_S, 540.0)


def test_who_waits_keeps_it_for_ever() -> None:
    idle = IdleTime(0.0, 0.0)
    for now in range(0, 100_000, 5):
        idle.saw(use(now=True), float(now))
        assert not idle.is_over(LIMIT_S, float(now))


def test_a_restart_does_not_begin_it_anew() -> None:
    """Else a queue would stay for ever on a broker that restarts often."""
    idle = IdleTime(1000.0, written_s=250.0)
    idle.saw(use(), 1000.0)
    assert not idle.is_over(LIMIT_S, 1049.9)
    assert idle.is_over(LIMIT_S, 1000.0 + GRACE_S)


def test_after_a_restart_clients_have_time_to_come_back() -> None:
    idle = IdleTime(1000.0, written_s=86_400.0)
    assert not idle.is_over(LIMIT_S, 1000.0 + GRACE_S - 0.1)
    assert idle.is_over(LIMIT_S, 1000.0 + GRACE_S)


def test_the_grace_is_no_longer_than_the_limit() -> None:
    assert IdleTime(1000.0, written_s=86_400.0).is_over(2.0, 1002.0)


def test_a_clock_that_was_set_back_counts_as_a_write_just_now() -> None:
    idle = IdleTime(1000.0, written_s=-math.inf)
    assert not idle.is_over(LIMIT_S, 1299.9)
    assert idle.is_over(LIMIT_S, 1300.0)
