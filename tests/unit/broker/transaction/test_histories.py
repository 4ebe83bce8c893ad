"""Random histories: producers, their requests late and twice, coordinators that fail over.

A model of partitions appends what is verified, and ends transactions by markers. Whatever happens,
in the end each transaction is whole: all its acknowledged records count, or none; what a producer
was told holds; and no transaction stays open. The producers are of transaction version 2: an older
one that goes on after an end whose answer it did not get has no epoch to be known by.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbus.broker.internal_logs import Producer
from qbus.broker.transaction import State, Transaction, machine
from qbus.broker.transaction.machine import EPOCH_PER_TRANSACTION, TransactionMachine
from qbus.broker.transaction.records import encode_key, encode_value
from qbus.broker.transaction.state import ENDING, MAX_EPOCH
from qbus.errors import ApiError

from .shell import TIMEOUT_MS, Shell

PLACES = [("t", 0), ("t", 1), ("u", 0)]
NAMES = ["one", "two"]


@dataclass
class Record:
    """A record in a partition: the transaction it was sent in, and what became of it."""

    transaction: int
    producer: Producer
    is_committed: bool | None = None


@dataclass
class PartitionModel:
    """What a leader does: it knows each producer's epoch and whether its transaction is open."""

    records: list[Record] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    voided: dict[int, int] = field(default_factory=dict)  # how many markers each producer got

    def begin(self, producer: Producer) -> int:
        """What a verification is worth: it is voided by the next marker."""
        return self.voided.get(producer[0], 0)

    def append(self, producer: Producer, transaction: int, verified: int) -> bool:
        """Whether the record was taken."""
        producer_id, epoch = producer
        if epoch < self.epochs.get(producer_id, -1):
            return False
        if producer_id not in self.open and verified != self.voided.get(producer_id, 0):
            return False
        self.epochs[producer_id] = epoch
        self.open.add(producer_id)
        self.records.append(Record(transaction, producer))
        return True

    def mark(self, ending: Transaction) -> None:
        """End the producer's transaction; one that is ended already stays as it is."""
        producer_id, epoch = ending.producer_id, ending.epoch
        if epoch < self.epochs.get(producer_id, -1):
            return
        if ending.client_version >= EPOCH_PER_TRANSACTION and epoch == self.epochs.get(producer_id):
            assert producer_id not in self.open, "a transaction is open in its marker's epoch"
            return
        self.epochs[producer_id] = epoch
        self.open.discard(producer_id)
        self.voided[producer_id] = self.voided.get(producer_id, 0) + 1
        for record in self.records:
            if record.producer[0] == producer_id and record.is_committed is None:
                record.is_committed = ending.is_committed


@dataclass
class Client:
    """A producer: what it believes of itself, and what it was told of its transactions."""

    name: str
    identity: Producer | None = None
    transaction: int = 0
    is_open: bool = False


