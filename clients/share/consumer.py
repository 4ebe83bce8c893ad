"""The asyncio consumer of a share group."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Self, TypeVar, Unpack
from uuid import uuid4

from qbus.errors import ApiError, ConfigError, ErrorCode, QbusError
from qbus.records import RecordColumns
from qbus.records.arrow_buffers import import_pyarrow

from ..net.cluster import Cluster
from ..producer.delays import milliseconds_of
from ..security import SecurityOptions, security_of
from ..types import Duration, TopicPartition
from .acknowledgements import NO_DELAY, Ack, AckType
from .membership import ShareMembership
from .options import Acknowledge, Acquire, OnLost, ShareOptions, check_options
from .session import Lease, Loss
from .sessions import ShareSessions
from .types import AcknowledgementLost, RecordPlace, ShareRecord

T = TypeVar("T")

_log = logging.getLogger(__name__)

LOOK_AROUND = 1.0
"""Seconds after which a waiting poll checks for work that no event announces."""
ARROW_RECORDS = 100_000
"""The default limit of a poll for Arrow batches, in records."""
_RUN = 100
"""Records that a loop takes at once."""
_LONGEST_GOODBYE = 5.0
"""Seconds that brokers have to learn that a member goes; they find out without it, later."""
_QUICK = 0.2
"""Seconds in which a loop is done with what it took, if it is to take twice as much."""
_MOST_LOSSES = 10_000
"""Losses that are remembered until :meth:`ShareConsumer.flush` raises them."""

ShareRecords = ShareRecord | Iterable[ShareRecord] | Any
"""A record, several, or a ``pyarrow.RecordBatch`` of :meth:`ShareConsumer.poll_arrow`."""
_Place = tuple[str, int, int]


class ShareConsumer:
    """Takes records as a member of a share group: a queue over topics (KIP-932).

    Any number of members share a partition. A member has a record under a lock until it says what
    came of it; when the lock runs out (after 30 s, unless the group is configured otherwise) the
    record goes to another member.

    An async context manager, for one task at a time, except that other tasks may say what came of
    records while one polls. Leaving it gives back what it still has. If an exception leaves it,
    that includes all of the last poll, or the record that the loop was at.
    """

    def __init__(  # noqa: PLR0913 - options are keywords
        self,
        bootstrap: str | Sequence[str],
        group: str,
        topics: Iterable[str],
        *,
        acknowledge: Acknowledge = "implicit",
        acquire: Acquire = "records",
        on_lost: OnLost | None = None,
        rack: str | None = None,
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 50 * 1024 * 1024,
        fetch_max_wait_ms: int = 500,
        max_poll_records: int = 500,
        max_poll_interval_ms: int = 300_000,
        check_crcs: bool = True,
        consumer_timeout_ms: int | None = None,
        metadata_max_age_ms: int = 300_000,
        request_timeout_ms: int = 30_000,
        client_id: str = "qbus-share-consumer",
        **security: Unpack[SecurityOptions],
    ) -> None:
        """Join the group at the first poll.

        bootstrap: ``host:port,...``, a list of addresses, or ``zk://host:port,.../chroot``.
        group: the share group.
        topics: the names of the topics to take records of.
        acknowledge: "implicit": each poll, and each step of a loop, accepts what the one before
            returned and nothing else was said of. "explicit": nothing is accepted but what
            :meth:`accept` is called for.
        acquire: "records" takes no more than is asked for: a poll as many as it may return, a loop
            one at first, and more the quicker it is done with them (Kafka 4.2 and later; KIP-1206).
            "batches" takes whole batches as producers made them, about ``max_poll_records`` at
            once, whose locks all run from then on: for work that takes no time.
        on_lost: a function (with asyncio also a coroutine function) that takes an
            :class:`~qbus.AcknowledgementLost`. Polls, :meth:`flush` and :meth:`close` call it when
            the broker did not take what was said of some records. Without it, polls log a warning
            and :meth:`flush` and :meth:`close` raise it.
        rack: where this consumer runs.
        fetch_min_bytes, fetch_max_wait_ms: how much a broker gathers for an answer, and for how
            long at most.
        fetch_max_bytes: about how much one answer may hold.
        max_poll_records: the most records that a poll returns, and about how many are taken from
            one broker at a time. Nothing is taken ahead.
        max_poll_interval_ms: a member that does not poll for longer leaves the group.
        check_crcs: verify the checksum of every batch.
        consumer_timeout_ms: iterating ends when no record came for so long; by default it never
            does.
        metadata_max_age_ms: refresh metadata after this long even without errors.
        request_timeout_ms: how long an answer may take.
        client_id: the name of this client in the brokers' logs.
        security: what protects the connections; see :class:`~qbus.clients.SecurityOptions` for it,
            and for the options that may stand in its place.

        Raises :class:`~qbus.errors.ConfigError`.
        """
        check_options(group, topics, acknowledge, acquire, consumer_timeout_ms)
        names = tuple(sorted(set(topics)))
        if not names:
            raise ConfigError("a share consumer needs a topic")
        if fetch_max_wait_ms < 0:
            raise ConfigError(f"fetch_max_wait_ms is not below 0, as {fetch_max_wait_ms} is")
        self._options = ShareOptions(
            group=group,
            topics=names,
            is_explicit=acknowledge == "explicit",
            by_records=acquire == "records",
            fetch_min_bytes=fetch_min_bytes,
            fetch_max_bytes=fetch_max_bytes,
            fetch_max_wait=fetch_max_wait_ms / 1000,
            max_poll_records=_limit_of(max_poll_records),
            max_poll_interval=max_poll_interval_ms / 1000,
            check_crcs=check_crcs,
            rack=rack,
            consumer_timeout=None if consumer_timeout_ms is None else consumer_timeout_ms / 1000,
            on_lost=on_lost,
        )
        self._changed = asyncio.Event()
        self._cluster = Cluster(
            bootstrap,
            client_id,
            request_timeout_ms / 1000,
            metadata_max_age=metadata_max_age_ms / 1000,
            security=security_of("ShareConsumer", **security),
        )
        self.member_id = str(uuid4())
        """The id of this member in its group."""
        self._sessions = ShareSessions(
            self._cluster, self._options, self.member_id, self._changed, self._rejoin
        )
        self._membership = ShareMembership(
            self._cluster, self._options, self.member_id, self._sessions.assign, self._changed
        )
        self._held: dict[_Place, Lease] = {}
        self._delivered: list[_Place] = []
        self._run = 1
        self._run_began = 0.0
        self._ready: deque[ShareRecord] = deque()  # what a loop has taken and not yielded yet
        self._unraised: list[Loss] = []
        self._is_closed = False

    def __repr__(self) -> str:
        return (
            f"<ShareConsumer of {self._cluster.name}, group {self._options.group}:"
            f" {len(self._sessions.assigned)} partitions>"
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: object, *_: object) -> None:
        await self.close(accept=exc_type is None)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that the group has this member take records of."""
        return sorted(self._sessions.assigned)

    @property
    def held(self) -> list[RecordPlace]:
        """The records that polls returned and nothing was said of yet."""
        return [RecordPlace(*place) for place in self._held]

    @property
    def lock_timeout(self) -> float | None:
        """Seconds until a record's lock runs out, counted from when it was taken or renewed.

        None until a broker said so.
        """
        return self._sessions.lock_timeout

    # Taking.

    async def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[ShareRecord]:
        """Return the next records, waiting up to ``timeout`` seconds for the first; perhaps none.

        Accepts what the last poll returned, unless that is explicit. Returns at most
        ``max_records``, by default ``max_poll_records``.

        Raises :class:`~qbus.errors.ApiError` for errors that are not retriable, such as
        :class:`~qbus.records.CorruptBatch`: the batch is given back, and the next poll goes on.
        """
        limit = self._options.max_poll_records if max_records is None else _limit_of(max_records)
        return await self._poll(timeout, lambda: self._take(limit), limit)

    async def poll_arrow(self, timeout: float = 1.0, max_records: int | None = None) -> list[Any]:
        """Poll as :meth:`poll` does: a ``pyarrow.RecordBatch`` for each partition with records.

        Columns: those of :meth:`Consumer.poll_arrow`, and ``deliveries``. Batches stay whole, so
            there may be some more records than ``max_records``, by default 100,000. Raises
            :class:`~qbus.errors.MissingExtra` without pyarrow.
        """
        import_pyarrow()
        limit = ARROW_RECORDS if max_records is None else _limit_of(max_records)
        return await self._poll(timeout, lambda: self._take_arrow(limit))

    def __aiter__(self) -> AsyncIterator[ShareRecord]:
        """Yield records for ever, or until none came for ``consumer_timeout_ms``.

        Asking for the next accepts the one before, unless that is explicit.
        """
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[ShareRecord]:
        while True:
            if not self._ready:
                self._ready.extend(await self._next_run())
            if not self._ready:
                return
            record = self._ready.popleft()
            if self._is_held(record):
                self._deliver((record[:3],))
                yield record

    async def _next_run(self) -> list[ShareRecord]:
        """Return records for a loop; none: there were none for too long.

        :meth:`_deliver` is called for each. Who takes records, not batches, takes one first, and
        more the quicker the loop is done with them.
        """
        most = _RUN
        if self._options.by_records:
            took = time.monotonic() - self._run_began
            self._run = min(2 * self._run, _RUN) if took < _QUICK else max(self._run // 2, 1)
            most = self._run
        records = await self._next(most)
        self._run_began = time.monotonic()
        return records

    async def _next(self, most: int) -> list[ShareRecord]:
        patience = self._options.consumer_timeout
        ends = None if patience is None else time.monotonic() + patience
        while True:
            left = LOOK_AROUND if ends is None else min(LOOK_AROUND, ends - time.monotonic())
            records = await self._poll(left, lambda: self._take(most, is_delivered=False), most)
            if records or (ends is not None and time.monotonic() >= ends):
                return records

    async def _poll(
        self, timeout: float, take: Callable[[], list[T]], limit: int | None = None
    ) -> list[T]:
        await asyncio.sleep(0)
        self._accept_delivered()
        deadline = time.monotonic() + timeout
        self._membership.polled()
        while True:
            self._changed.clear()
            if self._sessions.losses:
                await self._report_losses()
            if taken := take():
                return taken
            self._raise_failure()
            self._sessions.start(limit)
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return []
            try:
                async with asyncio.timeout(min(remaining, LOOK_AROUND)):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _take(self, limit: int, *, is_delivered: bool = True) -> list[ShareRecord]:
        taken: list[ShareRecord] = []
        while self._ready and len(taken) < limit:  # what a loop left
            record = self._ready.popleft()
            if self._is_held(record):
                taken.append(record)
                self._delivered.append(record[:3])
        while len(taken) < limit and (found := self._sessions.next_fetched()) is not None:
            acquired, lease = found
            if taken and acquired.is_damaged:
                break  # the next poll raises it
            try:
                records = acquired.take(limit - len(taken))
            finally:
                self._sessions.account(acquired, lease)
            places = [record[:3] for record in records]
            self._held.update(dict.fromkeys(places, lease))
            if is_delivered:
                self._delivered += places
            taken += records
        return taken

    def _take_arrow(self, limit: int) -> list[Any]:
        batches: list[Any] = []
        self._give_back_ready()  # what a loop left comes again
        while limit > 0 and (found := self._sessions.next_fetched()) is not None:
            acquired, lease = found
            if batches and acquired.is_damaged:
                break
            try:
                taken = acquired.take_arrow(RecordColumns(), limit)
            finally:
                self._sessions.account(acquired, lease)
            if taken is not None:
                batch, offsets = taken
                places = [(*acquired.partition, offset) for offset in offsets]
                self._held.update(dict.fromkeys(places, lease))
                self._delivered += places
                limit -= len(offsets)
                batches.append(batch)
        return batches

    def _is_held(self, record: ShareRecord) -> bool:
        """Whether a record that the user has not seen yet is still this member's."""
        lease = self._held.get(record[:3])
        if lease is not None and lease.is_fresh:
            return True
        self._held.pop(record[:3], None)
        return False

    def _deliver(self, places: Iterable[_Place]) -> None:
        """Note that the user sees these records now, and has seen those before."""
        self._membership.polled()
        self._accept_delivered()
        self._delivered += places

    def _accept_delivered(self) -> None:
        delivered, self._delivered = self._delivered, []
        if self._options.is_explicit:
            return
        run: list[int] = []
        of: tuple[str, int, Lease] | None = None
        for place in delivered:
            lease = self._held.pop(place, None)
            if lease is None:
                continue
            topic, partition, offset = place
            if of is None or of[2] is not lease or of[1] != partition or of[0] != topic:
                self._accept_run(of, run)
                of, run = (topic, partition, lease), []
            run.append(offset)
        self._accept_run(of, run)

    def _accept_run(self, of: tuple[str, int, Lease] | None, offsets: list[int]) -> None:
        if of is not None:
            topic, partition, lease = of
            self._sessions.accept(TopicPartition(topic, partition), offsets, lease)

    def _raise_failure(self) -> None:
        if self._is_closed:
            raise QbusError("the share consumer is closed")
        failure, self._sessions.failure = self._sessions.failure, None
        if self._membership.failure is not None:
            failure = self._membership.failure
        if failure is not None:
            raise failure

    def _rejoin(self) -> None:
        self._membership.rejoin()

    # Saying what came of records.

    def accept(self, records: ShareRecords) -> None:
        """The records are done: nobody gets them again.

        Takes a record, several, or a batch of :meth:`poll_arrow`. Returns at once; :meth:`flush`
        waits until it is stored. Raises :class:`~qbus.errors.QbusError` for a record that this
        consumer does not have, or said something of already.
        """
        for place in self._held_places(records):
            self._say(place, AckType.ACCEPT)

    def release(self, records: ShareRecords, *, delay: Duration | None = None) -> None:
        """Give the records back: they are given out again, after the group's back-off.

        ``delay``: after so long instead (Qbus's own; Kafka gives them out at once). Beyond the
        group's limit of deliveries they go to its dead letter topic. Otherwise as :meth:`accept`.
        """
        delay_ms = NO_DELAY if delay is None else milliseconds_of("delay", delay)
        for place in self._held_places(records):
            self._say(place, AckType.RELEASE, delay_ms=delay_ms)

    def reject(self, records: ShareRecords) -> None:
        """Nobody is to get the records again: they go to the group's dead letter topic, if any.

        Otherwise as :meth:`accept`.
        """
        for place in self._held_places(records):
            self._say(place, AckType.REJECT)

    async def renew(self, records: ShareRecords) -> None:
        """Begin the records' locks anew (KIP-1222), and return when the broker has done so.

        Raises :class:`~qbus.errors.ApiError`: INVALID_RECORD_STATE when a lock has run out (that
        record is not held any more), or UNSUPPORTED_VERSION.
        """
        await asyncio.gather(*[self._renew(place) for place in self._held_places(records)])

    async def _renew(self, place: _Place) -> None:
        try:
            await self._say_and_wait(place, AckType.RENEW)
        except ApiError as error:
            if error.code is ErrorCode.INVALID_RECORD_STATE:
                self._held.pop(place, None)
            raise

    async def flush(self, timeout: float | None = None) -> None:
        """Return when brokers have stored everything that was said of records.

        timeout: in seconds; by default as long as requests may take.

        Raises :class:`~qbus.AcknowledgementLost` for what was lost since the last flush, unless
        there is an ``on_lost``, and TimeoutError.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._sessions.said()
        except TimeoutError:
            raise TimeoutError(
                f"not all that was said of records is stored after {timeout} s"
            ) from None
        await self._report_losses()
        unraised, self._unraised = self._unraised, []
        if unraised:
            raise _lost(unraised)

    async def settle(self, record: ShareRecord, result: bytes | None = None) -> None:
        """Accept one record, and return when that is stored.

        result: what came of it, for those who wait for the job (Qbus's own).

        Raises as :meth:`renew`.
        """
        if not isinstance(record, ShareRecord):
            raise TypeError(f"settle takes one record, not {type(record).__name__}")
        await self._say_and_wait(record[:3], AckType.ACCEPT, result=result)

    async def _say_and_wait(
        self,
        place: _Place,
        kind: AckType,
        *,
        delay_ms: int = NO_DELAY,
        result: bytes | None = None,
        is_nack: bool = False,
    ) -> None:
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._say_ack(place, Ack(place[2], kind, delay_ms, result, is_nack, told))
        await told

    def _say(self, place: _Place, kind: AckType, *, delay_ms: int = NO_DELAY) -> None:
        self._say_ack(place, Ack(place[2], kind, delay_ms))

    def _say_ack(self, place: _Place, ack: Ack) -> None:
        is_renewal = ack.type is AckType.RENEW
        lease = self._held.get(place) if is_renewal else self._held.pop(place, None)
        topic, partition, _ = place
        if lease is None:
            raise _not_held(place)
        self._sessions.say(TopicPartition(topic, partition), ack, lease)

    def _held_places(self, records: ShareRecords) -> list[_Place]:
        """Where records are; raises if one is not held: then nothing is said of any."""
        places = self._places(records)
        for place in places:
            if place not in self._held:
                raise _not_held(place)
        return places

    def _rest(self, *, keep: bool) -> None:
        """Take nothing more until the next poll; ``keep`` what is there, or give it back."""
        self._sessions.rest(keep=keep)

    def _give_back_ready(self) -> None:
        while self._ready:
            record = self._ready.popleft()
            if self._is_held(record):
                self._say(record[:3], AckType.RELEASE, delay_ms=0)

    def _places(self, records: ShareRecords) -> list[_Place]:
        if isinstance(records, ShareRecord):
            return [records[:3]]
        if hasattr(records, "schema"):
            return _places_of(records)
        return [record[:3] for record in records]

    async def _report_losses(self) -> None:
        losses, self._sessions.losses = self._sessions.losses, []
        if not losses:
            return
        error = _lost(losses)
        if await self._options.lost(error):
            return
        _log.warning("share group %s: %s", self._options.group, error)
        self._unraised = (self._unraised + losses)[-_MOST_LOSSES:]

    async def close(self, *, accept: bool = True) -> None:
        """Give back what this consumer still has, leave the group, close.

        accept: but accept what the last poll returned, unless that is explicit.

        Raises :class:`~qbus.AcknowledgementLost` as :meth:`flush` does, unless ``accept`` is false.
        Does nothing the second time.
        """
        if self._is_closed:
            return
        if accept:
            self._accept_delivered()
        self._is_closed = True
        self._held.clear()
        try:
            await self._sessions.said()
        finally:
            try:
                async with asyncio.timeout(_LONGEST_GOODBYE):
                    await asyncio.gather(self._sessions.close(), self._membership.close())
            except TimeoutError:
                _log.warning("share group %s: the brokers are silent", self._options.group)
            finally:
                await self._cluster.close()
        await self._report_losses()
        if self._unraised and accept:
            raise _lost(self._unraised)


def _not_held(place: _Place) -> ApiError:
    topic, partition, offset = place
    return ApiError(
        ErrorCode.INVALID_RECORD_STATE,
        f"offset {offset} of {topic}-{partition} is not held by this consumer (any more)",
    )


def _places_of(batch: Any) -> list[_Place]:
    """Where the records of a ``pyarrow.RecordBatch`` are."""
    columns = [batch.column(name).to_pylist() for name in ("topic", "partition", "offset")]
    return list(zip(*columns, strict=True))


def _lost(losses: Sequence[Loss]) -> AcknowledgementLost:
    return AcknowledgementLost([loss.place for loss in losses], losses[0].error)


def _limit_of(max_records: int) -> int:
    if max_records < 1:
        raise ConfigError(f"a poll returns at least 1 record, not {max_records}")
    return max_records
