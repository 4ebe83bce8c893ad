"""Who has which records of a partition now, and what comes next: the part that is not stored.

It begins with what the log says (:class:`~.fold.GroupProgress`) and ends with the broker's
leadership: a new leader gives out again whatever was given out and is not done. Nothing here does
IO, asks for the time, or waits.

Each offset from the group's start on is in one of these places:

- done, as the fold says;
- *fresh*: at or behind ``next_fresh``, nobody has looked at it yet;
- *ready*: it was given out before, or passed over, and may be given out at once;
- *waiting*: it was given out before, and is not given out before a time;
- *leased*: a member has it, or the broker itself works on it;
- *void*: there is no record.

Locks run by a clock that never goes back, in milliseconds. The times before which records are not
given out are of the wall clock: they outlive the broker.
"""

import heapq
from collections.abc import Iterator
from typing import Final

from qbus.errors import ApiError, ErrorCode
from qbus.records.control import Change, ChangeKind, History

from .fold import GroupProgress
from .ranges import RangeMap, Span
from .settings import GroupSettings
from .settlement import (
    MEMBER,
    NO_COUNTS,
    SETTLING,
    Finishing,
    Given,
    Lease,
    LeaseKind,
    Origin,
    Place,
    Reason,
    Settlement,
    counted,
    joined,
    sum_of,
)
from .types import AckRange, AckType, QueueCounts, RecordState, RecordStatus

MOST_RETURNED: Final = 100_000
"""How many returned records of a group there may be before nothing fresh is given out."""

_MANY: Final = 1_000
FOREVER: Final = 1 << 62
FRESH: Final = History()
"""The history of what was never given out."""


