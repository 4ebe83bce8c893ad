"""What the broker knows, and shows, of the time of its event loop."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter

from qbus.service.event_loop import SlowHandlers, Ticks, WatchedLoop

from .kafka.dispatch import name_of_api
from .metrics import Metrics
from .net.peer import Peer


def slow_handlers() -> SlowHandlers:
    """What counts and logs the slow handlers of the running event loop."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, WatchedLoop):
        return SlowHandlers(Ticks())
    loop.slow.describe = _describe
    return loop.slow


def register_metrics(metrics: Metrics, slow: SlowHandlers) -> None:
    """Have the metrics show what held the event loop, and whether it stands still now."""

    def by_handler(read: Callable[[], dict[str, float]]) -> Callable[[], _Samples]:
        return lambda: [((name,), value) for name, value in read().items()]

    metrics.counters_by(
        ["handler"],
        "slow_handlers",
        "Number of times that a request, command or callback held the event loop for longer than"
        " event.loop.slow.ms, by handler.",
        by_handler(lambda: {**slow.counts}),
    )
    metrics.counters_by(
        ["handler"],
        "slow_handler_seconds",
        "Time for which slow handlers held the event loop, in seconds, by handler.",
        by_handler(lambda: slow.seconds),
    )
    metrics.counters_by(
        ["handler"],
        "slow_handler_cpu_seconds",
        "Processor time that slow handlers used meanwhile, in seconds, by handler.",
        by_handler(lambda: slow.cpu_seconds),
    )
    metrics.gauges_by(
        ["handler"],
        "slow_handler_longest_seconds",
        "Longest time for which a slow handler held the event loop since the start, in seconds.",
        by_handler(lambda: slow.longest),
    )
    metrics.gauge(
        "event_loop_stall_seconds",
        "How long the event loop has been held by what it is at now, in seconds.",
        lambda: slow.ticks.stands_s(perf_counter()),
    )


_Samples = Iterable[tuple[Sequence[str], float]]


def _describe(client: object, key: int) -> str:
    """Which request of whom is being handled."""
    if isinstance(client, Peer):
        return f"{name_of_api(key)} of {client.host} ({client.principal})"
    command = getattr(client, "command", "")
    address, principal = (getattr(client, key, "?") for key in ("address", "principal"))
    return f"DISQUE {command.upper()} of {address} ({principal})"
