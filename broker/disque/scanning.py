"""Looking at jobs and queues without taking any: SHOW, QPEEK, QSCAN, JSCAN.

A cursor of JSCAN has a partition in its upper 20 bits, and an offset below; or, with the highest of
those bits set, the due time of delayed jobs, which come behind the others. A partition's number is
made of its topic's id and its index, so that it stays while others come and go.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final
from zlib import crc32

from qbus.jobs import GROUP, JobOptions, encode_id, queue_of
from qbus.records import ConsumerRecord

from ..delay.held import HeldRecord
from ..queues import RecordState, RecordStatus
from ..turns import in_pieces
from . import resp
from .errors import CommandError
from .finding import Found
from .job_queue import JobQueue, Part, id_of
from .options import MOST_JOBS, ScanOptions
from .reading import created_ms, due_ms, read_one, read_some
from .resp import Encoded, Value
from .service import DisqueService

_OFFSET_BITS: Final = 44
_OFFSETS: Final = (1 << _OFFSET_BITS) - 1
_DELAYED: Final = 1 << (_OFFSET_BITS - 1)
_DELAYED_AT_ONCE: Final = 500
_NUMBERS: Final = 1 << 20
_PEEK_BYTES: Final = 256 * 1024
_MOST_PEEKED_BYTES: Final = 64 << 20
_LOOKED_AT_AT_ONCE: Final = 200
_DESCRIBED_AT_ONCE: Final = 50
_WIDEST: Final = 1000  # offsets that are looked at without a thought of the limit
_ACTIVE: Final = RecordStatus.ACTIVE.value
_BUSY_JOBS: Final = 1_000_000
_NANOSECONDS: Final = 1_000_000  # in a millisecond


class _Listed:
    """A list of a reply, written as it grows."""

    __slots__ = ("_parts", "count")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.count = 0

    def add(self, value: Value) -> None:
        """Add an element."""
        self._parts.append(resp.encode(value))
        self.count += 1

    def data(self) -> bytes:
        """The bytes of the list."""
        return b"*%d\r\n%b" % (self.count, b"".join(self._parts))


class Looker:
    """Looks at jobs of the partitions that are led here."""

    def __init__(self, service: DisqueService) -> None:
        self._service = service

    # One job

    async def show(self, found: Found) -> Value:
        """What SHOW says of a job; None: it is not there any more. Raises ApiError."""
        place, partition = found.place, found.partition
        if found.offset is None:
            return self._show_held(found)
        record = await asyncio.to_thread(
            read_one,
            partition.log,
            place.topic.name,
            partition.index,
            found.offset,
            partition.high_watermark,
        )
        state = found.queue.state_of(found.offset)
        if record is None or state.status in {RecordStatus.UNKNOWN, RecordStatus.ACKED}:
            return None
        name = queue_of(place.topic.name)
        return self._described(name, place.job.text, record, state)

    def _show_held(self, found: Found) -> Value:
        if found.held is None:
            return None
        place = found.place
        return self._fields_of_held(queue_of(place.topic.name), place.job.text, found.held)

    def _fields_of_held(self, queue: bytes, text: str, held: HeldRecord) -> Value:
        options = self._service.settings.options_of(held.headers)
        left = max(held.due - self._service.clock.time_ms(), 0)
        created = created_ms(held.due, held.headers, options)
        return self._fields(
            queue,
            text,
            _ACTIVE,
            options,
            created,
            RecordState(RecordStatus.ACTIVE, left_ms=left),
            held.value,
        )

    def _described(
        self, queue: bytes, text: str, record: ConsumerRecord, state: RecordState
    ) -> Value:
        options = self._service.settings.options_of(record.headers)
        created = created_ms(record.timestamp, record.headers, options)
        if options.ttl is not None and self._left_s(created, options) <= 0:
            return None
        return self._fields(queue, text, state.status.value, options, created, state, record.value)

    def _fields(
        self,
        queue: bytes,
        text: str,
        state: str,
        options: JobOptions,
        created_ms: int,
        known: RecordState,
        body: bytes | None,
    ) -> Value:
        left = None if known.left_ms < 0 else known.left_ms
        nodes: list[Value] = [self._service.nodes.name]
        return [
            *("id", text, "queue", queue, "state", state, "repl", options.replicate),
            *("ttl", self._left_s(created_ms, options), "ctime", created_ms * _NANOSECONDS),
            *("delay", options.delay, "retry", options.retry),
            *("nacks", known.nacks, "additional-deliveries", known.timeouts),
            *("nodes-delivered", nodes, "nodes-confirmed", []),
            *("next-requeue-within", left, "next-awake-within", left),
            *("body", body or b""),
        ]

    def _left_s(self, created_ms: int, options: JobOptions) -> int:
        if options.ttl is None:
            return (1 << 31) - 1
        now_ms = self._service.clock.time_ms()
        return max((created_ms + 1000 * options.ttl - now_ms) // 1000, 0)

    # Queues

    async def peek(self, queue: JobQueue, count: int) -> bytes:
        """The oldest jobs that wait to be given out, or with a negative count the newest ones."""
        most = min(abs(count), MOST_JOBS)
        jobs = _Listed()
        for part in queue.parts:
            if jobs.count >= most:
                break
            find = self._newest if count < 0 else self._oldest
            records = await find(part, most - jobs.count)
            async for some in in_pieces(records, _DESCRIBED_AT_ONCE):
                for one in some:
                    jobs.add([queue.name, self._id(part, one), one.value or b""])
        return jobs.data()

    async def _oldest(self, part: Part, most: int) -> list[ConsumerRecord]:
        offset, end, size = self._start(part), part.partition.high_watermark, 0
        found: list[ConsumerRecord] = []
        while offset < end and len(found) < most and size < _MOST_PEEKED_BYTES:
            records, offset = await _read(part, offset, end)
            size += _PEEK_BYTES
            async for some in in_pieces(records, _LOOKED_AT_AT_ONCE):
                found += [record for record in some if _is_queued(part, record)]
        return found[:most]

    async def _newest(self, part: Part, most: int) -> list[ConsumerRecord]:
        start, high_watermark = self._start(part), part.partition.high_watermark
        end, width, size = high_watermark, 2 * most, 0
        found: list[ConsumerRecord] = []
        while end > start and len(found) < most and size < _MOST_PEEKED_BYTES:
            begin = offset = max(end - width, start)
            newest: deque[ConsumerRecord] = deque(maxlen=most - len(found))
            while offset < end:
                records, offset = await _read(part, offset, high_watermark)
                size += _PEEK_BYTES
                async for some in in_pieces(records, _LOOKED_AT_AT_ONCE):
                    newest.extend(
                        record
                        for record in some
                        if begin <= record.offset < end and _is_queued(part, record)
                    )
            found += reversed(newest)
            end, width = begin, max(most, _WIDEST)
        return found

    def _start(self, part: Part) -> int:
        """The offset before which all is done."""
        known = self._service.share_queues.describe(part.partition, GROUP)
        return 0 if known is None else known.start_offset

    def _id(self, part: Part, record: ConsumerRecord) -> str:
        options = self._service.settings.options_of(record.headers)
        return id_of(part.ids, record.offset, record.timestamp, record.headers, options).decode()

    def scan_queues(
        self, options: ScanOptions, may_see: Callable[[str], bool] | None = None
    ) -> Value:
        """The names of queues, and the cursor to go on with.

        ``may_see`` tells by a topic's name whether the client may know of it; None: of all.
        """
        queues = sorted(
            (
                (crc32(one.name), one)
                for one in self._service.local_queues()
                if not one.is_flushed and (may_see is None or may_see(one.topic))
            ),
            key=lambda pair: (pair[0], pair[1].name),
        )
        most = len(queues) if options.is_busy else max(options.count, 1)
        found: list[Value] = []
        looked_at, before = 0, -1
        for number, queue in queues:
            if number < options.cursor:
                continue
            # Those with the same number come together, for it is all that a cursor has.
            is_enough = len(found) >= most or looked_at >= 10 * most
            if is_enough and number != before:
                return [str(number), found]
            looked_at, before = looked_at + 1, number
            if _matches(queue, options):
                found.append(queue.name)
        return ["0", found]

    async def scan_jobs(
        self, options: ScanOptions, may_see: Callable[[str], bool] | None = None
    ) -> bytes:
        """The reply of JSCAN: jobs that are not done, and the cursor to go on with.

        ``may_see`` as of queues. Raises CommandError, ApiError.
        """
        most = _BUSY_JOBS if options.is_busy else min(max(options.count, 1), MOST_JOBS)
        number, offset = options.cursor >> _OFFSET_BITS, options.cursor & _OFFSETS
        found = _Listed()
        for at, queue, part in self._numbered(options.queue):
            if at < number or (may_see is not None and not may_see(queue.topic)):
                continue
            begin = offset if at == number else 0
            next_offset = await self._scan(queue, part, begin, options, most, found)
            if next_offset is not None:
                if options.is_busy:
                    raise CommandError("ERR there are too many jobs for BUSYLOOP")
                return _scan_reply(at << _OFFSET_BITS | next_offset, found)
        return _scan_reply(0, found)

    def _numbered(self, name: bytes | None) -> list[tuple[int, JobQueue, Part]]:
        """The partitions that are led here in the order of their numbers, from 1 on."""
        if name is None:
            queues: Iterable[JobQueue] = self._service.local_queues()
        else:
            known = self._service.find_queue(name)
            queues = [] if known is None else [known]
        taken: dict[int, tuple[JobQueue, Part]] = {}
        for queue in sorted(queues, key=lambda one: one.topic):
            for part in queue.parts:
                index = part.partition.index
                number = crc32(part.topic_id + index.to_bytes(4, "big")) % _NUMBERS or 1
                while number in taken:
                    number += 1
                taken[number] = (queue, part)
        return [(number, *taken[number]) for number in sorted(taken)]

    async def _scan(
        self,
        queue: JobQueue,
        part: Part,
        begin: int,
        options: ScanOptions,
        most: int,
        found: _Listed,
    ) -> int | None:
        """Add jobs of a partition from ``begin`` on; where to go on, if there may be more."""
        if begin & _DELAYED:
            return await self._scan_delayed(queue, part, begin ^ _DELAYED, options, most, found)
        partition, offset = part.partition, max(begin, self._start(part))
        while offset < partition.high_watermark:
            if found.count >= most:
                return offset
            records, offset = await _read(part, offset, partition.high_watermark)
            async for some in in_pieces(records, _DESCRIBED_AT_ONCE):
                for record in some:
                    if found.count >= most:
                        return record.offset
                    job = self._scanned(queue, part, record, options)
                    if job is not None:
                        found.add(job)
        if found.count >= most:
            return _DELAYED
        return await self._scan_delayed(queue, part, 0, options, most, found)

    async def _scan_delayed(
        self,
        queue: JobQueue,
        part: Part,
        due: int,
        options: ScanOptions,
        most: int,
        found: _Listed,
    ) -> int | None:
        """The same of delayed jobs that are due at ``due`` or later.

        Those that are due in the same millisecond come together, for that is all a cursor has.
        """
        if options.states and _ACTIVE not in options.states:
            return None
        after = (due - 1, _OFFSETS)
        while True:
            *_, held = await self._service.delays.describe(part.partition, after, _DELAYED_AT_ONCE)
            if not held:
                return None
            async for some in in_pieces(held, _DESCRIBED_AT_ONCE):
                for record in some:
                    if found.count >= most and record.due > after[0]:
                        return _DELAYED | record.due
                    after = (record.due, record.offset)
                    job = self._scanned_delayed(queue, part, record, options)
                    if job is not None:
                        found.add(job)

    def _scanned_delayed(
        self, queue: JobQueue, part: Part, held: HeldRecord, options: ScanOptions
    ) -> Value:
        known = self._service.settings.options_of(held.headers)
        if not known.delay:  # no job has an id before it is delivered that was added as no job
            return None
        seconds = due_ms(held.due, held.headers) // 1000
        index = part.partition.index
        text = encode_id(part.topic_id, index, held.original_offset, known, seconds)
        if options.is_whole:
            return self._fields_of_held(queue.name, text, held)
        return Encoded(resp.simple(text))

    def _scanned(
        self, queue: JobQueue, part: Part, record: ConsumerRecord, options: ScanOptions
    ) -> Value:
        state = part.queue.state_of(record.offset)
        name = state.status.value
        wanted = name in options.states if options.states else name != "acked"
        if not wanted or state.status is RecordStatus.UNKNOWN:
            return None
        text = self._id(part, record)
        described = self._described(queue.name, text, record, state)
        if described is None:
            return None
        return described if options.is_whole else Encoded(resp.simple(text))


def _scan_reply(cursor: int, found: _Listed) -> bytes:
    return resp.array([resp.bulk(str(cursor)), found.data()])


def _matches(queue: JobQueue, options: ScanOptions) -> bool:
    if options.import_rate > 0:
        return False
    if options.least < 0 and options.most < 0:
        return True
    length = queue.length
    return (options.least < 0 or length >= options.least) and (
        options.most < 0 or length <= options.most
    )


def _is_queued(part: Part, record: ConsumerRecord) -> bool:
    return part.queue.state_of(record.offset).status is RecordStatus.QUEUED


async def _read(part: Part, offset: int, end: int) -> tuple[list[ConsumerRecord], int]:
    partition = part.partition
    return await asyncio.to_thread(
        read_some, partition.log, partition.topic, partition.index, offset, end, _PEEK_BYTES
    )
