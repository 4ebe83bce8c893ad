"""What the members of a group have done, and whether it was right."""

import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
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


class GroupMember:
    """A member in a process of its own."""

    def __init__(self, name: str, kind: str, bootstrap: str, topic: str, group: str) -> None:
        self.story = Story(name)
        module = "tests.cluster.group_member"
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, kind, bootstrap, topic, group],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def leave(self, timeout: float) -> None:
        """Leave the group, and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(timeout)
        self._close()
        assert code == 0, f"{self.story.name} ended with {code}"

    def die(self) -> None:
        """End at once, without a word."""
        self._process.kill()
        self._process.wait()
        self.story.died_at = time.monotonic()
        self._close()

    def end(self) -> None:
        """Kill it if it runs."""
        if self._process.poll() is None:
            self.die()

    @property
    def lives(self) -> bool:
        """Whether it runs, as it should unless it was told to end."""
        return self._process.poll() is None

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
            what, at, offsets = json.loads(line)
            event = Event(what, at, {int(one): offset for one, offset in offsets.items()})
            self.story.events.append(event)


class Holding(NamedTuple):
    """A member had a partition from a time until another. ``is_lost``: it was told that late."""

    since: float
    until: float
    member: str
    is_lost: bool


def holdings(stories: Iterable[Story]) -> dict[int, list[Holding]]:
    """Return who had each partition when, in order of time."""
    found: dict[int, list[Holding]] = defaultdict(list)
    for story in stories:
        since: dict[int, float] = {}
        for event in story.events:
            for partition in event.offsets if event.what in {"assigned", "revoked", "lost"} else ():
                if event.what == "assigned":
                    since.setdefault(partition, event.at)
                elif partition in since:
                    is_lost = event.what == "lost"
                    held = Holding(since.pop(partition), event.at, story.name, is_lost)
                    found[partition].append(held)
        for partition, at in since.items():
            until = float("inf") if story.died_at is None else story.died_at
            found[partition].append(Holding(at, until, story.name, is_lost=False))
    return {partition: sorted(held) for partition, held in found.items()}


def double_owners(stories: Iterable[Story]) -> list[str]:
    """Return where two members had one partition; one that was expelled may learn of it late."""
    return [
        f"{partition}: {one} and {other}"
        for partition, held in holdings(stories).items()
        for one, other in combinations(held, 2)
        if other.since < one.until and other.member != one.member and not one.is_lost
    ]


def lost_commits(stories: Iterable[Story]) -> list[str]:
    """Return where a member began to read before what was committed before it got the partition."""
    told = list(stories)
    commits = [
        (partition, event.at, offset)
        for story in told
        for event in story.events
        if event.what == "committed"
        for partition, offset in event.offsets.items()
    ]
    wrong = []
    for story in told:
        for partition, since, first in _beginnings(story):
            known = (at for one, when, at in commits if one == partition and when < since)
            if first < (least := max(known, default=0)):
                wrong.append(f"{story.name} reads {partition} from {first}, not {least}")
    return wrong


def _beginnings(story: Story) -> Iterator[tuple[int, float, int]]:
    """Yield each partition that a member got, when, and the first offset that it read then."""
    since: dict[int, float] = {}
    for event in story.events:
        for partition, offset in event.offsets.items():
            if event.what == "assigned":
                since[partition] = event.at
            elif event.what == "read" and partition in since:
                yield partition, since.pop(partition), offset


def unread(stories: Iterable[Story], ends: dict[int, int]) -> dict[int, int]:
    """Return how many records of each partition nobody has read, where there are any."""
    seen: dict[int, set[int]] = defaultdict(set)
    for story in stories:
        for event in story.events:
            if event.what == "read":
                for partition, offset in event.offsets.items():
                    seen[partition].add(offset)
    missing = {partition: end - len(seen[partition]) for partition, end in ends.items()}
    return {partition: count for partition, count in missing.items() if count}
