"""The broker as a process: start, serve, drain, stop; and start anew when its session is over.

When its session with the metadata store ends, the broker's registration is gone, and other brokers
take over its partitions. So the broker stops serving, forgets everything but its disks, and starts
again as after a crash, in the same process and at the same address.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from qbus.clock import Clock, SystemClock
from qbus.config import BrokerConfig, ListenerInfo, show_listeners
from qbus.errors import ApiError, ConfigError
from qbus.metadata import StoreError
from qbus.security.principals import PrincipalMapper
from qbus.security.tls import ServerTls
from qbus.service import descriptors, event_loop
from qbus.service.threads import Threads

from .authentication import BY_CERTIFICATE
from .broker import Broker
from .descriptors import most_connections, register_descriptors
from .kafka.dispatch import Dispatcher
from .loop_time import register_metrics as register_loop_metrics
from .loop_time import slow_handlers
from .malloc import give_back_early
from .metrics import Metrics
from .metrics import serve as serve_metrics
from .metrics_page import page_security
from .net.connection import TimeLimits
from .net.handshakes import Handshakes
from .net.limits import ConnectionLimits, parse_overrides
from .net.listener import Listener, ListenerLimits, Tls, bind
from .net.memory_budget import MemoryBudget
from .preload import Preload
from .quotas.connection_rates import NO_LIMIT, Admission
from .startup import running_broker
from .workers.worker import Worker

if TYPE_CHECKING:
    from .disque.listener import DisqueListener, Entrance, Limits
    from .disque.service import DisqueService

_log = logging.getLogger(__name__)

T = TypeVar("T")

_UNLIMITED = 1 << 62
_NO_DESCRIPTOR_S = 1.0
_THREADS = min(32, (os.cpu_count() or 1) + 4)  # as asyncio has by default
# Requests make no cycles: the collector need not look often.
_GC_THRESHOLDS = (50_000, 20, 20)

_FIRST_DELAY_S = 0.25
_LONGEST_DELAY_S = 10.0


def run(config: BrokerConfig, worker: Worker | None = None) -> int:
    """Run a broker until SIGTERM or SIGINT; a second signal ends it at once.

    ``worker``: what its supervisor gives it, if it has one; it ends with that.

    The exit code is 1 when it stopped by itself, because its embedded metadata store failed.

    Raises:
        ConfigError: a data directory belongs to another broker, or is in use.
        ApiError: no data directory can be used.
        StoreUnusable: the metadata store cannot be opened.
        OSError: an address cannot be listened on.
    """
    started = perf_counter()
    if config.has_certificates:  # they are read again on this, and nobody ends the broker by it
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    descriptors.raise_limit()
    give_back_early()
    gc.set_threshold(*_GC_THRESHOLDS)
    main = serve(config, SystemClock(), started, worker)
    return event_loop.run(main, config.event_loop_slow_ms / 1000)


async def serve(
    config: BrokerConfig, clock: Clock, started: float, worker: Worker | None = None
) -> int:
    """Run a broker until a signal, anew after each lost session; return the exit code."""
    stop = _on_signals()
    asyncio.get_running_loop().set_default_executor(Threads(_THREADS, "qbus"))
    if worker is not None:
        _stop_with(worker, stop)
    this_run = BrokerRun(
        config, clock, config.kafka_listeners, started, worker, jobs=config.disque_listeners
    )
    await this_run.serve(stop)
    delay = _FIRST_DELAY_S
    while not stop.is_set():
        if config.zookeeper_address is None:
            return 1
        _log.warning("restarting the broker in this process")
        gc.unfreeze()
        this_run = BrokerRun(
            config,
            clock,
            this_run.listening,
            perf_counter(),
            worker,
            jobs=this_run.jobs,
        )
        try:
            await this_run.serve(stop)
            delay = _FIRST_DELAY_S
        except (StoreError, OSError, ConfigError) as error:  # certificates may be half renewed
            _log.error("cannot restart: %s; trying again in %g s", error, delay)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), delay)
            delay = min(2 * delay, _LONGEST_DELAY_S)
    _log.info("stopped")
    return 0


class BrokerRun:
    """From one start of a broker to the end of its session, or of the process."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        listening: Sequence[ListenerInfo],
        started: float,
        worker: Worker | None = None,
        *,
        jobs: Sequence[ListenerInfo] = (),
    ) -> None:
        """``listening`` is to be listened on; ``started``: when, as ``perf_counter`` has it.

        So are ``jobs``, for clients of jobs.
        """
        self.listening = list(listening)
        self.jobs = list(jobs)
        self._config = config
        self._clock = clock
        self._started = started
        self._worker = worker
        self._most_connections = most_connections()
        self._open_connections: Callable[[], int] = int  # those of all listeners, once there are

    async def serve(self, stop: asyncio.Event) -> None:
        """Start, serve until ``stop`` is set or the session is over, and end.

        Raises:
            ConfigError, ApiError, StoreError, OSError: it could not start.
        """
        config = self._config
        budget = MemoryBudget(_budget(config))
        async with AsyncExitStack() as cleanup:
            # The addresses first: two brokers on one port is the mistake that should show at once.
            sockets = _bind(self.listening, cleanup)
            for_jobs = _bind(self.jobs, cleanup)
            # Certificates next: what cannot be used should show before any log is opened.
            tls = _tls_of(config, self.listening)
            entrances = _entrances(config, self.jobs, for_jobs)
            starting = cleanup.enter_async_context(
                running_broker(config, self._clock, self.listening, self._worker, jobs=self.jobs)
            )
            broker = await _unless(stop, starting)
            if broker is None:
                return
            broker.memory = budget
            dispatcher = Dispatcher(broker, broker.access, slow_handlers(), budget)
            listeners = self._listeners(broker, dispatcher, sockets, tls, budget)
            for listener in listeners:
                cleanup.callback(listener.close)
            _register_metrics(broker.metrics, listeners, budget)
            register_loop_metrics(broker.metrics, slow_handlers())
            self._open_connections = partial(_count, listeners)
            cleanup.callback(_reload_on_signal(tls.values()))
            jobs = None
            if entrances and broker.disque is not None:
                jobs = _job_listener(entrances, broker, broker.disque, budget, self._gate)
                cleanup.callback(jobs.close)
                self._open_connections = partial(_count, listeners, jobs)
            register_descriptors(broker.metrics, broker.logs, self._open_connections)
            if config.metrics_address is not None:
                security = page_security(
                    config,
                    broker.authentication,
                    broker.access,
                    inner_secret=None if self._worker is None else self._worker.metrics_secret,
                )
                cleanup.callback(
                    serve_metrics(broker.metrics, *config.metrics_address, security=security)
                )
            gc.freeze()
            gc.enable()
            await _start(listeners, jobs)
            self._log_address(broker)
            preload = Preload(dispatcher, descriptors.limit())
            cleanup.callback(preload.stop)
            preload.start()
            if self._worker is not None:
                self._worker.tell_ready()
            await _first_of(stop, broker.is_over)
            if stop.is_set():
                _log.info("stopping: finishing what was asked")
                await _shut_down_controlled(broker)
                broker.drain()
                if jobs is not None:
                    await jobs.drain(config.shutdown_drain_timeout_ms / 1000)
                drain_s = config.shutdown_drain_timeout_ms / 1000
                await asyncio.gather(*(listener.drain(drain_s) for listener in listeners))
            else:
                _log.critical("this broker's session or registration has ended: serving stops")

    def _listeners(
        self,
        broker: Broker,
        dispatcher: Dispatcher,
        sockets: Sequence[socket.socket],
        tls: Mapping[str, Tls],
        budget: MemoryBudget,
    ) -> list[Listener]:
        config = self._config
        between_brokers = config.inter_broker_listener if len(self.listening) > 1 else None
        shared = ConnectionLimits(
            min(config.max_connections, most_connections()),
            config.max_connections_per_ip,
            parse_overrides(config.max_connections_per_ip_overrides),
            exempt=between_brokers,
        )
        listeners = [
            Listener(
                sock,
                info,
                dispatcher,
                _limits(config, info),
                budget,
                shared=shared,
                tls=tls.get(info.name),
                gates=() if info.name == between_brokers else (self._gate,),
            )
            for sock, info in zip(sockets, self.listening, strict=True)
        ]
        for listener in listeners:
            is_exempt = listener.info.name == between_brokers
            listener.admission = _admission(broker, listener.info, is_exempt=is_exempt)
            listener.identified = _identified(broker, listener.info)
        return listeners

    def _gate(self, *_: object) -> str | None:
        """Why nobody is let in by any listener; see :data:`.net.listener.Gate`."""
        count = self._open_connections()
        if count < self._most_connections:
            return None
        return f"there are {count} connections, as many as descriptors allow (ulimit -n)"

    def _log_address(self, broker: Broker) -> None:
        _log.info(
            "broker %d of cluster %s listens on %s, %.3f s after its start",
            broker.node_id,
            broker.cluster_id,
            show_listeners(self.listening),
            perf_counter() - self._started,
        )