class History:
    """Everything together; the steps are chosen by hypothesis."""

    def __init__(self) -> None:
        self.shell = Shell()
        self.partitions = {place: PartitionModel() for place in PLACES}
        self.clients = [Client(NAMES[number % len(NAMES)]) for number in range(3)]
        self.count = 0
        self.told: dict[int, bool] = {}  # transactions whose end was acknowledged
        self.acked: list[tuple[int, tuple[str, int]]] = []
        self.late: list[Callable[[], object]] = []  # requests that are still under way
        self.unmarked: dict[str, tuple[Transaction, set[tuple[str, int]]]] = {}

    def attempt(self, operation: Callable[[], Any]) -> Any:
        """Its answer; None where it is refused. Then the coordinator tells what was decided."""
        try:
            return operation()
        except ApiError:
            return None
        finally:
            self._start_markers()

    def _start_markers(self) -> None:
        for ending, _ in self.shell.decided:
            self.unmarked[ending.transactional_id] = (ending, set(ending.partitions))
        self.shell.decided.clear()

    # What clients do

    def begin(self, client: Client, keeps: bool) -> None:
        expected = client.identity if keeps else None
        identity = self.attempt(lambda: self.shell.init(expected, client.name))
        if identity is not None and identity[0] >= 0:
            client.identity, client.is_open = identity, False

    def send(self, client: Client, place: tuple[str, int], is_late: bool) -> None:
        producer = client.identity
        if producer is None:
            return
        if not client.is_open:
            self.count += 1
            client.transaction, client.is_open = self.count, True
        transaction = client.transaction
        partition = self.partitions[place]
        verified = partition.begin(producer)

        def add() -> bool:
            self.shell.add(producer, place, name=client.name)
            return True

        if self.attempt(add) is None:
            return

        def append() -> None:
            if partition.append(producer, transaction, verified) and not is_late:
                self.acked.append((transaction, place))

        if is_late:
            self.late.append(append)
        else:
            append()

    def end(self, client: Client, commit: bool, is_lost: bool, is_twice: bool) -> None:
        producer, transaction = client.identity, client.transaction
        if producer is None or not client.is_open:
            return

        def end() -> Producer | None:
            answer: Producer | None = self.attempt(
                lambda: self.shell.end(producer, commit=commit, name=client.name)
            )
            return answer

        following = end()
        if is_twice:
            self.late.append(end)
        if following is not None and not is_lost:
            client.identity, client.is_open = following, False
            self.told[transaction] = commit

    # What happens to them

    def deliver(self, number: int) -> None:
        """One of the requests that are under way arrives."""
        if self.late:
            self.late.pop(number % len(self.late))()

    def mark(self, number: int) -> None:
        """One partition gets its marker; with the last one, the transaction is over."""
        if not self.unmarked:
            return
        name = list(self.unmarked)[number % len(self.unmarked)]
        ending, places = self.unmarked[name]
        if places:
            place = sorted(places)[number % len(places)]
            self.partitions[place].mark(ending)
            places.discard(place)
        if not places:
            self.shell.apply(self.shell.machine.complete(name, ending, self.shell.now_ms))
            del self.unmarked[name]

    def fail_over(self) -> None:
        """Another coordinator begins with what the log says; it knows of no marker."""
        self.shell.reload()
        transactions = self.shell.machine.transactions
        self.unmarked = {
            name: (transactions[name], set(transactions[name].partitions))
            for name in self.shell.machine.ending
        }

    def pass_time(self, seconds: float) -> None:
        self.shell.tick(seconds)
        self._start_markers()

    def exhaust(self, client: Client) -> None:
        """Its epochs are nearly used up, as after so many transactions."""
        known = self.shell.machine.get(client.name)
        if (
            known is None
            or known.state in ENDING
            or client.identity
            != (
                known.producer_id,
                known.epoch,
            )
        ):
            return
        if known.state is State.ONGOING:
            return
        self.shell.machine.transactions[client.name] = known._replace(
            epoch=MAX_EPOCH, last_epoch=-1
        )
        client.identity = known.producer_id, MAX_EPOCH
        self.shell.log.clear()  # and the log says the same
        for name in list(self.shell.machine.transactions):
            one = self.shell.machine.transactions[name]
            self.shell.log.append((encode_key(name), encode_value(one)))

    # In the end

    def settle(self) -> None:
        """Everything arrives, everything is told, and every time-out passes."""
        while self.late:
            self.deliver(0)
        for _ in range(2):
            while self.unmarked:
                self.mark(0)
            self.pass_time(TIMEOUT_MS / 1000)
            while self.unmarked:
                self.mark(0)

    def check(self) -> None:
        for one in self.shell.machine.transactions.values():
            assert 0 <= one.epoch <= MAX_EPOCH + 1
            assert one.producer_id >= 100
        outcomes: dict[int, set[bool | None]] = {}
        for partition in self.partitions.values():
            assert not partition.open, "a transaction hangs"
            for record in partition.records:
                outcomes.setdefault(record.transaction, set()).add(record.is_committed)
        for transaction, found in outcomes.items():
            assert len(found) == 1, f"transaction {transaction} is not whole"
            if transaction in self.told:
                assert found == {self.told[transaction]}
        stored = {
            (record.transaction, place)
            for place, partition in self.partitions.items()
            for record in partition.records
        }
        assert set(self.acked) <= stored


