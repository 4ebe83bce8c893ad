"""A follower's side of an incremental fetch session (KIP-227), as a pure state machine.

The first request of a session names every partition, and the leader's response gives the session an
id. Later requests name the partitions that were added, changed or removed since. Their epochs count
up, so the leader notices a missing one. If the leader gives no id, every request names everything.
"""

from collections.abc import Iterable
from typing import NamedTuple

from qbus.wire.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic

NO_SESSION = 0
_FIRST_EPOCH = 0
_MAX_EPOCH = 2**31 - 1

Key = tuple[bytes, int]
"""A topic's id and a partition's index."""


class SessionRequest(NamedTuple):
    """The session's part of a fetch request; ``number`` counts the requests of this object."""

    number: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class FetchSession:
    """The partitions to fetch from one leader."""

    def __init__(self) -> None:
        self._partitions: dict[Key, FetchPartition] = {}
        self._added_at: dict[Key, int] = {}
        self._changed: dict[Key, None] = {}
        self._removed: dict[Key, None] = {}
        self._known: set[Key] = set()
        self._number = 0
        self._first_number = 0
        self._id = NO_SESSION
        self._epoch = _FIRST_EPOCH

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def is_established(self) -> bool:
        """Whether the leader gave the session an id."""
        return self._id != NO_SESSION

    @property
    def has_changes(self) -> bool:
        """Whether a partition was added or changed since the last request."""
        return bool(self._changed)

    def add(self, key: Key, partition: FetchPartition) -> None:
        """Add or change a partition: the next request names it."""
        self._partitions[key] = partition
        self._added_at[key] = self._number
        self._changed[key] = None
        self._removed.pop(key, None)

    def remove(self, key: Key) -> None:
        """Remove a partition; responses that are under way no longer count for it."""
        if self._partitions.pop(key, None) is not None:
            del self._added_at[key]
            self._changed.pop(key, None)
            if key in self._known:
                self._removed[key] = None

    def next_request(self) -> SessionRequest:
        """Return the next request."""
        number, self._number = self._number, self._number + 1
        if not self.is_established:
            request = SessionRequest(
                number, NO_SESSION, _FIRST_EPOCH, self._topics(self._partitions), []
            )
            self._known = set(self._partitions)
        else:
            self._epoch = self._epoch + 1 if self._epoch < _MAX_EPOCH else 1
            topics, forgotten = self._topics(self._changed), _forgotten(self._removed)
            request = SessionRequest(number, self._id, self._epoch, topics, forgotten)
            self._known.difference_update(self._removed)
            self._known.update(self._changed)
        self._changed.clear()
        self._removed.clear()
        return request

    def is_of_session(self, number: int) -> bool:
        """Whether request ``number`` belongs to this session, not to one before it."""
        return number >= self._first_number

    def answered(self, session_id: int) -> None:
        """Handle a response with ``session_id``; 0: the leader keeps no session."""
        if session_id != self._id:
            self._id = session_id
            self._epoch = _FIRST_EPOCH

    def restart(self) -> None:
        """Start a new session: the leader lost this one, or the connection is new."""
        self._id = NO_SESSION
        self._epoch = _FIRST_EPOCH
        self._first_number = self._number
        self._known.clear()
        self._removed.clear()

    def is_current(self, key: Key, number: int) -> bool:
        """Whether the response to request ``number`` counts for a partition as it is wanted now."""
        added_at = self._added_at.get(key)
        return added_at is not None and max(added_at, self._first_number) <= number

    def _topics(self, keys: Iterable[Key]) -> list[FetchTopic]:
        topics: dict[bytes, FetchTopic] = {}
        for key in keys:
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = FetchTopic(topic_id=key[0], partitions=[])
            topic.partitions.append(self._partitions[key])
        return list(topics.values())


def _forgotten(keys: Iterable[Key]) -> list[ForgottenTopic]:
    topics: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in keys:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ForgottenTopic(topic_id=topic_id, partitions=[])
        topic.partitions.append(index)
    return list(topics.values())
