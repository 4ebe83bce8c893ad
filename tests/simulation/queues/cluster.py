"""Three replicas of a partition, members of a group, and what goes wrong with them.

The log of each replica is a list with an entry for each offset: the id of a record, or the control
records of a hidden batch. The high watermark is what all in-sync replicas have; a replica falls
out of them and comes back. Any in-sync replica may become leader; the others cut off what it lacks.
The wall clock is set forward and back; each broker has a clock of its own that never goes back.
"""

import random
from collections.abc import Callable
from typing import NamedTuple

from qbus.broker.queues.fold import GroupProgress, QueueFold
from qbus.broker.queues.settings import GroupSettings
from qbus.broker.queues.settlement import Finishing, Reason, Settlement
from qbus.broker.queues.state import QueueState
from qbus.broker.queues.types import AckRange, AckType
from qbus.errors import ApiError
from qbus.records.control import (
    Change,
    ChangeKind,
    ControlRecord,
    ControlType,
    History,
    Shared,
    encode_shared,
)
from tests.support.ranges import spans

from .checks import Checks

GROUP = "g"
REPLICAS = 3
MEMBERS = ("a", "b", "c", "d")
HALVING = MEMBERS[:2]
"""Those who say again in halves what is refused, as our client does. The others take all of it as
lost until they get it again, as Kafka's client does."""
LOCK_MS = 30_000
STEPS = 250
SETTINGS = GroupSettings(
    lock_ms=LOCK_MS,
    delivery_limit=6,
    partition_max_locks=12,
    backoff_ms=500,
    backoff_max_ms=20_000,
)


HAPPENINGS = {
    "produce": 10,
    "commit": 30,
    "take": 20,
    "ack": 25,
    "time": 10,
    "expire": 10,
    "admin": 4,
    "session": 1,
    "clock": 1,
    "fail": 2,
}
"""What happens, and how often."""


class Bugs(NamedTuple):
    """Mistakes to plant."""

    answers_before_stored: bool = False
    keeps_locks: bool = False
    resets_counts: bool = False
    moves_start_over: bool = False


Entry = int | bytes
"""The id of a record, or the value of a SHARED record."""


class Replica:
    """One replica's log, and what it makes of it."""

    def __init__(self, number: int, rng: random.Random) -> None:
        self.number = number
        self.log: list[Entry] = []
        self.fold = QueueFold()
        self.is_in_sync = True
        self.now_ms = rng.randrange(1_000_000)
        self.kept: QueueState | None = None  # of its last leadership
        self._rng = rng
        self._snapshots: list[tuple[int, bytes]] = []

    def append(self, entry: Entry) -> int:
        """Append an entry; its offset."""
        offset = len(self.log)
        self.log.append(entry)
        self._apply(offset, entry)
        if self._rng.random() < 0.05:
            self._snapshots.append((len(self.log), b"".join(self.fold.encode())))
        return offset

    def _apply(self, offset: int, entry: Entry) -> None:
        if isinstance(entry, bytes):
            self.fold.control(ControlRecord(offset, ControlType.SHARED, entry))

    def follow(self, leader: "Replica", end: int) -> None:
        """Have what the leader has before ``end``, and nothing else."""
        common = 0
        while common < min(len(self.log), len(leader.log)):
            if self.log[common] is not leader.log[common]:
                break
            common += 1
        if common < len(self.log):
            self.truncate(common)
        for entry in leader.log[len(self.log) : end]:
            self.append(entry)

    def truncate(self, offset: int) -> None:
        """Cut off the end; the fold comes from a snapshot and what is behind it."""
        del self.log[offset:]
        self._snapshots = [known for known in self._snapshots if known[0] <= offset]
        self.recover()

    def recover(self) -> None:
        """Make the fold again, as after a restart."""
        self.fold = QueueFold()
        start = 0
        if self._snapshots:
            start, content = self._snapshots[-1]
            self.fold.restore(content)
        for number, entry in enumerate(self.log[start:], start):
            self._apply(number, entry)


class Pending(NamedTuple):
    """An answer that waits for the high watermark."""

    end: int
    answer: Callable[[], None]


