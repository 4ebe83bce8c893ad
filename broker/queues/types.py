"""What a queue takes and gives. Offsets are those of the partition's log, times milliseconds."""

from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol


class AckType(IntEnum):
    """What becomes of a record that was given out: Kafka's numbers (KIP-932, KIP-1222).

    GAP: there is no record. ACCEPT: it is done. RELEASE: somebody else is to have it. REJECT:
    nobody is. RENEW: it takes longer, and the lock begins anew.
    """

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AckRange(NamedTuple):
    """The records from ``first`` to ``last``, both included, and what becomes of them.

    ``delay_ms``: how long what is released is not given out; -1: as the group's back-off says.
    ``nack``: whether the release says that the work failed, which is counted.
    """

    first: int
    last: int
    type: int
    delay_ms: int = -1
    nack: bool = False


class AcquiredRange(NamedTuple):
    """Records given out: ``delivery_count`` says for the how many-th time, from 1 on."""

    first_offset: int
    last_offset: int
    delivery_count: int


class TakenBatches(NamedTuple):
    """Records given out as they lie in the log.

    ``records``: whole batches, ascending by offset, which may hold records that were not given out:
    those in ``acquired``, ascending, were. Both empty: there is nothing now.
    """

    records: bytes
    acquired: list[AcquiredRange]


class RecordStatus(Enum):
    """Where a record stands with a group.

    QUEUED: whoever asks next gets it. ACTIVE: somebody has it, or it waits for a time. ACKED: it is
    done. UNKNOWN: there is none, or not any more.
    """

    QUEUED = "queued"
    ACTIVE = "active"
    ACKED = "acked"
    UNKNOWN = "unknown"


class RecordState(NamedTuple):
    """Where a record stands, and what it went through.

    ``member`` has it, if anybody does, and for ``left_ms`` more; a record that waits for a time is
    given out again after ``left_ms``. -1: nobody and nothing is waited for.
    """

    status: RecordStatus
    deliveries: int = 0
    nacks: int = 0
    timeouts: int = 0
    member: str = ""
    left_ms: int = -1


class QueueCounts(NamedTuple):
    """What a group did with a partition since this broker leads it, in records.

    ``taken``: given out, each time. ``acknowledged``: done as they should be. ``released``: given
    back, by whom they were given to. ``timeouts``: locks that ran out. ``dead_letters``: given up
    and moved to the dead letter topic. ``dropped``: given up without one. ``filtered`` and
    ``expired`` never were given out: the group's filter, or the header ``qbus-ttl``, says so.
    """

    taken: int = 0
    acknowledged: int = 0
    released: int = 0
    timeouts: int = 0
    dead_letters: int = 0
    dropped: int = 0
    filtered: int = 0
    expired: int = 0


class QueueDescription(NamedTuple):
    """A group's state in one partition.

    All before ``start_offset`` is done. ``length`` records wait to be given out (those that wait
    for a time are ``delayed``, and are not among them), ``in_flight`` are given out, ``given_up``
    wait for the dead letter topic, and the oldest that is not done has been in the log for
    ``oldest_ms``; -1: there is none.
    """

    start_offset: int
    length: int
    in_flight: int
    delayed: int
    oldest_ms: int
    counts: QueueCounts
    given_up: int = 0


class Waiter(Protocol):
    """Waits for records of queues. It is called in the event loop, and must not block."""

    def ready(self, queue: "WaitedFor") -> bool:
        """There is something: the waiter waits no longer; whether it will take it.

        One that does takes, waits again or is forgotten soon: others wait for that. It is called
        when the queue is closed, too: taking raises the error then.
        """


class WaitedFor(Protocol):
    """A queue, as a waiter sees it."""

    @property
    def group(self) -> str:
        """The share group."""

    def wait(self, waiter: Waiter, *, again: bool = False) -> None:
        """Have ``waiter`` called when there is something for it, after those who wait already.

        ``again``: it was called, and found nothing: it is the first of those who wait.
        """

    def forget(self, waiter: Waiter) -> None:
        """Never call ``waiter``."""


Ranges = Sequence[tuple[int, int]]
"""First and last offsets, both included, ascending."""
