"""The commands about jobs and queues, but for GETJOB (:mod:`.getting`). The rest: :mod:`.admin`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from qbus.delay import CANCEL, DELIVER_AT, RESCHEDULE
from qbus.errors import ApiError, ErrorCode
from qbus.jobs import has_form
from qbus.records import build_batch

from ..delay.log_throttle import LogThrottle
from ..metadata.image import Topic
from ..partition.acknowledgement import Acknowledgement
from ..partition.partition import ACKS_ALL, Partition
from ..queues import RecordStatus
from ..turns import PIECE, in_pieces
from . import errors, resp
from .adding import NewJob
from .calls import MOST_WORDS, Call, Command
from .connection import Reply
from .errors import CommandError, syntax_error, wrong_arguments
from .finding import Found, Place, Together
from .getting import GetCommand
from .job_queue import JobQueue, Part, release
from .nodes import Node
from .options import (
    MOST_QUEUES,
    AddOptions,
    need_ids,
    need_integer,
    need_timeout,
    parse_add,
    parse_jscan,
    parse_pause,
    parse_qscan,
)
from .peers import NodeUnavailableError
from .reading import created_ms, read_one
from .scanning import Looker
from .service import PEER_TIMEOUT_S, DisqueService, unavailable
from .settling import Settling

_log = logging.getLogger(__name__)

_ATTEMPTS: Final = 5
_RETRY_S: Final = 0.2
_ADD_WITHIN_S: Final = 10.0  # where the client does not say how long
_LEAST_S: Final = 0.05  # for another node to add a job, however little time the client has
_HELD_POLL_S: Final = 0.2
_RESULT_OVERHEAD: Final = 1024  # what a result takes besides its bytes, at most
_FOREVER_S: Final = 1e9
_SAY_AGAIN_S: Final = 60.0

_CHANGED_AT_ONCE: Final = 25  # jobs, each of which may be a write
_BACKOFF: Final = -1  # as the settings of the queue say
_ANY: Final = 0  # words: the ids are counted when they are read
_IS_LOCAL: Final = b"QBUS.LOCAL"


class JobCommands:
    """The commands about jobs and queues."""

    def __init__(self, service: DisqueService) -> None:
        self._service = service
        self._looker = Looker(service)
        self._getting = GetCommand(service)
        self._loop = asyncio.get_running_loop()
        self._last_add: tuple[Sequence[bytes], int, AddOptions] = ((), 0, AddOptions())
        self._old_releases = LogThrottle(service.clock, _SAY_AGAIN_S)

    def table(self) -> list[Command]:
        """The commands, with Disque's numbers of words and flags."""
        return [
            Command("addjob", -4, "wmF", self.add, is_concurrent=True),
            Command("getjob", -2, "wF", self._getting.get, most_words=MOST_QUEUES + MOST_WORDS),
            Command("ackjob", -1, "wF", self.ack, is_concurrent=True, most_words=_ANY),
            Command("fastack", -1, "wF", self.ack, is_concurrent=True, most_words=_ANY),
            Command("deljob", -1, "wF", self.ack, is_concurrent=True, most_words=_ANY),
            Command("show", 2, "rF", self.show),
            Command("qlen", 2, "rF", self.qlen),
            Command("qpeek", 3, "r", self.qpeek),
            Command("qstat", 2, "rF", self.qstat),
            Command("qscan", -1, "r", self.qscan),
            Command("jscan", -1, "r", self.jscan),
            Command("enqueue", -1, "mwF", self.enqueue, most_words=_ANY),
            Command("nack", -1, "mwF", self.nack, most_words=_ANY),
            Command("dequeue", -1, "wF", self.dequeue, most_words=_ANY),
            Command("working", 2, "wF", self.working),
            Command("pause", -3, "rF", self.pause),
            Command("waitjob", -2, "rF", self.wait_job),
            Command("qbus.release", -2, "wF", self.release, most_words=_ANY),
        ]

    # Adding

    def add(self, call: Call) -> Reply:
        """``ADDJOB queue job ms-timeout [REPLICATE n] [DELAY s] [RETRY s] [TTL s] ...``."""
        service = self._service
        nodes = service.nodes
        options = self._add_options(call.arguments, nodes.usual_replicas)
        self._check_replicas(options)
        queue = service.need_queue(call.arguments[1])
        part = self._part(queue)
        if part is None or (nodes.is_leaving and not call.is_local):
            return self._add_slowly(call, queue, options)
        return self._add_to(call, queue, part, options)

    def _add_options(self, arguments: Sequence[bytes], usual_replicas: int) -> AddOptions:
        """What the client asks for, mostly what the last one asked for."""
        words, usual, options = self._last_add
        if usual != usual_replicas or words != arguments[3:]:
            options = parse_add(arguments, usual_replicas, self._service.nodes.name)
            self._last_add = arguments[3:], usual_replicas, options
        return options

    def _check_replicas(self, options: AddOptions) -> None:
        if options.replicate is not None and options.replicate > self._service.nodes.most_replicas:
            raise CommandError(errors.NO_REPLICAS)

    def _check_room(self, queue: JobQueue, options: AddOptions) -> None:
        me = self._service.metadata.brokers.get(self._service.config.node_id)
        if me is not None and me.is_full:
            raise CommandError(errors.NO_ROOM)
        if options.max_length:
            adder = self._service.adder
            coming = sum(adder.open(part.partition) for part in queue.parts)
            if queue.length + coming >= options.max_length:
                raise CommandError(errors.IS_LONG)
        if queue.is_paused_in:
            raise CommandError(errors.IS_PAUSED)

    def _part(self, queue: JobQueue) -> Part | None:
        """The partition that takes this node's jobs: always the same, so that they keep order."""
        for part in queue.parts:
            if not part.partition.error and not part.partition.is_paused:
                return part
        return None

    def _add_to(
        self, call: Call, queue: JobQueue, part: Part, options: AddOptions
    ) -> Awaitable[bytes]:
        self._check_room(queue, options)
        if options.replicate is not None and len(part.partition.isr) < options.replicate:
            raise CommandError(errors.NO_REPLICAS)
        service = self._service
        job = NewJob(
            call.arguments[2],
            options.job,
            is_async=options.is_async,
            timeout_ms=options.timeout_ms,
            on_late=partial(self._undo_late, part, is_delayed=options.delay > 0),
        )
        service.adder.add(part.partition, part.ids, job)
        queue.jobs_in += 1
        queue.note_use()
        return job.reply

    def _undo_late(self, part: Part, offset: int, *, is_delayed: bool) -> None:
        """Take back a job that its client was told is not safe, as well as that is possible."""
        self._service.run(self._take_back(part, offset, is_delayed=is_delayed))

    async def _take_back(self, part: Part, offset: int, *, is_delayed: bool) -> None:
        with suppress(ApiError):
            if is_delayed:
                await self._order(part.partition, [(CANCEL, str(offset).encode())])
            else:
                await part.queue.settle(offset)

    async def _add_slowly(self, call: Call, queue: JobQueue, options: AddOptions) -> bytes:
        """Add where no partition of the queue is led here, as far as is known."""
        service = self._service
        end = self._loop.time() + (options.timeout_ms / 1000 or _ADD_WITHIN_S)
        while True:
            topic = service.topic(queue)
            if topic is None:
                if service.guard is not None and not call.is_local:
                    service.guard.need_create(call, queue.topic)
                is_new = await service.create_topic(queue, options.replicate or 1)
                if is_new and service.guard is not None:
                    service.guard.note_created(call, queue.topic)
                continue
            self._check_copies(topic, options)
            nodes = [] if call.is_local else service.others_with(queue)
            staying = [node for node in nodes if not node.is_leaving]
            part = self._part(queue)
            if part is not None and not (service.nodes.is_leaving and not call.is_local):
                return await self._add_to(call, queue, part, options)
            left_s = end - self._loop.time()
            if left_s > 0 and any(part.partition.is_paused for part in queue.parts):
                await service.reclaim(queue, left_s)
                continue
            if staying:
                return await self._add_elsewhere(staying[0], call.arguments, end)
            if service.nodes.is_leaving and not call.is_local:
                reason = "I'm leaving the cluster"
                raise CommandError(errors.NO_REPLICAS_HERE.format(reason))
            service.need_some_served([queue])
            left_s = end - self._loop.time()
            if left_s <= 0:
                raise CommandError(errors.NO_REPLICAS_IN_TIME)
            await service.wait_for_change(left_s)

    def _check_copies(self, topic: Topic, options: AddOptions) -> None:
        copies = len(topic.partitions[0].target)
        if options.replicate is not None and options.replicate > copies:
            raise CommandError(errors.NO_REPLICAS)

    async def _add_elsewhere(self, node: Node, arguments: Sequence[bytes], end: float) -> bytes:
        """Have another node add a job, until ``end``; what it has added later is taken back."""
        left_s = max(end - self._loop.time(), _LEAST_S)
        adding = self._service.run(self._done_by(node, arguments, left_s + PEER_TIMEOUT_S))
        await asyncio.wait([adding], timeout=left_s)
        if not adding.done():
            adding.add_done_callback(partial(self._on_added_late, node))
            raise CommandError(errors.NO_REPLICAS_IN_TIME)
        reply = adding.result()
        if isinstance(reply, CommandError):
            raise reply
        return resp.simple(reply.decode()) if isinstance(reply, bytes) else resp.NULL

    async def _done_by(
        self, node: Node, arguments: Sequence[bytes], timeout_s: float = PEER_TIMEOUT_S
    ) -> object:
        """Another node's reply to a command, or its refusal."""
        try:
            return await self._service.ask_patiently(node, *arguments, timeout_s=timeout_s)
        except CommandError as error:
            return error

    def _on_added_late(self, node: Node, adding: asyncio.Task[object]) -> None:
        if adding.cancelled() or adding.exception() is not None:
            return
        reply = adding.result()
        if isinstance(reply, bytes):
            self._service.run(self._done_by(node, (b"DELJOB", reply)))

    # Jobs by their ids

    def ack(self, call: Call) -> Reply:
        """``ACKJOB id ... [RESULT body]``, and FASTACK and DELJOB alike: it is done."""
        ids, words = _split(call.arguments[1:], b"result")
        if not words:
            if len(ids) > PIECE:
                return self._ack_in_pieces(call, list(dict.fromkeys(need_ids(ids))))
            reply = self._ack_at_hand(call, ids)
            if reply is not None:
                return reply
        result = words[1] if words else None
        return self._count(call, ids, partial(self._ack, result), words)

    def _ack_at_hand(self, call: Call, ids: Sequence[bytes]) -> Reply | None:
        """Finish jobs that are all here, and known; None: something has to be waited for first."""
        found = self._gathered(call, need_ids(ids))
        if found is None:
            return None
        settling = self._settling(call)
        for jobs in found:
            settling.begin(jobs)
        return settling.reply()

    async def _ack_in_pieces(self, call: Call, ids: Sequence[bytes]) -> bytes:
        """Finish many jobs; other clients are served meanwhile."""
        settling = self._settling(call)
        async for some in in_pieces(ids):
            found = self._gathered(call, some)
            if found is None:
                settling.defer(some)
            for jobs in found or ():
                settling.begin(jobs)
        reply = settling.reply()
        return reply if isinstance(reply, bytes) else await reply

    def _settling(self, call: Call) -> Settling:
        again = partial(self._ack_again, call)
        return Settling(self._loop, self._service.delivered, again)

    def _gathered(self, call: Call, ids: Sequence[bytes]) -> list[Together] | None:
        """Jobs that are all here, and known, by partition; None: not all of them are."""
        guard = self._service.guard
        may_find = None if guard is None or call.is_local else partial(guard.may_find, call)
        try:
            return self._service.finder.gather(ids, may_find, is_local=call.is_local)
        except ApiError:
            return None

    async def _ack_again(self, call: Call, ids: Sequence[bytes]) -> int:
        """Finish jobs whose partitions have just moved; how many."""
        return await self._count_of(call, ids, partial(self._ack, None), ())

    async def _ack(self, result: bytes | None, found: Found) -> bool:
        if found.offset is None:
            target = str(found.place.job.offset).encode()
            return await self._order(found.partition, [(CANCEL, target)])
        most = found.partition.log.config.max_message_bytes
        if result is not None and len(result) > most - _RESULT_OVERHEAD:
            raise CommandError(f"ERR the result is too large: a record has at most {most} bytes")
        done = await found.queue.settle(found.offset, result)
        if found.place.job.is_delayed:
            self._service.delivered.forget(found.place.job, found.place.topic.id)
        return done

    def enqueue(self, call: Call) -> Reply:
        """``ENQUEUE id ...``: it is to be given out now."""
        return self._count(call, call.arguments[1:], partial(self._put_back, 0, nack=False))

    def nack(self, call: Call) -> Reply:
        """``NACK id ... [DELAY s]``: whoever had it failed, and it is to be given out again."""
        ids, words = _split(call.arguments[1:], b"delay")
        delay_ms = _BACKOFF
        if words:
            delay_ms = 1000 * need_integer(words[1])
            if delay_ms < 0:
                raise CommandError("ERR DELAY time must be a non negative number")
        return self._count(call, ids, partial(self._put_back, delay_ms, nack=True), words)

    async def _put_back(self, delay_ms: int, found: Found, *, nack: bool) -> bool:
        if found.offset is None:
            now = str(self._service.clock.time_ms()).encode()
            target = str(found.place.job.offset).encode()
            order = [(RESCHEDULE, target), (DELIVER_AT, now)]
            return await self._order(found.partition, order)
        return await found.queue.put_back(found.offset, nack=nack, delay_ms=delay_ms)

    def dequeue(self, call: Call) -> Reply:
        """``DEQUEUE id ...``: it is not to be given out until its retry time has passed."""
        return self._count(call, call.arguments[1:], _hold)

    def release(self, call: Call) -> Reply:
        """``QBUS.RELEASE id nacks additional-deliveries ...``: a client of another node is gone.

        That node took the jobs for it, which counted so much. What counts otherwise by now is
        somebody else's.
        """
        words = call.arguments[1:]
        if all(map(has_form, words)):
            return self._release_uncounted(call, words)
        if len(words) % 3:
            raise wrong_arguments("qbus.release")
        counted = {
            words[at]: (need_integer(words[at + 1]), need_integer(words[at + 2]))
            for at in range(0, len(words), 3)
        }
        return self._count(call, list(counted), partial(_release, counted))

    def _release_uncounted(self, call: Call, ids: Sequence[bytes]) -> Reply:
        """``QBUS.RELEASE id ...``, as nodes of before sent it: somebody else may have the jobs."""
        if self._old_releases.allows():
            _log.warning(
                "the node at %s gives back jobs without what they count, as nodes of an earlier"
                " version do; they come again only when their retry time has passed: upgrade that"
                " node (%d jobs, the first is %r; this is said once a minute at most)",
                call.client.address,
                len(ids),
                ids[0],
            )
        return resp.integer(0)

    async def _order(self, partition: Partition, headers: list[tuple[str, bytes]]) -> bool:
        """Have a job cancelled or rescheduled that is not delivered yet; whether it was."""
        batch = build_batch([(None, b"", headers, self._service.clock.time_ms())])
        intake = self._service.delays.intake(partition, memoryview(batch), ACKS_ALL)
        if intake is None:
            raise ApiError(partition.error or ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if intake.needs_thread:
            await asyncio.to_thread(intake.read)
        info, orders = intake.append()
        if partition.high_watermark <= info.last_offset:
            waiter = Acknowledgement()
            partition.when_acknowledged(info.last_offset + 1, waiter, None)
            code = await waiter.wait()
            if code:
                raise ApiError(code)
        return orders is not None and orders.done > 0

    def _count(
        self,
        call: Call,
        ids: Sequence[bytes],
        change: Callable[[Found], Awaitable[bool]],
        words: Sequence[bytes] = (),
    ) -> Reply:
        """Do something to each job, wherever it is; the number of those that it was done to.

        ``words`` follow the ids in the command.
        """
        need_ids(ids)
        unique = list(dict.fromkeys(ids))
        return self._count_all(call, unique, change, words) if unique else resp.integer(0)

    async def _count_all(
        self,
        call: Call,
        ids: Sequence[bytes],
        change: Callable[[Found], Awaitable[bool]],
        words: Sequence[bytes],
    ) -> bytes:
        return resp.integer(await self._count_of(call, ids, change, words))

    async def _count_of(
        self,
        call: Call,
        ids: Sequence[bytes],
        change: Callable[[Found], Awaitable[bool]],
        words: Sequence[bytes],
    ) -> int:
        me, here, elsewhere = self._service.config.node_id, list[Place](), dict[int, list[bytes]]()
        async for some in in_pieces(ids):
            for text in some:
                place = self._place(call, text)
                if place is None:
                    continue
                if place.leader == me or call.is_local:
                    here.append(place)
                else:
                    elsewhere.setdefault(place.leader, []).append(text)
        if len(here) == 1 and not elsewhere:
            return await self._change(here[0], change)
        counts: list[int | BaseException] = await asyncio.gather(
            self._change_all(here, change),
            *(
                self._count_elsewhere(call.arguments[0], leader, texts, words)
                for leader, texts in elsewhere.items()
            ),
            return_exceptions=True,
        )
        return _sum(counts)

    async def _change_all(
        self, places: Sequence[Place], change: Callable[[Found], Awaitable[bool]]
    ) -> int:
        """Change each job that is here, some at a time; all are tried before an error is raised."""
        counts: list[int | BaseException] = []
        async for some in in_pieces(places, _CHANGED_AT_ONCE):
            changes = (self._change(place, change) for place in some)
            counts += await asyncio.gather(*changes, return_exceptions=True)
        return _sum(counts)

    async def _change(self, place: Place, change: Callable[[Found], Awaitable[bool]]) -> int:
        for attempt in range(_ATTEMPTS):
            try:
                found = await self._service.finder.find(place)
                return int(found is not None and await change(found))
            except ApiError as error:
                if error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER or attempt + 1 == _ATTEMPTS:
                    raise
            await asyncio.sleep(_RETRY_S)
            moved = self._service.place(place.job.text.encode())
            if moved is None:
                return 0
            if moved.leader != self._service.config.node_id:
                raise CommandError("ERR the job's queue has just moved to another node, try again")
        return 0

    async def _count_elsewhere(
        self, command: bytes, leader: int, ids: Sequence[bytes], words: Sequence[bytes]
    ) -> int:
        reply = await self._service.ask_patiently(self._leader(leader), command, *ids, *words)
        return reply if isinstance(reply, int) else 0

    def _place(self, call: Call, text: bytes) -> Place | None:
        """Where a job is, if the client may know of it.

        Raises CommandError: it may, but not do that to it.
        """
        place, guard = self._service.place(text), self._service.guard
        if place is None or guard is None or call.is_local:
            return place
        return place if guard.may_find(call, place.topic.name) else None

    def _leader(self, broker: int) -> Node:
        node = self._service.nodes.find(broker)
        if node is None:
            raise CommandError("ERR the node that leads the job's queue is not there, try again")
        return node

    def show(self, call: Call) -> Reply:
        """``SHOW id``."""
        return self._of_one(call, call.arguments[1], self._show, resp.NULL)

    async def _show(self, found: Found) -> bytes:
        return resp.encode(await self._looker.show(found))

    def working(self, call: Call) -> Reply:
        """``WORKING id``: whoever has it needs longer; for how many seconds he has it now."""
        missing = resp.error(errors.NO_JOB)
        return self._of_one(call, call.arguments[1], self._working, missing)

    async def _working(self, found: Found) -> bytes:
        now_ms = self._service.clock.time_ms()
        if found.offset is None:
            headers, timestamp = (
                (found.held.headers, found.held.due) if found.held else ((), now_ms)
            )
        else:
            partition = found.partition
            record = await asyncio.to_thread(
                read_one,
                *(partition.log, partition.topic, partition.index),
                *(found.offset, partition.high_watermark),
            )
            if record is None:
                return resp.error(errors.NO_JOB)
            headers, timestamp = record.headers, record.timestamp
        options = self._service.settings.options_of(headers)
        elapsed_ms = now_ms - created_ms(timestamp, headers, options)
        if options.ttl is not None and elapsed_ms > 500 * options.ttl:
            return resp.error(errors.TOO_LATE)
        if found.offset is not None:
            state = found.queue.state_of(found.offset)
            if state.status is RecordStatus.QUEUED:
                await found.queue.hold(found.offset)
            elif state.status is not RecordStatus.ACTIVE and options.retry:
                return resp.error(errors.NO_JOB)
            found.queue.extend(found.offset, 1000 * options.retry)
        return resp.integer(options.retry)

    def wait_job(self, call: Call) -> Reply:
        """``WAITJOB id [ms-timeout]``: the result that the job was done with, once it is."""
        if len(call.arguments) > 3:
            raise wrong_arguments("waitjob")
        timeout_ms = need_timeout(call.arguments[2]) if len(call.arguments) == 3 else 0
        missing = resp.error(errors.NO_JOB)
        patience_ms = timeout_ms + 10_000 if timeout_ms else 0
        waiting = self._of_one(call, call.arguments[1], self._wait_done, missing, patience_ms)
        if isinstance(waiting, bytes):
            return waiting
        return self._if_still_allowed(call, _within(waiting, timeout_ms))

    async def _if_still_allowed(self, call: Call, waiting: Awaitable[bytes]) -> bytes:
        """The answer of a command that took its time. Raises CommandError: it is denied by now."""
        reply = await waiting
        may_know = self._service.guard is None or self._place(call, call.arguments[1]) is not None
        return reply if may_know else resp.error(errors.NO_JOB)

    async def _wait_done(self, found: Found) -> bytes:
        now: Found | None = found
        while now is not None and now.offset is None:
            await asyncio.sleep(_HELD_POLL_S)
            now = await self._service.finder.find(found.place)
        if now is None or now.offset is None:
            return resp.NULL
        if not await self._settled(now, now.offset):
            raise CommandError("ERR the job's queue has just moved to another node, try again")
        try:
            return resp.encode(await now.queue.result(now.offset))
        except OSError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    async def _settled(self, found: Found, offset: int) -> bool:
        """Wait until a job is done; false: that is not known here any more."""
        future: asyncio.Future[bool] = self._loop.create_future()

        def on_settled(is_done: bool) -> None:
            if not future.done():
                future.set_result(is_done)

        found.queue.when_settled(offset, on_settled)
        try:
            return await future
        finally:
            found.queue.forget_settled(offset, on_settled)

    def _of_one(
        self,
        call: Call,
        text: bytes,
        answer: Callable[[Found], Awaitable[bytes]],
        missing: bytes,
        wait_ms: int | None = None,
    ) -> Reply:
        """Answer from a job, wherever it is; ``wait_ms``: the answer may take so long."""
        need_ids([text])
        place = self._place(call, text)
        if place is None:
            return missing
        return self._answer(call, place, answer, missing, wait_ms)

    async def _answer(
        self,
        call: Call,
        place: Place,
        answer: Callable[[Found], Awaitable[bytes]],
        missing: bytes,
        wait_ms: int | None,
    ) -> bytes:
        service = self._service
        if place.leader == service.config.node_id or call.is_local:
            found = await service.finder.find(place)
            return missing if found is None else await answer(found)
        node = self._leader(place.leader)
        if wait_ms is None:
            return resp.encode(_value(await service.ask(node, *call.arguments)))
        connection = service.peers.connect(node.for_nodes)
        try:
            reply = await connection.call(
                [_IS_LOCAL, *call.arguments], wait_ms / 1000 or _FOREVER_S
            )
            return resp.encode(_value(reply))
        except NodeUnavailableError as error:
            raise unavailable(node, error) from error
        finally:
            connection.close()

    # Queues

    def qlen(self, call: Call) -> Reply:
        """``QLEN queue``: how many jobs wait to be given out by this node."""
        queue = self._service.find_queue(call.arguments[1])
        if queue is None:
            return resp.integer(0)
        self._service.need_served(queue)
        return resp.integer(queue.length)

    def qpeek(self, call: Call) -> Reply:
        """``QPEEK queue count``: the oldest jobs, or with a negative count the newest."""
        count = need_integer(call.arguments[2])
        queue = self._service.find_queue(call.arguments[1])
        if queue is None or not count:
            return resp.EMPTY_ARRAY
        self._service.need_served(queue)
        return self._looker.peek(queue, count)

    def qstat(self, call: Call) -> Reply:
        """``QSTAT queue``."""
        queue = self._service.find_queue(call.arguments[1])
        if queue is None:
            return resp.NULL_ARRAY
        self._service.need_served(queue)
        now = self._loop.time()
        sources = [node.name for node in self._service.others_with(queue)] if queue.blocked else []
        return resp.encode(
            [
                *("name", queue.name, "len", queue.length),
                *("age", int(now - queue.created_at), "idle", int(now - queue.used_at)),
                *("blocked", queue.blocked, "import-from", sources, "import-rate", 0),
                *("jobs-in", queue.jobs_in, "jobs-out", queue.jobs_out, "pause", queue.pause),
            ]
        )

    def qscan(self, call: Call) -> Reply:
        """``QSCAN [cursor] [COUNT n] [BUSYLOOP] [MINLEN n] [MAXLEN n] [IMPORTRATE n]``."""
        return resp.encode(self._looker.scan_queues(parse_qscan(call.arguments), self._seen(call)))

    def jscan(self, call: Call) -> Reply:
        """``JSCAN [cursor] [COUNT n] [BUSYLOOP] [QUEUE queue] [STATE state] [REPLY all|id]``."""
        return self._looker.scan_jobs(parse_jscan(call.arguments), self._seen(call))

    def _seen(self, call: Call) -> Callable[[str], bool] | None:
        """What tells which topics the client may see in a list; None: all of them."""
        guard = self._service.guard
        return None if guard is None or call.is_local else guard.seen_by(call)

    def pause(self, call: Call) -> Reply:
        """``PAUSE queue in|out|all|none|state|bcast ...``: the state after that."""
        options = parse_pause(call.arguments)
        name = call.arguments[1]
        queue = self._service.find_queue(name)
        if options.pause is not None and (queue is not None or options.pause != "none"):
            queue = self._service.need_queue(name)
            queue.set_pause(options.pause)
        state = "none" if queue is None else queue.pause
        if options.is_for_all_nodes and queue is not None and not call.is_local:
            return self._pause_everywhere(queue, state)
        return resp.simple(state)

    async def _pause_everywhere(self, queue: JobQueue, state: str) -> bytes:
        await self._service.set_pause(queue, state)
        await self._service.tell_others("PAUSE", queue.name, state)
        return resp.simple(state)


def _sum(counts: Iterable[int | BaseException]) -> int:
    total = 0
    for count in counts:
        if isinstance(count, BaseException):
            raise count
        total += count
    return total


def _split(words: Sequence[bytes], option: bytes) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """The ids, and the option behind them with its value, if it is there. Raises CommandError."""
    if words and words[-1].lower() == option and (len(words) < 3 or words[-2].lower() != option):
        raise syntax_error()
    if len(words) > 2 and words[-2].lower() == option:
        return words[:-2], words[-2:]
    return words, ()


async def _hold(found: Found) -> bool:
    return found.offset is not None and await found.queue.hold(found.offset)


async def _release(counted: dict[bytes, tuple[int, int]], found: Found) -> bool:
    known = counted.get(found.place.job.text.encode())
    if found.offset is None or known is None:
        return False
    nacks, additional_deliveries = known
    return await release(found.queue, found.offset, nacks, additional_deliveries)


async def _within(waiting: Awaitable[bytes], timeout_ms: int) -> bytes:
    if not timeout_ms:
        return await waiting
    try:
        return await asyncio.wait_for(waiting, timeout_ms / 1000)
    except TimeoutError:
        return resp.NULL_ARRAY


def _value(reply: Any) -> resp.Value:
    value: resp.Value = reply
    return value
