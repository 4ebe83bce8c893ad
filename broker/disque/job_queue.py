"""What this node has of one queue of jobs: the partitions that it leads, and who waits for a job.

Clients that wait are served first come, first served, one job each. One that waits for several
queues stands in the line of each, and leaves all of them with its job. A client that asks while
others wait stands behind them.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from qbus.config import Address
from qbus.errors import ApiError
from qbus.jobs import JobId, JobIds, JobOptions, parse_id
from qbus.records import ConsumerRecord
from qbus.records.record import Headers

from ..partition.partition import Partition
from ..queues import AckRange, AckType, ShareQueue
from ..queues.taking import Offer, RecordsTaken
from ..queues.types import WaitedFor
from ..turn_end import at_end
from ..turns import next_turn
from .queues import MEMBER, JobSettings
from .reading import due_ms, original_of

_log = logging.getLogger(__name__)

_SERVED_AT_ONCE: Final = 500
_TAKEN_AT_ONCE: Final = 256  # jobs, between two turns of the event loop
_BYTES_AT_ONCE: Final = 8 << 20
_RETRY_S: Final = 0.5


class Job:
    """A job as it is handed to a client."""

    __slots__ = ("additional_deliveries", "body", "id", "nacks", "queue")

    def __init__(
        self, queue: bytes, text: str, body: bytes, nacks: int = 0, additional_deliveries: int = 0
    ) -> None:
        self.queue = queue
        self.id = text
        self.body = body
        self.nacks = nacks
        self.additional_deliveries = additional_deliveries

    @property
    def is_at_most_once(self) -> bool:
        """Whether it is never given out again, as its id says."""
        return int(self.id[36:], 16) & 1 == 0


class JobsReply:
    """The reply to GETJOB, which is made of its jobs one after the other."""

    __slots__ = ("_before", "_length", "_parts", "_queue", "_size", "_with_counters")

    def __init__(self, count: int, *, with_counters: bool) -> None:
        """``count``: of the jobs that will be added."""
        self._with_counters = with_counters
        self._parts = [b"*%d\r\n" % count]
        # Of one queue, and of bodies of one size, what stands between them is the same.
        self._queue: bytes | None = None
        self._before = b""
        self._size, self._length = -1, b""

    def add(
        self, queue: bytes, text: bytes, body: bytes, nacks: int, additional_deliveries: int
    ) -> None:
        """Add a job; ``text`` is its id. Its counters are told if the client wants them."""
        if queue is not self._queue:
            words = 7 if self._with_counters else 3
            self._before = b"*%d\r\n$%d\r\n%b\r\n$40\r\n" % (words, len(queue), queue)
            self._queue = queue
        size = len(body)
        if size != self._size:
            self._size, self._length = size, b"\r\n$%d\r\n" % size
        self._parts += (self._before, text, self._length, body, b"\r\n")
        if self._with_counters:
            self._parts.append(
                b"$5\r\nnacks\r\n:%d\r\n$21\r\nadditional-deliveries\r\n:%d\r\n"
                % (nacks, additional_deliveries)
            )

    def data(self) -> bytes:
        """The bytes of the reply."""
        return b"".join(self._parts)


class Part(NamedTuple):
    """One partition of a queue, led here. ``topic_id``: of its topic; ``ids``: of its jobs."""

    topic_id: bytes
    partition: Partition
    queue: ShareQueue
    ids: JobIds


class TakenJob:
    """A job that was taken, and from where: it can be given back.

    From ``offset`` of ``part``; or, where that is None, from the node at ``node``.
    """

    __slots__ = ("job", "node", "offset", "part")

    def __init__(
        self, job: Job, part: Part | None, offset: int = -1, node: Address | None = None
    ) -> None:
        self.job = job
        self.part = part
        self.offset = offset
        self.node = node


def id_of(ids: JobIds, offset: int, timestamp: int, headers: Headers, options: JobOptions) -> bytes:
    """The id of the job that a record is, the same that its producer was told.

    So it has the time when the job was to be due first, however often it was rescheduled.
    """
    original = original_of(headers) if options.delay else None
    if original is not None and original.isdigit():
        seconds = due_ms(timestamp, headers) // 1000
        return ids.encode(int(original), options, seconds, is_delayed=True)
    return ids.encode(offset, options, timestamp // 1000)


class BlockedClient:
    """A client that waits for one job of any of some queues.

    ``is_node``: it is another node, which asks for its own clients what is led here.
    """

    __slots__ = ("_on_end", "_timer", "is_done", "is_node", "queues")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        queues: Sequence["JobQueue"],
        timeout_ms: int,
        on_end: Callable[["TakenJob | None"], None],
        *,
        is_node: bool = False,
    ) -> None:
        """``timeout_ms`` 0: it waits for ever. ``on_end`` gets the job, or None in the end."""
        self.queues = queues
        self.is_done = False
        self.is_node = is_node
        self._on_end = on_end
        self._timer: asyncio.TimerHandle | None = None
        if timeout_ms:
            self._timer = loop.call_later(timeout_ms / 1000, self.give, None)
        for queue in queues:
            if not self.is_done:
                queue.line_up(self)

    def give(self, taken: "TakenJob | None") -> bool:
        """End its wait with a job, or with None; whether it still waited."""
        self.leave()
        if self.is_done:
            return False
        self.is_done = True
        self._on_end(taken)
        return True

    def leave(self) -> None:
        """Wait no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for queue in self.queues:
            queue.forget_client(self)
        self.queues = ()


