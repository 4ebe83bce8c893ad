"""A trivially correct log and its clients, whose histories have no contradictions."""

from collections import defaultdict
from random import Random

from .history import History, Outcome, Poll, Produce

PARTITIONS = 2


class Model:
    """Producers and consumers of one list per partition, which act in random steps."""

    def __init__(self, random: Random) -> None:
        self.history = History(relaxed={"relaxed"})
        self._random = random
        self._logs: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        self._under_way: defaultdict[tuple[str, int], list[Produce]] = defaultdict(list)
        self._positions: dict[tuple[str, int], int] = {}
        self._sessions: dict[str, int] = defaultdict(int)
        self._now = 0.0
        self._count = 0

    def run(self, steps: int) -> History:
        """Run a number of steps, then read everything; return the history."""
        for _ in range(steps):
            self._now += 1.0
            partition = self._random.randrange(PARTITIONS)
            self._random.choice([self._send, self._store, self._store, self._poll, self._seek])(
                partition
            )
        for partition, log in self._logs.items():
            self.history.ends[partition] = len(log)
            self._hand_out("last", partition, 0, len(log))
        return self.history

    def _send(self, partition: int) -> None:
        producer = self._random.choice(["first", "second", "relaxed"])
        self._count += 1
        one = Produce(producer, partition, b"%d" % self._count, self._now)
        self.history.produces.append(one)
        self._under_way[producer, partition].append(one)

    def _store(self, partition: int) -> None:
        """Store a record in flight, or do not; acknowledge it, or do not."""
        for (producer, place), waiting in self._under_way.items():
            if place != partition or not waiting:
                continue
            index = self._random.randrange(len(waiting)) if producer == "relaxed" else 0
            one = waiting.pop(index)
            is_stored, is_told = self._random.random() < 0.9, self._random.random() < 0.8
            log = self._logs[partition]
            if is_stored:
                log.append(one.value)
                if producer == "relaxed" and self._random.random() < 0.3:
                    log.append(one.value)
            if is_told:
                one.ended = self._now
                one.outcome = Outcome.OK if is_stored else Outcome.FAILED
                one.offset = log.index(one.value) if is_stored else None
            return

    def _poll(self, partition: int) -> None:
        consumer = self._random.choice(["left", "right"])
        position = self._positions.get((consumer, partition), 0)
        count = min(self._random.randrange(5), len(self._logs[partition]) - position)
        self._hand_out(consumer, partition, position, position + count)

    def _hand_out(self, consumer: str, partition: int, start: int, end: int) -> None:
        records = list(enumerate(self._logs[partition]))[start:end]
        self._positions[consumer, partition] = end
        session = self._sessions[consumer]
        self.history.polls.append(Poll(consumer, partition, records, self._now, session))

    def _seek(self, partition: int) -> None:
        consumer = self._random.choice(["left", "right"])
        self._sessions[consumer] += 1
        self._positions[consumer, partition] = self._random.randint(0, len(self._logs[partition]))
