"""One client connection: requests in, responses out in the order of their requests.

Reads and writes go straight to the transport, which never blocks; the event loop only says when. A
request that cannot be answered at once leaves a slot in the queue of replies, and later requests go
on. Behind a handler that runs as a coroutine they wait: it sees the state that the requests before
it left, and is finished before the next one starts, as Kafka's clients expect of a pipeline.

Back-pressure: the connection stops reading while too many replies are open, while the client does
not read what was sent, and while the broker's memory for unfinished requests is used up. So does a
mute, for a time, by which quotas slow down a client that has had its answer already (KIP-219).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from qbus.errors import WireError

from ..turns import turns_of
from .frames import RequestFrames
from .memory_budget import MemoryBudget
from .peer import Peer, never_closed, never_muted
from .transport import Part, Transport, WriteBuffer

_log = logging.getLogger(__name__)

MAX_OPEN_REPLIES: Final = 128
MAX_UNSENT_BYTES: Final = 1024 * 1024
MAX_TURN_S: Final = 0.01
"""After so long, what a client has pipelined goes on in a later tick of the event loop."""
_READS_PER_TURN: Final = 4


class CloseConnection(Exception):  # noqa: N818 - it is a decision, not a failure
    """The request cannot be answered in any form that its sender would understand."""


class HoldRequest(Exception):  # noqa: N818 - as above
    """The request is to be handled later: it stays where it is, and nothing after it is read."""

    def __init__(self, seconds: float) -> None:
        """``seconds``: how long to wait before it is looked at again."""
        super().__init__(seconds)
        self.seconds = seconds


class Reply(Protocol):
    """An answer that is still to come."""

    exclusive: bool

    def done(self) -> bool:
        """Whether the answer is there."""

    def result(self) -> list[Part]:
        """The answer's parts; raises CloseConnection where there is none to give."""

    def on_done(self, callback: Callable[[], None]) -> None:
        """Call back once, when the answer is there."""

    def cancel(self) -> None:
        """Nobody waits for the answer any more."""


class TimeLimits(NamedTuple):
    """How long a client may take, in seconds."""

    idle: float
    frame: float
    stall: float
    frame_bytes_per_second: int = 16 * 1024
    authentication: float = 30.0


Dispatch = Callable[[Peer, memoryview], list[Part] | Reply | None]


