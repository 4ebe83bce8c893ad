"""The asyncio client of one queue of jobs."""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, Unpack

from qbus import jobs
from qbus.clock import SystemClock
from qbus.delay import TTL
from qbus.errors import ApiError, ConfigError, ErrorCode, QbusError
from qbus.records import Buffer
from qbus.records.record import Headers

from ..admin import Admin
from ..errors import ClientClosed
from ..net.cluster import Cluster
from ..producer import Producer
from ..producer.delays import milliseconds_of
from ..producer.partitioner import partition_for_key
from ..security import SecurityOptions, security_of
from ..share import ShareConsumer, ShareRecord
from ..share.acknowledgements import NO_DELAY, AckType
from ..types import ConfigKind, Duration, TopicDescription, TopicPartition
from .history import job_id
from .watch import JobGivenUp, JobWatch

__all__ = ["Job", "JobGivenUp", "Queue"]

_log = logging.getLogger(__name__)

DEFAULT_TTL = "1d"
_LONGEST_RETRY_S = 300
_REPLICAS = 3
_DEFAULT_LOCK = 30.0
_LOOK_AROUND = 1.0
_MOST_AT_ONCE = 1000
QUEUE_CONFIG = {
    "qbus.delay.enable": "true",
    "qbus.queue.retention": "acknowledged",
    "qbus.queue.delivery.limit": "5",
    "qbus.queue.retry.backoff.ms": "200",
}
"""The settings of topics that are created as queues: jobs that always fail end within seconds."""
_EXISTS = ErrorCode.TOPIC_ALREADY_EXISTS
_FROM_THE_START = {"share.auto.offset.reset": "earliest"}


_Getter = asyncio.Future["Job"]


@dataclass(frozen=True, slots=True)
class Job:
    """A job that was taken from a queue.

    ``id`` is the same on every wire. ``added``: when, in milliseconds since the Unix epoch; of a
    delayed job, when it was due. ``deliveries``: how often it was given out, this time included.
    ``retry``: seconds until it is given out again, 0: never.
    """

    id: str
    queue: str
    body: bytes
    key: bytes | None
    headers: Headers
    added: int
    deliveries: int
    retry: int
    record: ShareRecord


