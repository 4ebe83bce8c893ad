"""What a broker shows of the time of its event loop."""

import asyncio
from time import perf_counter

from qbus.broker.disque.connection import Client
from qbus.broker.loop_time import register_metrics, slow_handlers
from qbus.broker.metrics import Metrics
from qbus.broker.net.peer import Peer, Principal
from qbus.config import ListenerInfo
from qbus.service.event_loop import SlowHandlers, Ticks, run
from qbus.wire import ApiKey


def samples(metrics: Metrics) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels.get("handler", "")): sample.value
        for family in metrics.collect()
        for sample in family.samples
        if "slow_handler" in sample.name or "event_loop" in sample.name
    }


def test_what_held_the_loop_is_shown_by_handler() -> None:
    metrics, slow = Metrics(), SlowHandlers(Ticks(), lambda: 0.25)
    register_metrics(metrics, slow)
    slow.cpu_before = lambda _: 0.0
    slow.note("PRODUCE", 100.0, 100.5)
    slow.note("PRODUCE", 101.0, 101.25)
    shown = samples(metrics)
    assert shown["qbus_slow_handlers_total", "PRODUCE"] == 2
    assert shown["qbus_slow_handler_seconds_total", "PRODUCE"] == 0.75
    assert shown["qbus_slow_handler_cpu_seconds_total", "PRODUCE"] == 0.5
    assert shown["qbus_slow_handler_longest_seconds", "PRODUCE"] == 0.5
    assert shown["qbus_event_loop_stall_seconds", ""] == 0.0


def test_a_stall_is_shown_while_it_lasts() -> None:
    metrics, slow = Metrics(), SlowHandlers(Ticks())
    register_metrics(metrics, slow)
    slow.ticks.began = perf_counter() - 5.0
    assert 5.0 <= samples(metrics)["qbus_event_loop_stall_seconds", ""] < 60.0


def test_who_is_being_served_is_told_for_each_protocol() -> None:
    async def main() -> list[str]:
        slow = slow_handlers()
        assert slow is slow_handlers(), "one for each loop"
        peer = Peer(1, "10.0.0.7", ListenerInfo.plaintext("127.0.0.1", 9092))
        peer.principal = Principal("User", "alice")
        client = Client(1, "10.0.0.8", 5000, 0.0, lambda _: None)
        client.command = "getjob"
        return [
            slow.describe(peer, ApiKey.LIST_TRANSACTIONS),
            slow.describe(peer, 12_345),
            slow.describe(client, 0),
        ]

    assert run(main()) == [
        "LIST_TRANSACTIONS of 10.0.0.7 (User:alice)",
        "API 12345 of 10.0.0.7 (User:alice)",
        "DISQUE GETJOB of 10.0.0.8:5000 (User:ANONYMOUS)",
    ]


def test_a_loop_that_is_not_watched_has_nothing_to_show() -> None:
    async def main() -> dict[str, int]:
        return slow_handlers().counts

    assert asyncio.run(main()) == {}
