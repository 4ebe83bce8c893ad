"""What the members of a group have done, and whether it was right."""

import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from typing import NamedTuple


class Event(NamedTuple):
    """Something happened to a member, as :mod:`.group_member` prints it."""

    what: str
    at: float
    offsets: dict[int, int]


@dataclass
class Story:
    """All that a member told. ``died_at``: when it was killed."""

    name: str
    events: list[Event] = field(default_factory=list)
    died_at: float | None = None

    @property
    def has_left(self) -> bool:
        """Whether it has closed its consumer."""
        return bool(self.events) and self.events[-1].what == "left"

    @property
    def holds(self) -> set[int]:
        """The partitions that it has now."""
        held: set[int] = set()
        for event in list(self.events):
            if event.what == "assigned":
                held |= event.offsets.keys()
            elif event.what in {"revoked", "lost"}:
                held -= event.offsets.keys()
            elif event.what == "left":
                held.clear()
        return set() if self.died_at is not None else held


class Crew:
    """Members in a process of their own, which takes the words of :mod:`.group_member`."""

    def __init__(self, command: Sequence[str]) -> None:
        self.living: dict[str, Story] = {}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._stories: dict[str, Story] = {}
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def join(self, name: str) -> Story:
        """Have a new member join; return what it will tell."""
        story = self.living[name] = self._stories[name] = Story(name)
        self._say("join", name)
        return story

    def unsubscribe(self, name: str) -> None:
        """Have a member leave the group, and stay."""
        self._say("unsubscribe", name)

    def subscribe(self, name: str) -> None:
        """Have a member that unsubscribed come again."""
        self._say("subscribe", name)

    def leave(self, name: str) -> None:
        """Have a member close its consumer."""
        del self.living[name]
        self._say("leave", name)

    def leave_all(self, timeout: float) -> None:
        """Have all members leave and the process end; fail unless it does so well in time."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(timeout)
        self._close()
        assert code == 0, f"{[*self.living]} ended with {code}"

    def die(self) -> None:
        """End at once, without a word."""
        now = time.monotonic()
        self._process.kill()
        self._process.wait()
        for story in self._stories.values():
            if not story.has_left:
                story.died_at = now
        self._close()

    def end(self) -> None:
        """Kill it if it runs."""
        if self._process.poll() is None:
            self.die()

    @property
    def lives(self) -> bool:
        """Whether it runs, as it should unless it was told to end."""
        return self._process.poll() is None

    def _say(self, word: str, name: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word} {name}\n")
        self._process.stdin.flush()

    def _close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._listening.join()
        self._process.stdin.close()
        self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                return  # killed while it wrote
            name, what, at, offsets = json.loads(line)
            event = Event(what, at, {int(one): offset for one, offset in offsets.items()})
            self._stories[name].events.append(event)


def python_crew(kind: str, bootstrap: str, topic: str, group: str) -> Crew:
    """Return a crew of librdkafka's or Qbus's own consumers, yet without members."""
    return Crew([sys.executable, "-m", "tests.cluster.group_member", kind, bootstrap, topic, group])


@dataclass
class Stay:
    """A member had a partition for a time, read some of it, and committed up to an offset.

    end: revoked, lost, died, or nothing when it has it still. Of what was lost it was told late;
        what a member had when it was expelled is lost, even if it was told that it is revoked.
    reads: when it read which offset.
    """

    member: str
    partition: int
    since: float
    until: float = float("inf")
    end: str = ""
    reads: list[tuple[float, int]] = field(default_factory=list)
    committed: int = 0

    def note(self, event: Event, offset: int) -> None:
        """Take in that it read or committed an offset."""
        if event.what == "read":
            self.reads.append((event.at, offset))
        elif event.what == "committed":
            self.committed = max(offset, self.committed)

    def __str__(self) -> str:
        until = "on" if self.until == float("inf") else f"to {self.until:.3f}"
        return f"{self.member} from {self.since:.3f} {until} ({self.end or 'has it'})"


def stays(stories: Iterable[Story]) -> dict[int, list[Stay]]:
    """Return who had each partition when, in order of time."""
    found: dict[int, list[Stay]] = defaultdict(list)
    for story in stories:
        for stay in _stays(story):
            found[stay.partition].append(stay)
    return {partition: sorted(one, key=lambda stay: stay.since) for partition, one in found.items()}


def _stays(story: Story) -> Iterator[Stay]:
    running: dict[int, Stay] = {}
    expelled: set[int] = set()
    leaving_at: float | None = None
    for event in list(story.events):
        if event.what == "expelled":
            expelled = set(running)
        elif event.what == "leaving":
            leaving_at = event.at
        elif event.what == "left":  # librdkafka does not always say what it gave up on closing
            at = event.at if leaving_at is None else leaving_at  # others had it before it returned
            event = Event("revoked", at, dict.fromkeys(running, -1))
        for partition, offset in event.offsets.items():
            if event.what == "assigned":
                running.setdefault(partition, Stay(story.name, partition, event.at))
            elif event.what in {"revoked", "lost"} and partition in running:
                end = "lost" if partition in expelled else event.what
                expelled.discard(partition)
                yield replace(running.pop(partition), until=event.at, end=end)
            elif partition in running:
                running[partition].note(event, offset)
    for stay in running.values():
        died = story.died_at
        yield stay if died is None else replace(stay, until=died, end="died")


def double_owners(stories: Iterable[Story], session: float = 0.0) -> list[str]:
    """Return where two members had one partition.

    ``session``: seconds for which nobody else may have what a killed member had, nor what a member
    had that was expelled and learns of it late, since it was last told of partitions.
    """
    told = list(stories)
    heard = {story.name: _heard(story) for story in told}
    return [
        f"{partition}: {one} and {other}"
        for partition, held in stays(told).items()
        for one, other in combinations(held, 2)
        if other.member != one.member
        and other.since < _free_from(one, other.since, heard[one.member], session)
    ]


def _free_from(one: Stay, at: float, heard: Sequence[float], session: float) -> float:
    """From when others may have what a member had, as far as is known at a time."""
    if one.end == "lost":
        return min(one.until, max(when for when in heard if when <= at) + session)
    return one.until + (session if one.end == "died" else 0.0)


def expelled_early(stories: Iterable[Story], session: float) -> list[str]:
    """Return which members lost their place within so many seconds of being told of partitions."""
    return [
        f"{story.name} is told {event.at - heard:.3f} s later: {event}"
        for story in stories
        for heard, event in _expulsions(story)
        if event.at < heard + session
    ]


def expelled(stories: Iterable[Story]) -> list[str]:
    """Return which members lost their place while they had partitions."""
    return [story.name for story in stories if any(_expulsions(story))]


def _expulsions(story: Story) -> Iterator[tuple[float, Event]]:
    """When a member was last told of partitions, and how it learned that it lost its place.

    That it lost what it has given up is no news: Java says so on closing.
    """
    heard, held = -float("inf"), set[int]()
    for event in list(story.events):
        if event.what == "assigned":
            heard = event.at
            held |= event.offsets.keys()
        elif event.what == "expelled" or (event.what == "lost" and held & event.offsets.keys()):
            yield heard, event
        if event.what in {"revoked", "lost"}:
            held -= event.offsets.keys()


def _heard(story: Story) -> list[float]:
    """When a member is known to have heard from the group: heartbeats are not told of."""
    return [event.at for event in list(story.events) if event.what == "assigned"]


def foreign_reads(stories: Iterable[Story]) -> list[str]:
    """Return where a member read of a partition that it did not have."""
    wrong = []
    for story in stories:
        held: set[int] = set()
        for event in list(story.events):
            if event.what == "assigned":
                held |= event.offsets.keys()
            elif event.what in {"revoked", "lost"}:
                held -= event.offsets.keys()
            elif event.what == "read" and not held.issuperset(event.offsets):
                wrong.append(f"{story.name} reads {event.offsets} at {event.at:.3f}")
    return wrong


def lost_commits(stories: Iterable[Story]) -> list[str]:
    """Return where a member began to read before what was committed before it got the partition."""
    told = list(stories)
    commits = _commits(told)
    wrong = []
    for partition, held in stays(told).items():
        for stay in held:
            first = stay.reads[0][1] if stay.reads else float("inf")
            known = (one.offset for one in commits[partition] if one.known_at < stay.since)
            if first < (least := max(known, default=0)):
                wrong.append(f"{stay.member} reads {partition} from {first}, not {least}")
    return wrong


def commits_set_back(stories: Iterable[Story]) -> list[str]:
    """Return where a member committed less than was committed before."""
    wrong = []
    for partition, commits in _commits(stories).items():
        for one, other in pairwise(commits):
            if other.offset < one.offset:
                wrong.append(f"{partition}: {other}, after {one}")
    return wrong


def late_commits(stories: Iterable[Story]) -> list[str]:
    """Return where a member could commit what another one had been given before it began to."""
    told = list(stories)
    commits = _commits(told)
    wrong = []
    for partition, held in stays(told).items():
        for commit in commits[partition]:
            own = [one for one in held if one.member == commit.member]
            since = max((one.since for one in own if one.since <= commit.begun_at), default=0.0)
            wrong += [
                f"{partition}: {commit}, which {other} had"
                for other in held
                if since < other.since < commit.begun_at and other.member != commit.member
            ]
    return wrong


def read_again(stories: Iterable[Story]) -> list[str]:
    """Return where a record was read again, unless whoever read it died before it committed it.

    A member that was expelled, and learned of it late, counts as one that died: what others read
    meanwhile of what it had, it may read as well. Whether it may have been expelled by then is for
    :func:`double_owners` to say.
    """
    wrong = []
    for partition, held in stays(stories).items():
        readers: dict[int, list[Stay]] = defaultdict(list)
        reads = ((at, offset, stay) for stay in held for at, offset in stay.reads)
        for at, offset, stay in sorted(reads, key=lambda read: read[0]):
            wrong += [
                f"{partition}: {offset} at {at:.3f} by {stay}, before by {former}"
                for former in readers[offset]
                if former is stay or not _may_both_read(offset, former, stay)
            ]
            readers[offset].append(stay)
    return wrong


def _may_both_read(offset: int, former: Stay, later: Stay) -> bool:
    if former.end in {"died", "lost"} and offset >= former.committed:
        return True
    return later.end == "lost" and later.since < former.since


def gaps(stories: Iterable[Story]) -> list[str]:
    """Return where a member read another record than the next, or began beyond what is committed.

    What a member may have committed counts, though it never knew: it began to.
    """
    told = list(stories)
    begun = _begun_commits(told)
    wrong = []
    for partition, held in stays(told).items():
        for stay in (one for one in held if one.reads):
            (at, first), *_ = stay.reads
            most = max((offset for since, offset in begun[partition] if since < at), default=0)
            if first > most:
                wrong.append(f"{partition}: {stay} begins with {first}, {most} is committed")
            wrong += [
                f"{partition}: {stay} reads {after} after {before} at {at:.3f}"
                for (_, before), (at, after) in pairwise(stay.reads)
                if after != before + 1
            ]
    return wrong


class Sighting(NamedTuple):
    """What a further client was told that the group has committed, when it asked at a time."""

    asked_at: float
    committed: Mapping[int, int]


def forgotten(stories: Iterable[Story], sightings: Sequence[Sighting]) -> list[str]:
    """Return where a client saw less than was committed when it asked, or than it saw before."""
    wrong = []
    commits = _commits(stories)
    seen: dict[int, int] = {}
    for asked_at, committed in sightings:
        for partition, offset in committed.items():
            known = (one.offset for one in commits[partition] if one.known_at < asked_at)
            least = max(*known, seen.get(partition, 0), 0)
            if offset < least:
                wrong.append(f"{partition}: {offset} at {asked_at:.3f}, not {least}")
            seen[partition] = offset
    return wrong


def pauses(stories: Iterable[Story]) -> dict[str, list[float]]:
    """Return for how long partitions were nobody's, by how the time before ended: in seconds."""
    found: dict[str, list[float]] = defaultdict(list)
    for held in stays(stories).values():
        for one, other in pairwise(held):
            found[one.end].append(other.since - one.until)
    return dict(found)


