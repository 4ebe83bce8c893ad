"""GETJOB: jobs that are at hand, those that other nodes have now, or the first that comes."""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from qbus.errors import ApiError

from ..turns import Pace, in_pieces, next_turn
from . import errors, resp
from .calls import Call
from .connection import PendingReply, Reply
from .errors import CommandError
from .job_queue import BlockedClient, JobQueue, JobsReply, TakenJob
from .options import GetOptions, parse_get
from .service import DisqueService

_log = logging.getLogger(__name__)

_LEAST_S: Final = 0.05  # for other nodes to answer in, however little time the client has


class GetCommand:
    """What GETJOB does."""

    def __init__(self, service: DisqueService) -> None:
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._last_words: Sequence[bytes] = ()
        self._last_options = GetOptions(())

    def get(self, call: Call) -> Reply:
        """``GETJOB [NOHANG] [TIMEOUT ms] [COUNT n] [WITHCOUNTERS] FROM queue ...``."""
        options = self._options(call.arguments)
        queues = self._queues_of(options)
        taking: Awaitable[list[TakenJob]] | None = None
        if len(queues) == 1:
            begun = queues[0].begin_take(
                options.count, with_counters=options.with_counters, for_node=call.is_local
            )
            if not isinstance(begun, bytes):
                taking = begun
            elif begun:
                return begun
        elif any(queue.length and not queue.blocked for queue in queues):
            taking = take(queues, options.count, for_node=call.is_local)
        reply = PendingReply()
        if taking is None and not self._may_ask_others(call, queues):
            self._hang(call, options, reply, options.timeout_ms)
        else:
            self._service.run(self._get(call, options, queues, taking, reply))
        return reply

    def _options(self, words: Sequence[bytes]) -> GetOptions:
        """What the client asks for, mostly what the last one asked for."""
        if words != self._last_words:
            self._last_options = parse_get(words)
            self._last_words = words
        return self._last_options

    def _queues_of(self, options: GetOptions) -> list[JobQueue]:
        """The queues that are named and are there, each once."""
        names = options.queues if len(options.queues) == 1 else dict.fromkeys(options.queues)
        found = [self._service.find_queue(name) for name in names]
        return [queue for queue in found if queue is not None]

    async def _get(
        self,
        call: Call,
        options: GetOptions,
        queues: Sequence[JobQueue],
        taking: Awaitable[list[TakenJob]] | None,
        reply: PendingReply,
    ) -> None:
        try:
            await self._take_or_hang(call, options, queues, taking, reply)
        except CommandError as error:
            reply.answer(resp.error(str(error)))
        except Exception:  # a defect must not leave the client waiting
            reply.answer(resp.error(errors.HAS_FAILED))
            raise

    async def _take_or_hang(
        self,
        call: Call,
        options: GetOptions,
        queues: Sequence[JobQueue],
        taking: Awaitable[list[TakenJob]] | None,
        reply: PendingReply,
    ) -> None:
        timeout_s = options.timeout_ms / 1000
        end = self._loop.time() + timeout_s
        try:
            taken = [] if taking is None else await taking
            if not taken and self._may_ask_others(call, queues):
                most_s = max(timeout_s, _LEAST_S) if timeout_s else float("inf")
                taken = await self._service.take_elsewhere(queues, options.count, most_s)
        except (ApiError, OSError) as error:
            _log.debug("no jobs can be taken: %s", error)
            taken = []
        if taken:
            await self._hand_over(taken, options, reply)
        elif not reply.done():
            left_ms = max(int(1000 * (end - self._loop.time())), 1) if timeout_s else 0
            self._hang(call, options, reply, left_ms)

    def _may_ask_others(self, call: Call, queues: Sequence[JobQueue]) -> bool:
        """Whether other nodes may have jobs for a client; those of a leaving node go elsewhere."""
        if call.is_local or self._service.nodes.is_leaving:
            return False
        return any(map(self._service.others_with, queues))

    async def _hand_over(
        self, taken: Sequence[TakenJob], options: GetOptions, reply: PendingReply
    ) -> None:
        data = b"" if reply.done() else await jobs_reply(taken, options.with_counters)
        if not reply.done():
            reply.answer(data)
            return
        for one in taken:  # the client is gone
            await self._service.give_back(one)

    def _hang(self, call: Call, options: GetOptions, reply: PendingReply, timeout_ms: int) -> None:
        """Wait until there is a job, if the client wants that; for so long, 0: for ever."""
        service = self._service
        try:
            service.need_some_served(self._queues_of(options))
        except CommandError as error:
            reply.answer(resp.error(str(error)))
            return
        if options.is_nohang or service.is_draining:
            reply.answer(resp.NULL_ARRAY)
        elif service.nodes.is_leaving and not call.is_local:
            reply.answer(resp.error(errors.IS_LEAVING))
        else:
            queues = [service.need_queue(name) for name in dict.fromkeys(options.queues)]
            call.client.is_blocked = True
            on_end = partial(self._on_job, call, options, reply)
            blocked = BlockedClient(self._loop, queues, timeout_ms, on_end, is_node=call.is_local)
            reply.on_cancel(partial(_leave, blocked))

    def _on_job(
        self,
        call: Call,
        options: GetOptions,
        reply: PendingReply,
        taken: TakenJob | None,
    ) -> None:
        service, client = self._service, call.client
        client.is_blocked = False
        if reply.done() or not self._is_still_allowed(call):  # it is gone, or as good as that
            if taken is not None:
                service.run(service.give_back(taken))
            reply.answer(resp.error(errors.NOT_ANY_MORE))
        elif taken is None:
            reply.answer(resp.NULL_ARRAY)
        else:
            made = JobsReply(1, with_counters=options.with_counters)
            _add(made, taken)
            reply.answer(made.data())

    def _is_still_allowed(self, call: Call) -> bool:
        """Whether a client that has waited may still have jobs."""
        service = self._service
        return service.authentication.is_current(call.client) and (
            service.guard is None or service.guard.is_still_allowed(call)
        )


async def take(queues: Sequence[JobQueue], count: int, *, for_node: bool) -> list[TakenJob]:
    """Up to so many jobs of queues: one of each in turn, from left to right. Raises ApiError."""
    if len(queues) == 1:
        return await queues[0].take(count, for_node=for_node)
    taken: list[TakenJob] = []
    pace = Pace()
    with suppress(ApiError, OSError):  # what was taken before must not be lost
        while len(taken) < count:
            before = len(taken)
            for queue in queues:
                if pace.is_over():
                    await next_turn()
                taken += await queue.take(1, for_node=for_node)
                if len(taken) >= count:
                    break
            if len(taken) == before:
                break
    return taken


async def jobs_reply(taken: Sequence[TakenJob], with_counters: bool) -> bytes:
    """Return the reply to GETJOB with jobs of any queues."""
    reply = JobsReply(len(taken), with_counters=with_counters)
    async for piece in in_pieces(taken):
        for one in piece:
            _add(reply, one)
    return reply.data()


def _add(reply: JobsReply, taken: TakenJob) -> None:
    job = taken.job
    reply.add(job.queue, job.id.encode(), job.body, job.nacks, job.additional_deliveries)


def _leave(blocked: BlockedClient) -> None:
    """The client is gone."""
    blocked.give(None)
