"""One client's connection: commands in, replies out in the order of their commands.

A command that only adds or settles jobs is begun while others like it still wait for the disk: a
pipeline of a hundred ADDJOBs takes one write, not a hundred. Any other command waits until those
before it are answered, and those behind it wait for it.

Back-pressure: nothing more is begun while the client does not read its replies, and nothing more is
received while what was received waits.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, Protocol, cast

from ..net.memory_budget import MemoryBudget
from ..net.peer import ANONYMOUS, Grants, Peer, Principal
from ..turn_end import begin_turn
from ..turns import turns_of
from . import resp
from .resp import CommandParser, ProtocolError

_log = logging.getLogger(__name__)

MAX_OPEN_REPLIES: Final = 1024
MAX_UNSENT_BYTES: Final = 1024 * 1024
MAX_BEGUN_BYTES: Final = 8 * 1024 * 1024
MAX_TURN_S: Final = 0.01
"""After so long, what a client has pipelined goes on in a later tick of the event loop."""
_MAX_WAITING_BYTES: Final = 1024 * 1024  # received, and not begun
_READABLE_BYTES: Final = 64 * 1024  # what a budget need not be asked for
_BYTES_PER_SECOND: Final = 16 * 1024  # what a client sends at least

Reply = bytes | Awaitable[bytes]


class PendingReply:
    """A reply that is still to come; whoever waits for it hears of it at once.

    An asyncio.Future calls back a turn of the event loop later, which most replies need not wait
    for.
    """

    __slots__ = ("_is_done", "_listener", "_on_cancel", "_reply")

    def __init__(self) -> None:
        self._reply: bytes | None = None
        self._is_done = False
        self._listener: Callable[[], None] | None = None
        self._on_cancel: Callable[[], None] | None = None

    def done(self) -> bool:
        """Whether it is there, or nobody waits for it any more."""
        return self._is_done

    def result(self) -> bytes:
        """The reply. Raises CancelledError, if there will be none."""
        if self._reply is None:
            raise asyncio.CancelledError
        return self._reply

    def answer(self, reply: bytes) -> None:
        """Let it be ``reply``, unless it is done."""
        if not self._is_done:
            self._is_done, self._reply = True, reply
            self._on_cancel = None
            self._call()

    def cancel(self) -> None:
        """Nobody waits for it any more, or nobody will answer."""
        if not self._is_done:
            self._is_done = True
            on_cancel, self._on_cancel = self._on_cancel, None
            if on_cancel is not None:
                on_cancel()
            self._call()

    def on_cancel(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` once if it is cancelled, from within what does that."""
        if not self._is_done:
            self._on_cancel = listener
        elif self._reply is None:
            listener()

    def on_done(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` once when it is done, from within what makes it so."""
        self._listener = listener
        if self._is_done:
            self._call()

    def _call(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener()

    def __await__(self) -> Generator[Any, None, bytes]:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def on_done() -> None:
            if future.done():
                return
            if self._reply is None:
                future.cancel()
            else:
                future.set_result(self._reply)

        self.on_done(on_done)
        return future.__await__()


_Open = bytes | PendingReply | asyncio.Future[bytes]


class Client:
    """What commands know of, and change in, the client that sent them."""

    __slots__ = (
        "address",
        "close",
        "command",
        "connected_at",
        "expires_at",
        "failures",
        "grants",
        "host",
        "id",
        "is_authenticated",
        "is_blocked",
        "is_encrypted",
        "is_muted",
        "is_node",
        "is_over",
        "last_active",
        "name",
        "peer",
        "principal",
        "skips",
        "untrack",
    )

    def __init__(
        self, number: int, host: str, port: int, now: float, close: Callable[[str], None]
    ) -> None:
        self.id = number
        self.host = host
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.name = b""
        self.command = ""
        self.connected_at = now
        self.last_active = now
        self.principal: Principal = ANONYMOUS
        self.is_authenticated = False
        self.expires_at = 0.0  # when it has to authenticate anew, in the loop's time; 0: never
        self.grants = Grants()
        self.peer: Peer | None = None  # whose quotas it uses, once there are any
        self.failures = 0  # to authenticate, one after the other
        self.is_blocked = False  # it waits for a job
        self.is_encrypted = False
        self.is_node = False  # another broker: what it asks is answered from here alone
        self.is_muted = False  # CLIENT REPLY OFF
        self.skips = 0  # replies that are not sent: 2 before the command that is next, then 1
        self.is_over = False  # to be closed once the replies so far are sent
        self.close = close
        self.untrack: Callable[[], None] | None = None  # ends that it is closed with its user


class Commands(Protocol):
    """Answers commands."""

    def begin(self, client: Client, arguments: list[bytes]) -> Reply:
        """Begin a command; the reply, or what it can be awaited from."""

    def is_concurrent(self, arguments: list[bytes]) -> bool:
        """Whether a command may be begun while others of this kind are under way."""

    @property
    def is_paused(self) -> bool:
        """Whether no command is to be begun for now."""


class Owner(Protocol):
    """Who accepted the connection, as far as that needs it."""

    def opened(self, connection: "Connection") -> None:
        """The connection is there."""

    def closed(self, connection: "Connection", reason: str) -> None:
        """It is gone."""

    def used(self, client: "Client", received: int, sent: int) -> float:
        """So many bytes went in and out; for how many seconds the client is to be left alone."""


class Connection:
    """Everything that the broker holds for one client.

    It is an :class:`asyncio.Protocol` but for the base class: one with that cannot be compiled.
    """

    __slots__ = (
        "_begun_bytes",
        "_budget",
        "_charged",
        "_closed",
        "_commands",
        "_gives_way",
        "_is_barred",
        "_is_beginning",
        "_is_due",
        "_is_full",
        "_is_limited",
        "_is_paused",
        "_is_starved",
        "_loop",
        "_most",
        "_mute_timer",
        "_muted_until",
        "_next",
        "_owner",
        "_parser",
        "_replies",
        "_transport",
        "begun_at",
        "client",
        "received_bytes",
        "sent_bytes",
        "stalled_at",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        number: int,
        commands: Commands,
        budget: MemoryBudget,
        owner: Owner,
        most: int,
    ) -> None:
        """``most``: how many bytes a command may have."""
        self._loop = loop
        self._commands = commands
        self._budget = budget
        self._owner = owner
        self._most = most
        self._parser = CommandParser(most)
        self._transport: asyncio.Transport | None = None
        self._replies: deque[tuple[_Open, int]] = deque()
        self._is_beginning = False
        self._is_due = False  # to send what is ready, in the next turn of the event loop
        self._begun_bytes = 0  # of commands that are not answered
        self._next: list[bytes] | None = None  # waits until those before it are answered
        self._is_barred = False  # a command is under way that nothing passes
        self._is_full = False  # the client does not read
        self._gives_way = False  # others have the event loop first
        self._is_limited = False  # until it has said who it is
        self._is_paused = False  # we do not
        self._is_starved = False  # for want of memory
        self._charged = 0
        self._muted_until = 0.0  # its quotas are used up until then, in the loop's time
        self._mute_timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.client = Client(number, "", 0, loop.time(), self.close)
        self.received_bytes = 0
        self.sent_bytes = 0
        self.begun_at: float | None = None  # when the command began that is not whole
        self.stalled_at: float | None = None

    # As of asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See :class:`asyncio.BaseProtocol`."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)
        peer = transport.get_extra_info("peername") or ("", 0)
        known = self.client
        self.client = Client(known.id, str(peer[0]), peer[1], known.connected_at, self.close)
        self.client.is_encrypted = transport.get_extra_info("ssl_object") is not None
        self._owner.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        """See :class:`asyncio.BaseProtocol`."""
        self._end("the client closed the connection" if error is None else str(error))

    def eof_received(self) -> bool:
        """See :class:`asyncio.Protocol`: the transport is to be closed."""
        return False

    def data_received(self, data: bytes) -> None:
        """See :class:`asyncio.Protocol`."""
        self.received_bytes += len(data)
        self.client.last_active = self._loop.time()
        self._parser.feed(data)
        turn = begin_turn(self._loop)
        try:
            self._go_on()
        finally:
            if turn is not None:
                turn.end()
        self._mute(self._owner.used(self.client, len(data), 0))

    def pause_writing(self) -> None:
        """See :class:`asyncio.BaseProtocol`."""
        self._is_full = True
        self.stalled_at = self._loop.time()

    def resume_writing(self) -> None:
        """See :class:`asyncio.BaseProtocol`."""
        self._is_full = False
        self.stalled_at = None
        self._loop.call_soon(self._go_on)

    # What others ask

    def certificate(self) -> bytes | None:
        """The client's certificate in DER, if it has shown one."""
        if self._transport is None or not self.client.is_encrypted:
            return None
        shown: bytes | None = self._transport.get_extra_info("ssl_object").getpeercert(True)
        return shown

    def limit(self, most: int) -> None:
        """Take commands of so many bytes at most from now on, until the client is authenticated."""
        self._is_limited = True
        self._parser.limit(most)

    @property
    def is_idle(self) -> bool:
        """Whether the client has every reply that it asked for."""
        unsent = self._transport is not None and self._transport.get_write_buffer_size() > 0
        return not self._replies and self._next is None and not unsent

    @property
    def unread(self) -> int:
        """Bytes received that no whole command was made of yet."""
        return self._parser.held

    def overdue(self, now: float, *, idle_s: float, command_s: float, stall_s: float) -> str | None:
        """Why the client has had its time, if it has; in seconds, an ``idle_s`` of 0: no limit."""
        if self.stalled_at is not None and now - self.stalled_at > stall_s:
            return f"the client took too few of its replies for {stall_s:g} s"
        if not self.is_idle or self._muted_until > 0.0:
            return None
        if self.begun_at is not None:
            allowed = command_s + self._parser.held / _BYTES_PER_SECOND
            if now - self.begun_at > allowed:
                return f"a command was not whole after {allowed:g} s"
        if idle_s and now - self.client.last_active > idle_s:
            return f"idle for {idle_s:g} s"
        return None

    def close(self, reason: str) -> None:
        """Close at once and let go of everything."""
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    def go_on(self) -> None:
        """Begin what waits, after a pause of all clients."""
        self._go_on()

    def turn_away(self, reply: bytes) -> None:
        """Send a reply, and close behind it."""
        self.client.is_over = True
        self._pause_reading()
        self._write([reply])

    def drain(self) -> None:
        """Begin nothing more; what was begun is still answered."""
        self.client.is_over = True
        self._pause_reading()
        self._write([])

    # Commands

    def _go_on(self) -> None:
        """Begin what can be, send what is ready, and receive on or pause."""
        if self._closed:
            return
        try:
            self._begin_commands()
        except ProtocolError as error:
            self._refuse(error)
        except Exception:  # noqa: BLE001 - a defect must not leave the client waiting
            self._close_after_defect()
        if not self._closed:
            self._account()

    def _begin_commands(self) -> None:
        output: list[bytes] = []
        self._is_beginning = True
        try:
            self._begin_all(output)
        finally:
            self._is_beginning = False
            self._write(output)

    def _begin_all(self, output: list[bytes]) -> None:
        """Begin what can be; ``output`` gets the replies that nobody has to wait for."""
        size = 0
        until = self._loop.time() + MAX_TURN_S
        while not self._is_blocked():
            if self._is_limited and self.client.is_authenticated:
                self._is_limited = False
                self._parser.limit(self._most)
            arguments = self._next or self._parser.next()
            self._next = None
            if arguments is None:
                break
            if not arguments:
                self._give_way_after(until)
                continue
            self.begun_at = None
            concurrent = self._commands.is_concurrent(arguments)
            if self._replies and not concurrent:
                self._next = arguments
                break
            reply = self._commands.begin(self.client, arguments)
            if isinstance(reply, bytes):
                reply = self._audible(reply)
                if self._replies:
                    self._replies.append((reply, 0))
                elif reply:
                    output.append(reply)
                    size += len(reply)
                    if size > MAX_UNSENT_BYTES:  # which may fill what the client does not read
                        self._write(output)
                        output.clear()
                        size = 0
            else:
                self._append(reply, sum(map(len, arguments)), concurrent=concurrent)
            self._give_way_after(until)

    def _give_way_after(self, until: float) -> None:
        """Let others have the event loop, if it is past a time, and go on in a later tick."""
        if self._loop.time() > until:
            self._gives_way = True
            turns_of(self._loop).call(self._on_turn)

    def _on_turn(self) -> bool:
        self._gives_way = False
        turn = begin_turn(self._loop)
        try:
            self._go_on()
        finally:
            if turn is not None:
                turn.end()
        return not self._closed

    def _append(self, reply: Awaitable[bytes], size: int, *, concurrent: bool) -> None:
        self._begun_bytes += size
        self._budget.force(size)
        self._is_barred = not concurrent
        if isinstance(reply, PendingReply):
            self._replies.append((reply, size))
            reply.on_done(self._on_pending)
        else:
            future = reply if isinstance(reply, asyncio.Future) else asyncio.ensure_future(reply)
            self._replies.append((future, size))
            future.add_done_callback(self._on_reply)

    def _audible(self, reply: bytes) -> bytes:
        """The reply as far as the client wants to hear it."""
        client = self.client
        if client.skips:
            client.skips -= 1
            if not client.skips:
                return b""
        return b"" if client.is_muted else reply

    def _on_pending(self) -> None:
        """A reply is there: send it now if it is the only one, else with those of this turn.

        Whoever answers is in the middle of something, and answers others next: what waits is begun
        later, and a defect ends this connection alone.
        """
        if self._closed or self._is_due or not self._replies:
            return
        is_busy = self._is_beginning or self._next is not None or self._parser.held > 0
        if is_busy or len(self._replies) > 1:
            self._is_due = True
            self._loop.call_soon(self._on_due)
        elif self._send_ready() and self._is_paused:
            self._loop.call_soon(self._go_on)

    def _on_due(self) -> None:
        self._is_due = False
        self._on_reply(None)

    def _on_reply(self, _: object) -> None:
        if self._send_ready():
            self._go_on()

    def _send_ready(self) -> bool:
        """Send the replies that are next in order and there; whether there are any."""
        replies = self._replies
        if self._closed or not replies:  # one call sends all that are ready
            return False
        first, size = replies[0]
        if not isinstance(first, bytes) and not first.done():
            return False
        output: list[bytes] = []
        while replies:
            first, size = replies[0]
            if not isinstance(first, bytes):
                if not first.done():
                    break
                try:
                    first = self._audible(first.result())
                except asyncio.CancelledError:
                    self.close("the broker is shutting down")
                    return False
                except Exception:  # noqa: BLE001 - as above
                    self._close_after_defect()
                    return False
            replies.popleft()
            self._answered(size)
            output.append(first)
        if not replies:
            self._is_barred = False
        try:
            self._write(output)
        except Exception:  # noqa: BLE001 - as above
            self._close_after_defect()
            return False
        return True

    def _answered(self, size: int) -> None:
        self._begun_bytes -= size
        self._budget.release(size)

    def _close_after_defect(self) -> None:
        _log.exception("a command of the client at %s failed", self.client.address)
        self.close("the broker has failed; its log says why")

    def _write(self, output: list[bytes]) -> None:
        transport = self._transport
        if self._closed or transport is None:
            return
        if output:
            data = output[0] if len(output) == 1 else b"".join(output)
            self.sent_bytes += len(data)
            transport.write(data)
            self._mute(self._owner.used(self.client, 0, len(data)))
        if self.client.is_over and not self._replies:
            self._end("the client or the broker asked for it")
            transport.close()  # once all is sent

    def _refuse(self, error: ProtocolError) -> None:
        """Answer to bytes that are no command, and close behind what was begun before."""
        self.client.is_over = True
        self._pause_reading()
        reply = resp.error(f"ERR Protocol error: {error}")
        if self._replies:
            self._replies.append((reply, 0))
        else:
            self._write([reply])

    def _is_blocked(self) -> bool:
        return (
            self._is_barred
            or self._gives_way
            or self._is_full
            or self._closed
            or self._muted_until > 0.0
            or self.client.is_over
            or self._commands.is_paused
            or len(self._replies) >= MAX_OPEN_REPLIES
            or self._has_begun_enough()
        )

    def _has_begun_enough(self) -> bool:
        """Whether memory wants some of its commands to be answered first."""
        begun, budget = self._begun_bytes, self._budget
        return begun > MAX_BEGUN_BYTES or (begun > 0 and budget.used > budget.limit)

    # Quotas

    def _mute(self, seconds: float) -> None:
        """Begin and receive nothing for so long; what was begun is answered meanwhile."""
        if seconds <= 0.0 or self._closed:
            return
        end = self._loop.time() + seconds
        if end <= self._muted_until:
            return
        self._muted_until = end
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        self._mute_timer = self._loop.call_at(end, self._unmute)
        self._pause_reading()

    def _unmute(self) -> None:
        self._mute_timer = None
        self._muted_until = 0.0
        self._go_on()

    # Memory

    def _account(self) -> None:
        """Charge what is held to the budget, and receive on unless there is too much of it."""
        held = self._parser.held
        if self._parser.is_inside:
            if self.begun_at is None:
                self.begun_at = self._loop.time()
        else:
            self.begun_at = None
        wanted = held if held > _READABLE_BYTES else 0
        if wanted > self._charged:
            if not self._budget.try_acquire(wanted - self._charged, self):
                self._budget.force(wanted - self._charged)
                self._starve()
            self._charged = wanted
        elif wanted < self._charged:
            surplus, self._charged = self._charged - wanted, wanted
            if not wanted:
                self._budget.finished(self)
            self._budget.release(surplus)
        waits = self._next is not None or self._is_blocked()
        is_muted = self._muted_until > 0.0
        is_full = waits and held > _MAX_WAITING_BYTES
        if self._is_starved or self.client.is_over or is_muted or is_full:
            self._pause_reading()
        elif self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()

    def _starve(self) -> None:
        if not self._is_starved:
            self._is_starved = True
            self._budget.wait(self._on_memory)

    def _on_memory(self) -> None:
        self._is_starved = False
        if not self._closed:
            self._account()

    def _pause_reading(self) -> None:
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def _end(self, reason: str) -> None:
        if self._closed:
            return
        self._closed = True
        if self._mute_timer is not None:
            self._mute_timer.cancel()
            self._mute_timer = None
        for reply, _ in self._replies:
            if not isinstance(reply, bytes):
                reply.cancel()
        self._replies.clear()
        self._answered(self._begun_bytes)
        self._next = None
        self._budget.forget(self._on_memory)
        self._budget.finished(self)
        self._budget.release(self._charged)
        self._charged = 0
        self._owner.closed(self, reason)
