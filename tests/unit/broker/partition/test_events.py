"""Events of partitions: who hears of what. What a partition is does not matter here."""

from qbus.broker.partition.events import EVENTS, PartitionEvents, PartitionListener


class Closings(PartitionListener[str]):
    """Follows the end alone."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def closed(self, partition: str) -> None:
        self.heard.append(partition)


class Growth(Closings):
    """Follows appends besides."""

    def appended(self, partition: str, end_offset: int, size: int) -> None:
        self.heard.append(f"{partition} {end_offset} {size}")


def counts(events: PartitionEvents[str]) -> dict[str, int]:
    """How many listeners each event has, if it has any."""
    found = {event: len(getattr(events, event)) for event in EVENTS}
    return {event: count for event, count in found.items() if count}


def test_what_a_listener_does_not_follow_costs_nothing() -> None:
    events: PartitionEvents[str] = PartitionEvents()
    events.subscribe(Closings())
    assert counts(events) == {"closed": 1}
    events.subscribe(Growth())
    assert counts(events) == {"closed": 2, "appended": 1}


def test_listeners_hear_in_the_order_of_their_subscription() -> None:
    events: PartitionEvents[str] = PartitionEvents()
    one = Growth()
    events.subscribe(one)
    events.subscribe(one)
    for appended in events.appended:
        appended("orders-0", 3, 100)
    for closed in events.closed:
        closed("orders-0")
    assert one.heard == ["orders-0 3 100"] * 2 + ["orders-0"] * 2


def test_every_event_has_a_method() -> None:
    events: PartitionEvents[str] = PartitionEvents()
    for event in EVENTS:
        assert callable(getattr(PartitionListener, event))
        assert getattr(events, event) == []