def unread(stories: Iterable[Story], ends: Mapping[int, int]) -> dict[int, int]:
    """Return how many records of each partition nobody has read, where there are any."""
    seen: dict[int, set[int]] = defaultdict(set)
    for story in stories:
        for event in list(story.events):
            if event.what == "read":
                for partition, offset in event.offsets.items():
                    seen[partition].add(offset)
    missing = {partition: end - len(seen[partition]) for partition, end in ends.items()}
    return {partition: count for partition, count in missing.items() if count}


class Commit(NamedTuple):
    """A member knew at a time that an offset is committed; it had begun to do so before."""

    known_at: float
    offset: int
    member: str
    begun_at: float

    def __str__(self) -> str:
        return f"{self.offset} by {self.member} from {self.begun_at:.3f} to {self.known_at:.3f}"


def _commits(stories: Iterable[Story]) -> dict[int, list[Commit]]:
    """Return the commits of each partition that are known to be stored, in order of time."""
    found: dict[int, list[Commit]] = defaultdict(list)
    for story in stories:
        begun: dict[int, float] = {}
        for event in list(story.events):
            for partition, offset in event.offsets.items():
                if event.what == "committing":
                    begun[partition] = event.at
                elif event.what == "committed":
                    since = begun.get(partition, event.at)
                    found[partition].append(Commit(event.at, offset, story.name, since))
    return defaultdict(list, {partition: sorted(one) for partition, one in found.items()})


def _begun_commits(stories: Iterable[Story]) -> dict[int, list[tuple[float, int]]]:
    """Return when a commit of which offset was begun, or else known to be stored."""
    found: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for story in stories:
        for event in list(story.events):
            if event.what in {"committing", "committed"}:
                for partition, offset in event.offsets.items():
                    found[partition].append((event.at, offset))
    return found
