"""The supervisor: forks the hub and the workers, starts again what dies, and ends them in order.

It is single-threaded and runs no event loop, so a fork of it is a clean process in which all is
imported already: a worker is there within a fraction of a second. It waits for signals and for what
its processes tell over their lifelines, a pair of sockets each. A process ends when its lifeline
does: nothing outlives the supervisor, however that ends.
"""

import gc
import logging
import os
import secrets
import selectors
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import NoReturn

from qbus.config import BrokerConfig, show_listeners
from qbus.errors import QbusError
from qbus.metadata import StoreUnusable
from qbus.service import logs

from ..metadata.store import embedded_store
from . import hub
from .metrics import WorkerState
from .plan import free_ports, machine_of, worker_configs
from .restarts import Restarts
from .worker import Worker

_log = logging.getLogger(__name__)

_LOOPBACK = "127.0.0.1"
_RETRY_S = 1.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
_UNUSABLE = 3  # exit code: another start would fail alike
# What every broker needs soon, imported once for all.
_PRELOADED = (
    "qbus.broker.server",
    *(f"qbus.broker.kafka.handlers.{name}" for name in ("api_versions", "metadata", "produce")),
    *(f"qbus.broker.kafka.handlers.{name}" for name in ("fetch", "list_offsets")),
)


@dataclass
class _Process:
    """One of the supervisor's processes. ``run`` is what it does, given its end of the lifeline."""

    name: str
    run: Callable[[socket.socket], int]
    pid: int = 0
    lifeline: socket.socket | None = None
    is_ready: bool = False
    was_ready: bool = False  # in this life or in one before
    started_at: float = 0.0
    start_at: float | None = None  # None: not to be started
    is_told: bool = False  # to end
    restarts: Restarts = field(default_factory=Restarts)


