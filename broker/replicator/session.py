"""A follower's side of an incremental fetch session (KIP-227), as a pure state machine.

The first request of a session names every partition, and the leader's answer gives the session an
id. Later ones name only what is asked for differently than before, and what is not asked for any
more; their epochs count up, so that the leader notices when one is missing. A leader that gives no
id is asked for everything each time.
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
    """The part of a fetch request that is the session's; ``number`` counts them."""

    number: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class FetchSession:
    """What one leader is asked for."""

    def __init__(self) -> None:
        self._asked: dict[Key, FetchPartition] = {}
        self._since: dict[Key, int] = {}
        self._changed: dict[Key, None] = {}
        self._gone: dict[Key, None] = {}
        self._known: set[Key] = set()
        self._number = 0
        self._begun = 0
        self._id = NO_SESSION
        self._epoch = _FIRST_EPOCH

    def __len__(self) -> int:
        return len(self._asked)

    @property
    def is_established(self) -> bool:
        """Whether the leader gave it an id."""
        return self._id != NO_SESSION

    @property
    def has_news(self) -> bool:
        """Whether something is asked for that the last request did not ask for."""
        return bool(self._changed)

    def ask(self, key: Key, partition: FetchPartition) -> None:
        """Ask for ``partition`` as it stands now, from the next request on."""
        self._asked[key] = partition
        self._since[key] = self._number
        self._changed[key] = None
        self._gone.pop(key, None)

    def drop(self, key: Key) -> None:
        """Do not ask for a partition any more, nor heed what comes of having asked."""
        if self._asked.pop(key, None) is not None:
            del self._since[key]
            self._changed.pop(key, None)
            if key in self._known:
                self._gone[key] = None

    def request(self) -> SessionRequest:
        """What to send next."""
        number, self._number = self._number, self._number + 1
        if not self.is_established:
            request = SessionRequest(
                number, NO_SESSION, _FIRST_EPOCH, self._topics(self._asked), []
            )
            self._known = set(self._asked)
        else:
            self._epoch = self._epoch + 1 if self._epoch < _MAX_EPOCH else 1
            topics, forgotten = self._topics(self._changed), _forgotten(self._gone)
            request = SessionRequest(number, self._id, self._epoch, topics, forgotten)
            self._known.difference_update(self._gone)
            self._known.update(self._changed)
        self._changed.clear()
        self._gone.clear()
        return request

    def is_of(self, number: int) -> bool:
        """Whether request ``number`` was one of this session's: not of one before it."""
        return number >= self._begun

    def answered(self, session_id: int) -> None:
        """The leader answered, naming ``session_id``, which is 0 if it keeps none."""
        if session_id != self._id:
            self._id = session_id
            self._epoch = _FIRST_EPOCH

    def restart(self) -> None:
        """The leader does not know the session any more, or is another: begin anew."""
        self._id = NO_SESSION
        self._epoch = _FIRST_EPOCH
        self._begun = self._number
        self._known.clear()
        self._gone.clear()

    def is_current(self, key: Key, number: int) -> bool:
        """Whether an answer to request ``number`` is about what a partition is asked for now."""
        since = self._since.get(key)
        return since is not None and max(since, self._begun) <= number

    def _topics(self, keys: Iterable[Key]) -> list[FetchTopic]:
        topics: dict[bytes, FetchTopic] = {}
        for key in keys:
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = FetchTopic(topic_id=key[0], partitions=[])
            topic.partitions.append(self._asked[key])
        return list(topics.values())


def _forgotten(keys: Iterable[Key]) -> list[ForgottenTopic]:
    topics: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in keys:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ForgottenTopic(topic_id=topic_id, partitions=[])
        topic.partitions.append(index)
    return list(topics.values())
