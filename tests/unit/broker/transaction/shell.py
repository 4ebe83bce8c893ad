"""A transaction machine as its shard runs it: records are replayed, what is decided is noted."""

from collections.abc import Callable
from typing import Any, TypeVar

from qbus.broker.internal_logs import Outcome, Producer
from qbus.broker.transaction import Participants, State, Transaction
from qbus.broker.transaction.machine import (
    NEEDS_PRODUCER_ID,
    Need,
    Reason,
    TransactionMachine,
)
from qbus.errors import ApiError, ErrorCode

A = TypeVar("A")

TX = "payments"
T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)
EXPIRATION_MS = 1_000_000
TIMEOUT_MS = 60_000


class Shell:
    """One machine, a clock, and producer ids that count from 100."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.next_id = 100
        self.decided: list[tuple[Transaction, Reason]] = []
        self.log: list[tuple[bytes, bytes | None]] = []
        self.machine = self._new()

    def _new(self) -> TransactionMachine:
        return TransactionMachine(
            lambda: EXPIRATION_MS, lambda one, reason: self.decided.append((one, reason))
        )

    def reload(self) -> None:
        """Another broker comes to lead: it knows what the log says, and nothing else."""
        before = self.machine
        self.machine = self._new()
        for key, value in self.log:
            self._take_in(key, value)
        assert self.machine.transactions == before.transactions
        assert self.machine.ending == before.ending

    def _take_in(self, key: bytes, value: bytes | None) -> None:
        self.machine.replay(key, value, len(self.log), self.now_ms, None)

    def apply(self, outcome: Outcome[A]) -> A:
        """Store what an operation decided."""
        for key, value in outcome.records:
            self.log.append((key, value))
            self._take_in(key, value)
        if outcome.acknowledged is not None:
            outcome.acknowledged()
        if outcome.refusal is not None:
            raise outcome.refusal
        return outcome.answer

    def _with_id(self, operation: Callable[[int | None], Outcome[Producer | Need]]) -> Producer:
        answer = self.apply(operation(None))
        if answer is NEEDS_PRODUCER_ID:
            self.next_id += 1
            answer = self.apply(operation(self.next_id - 1))
        assert not isinstance(answer, Need)
        return answer

    # What producers ask

    def init(
        self, expected: Producer | None = None, name: str = TX, timeout_ms: int = TIMEOUT_MS
    ) -> Producer:
        return self._with_id(
            lambda new_id: self.machine.initialize(name, timeout_ms, expected, new_id, self.now_ms)
        )

    def add(self, producer: Producer, *places: tuple[str, int], name: str = TX) -> None:
        wanted = Participants(frozenset(places))
        self.apply(self.machine.add(name, producer, wanted, self.now_ms))

    def missing(self, producer: Producer, *places: tuple[str, int]) -> set[tuple[str, int]]:
        wanted = Participants(frozenset(places))
        return set(self.apply(self.machine.verify(TX, producer, wanted)).partitions)

    def end(
        self, producer: Producer, *, commit: bool = True, version: int = 2, name: str = TX
    ) -> Producer:
        return self._with_id(
            lambda new_id: self.machine.end(
                name,
                producer,
                commit=commit,
                client_version=version,
                new_producer_id=new_id,
                now_ms=self.now_ms,
            )
        )

    # What happens besides

    def told(self, name: str = TX) -> bool:
        """All partitions have their markers."""
        return self.apply(self.machine.complete(name, self.machine.transactions[name], self.now_ms))

    def tick(self, seconds: float = 0) -> None:
        self.now_ms += int(seconds * 1000)
        outcome = self.machine.tick(self.now_ms)
        if outcome is not None:
            self.apply(outcome)

    def state(self, name: str = TX) -> State:
        return self.machine.transactions[name].state

    def identity(self, name: str = TX) -> Producer:
        known = self.machine.transactions[name]
        return known.producer_id, known.epoch


def code(operation: Callable[[], Any]) -> ErrorCode:
    """What an operation is refused with."""
    try:
        operation()
    except ApiError as error:
        return error.code
    return ErrorCode.NONE
