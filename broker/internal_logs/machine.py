"""What a shard of an internal log is made of: a pure state, and operations on it."""

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from qbus.errors import ApiError

A = TypeVar("A")

Producer = tuple[int, int]
"""A producer's id and epoch."""

LogRecord = tuple[bytes, bytes | None]
"""A record's key and value; None deletes what was stored under the key."""


class PackedRecords(Protocol):
    """Records of no transaction that are encoded together, straight into a batch."""

    @property
    def count(self) -> int:
        """How many there are."""

    @property
    def size(self) -> int:
        """About how many bytes they take."""

    def add_to(self, batch: bytearray, first: int, /) -> None:
        """Append them to the records of a batch.

        ``first``: the offset of the first of them, counted from that of the batch.
        """


class Outcome(Generic[A]):
    """What an operation decided: the records that say so, and its answer.

    With a ``producer`` the records are part of a transaction of it. ``acknowledged`` is called when
    they are stored for good, also if nobody waits for the answer any more. ``apply``, given the
    offset of the first record, does to the state what replaying all of them would do, for less.
    Records that are ``packed``, instead of others, are applied so.

    ``refusal`` is told instead of the answer, but not before the records are stored. A broker that
    does not know yet that another one leads may know less than that: what it refuses for good, it
    is to write down first, which it cannot any more.
    """

    __slots__ = ("acknowledged", "answer", "apply", "packed", "producer", "records", "refusal")

    def __init__(
        self,
        answer: A,
        records: Sequence[LogRecord] = (),
        *,
        producer: Producer | None = None,
        acknowledged: Callable[[], object] | None = None,
        apply: Callable[[int], object] | None = None,
        packed: PackedRecords | None = None,
        refusal: ApiError | None = None,
    ) -> None:
        self.answer = answer
        self.refusal = refusal
        self.records = records
        self.packed = packed
        self.producer = producer
        self.acknowledged = acknowledged
        self.apply = apply


class Machine(Protocol):
    """One shard's state. It does no IO and knows no clock.

    It changes by :meth:`replay` and :meth:`marker` alone, so a state that was loaded from the log
    is the same as one that has been there all the time. Operations read it and return an
    :class:`Outcome`, whose records are replayed at once, or applied to the same effect.
    """

    @property
    def next_tick_ms(self) -> int | None:
        """When :meth:`tick` has something to do at the earliest; None: never, as things are.

        In milliseconds since the Unix epoch.
        """

    def replay(
        self,
        key: bytes,
        value: bytes | None,
        offset: int,
        timestamp: int,
        producer: Producer | None,
    ) -> None:
        """Take in a record of the log; ``producer`` is given of one in a transaction."""

    def marker(self, producer_id: int, epoch: int, *, committed: bool) -> None:
        """The transaction of a producer has ended in the shard's log."""

    def tick(self, now_ms: int) -> Outcome[None] | None:
        """Do what is due. What is left makes :attr:`next_tick_ms` small."""


M = TypeVar("M", bound=Machine)

Operation = Callable[[M, int], Outcome[A]]
"""A pure function of a shard's state and the time, in milliseconds. It may raise ApiError."""