class Cluster:
    """The partition, and everybody who uses it."""

    def __init__(self, seed: int, bugs: Bugs) -> None:
        self.rng = random.Random(seed)
        self.checks = Checks()
        self.bugs = bugs
        self.replicas = [Replica(number, self.rng) for number in range(REPLICAS)]
        self.leader = self.replicas[0]
        self.high_watermark = 0
        self.wall_ms = 1_700_000_000_000
        self.pending: list[Pending] = []
        self.next_id = 0
        self.is_calm = False
        started = Shared(GROUP, [Change(ChangeKind.STARTED, 0, 0)])
        self.leader.append(encode_shared(started))
        self.commit(all_replicas=True)
        self.state = self.begin()

    # The broker

    @property
    def progress(self) -> GroupProgress:
        return self.leader.fold.groups[GROUP]

    def begin(self) -> QueueState:
        """Begin to lead the queue."""
        kept = self.leader.kept
        if self.bugs.keeps_locks and kept is not None:
            kept.progress = self.progress
            return kept
        progress = self.progress
        if self.bugs.resets_counts:
            for span in list(progress.returned):
                history = History(0, 0, 0, span.value.not_before)
                progress.returned.set(span.first, span.last, history)
        state = QueueState(progress, SETTINGS, 0, self.wall_ms)
        self.leader.kept = state
        return state

    def fail_over(self) -> None:
        """Another in-sync replica leads, or the same one again after a restart."""
        candidates = [replica for replica in self.replicas if replica.is_in_sync]
        leader = self.rng.choice(candidates)
        if leader is self.leader:
            leader.recover()
            if not self.bugs.keeps_locks:
                leader.kept = None
        self.leader = leader
        self.pending.clear()  # nobody gets an answer
        for replica in self.replicas:
            if replica is not leader:
                replica.follow(leader, min(len(replica.log), len(leader.log)))
        for replica in self.replicas:  # with a fold that is as if made from the whole log
            whole = QueueFold()
            for offset, entry in enumerate(replica.log):
                if isinstance(entry, bytes):
                    whole.control(ControlRecord(offset, ControlType.SHARED, entry))
            assert self.bugs.resets_counts or summary(whole) == summary(replica.fold)
        self.checks.new_leader()
        self.state = self.begin()

    def commit(self, *, all_replicas: bool = False) -> None:
        """Have followers fetch, and the high watermark follow."""
        for replica in self.replicas:
            if replica is not self.leader:
                self.fetch(replica, everything=all_replicas)
        self.leader.is_in_sync = True
        in_sync = [len(replica.log) for replica in self.replicas if replica.is_in_sync]
        reached = min(in_sync)
        for entry in self.leader.log[self.high_watermark : reached]:
            if isinstance(entry, int):
                self.checks.committed.add(entry)
        self.high_watermark = max(self.high_watermark, reached)
        pending, self.pending = self.pending, []
        for one in pending:
            if one.end > self.high_watermark:
                self.pending.append(one)
            elif self.is_calm or self.rng.random() > 0.1:  # else the answer is lost
                one.answer()

    def fetch(self, replica: Replica, *, everything: bool) -> None:
        """Have a follower fetch, and be in sync or not."""
        end = len(self.leader.log)
        if not everything:
            end = self.rng.randint(min(len(replica.log), end), end)
        replica.follow(self.leader, end)
        if len(replica.log) >= self.high_watermark and self.rng.random() < 0.5:
            replica.is_in_sync = True
        elif not everything and self.rng.random() < 0.05:
            replica.is_in_sync = False

    def store(self, settlement: Settlement, answer: Callable[[], None] | None = None) -> None:
        """Append what a queue does, or fail to."""
        if not self.is_calm and self.rng.random() < 0.05:
            self.state.failed(settlement)
            return
        self.leader.append(encode_shared(Shared(GROUP, settlement.changes)))
        self.state.stored(settlement, self.wall_ms)
        for change in settlement.changes:
            if change.kind is not ChangeKind.RETURNED:
                self.note_finished(change)
        if answer is not None:
            if self.bugs.answers_before_stored:
                answer()
            else:
                self.pending.append(Pending(len(self.leader.log), answer))
        self.check_start()

    def note_finished(self, change: Change) -> None:
        """Dropped at the limit, at least: whoever asks notes it before."""
        limit = SETTINGS.delivery_limit
        for record in self.records(change.first, change.last):
            if self.checks.counted.get(record, 0) >= limit:
                self.checks.finished.add(record)

    def check_start(self) -> None:
        """Nothing before the start is left."""
        start = min(self.progress.start, len(self.leader.log))
        self.checks.all_before(self.records(0, start - 1))

    def records(self, first: int, last: int) -> list[int]:
        """The ids of the records at these offsets."""
        return [entry for entry in self.leader.log[first : last + 1] if isinstance(entry, int)]

    # What happens

    def produce(self) -> None:
        for _ in range(self.rng.randint(1, 5)):
            self.leader.append(self.next_id)
            self.next_id += 1

    def take(self, member: str, most: int) -> None:
        """Give out what is ready, then what is fresh."""
        self.give_out(member, most)
        left_over = self.state.left_over()
        if left_over is not None:
            self.store(left_over)

    def give_out(self, member: str, most: int) -> None:
        state, now_ms = self.state, self.leader.now_ms
        while most > 0 and state.has_room:
            lowest = state.ready.lowest()
            if lowest is not None:
                last = min(lowest.last, lowest.first + most - 1)
                self.give(member, lowest.first, last, now_ms)
                most -= last - lowest.first + 1
                continue
            offset = state.next_fresh
            if offset >= self.high_watermark:
                return
            if isinstance(self.leader.log[offset], bytes):
                state.pass_void(offset, offset)
                continue
            last = offset
            while (
                last + 1 < self.high_watermark
                and last + 1 < offset + most
                and isinstance(self.leader.log[last + 1], int)
            ):
                last += 1
            free = state.fresh(offset, last)
            if not free:
                state.pass_to(last + 1)
                continue
            low, high = free[0]
            self.give(member, low, high, now_ms)
            state.pass_to(high + 1)
            most -= high - low + 1

    def give(self, member: str, first: int, last: int, now_ms: int) -> None:
        offset = first
        while offset <= last:
            record = self.leader.log[offset]
            assert isinstance(record, int)
            if record % 13 == 0:  # nobody wants it
                self.checks.finished.add(record)
                self.store(self.state.drop(offset, offset, Reason.FILTERED))
            elif record % 7 == 0:
                self.give_at_most_once(offset, record)
            else:
                until_ms = now_ms + LOCK_MS
                for part in self.state.give(offset, offset, member, until_ms):
                    deliveries = part.history.deliveries + 1
                    self.checks.given(record, member, now_ms, until_ms, deliveries)
            offset += 1

    def give_at_most_once(self, offset: int, record: int) -> None:
        settlement, _ = self.state.give_at_most_once(offset)
        self.checks.finished.add(record)
        self.store(settlement, lambda: self.checks.given_once(record))

    def acknowledge(self, member: str) -> None:
        """Say something of what a member has, or believes to have."""
        believed = [
            record
            for record, (holder, _) in self.checks.holders.items()
            if holder == member and (member, record) not in self.checks.forgotten
        ]
        if self.rng.random() < 0.1:  # it comes late, or again
            believed += self.rng.sample(range(self.next_id), min(self.next_id, 1))
        offsets = sorted(self.leader.log.index(one) for one in believed if one in self.leader.log)
        picked = [offset for offset in offsets if self.rng.random() < 0.6 or self.is_calm]
        kinds = (AckType.ACCEPT,) if self.is_calm else self.kinds()
        ranges = [
            AckRange(offset, offset, self.rng.choice(kinds)) for offset in dict.fromkeys(picked)
        ]
        if ranges:
            self.say(member, ranges)

    def say(self, member: str, ranges: list[AckRange]) -> None:
        """Have the leader take a member's word: all of it, or nothing.

        What is before the group's start is done, and passed over in silence.
        """
        start = self.progress.start
        try:
            settlement = self.state.acknowledge(member, ranges, self.leader.now_ms, self.wall_ms)
        except ApiError:
            if member in HALVING and len(ranges) > 1:
                middle = len(ranges) // 2
                self.say(member, ranges[:middle])
                self.say(member, ranges[middle:])
            else:
                for ack in ranges:
                    self.checks.forget(member, self.records(ack.first, ack.last))
        else:
            self.acted(member, [ack for ack in ranges if ack.first >= start], settlement)

    def kinds(self) -> tuple[AckType, ...]:
        accept, release = AckType.ACCEPT, AckType.RELEASE
        return (accept, accept, accept, release, AckType.REJECT, AckType.RENEW)

    def acted(self, member: str, ranges: list[AckRange], settlement: Settlement) -> None:
        """A member's word is taken."""
        done: list[int] = []
        returned: list[int] = []
        for ack in ranges:
            for record in self.records(ack.first, ack.last):
                self.checks.accepted_from(record, member)
                if ack.type == AckType.RENEW:
                    self.checks.holders[record] = (member, self.leader.now_ms + LOCK_MS)
                    continue
                if ack.type in {AckType.ACCEPT, AckType.REJECT}:
                    self.checks.finished.add(record)
                    done.append(record)
                else:
                    returned.append(record)
        if settlement.changes:
            count = len(self.leader.log)
            self.store(settlement, lambda: self.answered(done, returned))
            if len(self.leader.log) > count:
                for record in done + returned:
                    self.checks.let_go(record)

    def answered(self, done: list[int], returned: list[int]) -> None:
        """A member hears that its word is stored."""
        self.checks.acknowledged.update(done)
        self.checks.returned.update(returned)

    def expire(self) -> None:
        """Have locks run out, and what waits be given out."""
        state, now_ms = self.state, self.leader.now_ms
        settlement = state.expire(now_ms, self.wall_ms)
        if settlement.changes:
            self.store(settlement)
        state.wake(self.wall_ms)

    def admin(self) -> None:
        """Finish, put back, hold or extend any record."""
        offset = self.rng.randrange(len(self.leader.log))
        record = self.leader.log[offset]
        if not isinstance(record, int) or offset >= self.high_watermark or record % 7 == 0:
            return
        state, now_ms = self.state, self.leader.now_ms
        what = self.rng.randrange(4)
        if what == 0:
            self.finish(offset)
        elif what == 1:
            was_held = state.state_of(offset, now_ms, self.wall_ms).member
            nack = self.rng.random() < 0.5
            settlement = state.put_back(offset, nack=nack, delay_ms=0, wall_ms=self.wall_ms)
            if settlement is not None:
                returned = [record] if was_held else []
                count = len(self.leader.log)
                self.store(settlement, lambda: self.answered([], returned))
                if len(self.leader.log) > count:
                    self.checks.let_go(record)
        elif what == 2:
            state.hold(offset, now_ms + LOCK_MS)
        else:
            holder = self.checks.holders.get(record)
            if holder is not None and state.extend(offset, now_ms + LOCK_MS):
                self.checks.holders[record] = (holder[0], now_ms + LOCK_MS)

    def finish(self, offset: int) -> None:
        """Finish a record, and some of those behind it, in one turn."""
        finishing, finished = Finishing(), dict[int, int]()
        end = min(offset + self.rng.randint(1, 4), self.high_watermark)
        records = {
            at: record
            for at in range(offset, end)
            if isinstance(record := self.leader.log[at], int) and record % 7
        }
        together = len(records) == end - offset and self.rng.random() < 0.5
        if together and self.state.finish_taken(offset, end - 1, finishing):
            finished = records
        else:
            for at in self.rng.sample(sorted(records), len(records)):
                if self.state.finish(at, finishing):
                    finished[at] = records[at]
        if finished:
            self.checks.finished.update(finished.values())
            done = list(finished.values())
            self.store(finishing.settlement(), lambda: self.answered(done, []))
            for at, record in finished.items():
                if self.progress.is_done(at):
                    self.checks.let_go(record)

    def end_session(self, member: str) -> None:
        settlement = self.state.release_member(member, self.wall_ms)
        returned = [
            record
            for origin in settlement.origins
            for record in self.records(origin.first, origin.last)
        ]
        if settlement.changes:
            count = len(self.leader.log)
            self.store(settlement, lambda: self.answered([], returned))
            if len(self.leader.log) > count:
                for record in returned:
                    self.checks.let_go(record)

    def pass_time(self, most_ms: int) -> None:
        ms = self.rng.randint(0, most_ms)
        self.wall_ms += ms
        for replica in self.replicas:
            replica.now_ms += ms

    def step(self) -> None:
        rng = self.rng
        happening = rng.choices(tuple(HAPPENINGS), tuple(HAPPENINGS.values()))[0]
        if happening == "produce":
            self.produce()
        elif happening == "commit":
            self.commit()
        elif happening == "take":
            self.take(rng.choice(MEMBERS), rng.randint(1, 6))
        elif happening == "ack":
            self.acknowledge(rng.choice(MEMBERS))
        elif happening == "time":
            self.pass_time(15_000)
        elif happening == "expire":
            self.expire()
        elif happening == "admin":
            self.admin()
        elif happening == "session":
            self.end_session(rng.choice(MEMBERS))
        elif happening == "clock":
            self.wall_ms += rng.randint(-3_600_000, 3_600_000)
        else:
            self.fail_over()

    def calm_down(self) -> None:
        """Nothing goes wrong any more, until everything is done."""
        self.is_calm = True
        for _ in range(60):
            self.commit(all_replicas=True)
            self.pass_time(60_000)
            self.wall_ms += 1_000_000
            self.expire()
            for member in MEMBERS:
                self.take(member, 100)
                self.acknowledge(member)
        for replica in self.replicas:
            replica.is_in_sync = True
        self.commit(all_replicas=True)


def summary(fold: QueueFold) -> object:
    """What a fold says, in a form that can be compared."""
    return {
        name: (group.start, spans(group.done), spans(group.returned), group.mentioned_at)
        for name, group in fold.groups.items()
    }


NO_BUGS = Bugs()


def simulate(seed: int, bugs: Bugs = NO_BUGS) -> Checks:
    """Run a history; raises ViolationError when a promise is broken."""
    cluster = Cluster(seed, bugs)
    for _ in range(STEPS):
        cluster.step()
    cluster.calm_down()
    cluster.checks.at_the_end()
    cluster.checks.nothing_between(len(cluster.progress.done))
    return cluster.checks