CLIENTS = st.integers(0, 2)
STEPS = st.one_of(
    st.tuples(st.just("begin"), CLIENTS, st.booleans()),
    st.tuples(st.just("send"), CLIENTS, st.sampled_from(PLACES), st.booleans()),
    st.tuples(st.just("send"), CLIENTS, st.sampled_from(PLACES), st.just(False)),
    st.tuples(st.just("end"), CLIENTS, st.booleans(), st.booleans(), st.booleans()),
    st.tuples(st.just("end"), CLIENTS, st.just(True), st.just(False), st.booleans()),
    st.tuples(st.just("deliver"), st.integers(0, 5)),
    st.tuples(st.just("mark"), st.integers(0, 5)),
    st.tuples(st.just("mark"), st.integers(0, 5)),
    st.tuples(st.just("fail_over")),
    st.tuples(st.just("pass_time"), st.sampled_from([1.0, 20.0, TIMEOUT_MS / 1000])),
    st.tuples(st.just("exhaust"), CLIENTS),
)


HISTORIES = st.lists(STEPS, min_size=5, max_size=60)


def run(steps: list[tuple[Any, ...]]) -> None:
    """Take the steps, wait for the end of everything, and look at what became of it."""
    history = History()
    for client in history.clients:
        history.begin(client, False)
    for name, *arguments in steps:
        if name in {"begin", "send", "end", "exhaust"}:
            arguments[0] = history.clients[arguments[0]]
        getattr(history, name)(*arguments)
    history.settle()
    history.check()


@settings(max_examples=150, deadline=None)
@given(steps=HISTORIES)
def test_transactions_are_whole_whatever_happens(steps: list[tuple[Any, ...]]) -> None:
    run(steps)


def random_step(random: Random) -> tuple[Any, ...]:
    """One step, all kinds about as likely as above."""
    client, place = random.randrange(3), random.choice(PLACES)
    return random.choice(
        [
            ("begin", client, random.random() < 0.5),
            ("send", client, place, random.random() < 0.3),
            ("send", client, place, False),
            ("end", client, random.random() < 0.7, random.random() < 0.3, random.random() < 0.3),
            ("deliver", random.randrange(6)),
            ("mark", random.randrange(6)),
            ("mark", random.randrange(6)),
            ("fail_over",),
            ("pass_time", random.choice([1.0, TIMEOUT_MS / 1000])),
        ]
    )


def test_long_ones_are_no_different() -> None:
    random = Random(2)
    for _ in range(60):
        run([random_step(random) for _ in range(100)])


def ignore_epochs(self: TransactionMachine, name: str, producer: Producer) -> Transaction:
    """The fault: whoever has the producer id may do everything."""
    return self.transactions[name]


def forget_markers(self: History) -> None:
    """The fault: a new coordinator does not go on with what was decided."""
    self.shell.reload()
    self.unmarked = {}


def complete_early(self: History, number: int) -> None:
    """The fault: a transaction is over when its first partition knows."""
    if self.unmarked:
        name = list(self.unmarked)[number % len(self.unmarked)]
        ending, places = self.unmarked.pop(name)
        if places:
            self.partitions[min(places)].mark(ending)
        self.shell.apply(self.shell.machine.complete(name, ending, self.shell.now_ms))


def keep_epoch(known: Transaction, last_epoch: int, now_ms: int) -> Transaction:
    """The fault: a transaction that is taken from its producer ends in the producer's epoch."""
    return known._replace(state=State.PREPARE_ABORT, client_version=0, updated_ms=now_ms)


@pytest.mark.parametrize(
    ("target", "name", "fault"),
    [
        (TransactionMachine, "_of", ignore_epochs),
        (History, "fail_over", forget_markers),
        (History, "mark", complete_early),
        (machine, "_fenced", keep_epoch),
        (TransactionMachine, "tick", lambda *_: None),
    ],
    ids=["epochs", "failover", "markers", "fencing", "time-outs"],
)
def test_planted_faults_are_found(
    monkeypatch: pytest.MonkeyPatch, target: Any, name: str, fault: Callable[..., Any]
) -> None:
    monkeypatch.setattr(target, name, fault)
    random = Random(1)
    for _ in range(5_000):
        try:
            run([random_step(random) for _ in range(30)])
        except AssertionError:
            return
    pytest.fail("no history shows the fault")