def _count(listeners: Sequence[Listener], jobs: "DisqueListener | None" = None) -> int:
    """How many connections there are, with handshakes that are not over."""
    others = 0 if jobs is None else jobs.connections + jobs.unfinished_handshakes
    return others + sum(one.connections + one.unfinished_handshakes for one in listeners)


def _admission(broker: Broker, info: ListenerInfo, *, is_exempt: bool) -> Admission:
    """What limits the rate of new connections; ``is_exempt``: not by the limit on all (KIP-612)."""
    key = "max.connection.creation.rate"
    own = f"listener.name.{info.name.lower()}.{key}"

    def of_listener() -> float:
        rate: float = broker.config.values.get(own, NO_LIMIT)
        return rate

    def of_broker() -> float:
        return NO_LIMIT if is_exempt else broker.config.max_connection_creation_rate

    return Admission(broker.connection_rates, of_listener, of_broker)


def _identified(broker: Broker, info: ListenerInfo) -> Callable[[str, str], None]:
    """What notes who was let in by a certificate."""

    def note(user: str, host: str) -> None:
        broker.authentication.note(user, BY_CERTIFICATE, host, info.name)

    return note


def _bind(listening: list[ListenerInfo], cleanup: AsyncExitStack) -> list[socket.socket]:
    """Take the addresses; port 0 becomes a real one in ``listening``. Raises OSError."""
    sockets = []
    for index, info in enumerate(listening):
        sock, address = bind(info.address)
        cleanup.callback(sock.close)
        sockets.append(sock)
        listening[index] = info._replace(address=address)
    return sockets


