"""The asyncio consumer of a share group."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Self, TypeVar, Unpack
from uuid import uuid4

from qbus.errors import ApiError, ConfigError, ErrorCode, QbusError
from qbus.records import RecordColumns
from qbus.records.arrow_buffers import import_pyarrow
from qbus.records.bounds import MAX_RECORDS_SIZE
from qbus.records.codec import AsyncRuns, HeldItems

from ..group.early_end import EarlyEnd
from ..net.cluster import Cluster
from ..producer.delays import milliseconds_of
from ..security import SecurityOptions, security_of
from ..types import Duration, TopicPartition
from .acknowledgements import NO_DELAY, Ack, AckType
from .membership import ShareMembership
from .options import Acknowledge, Acquire, OnLost, ShareOptions, check_options
from .session import Lease, Loss
from .sessions import ShareSessions
from .taken import Place, TakenRecords, TakenRun
from .types import AcknowledgementLost, RecordPlace, ShareRecord

T = TypeVar("T")

_log = logging.getLogger(__name__)

LOOK_AROUND = 1.0
"""Seconds after which a waiting poll checks for work that no event announces."""
ARROW_RECORDS = 100_000
"""The default limit of a poll for Arrow batches, in records."""
_LOOK_S = 0.01
"""Seconds after which it is looked again how far a loop is, while it goes on."""
_LONGEST_GOODBYE = 5.0
"""Seconds that brokers have to learn that a member goes; they find out without it, later."""
_QUICK = 0.2
"""Seconds in which a loop is done with what it took, if it is to take twice as much."""
_MOST_LOSSES = 10_000
"""Losses that are remembered until :meth:`ShareConsumer.flush` raises them."""

ShareRecords = ShareRecord | Iterable[ShareRecord] | Any
"""A record, several, or a ``pyarrow.RecordBatch`` of :meth:`ShareConsumer.poll_arrow`."""


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
        batch_max_bytes: int = MAX_RECORDS_SIZE,
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
        batch_max_bytes: how large the records of one batch may be, decompressed. A poll raises
            :class:`~qbus.errors.CorruptBatch` for a larger one, and releases its records.
        max_poll_records: the most records that a poll returns, and about how many are taken from
            one broker at a time; a loop that is quick takes up to four times as many. Nothing is
            taken ahead.
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
        if batch_max_bytes < 1:
            raise ConfigError(f"batch_max_bytes is above 0, not {batch_max_bytes}")
        self._options = ShareOptions(
            group=group,
            topics=names,
            is_explicit=acknowledge == "explicit",
            by_records=acquire == "records",
            fetch_min_bytes=fetch_min_bytes,
            fetch_max_bytes=fetch_max_bytes,
            fetch_max_wait=fetch_max_wait_ms / 1000,
            batch_max_bytes=batch_max_bytes,
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
        self._taken = TakenRecords(is_explicit=self._options.is_explicit)
        self._sessions = ShareSessions(
            self._cluster,
            self._options,
            self.member_id,
            self._changed,
            self._rejoin,
            self._taken.look_again,
        )
        self._membership = ShareMembership(
            self._cluster, self._options, self.member_id, self._sessions.assign, self._changed
        )
        self._early_end = EarlyEnd(f"share group {group}", self._options.consumer_timeout)
        self._run = 1
        self._run_began = 0.0
        self._is_watched = False  # so that it is noticed soon how far a loop is
        self._watch: asyncio.TimerHandle | None = None
        self._reading: TakenRun | None = None  # by a loop
        self._looked: tuple[TakenRun | None, int] = (None, 0)  # how far it was
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
        return [RecordPlace(*place) for place in self._held()]

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

        Asking for the next accepts the one before, unless that is explicit. The iterator has
        ``aclose``, as asynchronous generators have.
        """
        runs = self._runs()
        return AsyncRuns(partial(anext, runs, None), runs.aclose)

    async def _runs(self) -> AsyncGenerator[Iterator[ShareRecord], None]:
        tell = partial(asyncio.get_running_loop().call_soon, self._look)
        self._accept_seen()
        while True:
            while (run := self._next_ready()) is not None:
                yield self._yielded(run, tell)
            if not await self._next_run():
                return

    def _next_ready(self) -> TakenRun | None:
        """Return the run that a loop reads next, of those that are taken."""
        ready = self._taken.ready
        while ready and ready[0].is_passed:
            ready.popleft()
        return ready[0] if ready else None

    def _yielded(self, run: TakenRun, tell: Callable[[], object]) -> Iterator[ShareRecord]:
        """Return an iterator of a run's records, for as long as they are this member's.

        ``tell`` has :meth:`_look` called soon in the loop's thread. In the reader's.
        """
        self._reading = run
        run.look_again()  # who is in the run already, such as a loop around this one
        run.items = HeldItems(run.rest, run.lease.until, partial(self._next_of, run, tell))
        return run.items

    def _next_of(self, run: TakenRun, tell: Callable[[], object]) -> ShareRecord:
        """Return the next record of a run; raise StopIteration if there is none."""
        while not run.is_passed and run.lease.is_fresh:
            record = next(run.rest, None)
            if record is None:
                run.finish()
                raise StopIteration
            if run.is_indexed and not self._taken.has(record):
                continue
            if not self._is_watched:
                self._is_watched = True
                tell()
            run.be_quick(lambda: self._is_watched)
            return record
        self._taken.withhold(run)
        raise StopIteration

    def _look(self) -> None:
        """Note how far a loop is, and look again soon if it goes on."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._is_watched = False  # before looking: who goes on later tells of it again
        self._taken.look_again()
        run = self._reading
        if run is None or self._is_closed or (run, run.seen) == self._looked:
            return
        self._looked = run, run.seen
        self._membership.polled()
        self._accept_seen(but_current=True)
        self._is_watched = True
        self._watch = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    async def _next_run(self) -> bool:
        """Take records for a loop; False: there were none for too long.

        Who takes records, not batches, takes one first, and more the quicker the loop is done with
        them.
        """
        most = self._options.max_run
        if self._options.by_records:
            took = time.monotonic() - self._run_began
            self._run = min(2 * self._run, most) if took < _QUICK else max(self._run // 2, 1)
            most = self._run
        has_some = await self._next(most)
        self._run_began = time.monotonic()
        return has_some

    async def _next(self, most: int) -> bool:
        patience = self._options.consumer_timeout
        ends = None if patience is None else time.monotonic() + patience
        while True:
            left = LOOK_AROUND if ends is None else min(LOOK_AROUND, ends - time.monotonic())
            taken = await self._poll(left, lambda: self._take_runs(most), most)
            if taken:
                return True
            if ends is not None and time.monotonic() >= ends:
                if self._membership.is_joining:
                    self._early_end.log()
                return False

    async def _poll(
        self, timeout: float, take: Callable[[], list[T]], limit: int | None = None
    ) -> list[T]:
        await asyncio.sleep(0)
        self._accept_seen()
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

    def _take(self, limit: int) -> list[ShareRecord]:
        records: list[ShareRecord] = []
        while len(records) < limit and (run := self._next_ready()) is not None:  # a loop left it
            if run.lease.is_fresh:
                records += self._polled(run, limit - len(records))
            else:
                self._taken.withhold(run)
        for run in self._take_runs(limit - len(records), beside=bool(records)):
            records += self._polled(run, limit)
        return records

    def _polled(self, run: TakenRun, limit: int) -> list[ShareRecord]:
        """Return up to ``limit`` records of a run to who polls."""
        records = run.take(limit)
        run.is_polled = True
        run.is_passed = not run.is_left
        if run.is_indexed:
            records = [record for record in records if self._taken.has(record)]
        return records

    def _take_runs(self, limit: int, *, beside: bool = False) -> list[TakenRun]:
        """Take up to ``limit`` records that were fetched; ``beside`` others, whose poll must not
        raise.
        """
        runs: list[TakenRun] = []
        while limit > 0 and (found := self._sessions.next_fetched()) is not None:
            acquired, lease = found
            if (runs or beside) and acquired.is_damaged:
                break  # the next poll raises it
            try:
                records = acquired.take(limit)
            finally:
                self._sessions.account(acquired, lease)
            if records:
                limit -= len(records)
                runs.append(TakenRun(acquired.partition, lease, records))
                self._taken.add(runs[-1])
                self._taken.ready.append(runs[-1])
        return runs

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
                run = TakenRun(acquired.partition, lease, offsets=offsets)
                run.is_polled = True
                self._taken.add(run)
                limit -= len(offsets)
                batches.append(batch)
        return batches

    def _accept_seen(self, *, but_current: bool = False) -> None:
        """Accept what the user is done with; ``but_current``: see :meth:`TakenRecords.seen`."""
        self._sessions.accept(self._taken.seen(but_current=but_current))

    def _held(self) -> dict[Place, Lease]:
        """What each record is held under that nothing was said of."""
        self._accept_seen(but_current=True)
        return self._taken.index()

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
        self._say_all(records, AckType.ACCEPT)

    def release(self, records: ShareRecords, *, delay: Duration | None = None) -> None:
        """Give the records back: they are given out again, after the group's back-off.

        ``delay``: after so long instead (Qbus's own; Kafka gives them out at once). Beyond the
        group's limit of deliveries they go to its dead letter topic. Otherwise as :meth:`accept`.
        """
        delay_ms = NO_DELAY if delay is None else milliseconds_of("delay", delay)
        self._say_all(records, AckType.RELEASE, delay_ms)

    def reject(self, records: ShareRecords) -> None:
        """Nobody is to get the records again: they go to the group's dead letter topic, if any.

        Otherwise as :meth:`accept`.
        """
        self._say_all(records, AckType.REJECT)

    async def renew(self, records: ShareRecords) -> None:
        """Begin the records' locks anew (KIP-1222), and return when the broker has done so.

        Raises :class:`~qbus.errors.ApiError`: INVALID_RECORD_STATE when a lock has run out (that
        record is not held any more), or UNSUPPORTED_VERSION.
        """
        await asyncio.gather(*[self._renew(place) for place in self._held_places(records)])

    async def _renew(self, place: Place) -> None:
        try:
            await self._say_and_wait(place, AckType.RENEW)
        except ApiError as error:
            if error.code is ErrorCode.INVALID_RECORD_STATE:
                self._held().pop(place, None)
            raise

    async def flush(self, timeout: float | None = None) -> None:
        """Return when brokers have stored everything that was said of records.

        timeout: in seconds; by default as long as requests may take.

        Raises :class:`~qbus.AcknowledgementLost` for what was lost since the last flush, unless
        there is an ``on_lost``, and TimeoutError.
        """
        self._accept_seen(but_current=True)
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
        place: Place,
        kind: AckType,
        *,
        delay_ms: int = NO_DELAY,
        result: bytes | None = None,
        is_nack: bool = False,
    ) -> None:
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._say_ack(place, Ack(place[2], kind, delay_ms, result, is_nack, told))
        await told

    def _say_all(self, records: ShareRecords, kind: AckType, delay_ms: int = NO_DELAY) -> None:
        for partition, first, size, lease in self._taken.remove(self._held_places(records)):
            ack = Ack(first, kind, delay_ms, size=size)
            self._sessions.say(partition, ack, lease)

    def _say_ack(self, place: Place, ack: Ack) -> None:
        is_renewal = ack.type is AckType.RENEW
        held = self._held()
        lease = held.get(place) if is_renewal else held.pop(place, None)
        topic, partition, _ = place
        if lease is None:
            raise _not_held(place)
        self._sessions.say(TopicPartition(topic, partition), ack, lease)

    def _held_places(self, records: ShareRecords) -> list[Place]:
        """Where records are; raises if one is not held: then nothing is said of any."""
        places, held = self._places(records), self._held()
        known: set[Place] = set()
        for place in places:
            if place not in held or place in known:
                raise _not_held(place)
            known.add(place)
        return places

    def _rest(self, *, keep: bool) -> None:
        """Take nothing more until the next poll; ``keep`` what is there, or give it back."""
        self._sessions.rest(keep=keep)

    def _give_back_ready(self) -> None:
        while (run := self._next_ready()) is not None:
            for offset in self._taken.withhold(run):
                if run.lease.is_fresh:
                    self._sessions.say(run.partition, Ack(offset, AckType.RELEASE, 0), run.lease)

    def _places(self, records: ShareRecords) -> list[Place]:
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
        self._accept_seen(but_current=not accept)
        self._is_closed = True
        if self._watch is not None:
            self._watch.cancel()
        self._taken.clear()
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


def _not_held(place: Place) -> ApiError:
    topic, partition, offset = place
    return ApiError(
        ErrorCode.INVALID_RECORD_STATE,
        f"offset {offset} of {topic}-{partition} is not held by this consumer (any more)",
    )


def _places_of(batch: Any) -> list[Place]:
    """Where the records of a ``pyarrow.RecordBatch`` are."""
    columns = [batch.column(name).to_pylist() for name in ("topic", "partition", "offset")]
    return list(zip(*columns, strict=True))


def _lost(losses: Sequence[Loss]) -> AcknowledgementLost:
    return AcknowledgementLost([loss.place for loss in losses], losses[0].error)


def _limit_of(max_records: int) -> int:
    if max_records < 1:
        raise ConfigError(f"a poll returns at least 1 record, not {max_records}")
    return max_records