class Supervisor:
    """Runs ``count`` workers until SIGTERM or SIGINT."""

    def __init__(self, config: BrokerConfig, count: int, log_form: str, log_level: str) -> None:
        """``log_form`` and ``log_level``: as for :func:`qbus.service.logs.configure`.

        Raises:
            ConfigError: there are not enough ports for so many, or a data directory is another's.
            OSError: the data directory cannot be made.
        """
        self._config = config
        self._log = (log_form, log_level)
        self._has_store = config.zookeeper_address is None
        if self._has_store:
            embedded_store(config)  # refuses data of others before a directory is made
        self._machine = machine_of(config)
        self._has_metrics = config.metrics_address is not None
        # What the hub tells workers of its callers is believed by this, which no other process has.
        self._metrics_secret = secrets.token_hex(32) if config.metrics_authenticates else ""
        self._configs = worker_configs(config, count)
        # Brokers with certificates read them again, as far as they have any.
        self._reloading = (signal.SIGHUP,) if config.has_certificates else ()
        self._hub: _Process | None = None
        if self._has_store or self._has_metrics:
            self._hub = _Process(
                "hub", lambda lifeline: hub.run(config, lifeline, self._metrics_secret)
            )
        self._workers = [
            _Process(f"broker {one.node_id}", self._worker_body(one)) for one in self._configs
        ]
        self._store_streams: dict[str, socket.socket] = {}
        self._metrics_ports: dict[str, int] = {}
        self._states: dict[str, WorkerState] = {}  # as the hub knows them
        self._selector = selectors.DefaultSelector()
        self._signals = socket.socketpair()
        self._told = 0  # how often it was told to stop
        self._is_stopping = False
        self._is_up = False
        self._code = 0
        self._started = time.monotonic()

    def run(self) -> int:
        """Run until all has ended; the exit code: not 0 if they could not be started."""
        for module in _PRELOADED:
            import_module(module)
        gc.freeze()  # the processes share what is there now
        gc.enable()
        self._listen_to_signals()
        for process in self._all():
            process.start_at = 0.0
        while self._step():
            pass
        _log.info("stopped")
        return self._code

    # One step

    def _step(self) -> bool:
        """Do what is due, then wait for something to happen; whether there is more to do."""
        now = time.monotonic()
        if self._is_stopping:
            self._stop_next()
            if not any(process.pid for process in self._all()):
                return False
        else:
            for process in self._all():
                if process.start_at is not None and process.start_at <= now and self._may(process):
                    self._start(process)
        for key, _ in self._selector.select(self._until_next_start(now)):
            teller: _Process | None = key.data
            if teller is None:
                self._on_signals()
            elif teller.lifeline is not None:  # no signal's turn has closed it
                self._on_told(teller, teller.lifeline)
        return True

    def _until_next_start(self, now: float) -> float | None:
        due = [
            process.start_at
            for process in self._all()
            if process.start_at is not None and self._may(process)
        ]
        return max(min(due) - now, 0.0) if due and not self._is_stopping else None

    def _may(self, process: _Process) -> bool:
        """Whether what the process needs is there: workers need the hub that keeps the store."""
        if process is self._hub or not self._has_store:
            return True
        return self._hub is not None and self._hub.is_ready

    def _all(self) -> list[_Process]:
        return [*([self._hub] if self._hub else []), *self._workers]

    # Processes

    def _start(self, process: _Process) -> None:
        """Fork the process; if the system lets us have no more of them for now, try again."""
        process.started_at = time.monotonic()
        try:
            self._fork(process)
        except OSError as error:
            pause_s = max(process.restarts.ended(0.0), _RETRY_S)
            process.start_at = time.monotonic() + pause_s
            _log.error(
                "%s cannot be started: %s; trying again in %g s", process.name, error, pause_s
            )

    def _fork(self, process: _Process) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process.start_at, process.is_ready = None, False
        process.lifeline = ours
        streams = [theirs, *self._prepare(process)]
        # What is sent to the new process must not be heard here, before it hears for itself.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            pid = os.fork()
            if not pid:
                self._be(process, theirs)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            for stream in streams:
                stream.close()
        process.pid = pid
        self._selector.register(ours, selectors.EVENT_READ, process)

    def _prepare(self, process: _Process) -> list[socket.socket]:
        """Give a worker's session to the hub; the streams that are the worker's alone."""
        if process is self._hub or self._hub is None:
            return []
        config = self._configs[self._workers.index(process)]
        if self._has_metrics:
            (self._metrics_ports[process.name],) = free_ports(_LOOPBACK, 1)
        port = self._metrics_ports.get(process.name, 0)
        state = WorkerState(config.node_id, port, process.restarts.count)
        self._states[process.name] = state
        if not self._has_store:
            self._tell_hub(state)
            return []
        ours, theirs = socket.socketpair()
        with theirs:
            self._tell_hub(state, theirs)
        self._store_streams[process.name] = ours
        return [ours]

    def _tell_hub(self, state: WorkerState, *streams: socket.socket) -> None:
        if self._hub is None or self._hub.lifeline is None:
            return
        with suppress(OSError):  # a hub that has just died is seen soon
            descriptors = [stream.fileno() for stream in streams]
            socket.send_fds(self._hub.lifeline, [state.encode()], descriptors)

    def _worker_body(self, config: BrokerConfig) -> Callable[[socket.socket], int]:
        name = f"broker {config.node_id}"

        def run(lifeline: socket.socket) -> int:
            from ..server import run as run_broker  # noqa: PLC0415 - imported before the fork

            port = self._metrics_ports.get(name)
            own = config
            if port is not None:
                own = config.with_static({"metrics.listen": f"{_LOOPBACK}:{port}"})
            store = self._store_streams.get(name)
            return run_broker(own, Worker(self._machine, store, lifeline, self._metrics_secret))

        return run

    def _be(self, process: _Process, lifeline: socket.socket) -> NoReturn:
        """In the new process: forget all that is the supervisor's, and work until the end."""
        code = 1
        try:
            os.setpgid(0, 0)  # Ctrl-C is the supervisor's to hear
            signal.set_wakeup_fd(-1)
            for number in (*_SIGNALS, *self._reloading):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            self._selector.close()
            for one in (*self._signals, *(other.lifeline for other in self._all())):
                if one is not None:
                    one.close()
            for name, stream in self._store_streams.items():
                if name != process.name:
                    stream.close()
            logs.configure(*self._log, process.name)
            code = process.run(lifeline)
        except (QbusError, OSError) as error:
            _log.error("%s", _text(error))
            code = _UNUSABLE if isinstance(error, StoreUnusable) else 1
        except BaseException:  # noqa: BLE001 - nothing may get back to the supervisor's code
            _log.exception("the process has failed")
        finally:
            logging.shutdown()
            os._exit(code)

    # What happens

    def _listen_to_signals(self) -> None:
        reading, writing = self._signals
        for one in self._signals:
            one.setblocking(False)
        signal.set_wakeup_fd(writing.fileno())
        for number in (*_SIGNALS, *self._reloading):
            signal.signal(number, lambda *_: None)
        self._selector.register(reading, selectors.EVENT_READ, None)

    def _on_signals(self) -> None:
        heard = b""
        with suppress(BlockingIOError):
            heard = self._signals[0].recv(256)
        if signal.SIGHUP in heard:
            self._signal_workers(signal.SIGHUP)
        told = sum(number in {signal.SIGTERM, signal.SIGINT} for number in heard)
        self._told += told
        self._is_stopping |= bool(told)
        if told and self._told > 1:
            _log.warning("told to stop again: ending all processes at once")
            self._signal_all(signal.SIGKILL)
        for process in self._all():
            if process.pid:
                pid, status = os.waitpid(process.pid, os.WNOHANG)
                if pid:
                    self._on_end(process, os.waitstatus_to_exitcode(status))

    def _on_told(self, process: _Process, lifeline: socket.socket) -> None:
        """A process says that it is ready; or its lifeline ends, before it does."""
        try:
            told = lifeline.recv(16, socket.MSG_DONTWAIT)
        except BlockingIOError:  # it is a new one, to another process
            return
        except OSError:
            told = b""
        if not told:
            with suppress(KeyError):
                self._selector.unregister(lifeline)
            return
        process.is_ready = process.was_ready = True
        if process is self._hub:  # a new one knows nothing of the workers that live
            for state in self._states.values():
                self._tell_hub(state)
        if process is not self._hub and process.restarts.count:
            _log.info("%s serves again", process.name)
        if not self._is_up and all(one.is_ready for one in self._all()):
            self._is_up = True
            _log.info(
                "%d brokers listen on %s, %.3f s after the start",
                len(self._workers),
                ", ".join(show_listeners(config.kafka_listeners) for config in self._configs),
                time.monotonic() - self._started,
            )

    def _on_end(self, process: _Process, code: int) -> None:
        lived_s = time.monotonic() - process.started_at
        process.pid = 0
        if process.lifeline is not None:
            self._on_told(process, process.lifeline)  # what it said before
            with suppress(KeyError):
                self._selector.unregister(process.lifeline)
            process.lifeline.close()
            process.lifeline = None
        process.is_ready = False
        if self._is_stopping:
            return
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        if code > 0 and self._could_not_start(process):
            _log.error("%s could not start (%s): stopping", process.name, how)
            self._is_stopping, self._code = True, 1
            return
        if process is self._hub and code == _UNUSABLE:
            _log.critical("the metadata store cannot be used: stopping")
            self._is_stopping, self._code = True, 1
            return
        pause_s = process.restarts.ended(lived_s)
        process.start_at = time.monotonic() + pause_s
        when = f"in {pause_s:g} s" if pause_s else "at once"
        _log.error("%s has ended (%s): starting it again %s", process.name, how, when)

    def _could_not_start(self, process: _Process) -> bool:
        """Whether a process that ended with an error never did its work, by its own fault."""
        hub = self._hub
        if self._has_store and hub is not None and hub is not process and hub.restarts.count:
            return False  # its session has ended with the hub
        return not (self._is_up or process.was_ready)

    # The end

    def _stop_next(self) -> None:
        """The workers first, for they need the hub to hand over what they lead."""
        left = [process for process in self._workers if process.pid]
        if not left and self._hub is not None and self._hub.pid:
            left = [self._hub]
        for process in left:
            if not process.is_told:
                process.is_told = True
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGTERM)

    def _signal_workers(self, number: signal.Signals) -> None:
        """Signal those that serve: one that still starts has no use for it, and no handler."""
        for process in self._workers:
            if process.pid and process.is_ready:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, number)

    def _signal_all(self, number: signal.Signals) -> None:
        for process in self._all():
            if process.pid:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, number)


def _text(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)