async def _start(listeners: Sequence[Listener], jobs: "DisqueListener | None") -> None:
    for listener in listeners:
        listener.start()
    if jobs is not None:
        await jobs.start()


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of ``work``, or cancel it and return None once ``stop`` is set.

    Raises:
        Exception: whatever the work failed with.
    """
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not working.done():
        working.cancel()
        await asyncio.wait([working])
        if not working.cancelled():
            working.result()
        return None
    return working.result()


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for one in waiting:
        one.cancel()


async def _shut_down_controlled(broker: Broker) -> None:
    try:
        await broker.shut_down_controlled()
    except (StoreError, ApiError) as error:
        _log.warning("cannot move leadership before the stop; others take over after it: %s", error)


def _on_signals() -> asyncio.Event:
    """An event that the first SIGTERM or SIGINT sets; the second one has its usual effect."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def on_signal() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stop


def _stop_with(worker: Worker, stop: asyncio.Event) -> None:
    """Set ``stop`` when the supervisor is gone."""
    loop, lifeline = asyncio.get_running_loop(), worker.lifeline

    def on_end() -> None:
        loop.remove_reader(lifeline)
        _log.error("the supervisor is gone: stopping")
        stop.set()

    loop.add_reader(lifeline, on_end)


def _budget(config: BrokerConfig) -> int:
    limit = config.queued_max_request_bytes
    return _UNLIMITED if limit < 0 else limit


def _tls_of(config: BrokerConfig, listening: Sequence[ListenerInfo]) -> dict[str, Tls]:
    """Return the TLS of those listeners whose protocol is encrypted, by their names.

    Raises:
        ConfigError: a certificate or key cannot be used.
    """
    return {one.name: _tls(config, one) for one in listening if one.protocol.is_encrypted}


def _tls(config: BrokerConfig, info: ListenerInfo) -> Tls:
    own = config.for_listener(info.name)
    return Tls(
        ServerTls(own, info.name),
        PrincipalMapper(own.ssl_principal_mapping_rules),
        handshake_s=own.ssl_handshake_timeout_ms / 1000,
        max_handshakes=own.ssl_max_unfinished_handshakes,
    )


def _reload_on_signal(encrypted: Iterable[Tls]) -> Callable[[], None]:
    """Read certificates again on SIGHUP; returns what ends that."""
    loop, contexts = asyncio.get_running_loop(), [one.server for one in encrypted]

    def reload() -> None:
        for one in contexts:
            one.reload()

    def end() -> None:
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the broker may start again

    if not contexts:
        return lambda: None
    loop.add_signal_handler(signal.SIGHUP, reload)
    return end