class Connection:
    """Everything that the broker holds for one client."""

    __slots__ = (
        "_budget",
        "_charged",
        "_closed",
        "_closing",
        "_dispatch",
        "_draining",
        "_exclusive",
        "_fd",
        "_frames",
        "_full_frame",
        "_gives_way",
        "_held",
        "_loop",
        "_mute_timer",
        "_muted_until",
        "_on_close",
        "_output",
        "_reading",
        "_replies",
        "_since",
        "_starved",
        "_transport",
        "_writing",
        "frame_since",
        "last_active",
        "peer",
        "received_bytes",
        "sent_bytes",
        "sent_nonsense",
        "stalled_since",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: Transport,
        peer: Peer,
        *,
        dispatch: Dispatch,
        frames: RequestFrames,
        budget: MemoryBudget,
        on_close: Callable[["Connection", str], None],
        full_frame: int = 0,
    ) -> None:
        """``full_frame``: the largest frame that is taken of the client once it authenticated."""
        self._loop = loop
        self._transport = transport
        self._fd = transport.fd
        self.peer = peer
        self._dispatch = dispatch
        self._frames = frames
        self._budget = budget
        self._on_close = on_close
        self._output = WriteBuffer()
        self._replies: deque[list[Part] | Reply] = deque()
        self._held = 0  # bytes of the replies that are there but not next
        self._exclusive = False
        self._reading = False
        self._writing = False
        self._starved = False
        self._gives_way = False
        self._draining = False
        self._closed = False
        self._closing: str | None = None  # why, once all is sent
        self._full_frame = 0 if peer.is_authenticated else full_frame
        self._muted_until = 0.0
        self._mute_timer: asyncio.TimerHandle | None = None
        self.sent_nonsense = False
        self._charged = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.last_active = loop.time()
        self._since = self.last_active
        self.frame_since: float | None = None
        self.stalled_since: float | None = None
        peer.mute = self.mute
        peer.close = self.close

    def start(self) -> None:
        """Begin to read."""
        self._resume_reading()

    @property
    def idle(self) -> bool:
        """Whether the client has every answer it asked for."""
        return not self._replies and not self._output.pending and not self._writing

    def overdue(self, now: float, limits: TimeLimits) -> str | None:
        """Why the client has had its time, if it has."""
        if self.stalled_since is not None and now - self.stalled_since > limits.stall:
            return f"the client took nothing of its answers for {limits.stall:g} s"
        if not self.peer.is_authenticated and now - self._since > limits.authentication:
            return f"the client did not authenticate within {limits.authentication:g} s"
        if not self._reading:
            return None
        if self.frame_since is not None:
            allowed = limits.frame + self._frames.held / limits.frame_bytes_per_second
            if now - self.frame_since > allowed:
                return f"a request was not whole after {allowed:g} s"
        if self.idle and now - self.last_active > limits.idle:
            return f"idle for {limits.idle:g} s"
        return None

    def mute(self, seconds: float) -> None:
        """Handle and read nothing more for ``seconds``; what was asked already is still answered.

        A shorter mute does not end a longer one.
        """
        until = self._loop.time() + seconds
        if until <= self._muted_until or self._closed:
            return
        self._muted_until = until
        if self._mute_timer is None:
            self._mute_timer = self._loop.call_at(until, self._on_mute_over)
            self._pause_reading()

    def _on_mute_over(self) -> None:
        if self._closed:
            return
        if self._loop.time() < self._muted_until:  # it was lengthened meanwhile
            self._mute_timer = self._loop.call_at(self._muted_until, self._on_mute_over)
            return
        self._mute_timer = None
        self._go_on()

    def drain(self) -> None:
        """Read no more; what was asked already is still answered."""
        self._draining = True
        self._pause_reading()

    def close(self, reason: str) -> None:
        """Close at once and let go of everything."""
        if self._closed:
            return
        self._closed = True
        self._pause_reading()
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        self.peer.mute = never_muted
        self.peer.close = never_closed
        if self._writing:
            self._loop.remove_writer(self._fd)
        for reply in self._replies:
            if isinstance(reply, list):
                self._output.add(reply)  # which lets go of its files, below
            else:
                reply.cancel()
        self._replies.clear()
        self._output.close()
        self._budget.forget(self._on_memory)
        self._budget.finished(self)
        self._budget.release(self._charged)
        self._transport.close()
        for callback in self.peer.on_close:
            callback()
        self._on_close(self, reason)

    # Receiving

    def _on_readable(self) -> None:
        try:
            for _ in range(_READS_PER_TURN):
                target = self._frames.target()
                count = self._transport.receive_into(target)
                if count == 0:
                    self._end_of_input("the client closed the connection")
                    return
                self.received_bytes += count
                self._frames.received(count)
                self._handle_frames()
                if not self._reading or count < len(target):
                    return
            if self._transport.pending:
                self._loop.call_soon(self._read_on)
        except BlockingIOError:
            return
        except OSError as error:
            self._end_of_input(f"receiving failed: {error}")

    def _end_of_input(self, reason: str) -> None:
        """Close, but let a handler that runs as a coroutine finish: reading on says it again."""
        if self._exclusive:
            self._pause_reading()
        else:
            self.close(reason)

    def _read_on(self) -> None:
        """Read what the transport has already, of which the descriptor does not tell."""
        if self._reading:
            self._on_readable()

    def _handle_frames(self) -> None:
        """Start what is whole, keep the rest, and read on or pause."""
        try:
            self.last_active = self._loop.time()
            # Sending may end what blocked: what is whole then must not wait for more to come.
            while self._dispatch_frames():
                self._flush()
            self._flush()
            self._keep_rest()
        except WireError as error:
            self.sent_nonsense = True
            self.close(f"malformed request: {error}")
        except CloseConnection as error:
            self.close(str(error))
        except Exception:  # noqa: BLE001 - a defect must not leave the client waiting
            self._close_after_defect()

    def _dispatch_frames(self) -> bool:
        """Start the requests that are whole; whether it stopped before the last one of them."""
        if self._is_blocked():
            return False
        frames, peer = self._frames, self.peer
        if self._full_frame and peer.is_authenticated:
            frames.max_frame, self._full_frame = self._full_frame, 0
        while (frame := frames.next()) is not None:
            self.frame_since = None
            try:
                self._accept(self._dispatch(peer, frame))
            except HoldRequest as hold:
                frames.put_back(frame)
                self.mute(hold.seconds)
                return False
            if peer.closes_after_reply is not None:
                self._close_when_sent(peer.closes_after_reply)
                return False
            if self._is_blocked():
                return True
            if self._loop.time() - self.last_active > MAX_TURN_S:
                self._give_way()
                return True
        return False

    def _give_way(self) -> None:
        """Let others have the event loop, and go on when it is this connection's turn."""
        self._gives_way = True
        turns_of(self._loop).call(self._on_turn)

    def _on_turn(self) -> bool:
        self._gives_way = False
        if self._closed:
            return False
        self._go_on()
        return True

    def _keep_rest(self) -> None:
        if self._closed:
            return
        frames = self._frames
        wanted = frames.wanted()
        if wanted == 0:
            self.frame_since = None
            if self._charged:
                self._charge(0)
                frames.keep(0)
                self._budget.finished(self)
        elif wanted <= self._charged or self._budget.try_acquire(wanted - self._charged, self):
            self._charged = max(wanted, self._charged)
            frames.keep(wanted)
            self._charge(wanted)
            if self.frame_since is None:
                self.frame_since = self.last_active
        else:
            self._starve()
            return
        if not self._is_blocked():
            self._resume_reading()
        elif wanted or self._is_held_up():
            self._pause_reading()
        # Else only a handler is waited for. Most clients send nothing meanwhile; what one does send
        # is kept, and makes it pause.

    def _starve(self) -> None:
        """No memory to read on with: keep just what is here, and wait."""
        left = self._frames.left
        if left > self._charged:
            self._budget.force(left - self._charged)
            self._charged = left
        self._frames.keep(left)
        self._pause_reading()
        if not self._starved:
            self._starved = True
            self._budget.wait(self._on_memory)

    def _on_memory(self) -> None:
        self._starved = False
        if not self._closed:
            self._handle_frames()

    def _charge(self, held: int) -> None:
        """Give back what is accounted for above ``held`` bytes."""
        if self._charged > held:
            surplus = self._charged - held
            self._charged = held
            self._budget.release(surplus)

    def _is_blocked(self) -> bool:
        return self._exclusive or self._is_held_up()

    def _is_held_up(self) -> bool:
        """Whether something else than a handler keeps requests from being started."""
        return (
            self._mute_timer is not None
            or self._gives_way
            or len(self._replies) >= MAX_OPEN_REPLIES
            or self._output.pending + self._held > MAX_UNSENT_BYTES
            or self._closed
            or self._closing is not None
        )

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _resume_reading(self) -> None:
        if not self._reading and not self._closed and not self._draining:
            self._reading = True
            if self.frame_since is not None:  # the pause was ours, not the client's
                self.frame_since = self._loop.time()
            self._loop.add_reader(self._fd, self._on_readable)
            if self._transport.pending:
                self._loop.call_soon(self._read_on)

    # Answering

    def _close_when_sent(self, reason: str) -> None:
        """Read nothing more, and close when all answers are sent."""
        self._closing = reason
        self.drain()

    def _accept(self, reply: list[Part] | Reply | None) -> None:
        if reply is None:
            return
        if isinstance(reply, list):
            if self._replies:
                self._replies.append(reply)
                self._held += sum(map(len, reply))
            else:
                self._output.add(reply)
            return
        self._replies.append(reply)
        self._exclusive = reply.exclusive
        reply.on_done(self._on_reply)

    def _on_reply(self) -> None:
        """Some reply is there: send what is next in order, and go on reading."""
        if self._closed:
            return
        try:
            self._collect()
        except CloseConnection as error:
            self.close(str(error))
            return
        except Exception:  # noqa: BLE001 - as above
            self._close_after_defect()
            return
        if self.peer.closes_after_reply is not None:
            self._close_when_sent(self.peer.closes_after_reply)
        self._flush()
        self._go_on()

    def _close_after_defect(self) -> None:
        _log.exception("a request of the client at %s could not be answered", self.peer.host)
        self.close("the broker has failed; its log says why")

    def _collect(self) -> None:
        replies = self._replies
        while replies:
            first = replies[0]
            if isinstance(first, list):
                self._held -= sum(map(len, first))
            elif not first.done():
                break
            else:
                if first.exclusive:
                    self._exclusive = False
                first = first.result()
            replies.popleft()
            self._output.add(first)

    def _flush(self) -> None:
        if self._output.pending and not self._writing:
            self._send()
        if self._closing is not None:
            self._close_if_sent()

    def _close_if_sent(self) -> None:
        if self.idle and not self._closed and self._closing is not None:
            self.close(self._closing)

    def _send(self) -> None:
        before = self._output.pending
        try:
            complete = self._output.send(self._transport)
        except OSError as error:
            self.close(f"sending failed: {error}")
            return
        self.sent_bytes += before - self._output.pending
        if complete:
            self.stalled_since = None
        elif self.stalled_since is None or self._output.pending < before:
            self.stalled_since = self._loop.time()
        if complete == self._writing:
            self._writing = not complete
            if self._writing:
                self._loop.add_writer(self._fd, self._on_writable)
            else:
                self._loop.remove_writer(self._fd)

    def _on_writable(self) -> None:
        self._send()
        if self._closing is not None:
            self._close_if_sent()
        self._go_on()

    def _go_on(self) -> None:
        """Take up the frames that waited for a reply to be there or to be read."""
        if not self._reading and not self._starved and not self._is_blocked():
            self._handle_frames()