class QueueState:
    """One group's records of one partition that is led here."""

    __slots__ = (
        "_acknowledged",
        "_counts",
        "_expiries",
        "_left_over",
        "_moving_count",
        "_taken",
        "_wakeups",
        "given_once",
        "leases",
        "moving",
        "next_fresh",
        "progress",
        "ready",
        "settings",
        "voids",
        "waiting",
    )

    def __init__(
        self, progress: GroupProgress, settings: GroupSettings, log_start: int, wall_ms: int
    ) -> None:
        """``progress`` is the fold's, which changes as control records are appended."""
        self.progress = progress
        self.settings = settings
        self.next_fresh = max(progress.start, log_start)
        self.leases: RangeMap[Lease] = RangeMap()
        self.ready: RangeMap[History] = RangeMap()
        self.waiting: RangeMap[History] = RangeMap()
        self.voids: RangeMap[bool] = RangeMap()
        self.given_once: RangeMap[Lease] = RangeMap()
        """What members may acknowledge though it is done: it was before they had it."""
        self._counts = QueueCounts()
        self._taken = self._acknowledged = 0  # what is counted most
        self._moving_count = 0  # records whose lease is MOVING: they are nobody's locks
        self._left_over: list[tuple[int, int]] = []
        self.moving: list[Given] = []
        """What is to be given up next: whoever drives this takes it over."""
        self._expiries: list[tuple[int, int, int]] = []  # heap: until, first, last
        self._wakeups: list[tuple[int, int, int]] = []  # heap: not before, first, last
        for span in progress.returned:
            self._returned(span.first, span.last, span.value, wall_ms)

    # Looking at what is fresh

    def fresh(self, first: int, last: int) -> list[tuple[int, int]]:
        """What of these offsets, all at or behind ``next_fresh``, nobody has to do with yet."""
        free = [(max(first, self.progress.start), last)]
        for places in (self.progress.done, self.leases, self.ready, self.waiting, self.voids):
            if places.end > first:
                free = [gap for low, high in free for gap in places.gaps(low, high)]
        return free

    def known_from(self, offset: int) -> tuple[int, int, int]:
        """Of how many offsets from ``offset`` on something is known, in how many ranges.

        And the offset behind the last of them.
        """
        places = (self.progress.done, self.leases, self.ready, self.waiting)
        count = sum(place.size_from(offset) for place in places)
        ranges = sum(place.count_from(offset) for place in places)
        return count, ranges, max(offset, *(place.end for place in places))

    def add_void(self, first: int, last: int) -> None:
        """There are no records from ``first`` to ``last``."""
        first = max(first, self.progress.start)
        if first <= last:
            done = self.progress.done
            for low, high in done.gaps(first, last):
                self.voids.set(low, high, True)
                void = self.voids.find(low)
                if void is not None and done.at(high + 1) is not None:
                    self._left_over.append((void.first, high))

    def left_over(self) -> Settlement | None:
        """Begin to finish voids; None: there are none to be finished.

        The record behind such a void was done before anybody looked at the void, so nobody will
        finish it with that record: the start would stay before it for ever.
        """
        if not self._left_over:
            return None
        voids, self._left_over = self._left_over, []
        return Settlement([Change(ChangeKind.ARCHIVED, first, last) for first, last in voids], [])

    def pass_to(self, offset: int) -> None:
        """Nothing before ``offset`` is fresh any more."""
        self.next_fresh = max(self.next_fresh, offset)

    def pass_void(self, first: int, last: int) -> None:
        """There are no records from ``first`` to ``last``, where the next fresh one would be."""
        self.add_void(first, last)
        self.pass_to(last + 1)

    @property
    def has_room(self) -> bool:
        """Whether any more may be given out."""
        return self.leases.size - self._moving_count < self.settings.partition_max_locks

    @property
    def room(self) -> int:
        """How many more may be given out."""
        locks = self.leases.size - self._moving_count
        return max(self.settings.partition_max_locks - locks, 0)

    @property
    def is_clogged(self) -> bool:
        """Whether so many were returned that nothing fresh is given out."""
        return self.progress.returned.size >= MOST_RETURNED

    # Giving out

    def give(self, first: int, last: int, member: str, until_ms: int) -> list[Given]:
        """Give out these records to ``member``; they are fresh or ready."""
        parts: list[Given] = []
        position = first
        if self.ready.size:
            for span in self.ready.cut(first, last):
                if span.first > position:
                    parts.append(Given(position, span.first - 1, FRESH))
                parts.append(Given(span.first, span.last, span.value))
                position = span.last + 1
        if position <= last:
            parts.append(Given(position, last, FRESH))
        for part in parts:
            lease = Lease(MEMBER, member, until_ms, part.history)
            self._lease(part.first, part.last, lease)
        self._taken += last - first + 1
        return parts

    @property
    def counts(self) -> QueueCounts:
        """What was done since this began."""
        more = QueueCounts(taken=self._taken, acknowledged=self._acknowledged)
        return sum_of(self._counts, more)

    def _lease(self, first: int, last: int, lease: Lease) -> None:
        self.leases.set(first, last, lease)
        if lease.until_ms < FOREVER:
            heapq.heappush(self._expiries, (lease.until_ms, first, last))
            if len(self._expiries) > 2 * len(self.leases) + 1000:
                self._expiries = [
                    (span.value.until_ms, span.first, span.last)
                    for span in self.leases
                    if span.value.until_ms < FOREVER
                ]
                heapq.heapify(self._expiries)

    def drop(self, first: int, last: int, reason: Reason) -> Settlement:
        """Give these records, which are fresh or ready, to nobody: they are archived."""
        count = last - first + 1
        if reason is Reason.FILTERED:
            counts = QueueCounts(filtered=count)
        elif reason is Reason.EXPIRED:
            counts = QueueCounts(expired=count)
        else:
            counts = QueueCounts(dropped=count)
        changes = [self._done(ChangeKind.ARCHIVED, first, last)]
        return Settlement(changes, self._begin(first, last), counts)

    def give_at_most_once(self, offset: int) -> tuple[Settlement, History]:
        """Have a record that is fresh or ready done before it is given out; what it went through.

        It may be given out when that is stored.
        """
        history = self.ready.at(offset) or FRESH
        changes = [self._done(ChangeKind.ACKNOWLEDGED, offset, offset)]
        counts = QueueCounts(taken=1, acknowledged=1)
        return Settlement(changes, self._begin(offset, offset), counts), history

    def may_acknowledge(self, offset: int, member: str, now_ms: int) -> None:
        """Let ``member`` say, for a lock's time, what it wants of a record that it got once."""
        until_ms = now_ms + self.settings.lock_ms
        if len(self.given_once) >= _MANY:
            self._forget_once(now_ms)
        lease = Lease(LeaseKind.MEMBER, member, until_ms, FRESH)
        self.given_once.set(offset, offset, lease)

    def _forget_once(self, now_ms: int) -> None:
        for span in [span for span in self.given_once if span.value.until_ms <= now_ms]:
            self.given_once.cut(span.first, span.last)

    def archive_moved(self, first: int, last: int, *, is_stored: bool) -> Settlement:
        """Finish records that were to be moved; ``is_stored``: in the dead letter topic."""
        count = last - first + 1
        counts = QueueCounts(dead_letters=count) if is_stored else QueueCounts(dropped=count)
        changes = [self._done(ChangeKind.ARCHIVED, first, last)]
        return Settlement(changes, self._begin(first, last), counts)

    def is_moving(self, offset: int) -> bool:
        """Whether the record at ``offset`` is still to be moved."""
        lease = self.leases.at(offset)
        return lease is not None and lease.kind is LeaseKind.MOVING

    def _begin(self, first: int, last: int) -> list[Origin]:
        """Take records from where they are, to store something about them."""
        origins: list[Origin] = []
        taken: RangeMap[bool] = RangeMap()
        for lease in self.leases.cut(first, last):
            history = lease.value.history
            if lease.value.kind is LeaseKind.MOVING:
                self._moving_count -= lease.last - lease.first + 1
            origins.append(Origin(lease.first, lease.last, Place.LEASED, history, lease.value))
        for place, spans in (
            (Place.READY, self.ready.cut(first, last)),
            (Place.WAITING, self.waiting.cut(first, last)),
        ):
            origins += [Origin(span.first, span.last, place, span.value) for span in spans]
        for origin in origins:
            taken.set(origin.first, origin.last, True)
        for low, high in taken.gaps(first, last):
            origins += [
                Origin(begin, end, Place.FRESH, FRESH)
                for begin, end in self.progress.done.gaps(max(low, self.progress.start), high)
            ]
        for origin in origins:
            settling = Lease(LeaseKind.SETTLING, "", FOREVER, origin.history)
            self.leases.set(origin.first, origin.last, settling)
        return origins

    def _begin_leased(self, spans: list[Span[Lease]]) -> list[Origin]:
        """The same for records that are all leased, as ``spans`` say."""
        origins = []
        for span in spans:
            history = span.value.history
            origins.append(Origin(span.first, span.last, Place.LEASED, history, span.value))
            settling = Lease(SETTLING, "", FOREVER, history)
            if not self.leases.replace(span.first, span.last, settling):
                self.leases.set(span.first, span.last, settling)
        return origins

    def _done(self, kind: ChangeKind, first: int, last: int) -> Change:
        """The change that finishes records, with the offsets beside them that have none."""
        first, last = self._with_voids(first, last)
        return Change(kind, first, last)

    def _with_voids(self, first: int, last: int) -> tuple[int, int]:
        """The same records, with the offsets beside them that have none."""
        if self.voids.size:
            before = self.voids.find(first - 1)
            if before is not None:
                first = before.first
            behind = self.voids.find(last + 1)
            if behind is not None:
                last = behind.last
        return first, last

    # Acknowledging

    def acknowledge(
        self, member: str, ranges: list[AckRange], now_ms: int, wall_ms: int
    ) -> Settlement:
        """Begin what a member says of the records that it has: all of it, or nothing.

        What is before the group's start is done, whoever did it, and passed over: so what retention
        took does not spoil the rest, as in Kafka.

        Raises ApiError: INVALID_RECORD_STATE where ``member`` does not have one of them,
        INVALID_REQUEST where ranges overlap, or mean nothing.
        """
        found: list[tuple[AckRange, list[Span[Lease]]]] = []
        start, end = self.progress.start, -1
        for ack in sorted(ranges):
            if ack.first <= end or ack.last < ack.first or not 0 <= ack.type <= AckType.RENEW:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"acknowledgement {ack.type} of the records from {ack.first} to {ack.last}",
                )
            end = ack.last
            if end < start:
                continue
            if ack.first < start:
                ack = ack._replace(first=start)
            found.append((ack, self._locked(ack, member)))
        changes: list[Change] = []
        origins: list[Origin] = []
        counts, acknowledged = NO_COUNTS, 0
        for ack, spans in found:
            if ack.type == AckType.RENEW:
                self._renew_all(spans, now_ms + self.settings.lock_ms)
                continue
            made = [self._answer(ack, span, wall_ms) for span in spans]
            if ack.type == AckType.ACCEPT:
                acknowledged += sum([span.last - span.first + 1 for span in spans])
            else:
                counts = sum_of(counted(ack, spans, made), counts)
            changes += made
            origins += self._begin_leased(spans)
        if len(changes) > 1:
            changes = joined(changes)
        return Settlement(changes, origins, counts, acknowledged)

    def _locked(self, ack: AckRange, member: str) -> list[Span[Lease]]:
        """The leases of records that ``member`` has, but for those that it got once.

        Raises ApiError where it does not have one of them.
        """
        spans = self.leases.spans(ack.first, ack.last)
        position, has_once = ack.first, self.given_once.size > 0
        for span in spans:
            if has_once and span.first != position:
                position = self._behind_once(position, member)
            if span.first != position or not _has(span.value, member):
                break
            position = span.last + 1
        if has_once and position <= ack.last:
            position = self._behind_once(position, member)
        if position <= ack.last:
            raise ApiError(
                ErrorCode.INVALID_RECORD_STATE,
                f"the record at offset {position} is not locked by {member or 'nobody'}",
            )
        return spans

    def _behind_once(self, offset: int, member: str) -> int:
        """The offset behind those from ``offset`` on that were given once, and to ``member``."""
        while (span := self.given_once.find(offset)) is not None and span.value.member == member:
            offset = span.last + 1
        return offset

    def _renew_all(self, spans: list[Span[Lease]], until_ms: int) -> None:
        for span in spans:
            self._renew(span, until_ms)

    def _renew(self, span: Span[Lease], until_ms: int) -> None:
        known = span.value
        lease = Lease(known.kind, known.member, until_ms, known.history)
        self._lease(span.first, span.last, lease)

    def _answer(self, ack: AckRange, span: Span[Lease], wall_ms: int) -> Change:
        first, last, lease = span.first, span.last, span.value
        if ack.type == AckType.ACCEPT:
            return self._done(ChangeKind.ACKNOWLEDGED, first, last)
        if ack.type == AckType.GAP:
            return self._done(ChangeKind.ARCHIVED, first, last)
        history = _delivered(lease.history)
        if ack.type == AckType.REJECT:
            return self._return(first, last, history._replace(rejected=True), 0, wall_ms)
        if ack.nack:
            history = history._replace(nacks=history.nacks + 1)
        return self._return(first, last, history, ack.delay_ms, wall_ms, is_nack=ack.nack)

    def _return(
        self,
        first: int,
        last: int,
        history: History,
        delay_ms: int,
        wall_ms: int,
        *,
        is_nack: bool = False,
    ) -> Change:
        """The change for records that are to be given out again, or given up."""
        if self.is_over(history) and not self.settings.dead_letter_topic:
            return self._done(ChangeKind.ARCHIVED, first, last)
        if delay_ms < 0:
            delay_ms = self.settings.backoff_after(history.deliveries, first, is_nack=is_nack)
        not_before = wall_ms + delay_ms if delay_ms else 0
        history = history._replace(not_before=not_before)
        return Change(ChangeKind.RETURNED, first, last, history)

    def is_over(self, history: History) -> bool:
        """Whether a record with this history is not to be given out any more."""
        limit = self.settings.delivery_limit
        return history.rejected or 0 < limit <= history.deliveries

    # What comes of what was begun

    def stored(self, settlement: Settlement, wall_ms: int) -> None:
        """The changes are in the log, and in ``progress``."""
        self._counts = sum_of(self._counts, settlement.counts)
        self._acknowledged += settlement.acknowledged
        for origin in settlement.origins:
            for span in self.leases.cut(origin.first, origin.last):
                if span.value.kind is not SETTLING:  # it was begun anew meanwhile
                    self.leases.set(span.first, span.last, span.value)
        for change in settlement.changes:
            if change.kind is ChangeKind.RETURNED:
                for known in self.progress.returned.spans(change.first, change.last):
                    self._returned(known.first, known.last, known.value, wall_ms)
            elif self.voids.size:
                self.voids.cut(change.first, change.last)

    def _returned(self, first: int, last: int, history: History, wall_ms: int) -> None:
        if self.is_over(history):
            self.leases.set(first, last, Lease(LeaseKind.MOVING, "", FOREVER, history))
            self._moving_count += last - first + 1
            self.moving.append(Given(first, last, history))
        elif history.not_before > wall_ms:
            self._wait(first, last, history)
        else:
            self.ready.set(first, last, history)

    def _wait(self, first: int, last: int, history: History) -> None:
        self.waiting.set(first, last, history)
        heapq.heappush(self._wakeups, (history.not_before, first, last))
        if len(self._wakeups) > 2 * len(self.waiting) + 1000:  # most are of what was put back
            self._wakeups = [
                (span.value.not_before, span.first, span.last) for span in self.waiting
            ]
            heapq.heapify(self._wakeups)

    def failed(self, settlement: Settlement) -> None:
        """The changes could not be stored: everything is as it was before."""
        start = self.progress.start
        if not settlement.origins:
            self._left_over += [(change.first, change.last) for change in settlement.changes]
        for origin in settlement.origins:
            first = max(origin.first, start)
            if first > origin.last:
                continue
            self.leases.cut(first, origin.last)
            if origin.place is Place.LEASED:
                assert origin.lease is not None
                self._lease(first, origin.last, origin.lease)
                if origin.lease.kind is LeaseKind.MOVING:
                    self._moving_count += origin.last - first + 1
            elif origin.place is Place.WAITING:
                self._wait(first, origin.last, origin.history)
            else:  # fresh ones, too: the next who takes records may have passed them
                self.ready.set(first, origin.last, origin.history)

    # Time

    def next_expiry(self) -> int | None:
        """When the next lock may run out."""
        return self._expiries[0][0] if self._expiries else None

    def next_wakeup(self) -> int | None:
        """When, by the wall clock, the next record that waits may be given out."""
        return self._wakeups[0][0] if self._wakeups else None

    def expire(self, now_ms: int, wall_ms: int) -> Settlement:
        """Begin to return the records whose locks ran out."""
        if self.given_once.size:
            self._forget_once(now_ms)
        changes: list[Change] = []
        origins: list[Origin] = []
        timeouts = dropped = 0
        for first, last in self._expired(now_ms):
            for span in self.leases.spans(first, last):
                lease = span.value
                if lease.until_ms > now_ms:
                    continue
                if lease.kind is LeaseKind.HELD:
                    self.leases.cut(span.first, span.last)
                    self.ready.set(span.first, span.last, lease.history)
                    continue
                history = _delivered(lease.history)
                history = history._replace(timeouts=history.timeouts + 1)
                change = self._return(span.first, span.last, history, -1, wall_ms)
                count = span.last - span.first + 1
                timeouts += count
                dropped += count if change.kind is ChangeKind.ARCHIVED else 0
                changes.append(change)
                origins += self._begin(span.first, span.last)
        counts = QueueCounts(timeouts=timeouts, dropped=dropped)
        return Settlement(joined(changes), origins, counts)

    def _expired(self, now_ms: int) -> Iterator[tuple[int, int]]:
        expiries = self._expiries
        while expiries and expiries[0][0] <= now_ms:
            _, first, last = heapq.heappop(expiries)
            yield first, last

    def wake(self, wall_ms: int) -> int:
        """Have records ready whose time has come; how many."""
        wakeups = self._wakeups
        count = 0
        while wakeups and wakeups[0][0] <= wall_ms:
            not_before, first, last = heapq.heappop(wakeups)
            for span in self.waiting.spans(first, last):
                if span.value.not_before <= not_before:
                    self.waiting.cut(span.first, span.last)
                    self.ready.set(span.first, span.last, span.value)
                    count += span.last - span.first + 1
        return count

    # Single records, whoever has them

    def settle(self, offset: int) -> Settlement | None:
        """Begin to finish a record; None: it is done, or about to be."""
        finishing = Finishing()
        return finishing.settlement() if self.finish(offset, finishing) else None

    def finish(self, offset: int, finishing: Finishing) -> bool:
        """Begin to finish a record beside others; false: it is done, or about to be."""
        if self.progress.is_done(offset) or self.voids.at(offset) is not None:
            return False
        lease = self.leases.at(offset)
        if lease is not None and lease.kind is SETTLING:
            return False
        if lease is not None and lease.kind is MEMBER:
            origins = self._begin_leased([Span(offset, offset, lease)])
        else:
            origins = self._begin(offset, offset)
        first, last = self._with_voids(offset, offset)
        finishing.add(first, last, 1, origins)
        return True

    def finish_taken(self, first: int, last: int, finishing: Finishing) -> bool:
        """Begin to finish records that members have, beside others.

        False: members do not have all of them, or some are done, and nothing was begun.
        """
        progress, expected = self.progress, first
        if first < progress.start or (progress.done.size and progress.done.spans(first, last)):
            return False
        spans = self.leases.spans(first, last)
        for span in spans:
            if span.first != expected or span.value.kind is not MEMBER:
                return False
            expected = span.last + 1
        if expected <= last:
            return False
        low, high = self._with_voids(first, last)
        finishing.add(low, high, last - first + 1, self._begin_leased(spans))
        return True

    def put_back(
        self, offset: int, *, nack: bool, delay_ms: int, wall_ms: int
    ) -> Settlement | None:
        """Begin to return a record that somebody has, or that waits; None: it is not so.

        Without ``nack`` that counts as a time-out.
        """
        lease = self.leases.at(offset)
        if lease is not None and lease.kind is LeaseKind.MEMBER:
            history = _delivered(lease.history)
        elif lease is not None and lease.kind is LeaseKind.HELD:
            history = lease.history
        else:
            waiting = self.waiting.at(offset) if lease is None else None
            if waiting is None:
                return None
            history = waiting
        if nack:
            history = history._replace(nacks=history.nacks + 1)
        else:
            history = history._replace(timeouts=history.timeouts + 1)
        change = self._return(offset, offset, history, delay_ms, wall_ms, is_nack=nack)
        dropped = 1 if change.kind is ChangeKind.ARCHIVED else 0
        counts = QueueCounts(released=1, dropped=dropped)
        return Settlement([change], self._begin(offset, offset), counts)

    def hold(self, offset: int, until_ms: int) -> bool:
        """Give out a record that is fresh, ready or waiting to nobody until then; whether it is."""
        if self.leases.at(offset) is not None or self.progress.is_done(offset):
            return False
        history = FRESH
        for span in (*self.ready.cut(offset, offset), *self.waiting.cut(offset, offset)):
            history = span.value
        self._lease(offset, offset, Lease(LeaseKind.HELD, "", until_ms, history))
        return True

    def extend(self, offset: int, until_ms: int) -> bool:
        """Have nobody else get a record until then; False: it is done, or about to be."""
        lease = self.leases.at(offset)
        if lease is None:
            return self.hold(offset, until_ms)
        if lease.kind not in {LeaseKind.MEMBER, LeaseKind.HELD}:
            return False
        self._renew(Span(offset, offset, lease), until_ms)
        return True

    def release_member(self, member: str, wall_ms: int) -> Settlement:
        """Begin to return all that a member has. The deliveries count: it may have died of them."""
        ranges = [
            AckRange(span.first, span.last, AckType.RELEASE, 0)
            for span in self.leases
            if _has(span.value, member)
        ]
        return self.acknowledge(member, ranges, 0, wall_ms)

    def trim(self, log_start: int) -> Settlement | None:
        """Begin to finish what retention has taken; None: there is nothing of it."""
        start = self.progress.start
        if log_start <= start:
            return None
        for span in self.leases.cut(start, log_start - 1):
            if span.value.kind is LeaseKind.MOVING:
                self._moving_count -= span.last - span.first + 1
        for places in (self.ready, self.waiting, self.voids):
            places.cut(start, log_start - 1)
        self.pass_to(log_start)
        return Settlement([Change(ChangeKind.ARCHIVED, start, log_start - 1)], [])

    def state_of(self, offset: int, now_ms: int, wall_ms: int) -> RecordState:
        """Where the record at ``offset`` stands, if there is one."""
        if self.progress.is_done(offset):
            return RecordState(RecordStatus.ACKED)
        if self.voids.at(offset) is not None:
            return RecordState(RecordStatus.UNKNOWN)
        lease = self.leases.at(offset)
        if lease is not None:
            deliveries, nacks, timeouts, *_ = lease.history
            if lease.kind is LeaseKind.MEMBER:
                deliveries += 1
            left_ms = max(lease.until_ms - now_ms, 0) if lease.until_ms < FOREVER else -1
            return RecordState(
                RecordStatus.ACTIVE, deliveries, nacks, timeouts, lease.member, left_ms
            )
        status, left_ms, history = RecordStatus.QUEUED, -1, self.ready.at(offset)
        waiting = self.waiting.at(offset)
        if waiting is not None:
            status, history = RecordStatus.ACTIVE, waiting
            left_ms = max(waiting.not_before - wall_ms, 0)
        if history is None:
            history = FRESH
        return RecordState(status, history.deliveries, history.nacks, history.timeouts, "", left_ms)

    def knows(self, offset: int) -> bool:
        """Whether a record was looked at, and is not done."""
        places = (self.leases, self.ready, self.waiting)
        return any(place.at(offset) is not None for place in places)

    @property
    def given_up(self) -> int:
        """How many records are still to be moved to the dead letter topic, or dropped."""
        return self._moving_count

    @property
    def in_flight(self) -> int:
        """How many records members have."""
        return sum(
            span.last - span.first + 1
            for span in self.leases
            if span.value.kind is LeaseKind.MEMBER
        )


def _has(lease: Lease, member: str) -> bool:
    return lease.kind is MEMBER and lease.member == member


def _delivered(history: History) -> History:
    return history._replace(deliveries=history.deliveries + 1)
