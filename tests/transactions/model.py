"""A log with transactions that is trivially correct, and its clients.

Their histories have no contradictions.
"""

from random import Random

from .history import Ends, History, Outcome, Poll, Send, Transaction

PARTITIONS = 2


class _Log:
    """A partition: values and markers, and the transactions that are open."""

    def __init__(self) -> None:
        self.entries: list[tuple[str | None, str]] = []
        """A value and the transaction that it belongs to; None for a marker."""
        self.open: dict[str, int] = {}
        """The first offset of each open transaction."""
        self.aborted: set[str] = set()

    @property
    def stable(self) -> int:
        return min(self.open.values(), default=len(self.entries))

    def append(self, value: str, owner: str) -> int:
        self.open.setdefault(owner, len(self.entries))
        self.entries.append((value, owner))
        return len(self.entries) - 1

    def end(self, owner: str, *, committed: bool) -> None:
        if self.open.pop(owner, None) is not None:
            self.entries.append((None, owner))
            if not committed:
                self.aborted.add(owner)

    def committed(self, start: int, count: int) -> list[tuple[int, str]]:
        found = [
            (offset, value)
            for offset, (value, owner) in enumerate(self.entries[: self.stable])
            if offset >= start and value is not None and owner not in self.aborted
        ]
        return found[:count]


class _Client:
    """One client: its positions, and the transaction that it is in."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.sends = 0
        self.session = 0
        self.committed = dict.fromkeys(range(PARTITIONS), 0)
        self.positions = dict(self.committed)
        self.current: Transaction | None = None

    @property
    def owner(self) -> str:
        return f"{self.name}-{self.count}"


class Model:
    """Clients that take random steps over one log each partition."""

    def __init__(self, random: Random, clients: int = 3) -> None:
        self.history = History()
        self._random = random
        self._logs = {index: _Log() for index in range(PARTITIONS)}
        self._clients = [_Client(f"client-{number}") for number in range(clients)]
        self._now = 0.0

    def run(self, steps: int) -> History:
        """Take a number of steps, end all transactions and read everything."""
        for _ in range(steps):
            client = self._random.choice(self._clients)
            if client.current is None:
                self._begin(client)
            else:
                kinds = [self._send, self._send, self._poll, self._poll, self._end]
                self._random.choice(kinds)(client, client.current)
            self._look()
        for client in self._clients:
            if client.current is not None:
                self._end(client, client.current)
            self.history.positions[client.name] = dict(client.committed)
        self._look()
        for index, log in self._logs.items():
            self.history.final[index] = log.committed(0, len(log.entries))
        return self.history

    def _tick(self) -> float:
        self._now += 1.0
        return self._now

    def _begin(self, client: _Client) -> None:
        client.count += 1
        client.current = Transaction(client.name, self._tick())
        self.history.transactions.append(client.current)

    def _send(self, client: _Client, current: Transaction) -> None:
        index = self._random.randrange(PARTITIONS)
        client.sends += 1
        value = f"{client.name}/{client.sends}"
        offset = self._logs[index].append(value, client.owner)
        current.sends.append(Send(index, value, offset if self._random.random() < 0.8 else None))

    def _poll(self, client: _Client, current: Transaction) -> None:
        index = self._random.randrange(PARTITIONS)
        found = self._logs[index].committed(client.positions[index], self._random.randrange(1, 5))
        if found:
            client.positions[index] = found[-1][0] + 1
            current.polls.append(Poll(index, found, self._tick(), client.session))

    def _end(self, client: _Client, current: Transaction) -> None:
        is_committed = self._random.random() < 0.7
        if is_committed or self._random.random() < 0.5:
            current.committing = self._tick()
        for log in self._logs.values():
            log.end(client.owner, committed=is_committed)
        current.ended = self._tick()
        current.outcome = Outcome.COMMITTED if is_committed else Outcome.ABORTED
        if current.committing is not None and self._random.random() < 0.2:
            current.outcome = Outcome.UNKNOWN
        if is_committed:
            client.committed = dict(client.positions)
        if not is_committed or current.outcome is Outcome.UNKNOWN:
            client.positions = dict(client.committed)
            client.session += 1
        client.current = None

    def _look(self) -> None:
        for index, log in self._logs.items():
            asked = self._tick()
            self.history.ends.append(Ends(index, log.stable, len(log.entries), asked, self._tick()))