class Queue:
    """Adds jobs to a queue, takes jobs from it, and waits for results.

    A queue is a topic, and its jobs are records that a share group takes, ``disque`` unless told
    otherwise: what one program adds here another may take with Disque's commands, and the other way
    round. A job is given out again until it is acknowledged: at least once. One that was added
    with ``retry=0`` is given out at most once.

    An async context manager; any number of tasks may use it. Leaving it gives back the jobs that
    it still has.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        name: str,
        *,
        group: str = jobs.GROUP,
        partitions: int | None = None,
        request_timeout_ms: int = 30_000,
        client_id: str = "qbus-queue",
        **security: Unpack[SecurityOptions],
    ) -> None:
        """Connect at the first call.

        bootstrap: ``host:port,...``, a list of addresses, or ``zk://host:port,.../chroot``.
        name: the queue; it is created when first used.
        group: the share group that takes the jobs.
        partitions: of a queue that is created; by default as many as there are brokers.
        request_timeout_ms: how long an answer may take.
        client_id: the name of this client in the brokers' logs.
        security: what protects the connections; see :class:`~qbus.clients.SecurityOptions` for it,
            and for the options that may stand in its place.

        Raises :class:`~qbus.errors.ConfigError`.
        """
        try:
            self.topic = jobs.topic_of(name.encode())
        except ValueError as error:
            raise ConfigError(str(error)) from error
        if partitions is not None and partitions < 1:
            raise ConfigError(f"a queue has a partition at least, not {partitions}")
        self.name = name
        self._group = group
        self._partitions = partitions
        protection = security_of("Queue", **security)
        self._cluster = Cluster(
            bootstrap, client_id, request_timeout_ms / 1000, security=protection
        )
        self._admin = Admin.over(self._cluster)
        self._producer = Producer(
            bootstrap,
            linger_ms=0,
            request_timeout_ms=request_timeout_ms,
            delivery_timeout_ms=request_timeout_ms,
            client_id=client_id,
            security=protection,
        )
        self._consumer = ShareConsumer(
            bootstrap,
            group,
            [self.topic],
            acknowledge="explicit",
            acquire="records",
            max_poll_records=_MOST_AT_ONCE,
            request_timeout_ms=request_timeout_ms,
            client_id=client_id,
            security=protection,
        )
        self._watch = JobWatch(self._cluster, group)
        self._clock = SystemClock()
        self._getters: deque[_Getter] = deque()
        self._taking: asyncio.Task[None] | None = None
        self._polling: asyncio.Task[list[ShareRecord]] | None = None
        self._making = asyncio.Lock()
        self._held: dict[str, tuple[Job, float]] = {}
        self._renewing: asyncio.Task[None] | None = None
        self._next_partition = 0

    def __repr__(self) -> str:
        return f"<Queue {self.name} of {self._cluster.name}: {len(self._held)} jobs held>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Adding.

    async def create(self) -> bool:
        """Create the queue; return False if it is there already.

        With a partition for each broker, on up to three brokers each. A group of one's own is
        configured to begin at the earliest job.
        """
        brokers = len((await self._admin.describe_cluster()).nodes)
        try:
            await self._admin.create_topic(
                self.topic,
                partitions=self._partitions or brokers,
                replication_factor=min(_REPLICAS, brokers),
                config=QUEUE_CONFIG,
            )
        except ApiError as error:
            if error.code is not _EXISTS:
                raise
            return False
        if self._group != jobs.GROUP:
            await self._admin.alter_config(ConfigKind.GROUP, self._group, set=_FROM_THE_START)
        return True

    async def add(
        self,
        body: Buffer,
        *,
        delay: Duration | None = None,
        ttl: Duration = DEFAULT_TTL,
        retry: Duration | None = None,
        key: Buffer | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> str:
        """Add a job, and return its id when it is stored.

        delay: do not give it out before so long.
        ttl: after so long it is not worth doing: it goes to the dead letter topic, if any.
        retry: give it out again when it was not acknowledged for so long, at most ``ttl``; 0: give
            it out at most once. By default a tenth of ``ttl``, at most 5 minutes.
        key: jobs with a key go to the same partition as all with that key.
        headers: further headers of its record.

        Raises :class:`~qbus.errors.ApiError`, and ValueError for durations that make no sense.
        """
        if isinstance(headers, Mapping):
            raise TypeError("headers are pairs of a name and a value, not a mapping")
        memoryview(body)  # a TypeError for anything but bytes
        options = _options(delay, ttl, retry)
        described = await self._topic()
        partition = self._partition_for(key, len(described.partitions))
        leader = described.partitions[partition].leader
        cluster_id = self._cluster.metadata.cluster_id
        options = options._replace(node=jobs.node_name(cluster_id, leader)[:8])
        now = self._clock.time_ms()
        due = None if delay is None else now + milliseconds_of("delay", delay)
        stored = await self._producer.send_and_wait(
            self.topic,
            body,
            key,
            (*options.headers(), *headers),
            partition,
            now,
            deliver_at=due,
        )
        seconds = (stored.timestamp if due is None else due) // 1000
        topic_id = described.topic_id.bytes
        return jobs.encode_id(topic_id, partition, stored.offset, options, seconds)

    def _partition_for(self, key: Buffer | None, count: int) -> int:
        if key is not None:
            return partition_for_key(key, count)
        self._next_partition += 1
        return self._next_partition % count

    async def create_if_missing(self) -> bool:
        """Create the queue unless it is there; return whether it was created."""
        if await self._known() is not None:
            return False
        async with self._making:
            return await self.create()

    async def _known(self) -> TopicDescription | None:
        """Return the topic; None: there is none."""
        try:
            await self._cluster.need([self.topic])
            return self._cluster.metadata.topic(self.topic)
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        return None

    async def _topic(self) -> TopicDescription:
        """Return the topic, which is created if there is none."""
        known = await self._known()
        if known is not None:
            return known
        await self.create_if_missing()
        return await self._admin.describe_topic(self.topic)

    # Taking.

    async def get(self, timeout: float = 1.0) -> Job | None:
        """Return the next job, waiting up to ``timeout`` seconds for one; None: there was none.

        A job that is given out at least once is this program's until its ``retry`` is over, or
        longer if :meth:`working` says so; what it acknowledged by then nobody gets again.
        """
        await self._topic()
        getter: _Getter = asyncio.get_running_loop().create_future()
        self._getters.append(getter)
        if self._taking is None or self._taking.done():
            self._taking = asyncio.create_task(self._take())
        try:
            await asyncio.wait([getter], timeout=timeout)
        except asyncio.CancelledError:
            if getter.done() and getter.exception() is None:
                self._give_back(getter.result())
            raise
        finally:
            getter.cancel()
            self._stop_unless_awaited()
        return None if getter.cancelled() else getter.result()

    def _stop_unless_awaited(self) -> None:
        """Take no more when nobody waits: another program is to get the next job."""
        if self._polling is not None and not any(not getter.done() for getter in self._getters):
            self._polling.cancel()

    async def _take(self) -> None:
        """Take as many jobs at once as tasks wait for one."""
        while waiting := sum(not getter.done() for getter in self._getters):
            self._polling = asyncio.create_task(
                self._consumer.poll(_LOOK_AROUND, max_records=waiting)
            )
            try:
                await asyncio.wait([self._polling])
                if not self._polling.cancelled():
                    for record in self._polling.result():
                        if (job := await self._taken(record)) is not None:
                            self._hand_over(job)
            except QbusError as error:
                for getter in self._getters:
                    if not getter.done():
                        getter.set_exception(error)
            finally:
                self._polling.cancel()
            self._getters = deque(getter for getter in self._getters if not getter.done())
        has_given_up = self._polling is not None and self._polling.cancelled()
        self._consumer._rest(keep=not has_given_up)

    def _hand_over(self, job: Job) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(job)
                return
        self._give_back(job)  # whoever waited for it has given up

    def _give_back(self, job: Job) -> None:
        if self._held.pop(job.id, None) is not None:
            self._consumer.release(job.record, delay=0)

    def __aiter__(self) -> AsyncIterator[Job]:
        """Yield jobs for ever; asking for the next acknowledges the one before."""
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Job]:
        while True:
            job = await self.get(_LOOK_AROUND)
            if job is not None:
                yield job
                await self._ack_unless_told(job)

    async def _ack_unless_told(self, job: Job) -> None:
        if job.id in self._held:
            await self.ack(job)

    async def _taken(self, record: ShareRecord) -> Job | None:
        job = self._job(record, await self._topic())
        if job.retry == 0:
            try:
                await self._consumer.settle(record)
            except ApiError as error:
                _log.warning("queue %s: job %s is not given out: %s", self.name, job.id, error)
                return None
            return job
        self._hold(job)
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew())
        return job

    def _hold(self, job: Job) -> None:
        """Have the job until its retry time is over, counted from now."""
        since = time.monotonic()
        self._held[job.id] = job, since
        asyncio.get_running_loop().call_later(job.retry, self._expire, job.id, since)

    def _expire(self, job_id: str, since: float) -> None:
        held = self._held.get(job_id)
        if held is not None and held[1] == since:
            _log.warning("queue %s: job %s was not done in time", self.name, job_id)
            with contextlib.suppress(ApiError):
                self._give_back(held[0])

    def _job(self, record: ShareRecord, described: TopicDescription) -> Job:
        lock = self._consumer.lock_timeout or _DEFAULT_LOCK
        options = jobs.read_options(record.headers, int(lock))
        own = {jobs.JOB, TTL}
        return Job(
            id=job_id(described.topic_id.bytes, record.partition, record, options),
            queue=self.name,
            body=record.value or b"",
            key=record.key,
            headers=tuple(header for header in record.headers if header[0] not in own),
            added=record.timestamp,
            deliveries=record.deliveries,
            retry=options.retry,
            record=record,
        )

    async def _renew(self) -> None:
        """Renew the locks of jobs whose retry time is longer than a lock."""
        while True:
            lock = self._consumer.lock_timeout or _DEFAULT_LOCK
            await asyncio.sleep(lock / 3)
            now = time.monotonic()
            for job, since in list(self._held.values()):
                if job.retry > lock and now + lock < since + job.retry + lock / 3:
                    try:
                        await self._consumer.renew(job.record)
                    except QbusError as error:
                        _log.warning("queue %s: job %s: %s", self.name, job.id, error)

    # Saying what came of jobs.

    async def ack(self, job: Job, result: Buffer | None = None) -> None:
        """The job is done; return when that is stored.

        result: what came of it, for those who :meth:`wait` for the job.

        Raises :class:`~qbus.errors.ApiError`: INVALID_RECORD_STATE when somebody else may have got
        the job meanwhile.
        """
        body = None if result is None else bytes(memoryview(result))
        if self._held.pop(job.id, None) is None and job.retry == 0:
            return  # it was done when it was given out
        await _said_of(job, self._consumer.settle(job.record, body))

    async def nack(self, job: Job, *, delay: Duration | None = None) -> None:
        """The job could not be done: give it out again, after ``delay``, or the group's back-off.

        Raises as :meth:`ack`, and for a job that was given out at most once.
        """
        self._held.pop(job.id, None)
        delay_ms = NO_DELAY if delay is None else milliseconds_of("delay", delay)
        saying = self._consumer._say_and_wait(
            job.record[:3], AckType.RELEASE, delay_ms=delay_ms, is_nack=True
        )
        await _said_of(job, saying)

    async def reject(self, job: Job) -> None:
        """The job can never be done: it goes to the dead letter topic, if any. Raises as
        :meth:`nack`.
        """
        self._held.pop(job.id, None)
        await _said_of(job, self._consumer._say_and_wait(job.record[:3], AckType.REJECT))

    async def working(self, job: Job) -> None:
        """The job takes longer: its time until it is given out again begins anew.

        Raises as :meth:`nack`.
        """
        await _said_of(job, self._consumer.renew(job.record))
        if job.id in self._held:
            self._hold(job)

    # Waiting.

    async def wait(self, job_id: str, timeout: float | None = None) -> bytes | None:
        """Wait until a job is done; return its result, or None if it has none.

        Raises :class:`~qbus.JobGivenUp` when it will not be done, TimeoutError after ``timeout``
        seconds, ValueError for an id that is none of this queue, and
        :class:`~qbus.errors.ApiError`: OFFSET_OUT_OF_RANGE for a job that is gone long since.
        """
        parsed = jobs.parse_id(job_id)
        described = await self._topic()
        if parsed is None or not parsed.is_in(described.topic_id.bytes):
            raise ValueError(f"{job_id!r} is the id of no job of queue {self.name}")
        place = TopicPartition(self.topic, parsed.partition)
        try:
            async with asyncio.timeout(timeout):
                return await self._watch.wait(place, parsed.offset, is_delayed=parsed.is_delayed)
        except TimeoutError:
            raise TimeoutError(
                f"job {job_id} of queue {self.name} is not done after {timeout} s"
            ) from None

    async def close(self) -> None:
        """Give back the jobs that this program still has, and close."""
        tasks = [task for task in (self._renewing, self._taking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for getter in self._getters:
            if not getter.done():
                getter.set_exception(ClientClosed())
        self._held.clear()
        closing = (
            self._consumer.close(accept=False),
            self._watch.close(),
            self._producer.close(),
        )
        try:
            errors = await asyncio.gather(*closing, return_exceptions=True)
        finally:
            await self._cluster.close()
        for error in errors:
            if isinstance(error, BaseException):
                raise error


async def _said_of(job: Job, saying: Awaitable[None]) -> None:
    """Wait until what is said of a job is stored. Raises ApiError, which names the job."""
    try:
        await saying
    except ApiError as error:
        raise ApiError(error.code, f"job {job.id}: {error}") from error


def _options(delay: Duration | None, ttl: Duration, retry: Duration | None) -> jobs.JobOptions:
    """What a job is added with, in whole seconds. Raises ValueError."""
    ttl_s = _seconds("ttl", ttl)
    delay_s = 0 if delay is None else _seconds("delay", delay)
    if ttl_s < 1:
        raise ValueError(f"a job lives for a second at least, not {ttl}")
    if delay_s >= ttl_s:
        raise ValueError(f"a job with a delay of {delay} would not live longer than {ttl}")
    if retry is None:
        retry_s = max(min(ttl_s // 10, _LONGEST_RETRY_S), 1)
    else:
        retry_s = _seconds("retry", retry)
        if retry_s > ttl_s:
            raise ValueError(
                f"a job that lives for {ttl} is never given out again after {retry}: with retry=0"
                " it is given out at most once"
            )
    return jobs.JobOptions(ttl_s, retry_s, delay_s)


def _seconds(what: str, duration: Duration) -> int:
    return -(-milliseconds_of(what, duration) // 1000)