def _limits(config: BrokerConfig, info: ListenerInfo) -> ListenerLimits:
    own = config.for_listener(info.name)
    connections = min(own.max_connections, most_connections())
    return ListenerLimits(
        max_frame=config.socket_request_max_bytes,
        max_connections=connections,
        times=TimeLimits(
            idle=config.connections_max_idle_ms / 1000,
            frame=config.request_frame_timeout_ms / 1000,
            stall=config.response_stall_timeout_ms / 1000,
            authentication=own.sasl_authentication_timeout_ms / 1000,
        ),
        send_buffer=config.socket_send_buffer_bytes,
        receive_buffer=config.socket_receive_buffer_bytes,
        max_frame_before=own.sasl_server_max_receive_size,
        max_unauthenticated=min(own.sasl_max_unauthenticated_connections, max(connections // 2, 1)),
    )


def _job_limits(config: BrokerConfig) -> "Limits":
    from .disque.listener import Limits  # noqa: PLC0415 - only where jobs are served

    return Limits(
        max_command=config.socket_request_max_bytes,
        max_clients=min(config.disque_max_clients, most_connections()),
        idle_s=config.disque_client_timeout_ms / 1000,
        command_s=config.request_frame_timeout_ms / 1000,
        stall_s=config.response_stall_timeout_ms / 1000,
        authentication_s=config.sasl_authentication_timeout_ms / 1000,
        handshake_s=config.ssl_handshake_timeout_ms / 1000,
        max_handshakes=config.ssl_max_unfinished_handshakes,
        max_clients_per_address=config.max_connections_per_ip,
    )


def _entrances(
    config: BrokerConfig, jobs: Sequence[ListenerInfo], sockets: Sequence[socket.socket]
) -> "list[Entrance]":
    """Where clients of jobs come in. Raises ConfigError: a certificate or key cannot be used."""
    if not jobs:
        return []
    from .disque.serving import make_entrance  # noqa: PLC0415 - only where jobs are served

    return [make_entrance(config, *pair) for pair in zip(jobs, sockets, strict=True)]


def _job_listener(
    entrances: "Sequence[Entrance]",
    broker: Broker,
    service: "DisqueService",
    budget: MemoryBudget,
    gate: Callable[[], str | None],
) -> "DisqueListener":
    from .disque.serving import make_listener  # noqa: PLC0415 - only where jobs are served

    def admit(host: str) -> float:
        if gate():
            return _NO_DESCRIPTOR_S
        return broker.connection_rates.admit(host, perf_counter())

    limits = _job_limits(broker.config)
    return make_listener(entrances, service, limits, budget, admit, broker.quotas, slow_handlers())


def _register_metrics(
    metrics: Metrics, listeners: Sequence[Listener], budget: MemoryBudget
) -> None:
    def total(read: Callable[[Listener], int]) -> Callable[[], int]:
        return lambda: sum(map(read, listeners))

    metrics.gauge(
        "connections", "Number of open client connections.", total(lambda one: one.connections)
    )
    metrics.gauge(
        "request_memory_bytes",
        "Memory held for unfinished requests, in bytes.",
        lambda: budget.used,
    )
    metrics.gauge(
        "connections_waiting_for_memory",
        "Number of connections that wait for memory.",
        lambda: budget.waiting,
    )
    metrics.counter(
        "connections_accepted", "Number of connections accepted.", total(lambda one: one.accepted)
    )
    metrics.counter(
        "connections_refused",
        "Number of connections refused by a limit.",
        total(lambda one: one.refused),
    )
    metrics.counter(
        "received_bytes", "Bytes received from clients.", total(lambda one: one.received_bytes)
    )
    metrics.counter("sent_bytes", "Bytes sent to clients.", total(lambda one: one.sent_bytes))
    metrics.gauge(
        "connections_unauthenticated",
        "Number of connections whose clients have yet to authenticate.",
        total(lambda one: len(one.unauthenticated)),
    )
    metrics.counter(
        "connections_unauthenticated_closed",
        "Number of connections closed because too many had not authenticated.",
        total(lambda one: one.unauthenticated.closed),
    )
    _register_handshake_metrics(metrics, listeners)


def _register_handshake_metrics(metrics: Metrics, listeners: Sequence[Listener]) -> None:
    def total(read: Callable[[Handshakes], int]) -> Callable[[], int]:
        return lambda: sum(read(one.handshakes) for one in listeners if one.handshakes is not None)

    metrics.gauge(
        "tls_handshakes_unfinished", "Number of TLS handshakes that are not over.", total(len)
    )
    metrics.counter(
        "tls_handshakes", "Number of TLS handshakes completed.", total(lambda one: one.done)
    )
    metrics.counter(
        "tls_handshakes_failed",
        "Number of TLS handshakes that failed, or whose clients took too long.",
        total(lambda one: one.failed),
    )
    metrics.counter(
        "tls_reloads_failed",
        "Number of changed certificates that could not be read; the former ones stay in force.",
        total(lambda one: one.failed_reloads),
    )
