"""What is known of an event loop's current tick."""

from qbus.service.event_loop import Ticks


def in_tick(began: float, *, slow_s: float = 0.1) -> Ticks:
    ticks = Ticks(slow_s)
    ticks.number, ticks.began = 1, began
    return ticks


def test_a_loop_that_waits_for_events_stands_for_no_time() -> None:
    ticks = Ticks()
    assert ticks.stands_s(1_000.0) == 0.0


def test_a_loop_stands_since_its_tick_began() -> None:
    assert in_tick(10.0).stands_s(13.5) == 3.5


def test_a_request_is_slow_when_it_takes_longer_than_the_limit() -> None:
    ticks = in_tick(10.0)
    ticks.begin_request("client", 10.0)
    assert not ticks.end_request(10.0, 10.1)
    ticks.begin_request("client", 10.1)
    assert ticks.end_request(10.1, 10.3)
    assert ticks.requests == 2


def test_whose_request_is_handled_is_known_until_it_ends() -> None:
    ticks, client = in_tick(10.0), object()
    ticks.begin_request(client, 10.0)
    assert ticks.current is client
    ticks.end_request(10.0, 10.01)
    assert ticks.current is None


def test_the_lease_lapses_before_the_next_request_of_a_tick_that_took_too_long() -> None:
    ticks, stood = in_tick(10.0), list[float]()
    ticks.lease(6.0, stood.append)
    ticks.begin_request("client", 16.0)
    assert stood == []
    ticks.begin_request("client", 16.5)
    assert stood == [6.5]


def test_the_lease_lapses_when_a_request_that_took_too_long_ends() -> None:
    ticks, stood = in_tick(10.0), list[float]()
    ticks.lease(6.0, stood.append)
    ticks.begin_request("client", 10.0)
    assert ticks.end_request(10.0, 17.0)
    assert stood == [7.0]


def test_the_lease_lapses_once_a_tick() -> None:
    ticks, stood = in_tick(10.0), list[float]()
    ticks.lease(6.0, stood.append)
    for now in (17.0, 18.0, 19.0):
        ticks.begin_request("client", now)
    assert stood == [7.0]
    ticks.number, ticks.began = 2, 20.0
    ticks.check_lease(27.0)
    assert stood == [7.0, 7.0]


def test_without_a_lease_nothing_lapses() -> None:
    ticks = in_tick(10.0)
    ticks.begin_request("client", 1e9)
    ticks.check_lease(1e9)