class Delivered(Protocol):
    """Where delayed jobs lie since they were delivered."""

    def note(self, job: JobId, topic_id: bytes, offset: int) -> None:
        """One was given out."""


class JobQueue:
    """One queue. Times in seconds, monotonic.

    ``parts`` are set anew whenever partitions came or went. ``pause`` is none, in, out or all.
    """

    def __init__(
        self,
        name: bytes,
        topic: str,
        now: Callable[[], float],
        delivered: Delivered,
        ask_others: Callable[["JobQueue"], object],
        settings: JobSettings,
        refresh: Callable[["JobQueue"], object],
    ) -> None:
        """``ask_others`` is called when a client waits for what may come on other nodes.

        ``refresh`` sets the parts anew.
        """
        self.name = name
        self.topic = topic
        self._now = now
        self._delivered = delivered
        self._ask_others = ask_others
        self._settings = settings
        self._refresh = refresh
        self.created_at = self.used_at = now()
        self.jobs_in = 0
        self.jobs_out = 0
        self.pause = "none"
        self._flushed_to = -1
        self._parts: list[Part] = []
        self._turn = 0
        self._last_offer: Offer | None = None
        self._clients: OrderedDict[BlockedClient, None] = OrderedDict()
        self._chosen: list[BlockedClient] = []  # who stands in no line: jobs are taken for them
        self._imported: deque[TakenJob] = deque()
        self._waits_for: set[WaitedFor] = set()
        self._ready: dict[WaitedFor, None] = {}
        self._serving: asyncio.Task[None] | None = None
        self._giving: set[asyncio.Task[None]] = set()  # jobs back
        self._is_due = False  # to be served in the next turn of the event loop
        self._loop = asyncio.get_running_loop()

    # What it is

    @property
    def parts(self) -> Sequence[Part]:
        """The partitions that are led here."""
        return self._parts

    @parts.setter
    def parts(self, parts: Iterable[Part]) -> None:
        self._parts = list(parts)
        known: set[WaitedFor] = {part.queue for part in self._parts}
        for queue in self._waits_for - known:
            queue.forget(self)
        self._waits_for &= known
        for queue in [one for one in self._ready if one not in known]:
            del self._ready[queue]
        self._wait()

    @property
    def length(self) -> int:
        """How many jobs wait here to be given out."""
        self._renew_parts()
        return sum(part.queue.length for part in self._parts) + len(self._imported)

    @property
    def blocked(self) -> int:
        """How many clients wait for a job, other nodes among them."""
        return len(self._clients)

    def own_clients(self, most: int) -> int:
        """How many clients wait that are no other nodes; ``most`` at most."""
        return sum(1 for _ in islice((one for one in self._clients if not one.is_node), most))

    @property
    def is_used(self) -> bool:
        """Whether clients wait for jobs, or jobs of other nodes wait for clients."""
        return bool(self._clients or self._chosen or self._imported)

    @property
    def is_paused_in(self) -> bool:
        """Whether no jobs are taken."""
        return self.pause in {"in", "all"}

    @property
    def is_paused_out(self) -> bool:
        """Whether no jobs are given out."""
        return self.pause in {"out", "all"}

    def look(self) -> None:
        """There may be something: a group has begun in a partition."""
        for part in self._parts:
            if part.queue in self._waits_for:
                part.queue.forget(self)
                self._waits_for.discard(part.queue)
        self._wait()

    def set_pause(self, pause: str) -> None:
        """Pause it, or let it go on."""
        self.pause = pause
        while self._imported and self.give_from_elsewhere(self._imported[0]):
            self._imported.popleft()
        self._wait()

    def was_flushed(self) -> None:
        """All jobs that are here were removed by DEBUG FLUSHALL."""
        self._flushed_to = self._visible_end()

    @property
    def is_flushed(self) -> bool:
        """Whether nothing was added since DEBUG FLUSHALL, and no client waits."""
        return not self._clients and self._visible_end() == self._flushed_to

    def _visible_end(self) -> int:
        return sum(part.partition.visible_end for part in self._parts)

    def note_use(self) -> None:
        """Somebody added or took a job."""
        self.used_at = self._now()

    # Taking

    def _renew_parts(self) -> None:
        """Let go of what is closed: somebody deleted the group's state, and it begins anew."""
        if any(part.queue.is_closed for part in self._parts):
            self._refresh(self)

    def _is_behind_others(self, *, for_node: bool) -> bool:
        """Whether others wait for all that a client which comes now could get.

        No node that waits gets what came from elsewhere.
        """
        if not self._clients:
            return False
        return for_node or not self._imported or self.own_clients(1) > 0

    async def take(self, most: int, *, for_node: bool = False) -> list[TakenJob]:
        """Up to so many jobs; none where others wait for them, or it is paused.

        ``for_node``: for another node, which gets nothing that came from elsewhere. Raises ApiError
        and OSError, if there is nothing where nothing is wrong.
        """
        if self.is_paused_out or self._is_behind_others(for_node=for_node):
            return []
        taken: list[TakenJob] = []
        while self._imported and len(taken) < most and not for_node:
            taken.append(self._imported.popleft())
        if len(taken) == most or self._clients:
            return taken
        self._renew_parts()
        parts, failure = self._parts, None
        for number in range(len(parts)):
            part = parts[(self._turn + number) % len(parts)]
            try:
                if len(parts) == 1 or part.queue.length:
                    taken += await self._take_of(part, most - len(taken))
            except (ApiError, OSError) as error:  # what others gave must not be lost
                failure = error
            if len(taken) >= most:
                self._turn += number
                break
        if failure is not None and not taken:
            raise failure
        return taken

    def begin_take(
        self, most: int, *, with_counters: bool, for_node: bool = False
    ) -> "bytes | Coroutine[Any, Any, list[TakenJob]]":
        """Up to so many jobs as :meth:`take` gives them: the reply, if they are at hand.

        An empty one: there is nothing now.
        """
        if self.is_paused_out or self._is_behind_others(for_node=for_node):
            return b""
        if self._imported or len(self._parts) != 1 or self._parts[0].queue.is_closed:
            return self.take(most, for_node=for_node)
        part = self._parts[0]
        try:
            taken = part.queue.take_now(self._offer(min(most, _TAKEN_AT_ONCE)))
        except (ApiError, OSError):
            taken = None
        if taken is None:
            return self.take(most, for_node=for_node)
        if taken.once or (most > _TAKEN_AT_ONCE and len(taken.records) == _TAKEN_AT_ONCE):
            return self._jobs_later(part, taken, most)
        return self._reply(part, taken, with_counters)

    async def _take_of(self, part: Part, most: int) -> list[TakenJob]:
        taken = await part.queue.take(self._offer(min(most, _TAKEN_AT_ONCE)))
        return await self._go_on(part, taken, most)

    async def _jobs_later(self, part: Part, taken: RecordsTaken, most: int) -> list[TakenJob]:
        await taken.stored()
        return await self._go_on(part, taken, most)

    async def _go_on(self, part: Part, taken: RecordsTaken, most: int) -> list[TakenJob]:
        """The jobs of ``taken``, and those behind them up to ``most``, a piece in each turn."""
        found, size = self._jobs(part, taken), taken.size
        while len(taken.records) == _TAKEN_AT_ONCE and len(found) < most:
            await next_turn()
            if self.is_paused_out or size >= _BYTES_AT_ONCE:
                break
            piece = self._offer(min(most - len(found), _TAKEN_AT_ONCE), _BYTES_AT_ONCE - size)
            try:
                taken = await part.queue.take(piece)
            except (ApiError, OSError):  # what was taken before must not be lost
                break
            found += self._jobs(part, taken)
            size += taken.size
        return found

    def _offer(self, most: int, max_bytes: int = _BYTES_AT_ONCE) -> Offer:
        offer = self._last_offer
        if offer is None or (offer.most, offer.max_bytes) != (most, max_bytes):
            terms = self._settings.terms_of  # clients mostly ask for as many as the last one
            offer = Offer(MEMBER, most, max_bytes, by_headers=terms)
            self._last_offer = offer
        return offer

    def _jobs(self, part: Part, taken: RecordsTaken) -> list[TakenJob]:
        records, found = taken.records, list[TakenJob]()
        if records:
            self.jobs_out += len(records)
            self.note_use()
        for number, record in enumerate(records):
            _, nacks, timeouts, _, _ = taken.histories[number]
            text = self._id(part, record).decode()
            job = Job(self.name, text, record.value or b"", nacks, timeouts)
            found.append(TakenJob(job, part, record.offset))
        return found

    def _reply(self, part: Part, taken: RecordsTaken, with_counters: bool) -> bytes:
        """The reply to GETJOB; empty, if nothing was taken."""
        records = taken.records
        if not records:
            return b""
        self.jobs_out += len(records)
        self.note_use()
        reply, nacks, timeouts = JobsReply(len(records), with_counters=with_counters), 0, 0
        for number, record in enumerate(records):
            if with_counters:
                _, nacks, timeouts, _, _ = taken.histories[number]
            text = self._id(part, record)
            reply.add(self.name, text, record.value or b"", nacks, timeouts)
        return reply.data()

    def _id(self, part: Part, record: ConsumerRecord) -> bytes:
        """The id of a job that is given out."""
        _, _, offset, timestamp, _, _, headers, _ = record
        options = self._settings.options_of(headers)
        if not options.delay:
            return part.ids.encode(offset, options, timestamp // 1000)
        text = id_of(part.ids, offset, timestamp, headers, options)
        job = parse_id(text)
        if job is not None and job.is_delayed:
            self._delivered.note(job, part.topic_id, offset)
        return text

    # Waiting

    def line_up(self, client: BlockedClient) -> None:
        """A client waits for a job from now on."""
        self._clients[client] = None
        if self._imported and not self.is_paused_out and not client.is_node:
            taken = self._imported.popleft()
            if not client.give(taken):
                self._imported.appendleft(taken)
            return
        self._renew_parts()
        self._wait()
        if not client.is_node:
            self._ask_others(self)

    def forget_client(self, client: BlockedClient) -> None:
        """A client waits no longer."""
        if client not in self._clients:
            return
        del self._clients[client]
        if not self._clients:
            for queue in self._waits_for:
                queue.forget(self)
            self._waits_for.clear()

    def give_from_elsewhere(self, taken: TakenJob) -> bool:
        """Give a job that came from another node to who waits first; whether somebody got it.

        Nobody does while the queue is paused, and no other node: nodes that wait at each other
        would hand it round.
        """
        return not self.is_paused_out and self._give_first(taken, with_nodes=False)

    def _give_first(self, taken: TakenJob, *, with_nodes: bool) -> bool:
        while (client := self._first_client(with_nodes=with_nodes)) is not None:
            if client.give(taken):
                self.note_use()
                return True
        return False

    def _first_client(self, *, with_nodes: bool) -> BlockedClient | None:
        return next((one for one in self._clients if with_nodes or not one.is_node), None)

    def keep(self, taken: TakenJob) -> None:
        """Keep a job that came from another node for somebody who waits no longer."""
        self._imported.append(taken)

    def unwanted(self) -> list[TakenJob]:
        """The jobs that were kept and can be given back: those that may be given out again."""
        found = [one for one in self._imported if not one.job.is_at_most_once]
        self._imported = deque(one for one in self._imported if one.job.is_at_most_once)
        return found

    def ready(self, queue: WaitedFor) -> bool:
        """A partition has something: see :class:`qbus.broker.queues.Waiter`."""
        self._waits_for.discard(queue)
        if not self._clients or self.is_paused_out:
            return False
        self._ready[queue] = None
        if self._serving is None and not self._is_due:
            self._is_due = True
            at_end(self._loop, self._serve_now)
        return True

    def close(self) -> None:
        """Answer all who wait that there is nothing, and stop."""
        for client in [*self._chosen, *self._clients]:
            client.give(None)
        if self._serving is not None:
            self._serving.cancel()

    def _wait(self, *, again: WaitedFor | None = None) -> None:
        """Be called for each partition that may have something, while somebody waits for it."""
        if not self._clients or self.is_paused_out:
            return
        for part in self._parts:
            queue = part.queue
            if queue not in self._waits_for and queue not in self._ready:
                self._waits_for.add(queue)
                queue.wait(self, again=queue is again)

    def _serve_now(self) -> None:
        """Give out what is at hand, to those who wait; a task does where that has to wait."""
        self._is_due = False
        try:
            if not self._serve_all_at_hand():
                if self._serving is None:
                    self._serving = self._loop.create_task(self._serve())
                return
        except Exception:  # noqa: BLE001 - a defect must not leave clients waiting for ever
            self._failed()
        else:
            self._ready.clear()
            self._wait()

    def _serve_all_at_hand(self) -> bool:
        """Give out what is at hand; false: a task goes on."""
        while self._serves:
            queue = next(iter(self._ready))
            part = self._part_of(queue)
            served = 0 if part is None else self._serve_at_hand(part)
            if served < 0:
                return False
            if not served:
                self._ready.pop(queue, None)
                self._wait(again=queue)
        return True

    def _serve_at_hand(self, part: Part) -> int:
        """Give jobs of a partition to those who wait first; how many; -1: a task does."""
        most = min(len(self._clients), _SERVED_AT_ONCE)
        try:
            taken = part.queue.take_now(self._offer(most))
        except (ApiError, OSError):
            taken = None
        if taken is None:
            return -1
        if taken.once:
            begin = partial(self._serve_once, part, taken)
            self._choose()
            self._serving = self._loop.create_task(self._serve(begin))
            return -1
        for one in self._jobs(part, taken):
            if not self._give_first(one, with_nodes=True):
                giving = self._loop.create_task(give_back(one))
                self._giving.add(giving)
                giving.add_done_callback(self._giving.discard)
        return len(taken.records)

    async def _serve(self, begin: Callable[[], Coroutine[Any, Any, int]] | None = None) -> None:
        """Give out what partitions have, to those who wait, for as long as there is something.

        ``begin`` comes first: it gives out what was taken already.
        """
        try:
            if begin is not None:
                await begin()
            while self._serves:
                queue = next(iter(self._ready))
                part = self._part_of(queue)
                served = 0
                if part is not None:
                    taking = self._take_of(part, self._choose())
                    served = await self._serve_when(part, taking)
                if not served:
                    self._ready.pop(queue, None)
                    self._wait(again=queue)
            self._ready.clear()
        except Exception:  # noqa: BLE001 - as above
            self._failed()
        finally:
            self._serving = None
        self._wait()

    def _failed(self) -> None:
        """Try again later, with all partitions: a defect has ended what gave out jobs."""
        _log.exception("jobs of the queue %s cannot be given out", self.topic)
        self._loop.call_later(_RETRY_S, self._begin_anew)

    def _begin_anew(self) -> None:
        if self._serving is None and not self._is_due:
            self._ready.clear()
            self._wait()

    @property
    def _serves(self) -> bool:
        """Whether there may be something for somebody."""
        return bool(self._ready and self._clients) and not self.is_paused_out

    def _part_of(self, queue: WaitedFor) -> Part | None:
        return next((part for part in self._parts if part.queue is queue), None)

    def _serve_once(self, part: Part, taken: RecordsTaken) -> Coroutine[Any, Any, int]:
        """Give out what was taken and is given out once, when it is stored that it was."""
        return self._serve_when(part, self._jobs_later(part, taken, len(taken.records)))

    async def _serve_when(self, part: Part, taking: Coroutine[Any, Any, list[TakenJob]]) -> int:
        """Give jobs of a partition to those who are chosen, once they are there; how many."""
        try:
            taken = await taking
            surplus = self._hand_out(taken)
        except (ApiError, OSError) as error:  # it is led elsewhere now, or its disk fails
            _log.debug("no jobs can be taken from %s: %s", part.partition, error)
            self._put_in_front()
            await asyncio.sleep(_RETRY_S)
            self._renew_parts()
            return 0
        except BaseException:
            self._put_in_front()
            raise
        for one in surplus:
            await give_back(one)
        return len(taken)

    def _hand_out(self, taken: list[TakenJob]) -> list[TakenJob]:
        """Give jobs to those who are chosen, or who else waits; those that nobody waits for."""
        left = iter(self._chosen)
        surplus = [one for one in taken if not _give_next(left, one)]
        self._put_in_front()
        return [one for one in surplus if not self._give_first(one, with_nodes=True)]

    def _choose(self) -> int:
        """Choose those who wait first: they stand in no line meanwhile; how many."""
        while self._clients and len(self._chosen) < _SERVED_AT_ONCE:
            client, _ = self._clients.popitem(last=False)
            self._chosen.append(client)
        return len(self._chosen)

    def _put_in_front(self) -> None:
        """Have those who were chosen wait on, unless they have a job."""
        clients, self._chosen = self._chosen, []
        for client in reversed(clients):
            if not client.is_done:
                self._clients[client] = None
                self._clients.move_to_end(client, last=False)


def _give_next(clients: Iterable[BlockedClient], taken: TakenJob) -> bool:
    return any(client.give(taken) for client in clients)


async def release(queue: ShareQueue, offset: int, nacks: int, additional_deliveries: int) -> bool:
    """Let somebody else have a job, and count nothing; whether that is stored. Raises ApiError.

    Not one that counts more by now: its lock ran out, and somebody else has it.
    """
    now = queue.state_of(offset)
    if (now.nacks, now.timeouts) != (nacks, additional_deliveries):
        return False
    await queue.acknowledge(MEMBER, [AckRange(offset, offset, AckType.RELEASE, 0)])
    return True


async def give_back(taken: TakenJob) -> None:
    """Let somebody else have a job from here whose client is gone, if it is still this client's."""
    if taken.part is None:
        return
    job = taken.job
    try:
        await release(taken.part.queue, taken.offset, job.nacks, job.additional_deliveries)
    except ApiError as error:  # at most once, or its time was up
        _log.debug("the job %s is not given back: %s", job.id, error)
