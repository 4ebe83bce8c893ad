"""The dead letter topic of the group of jobs: its settings, and what is in it."""

from collections import defaultdict
from collections.abc import Iterable

from qbus import Admin, ConfigKind, Consumer, dead_letters
from qbus.jobs import GROUP

from .job_audit import Seen
from .job_load import is_poison

TOPIC = "dead"
LIMIT = 5
"""How often a job is given out at most: what it is by default."""
_SILENCE_MS = 3_000


def prepare(bootstrap: str, replicas: int) -> None:
    """Have jobs that are given out LIMIT times go to TOPIC."""
    with Admin(bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=1, replication_factor=replicas)
        settings = {
            "errors.deadletterqueue.topic.name": TOPIC,
            "share.delivery.count.limit": str(LIMIT),
        }
        admin.alter_config(ConfigKind.GROUP, GROUP, set=settings)


class DeadLetters:
    """Jobs that are in TOPIC, by their numbers: how often each was given out, for each copy."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def read(self) -> dict[int, list[int]]:
        """All that is there now."""
        found: dict[int, list[int]] = defaultdict(list)
        with Consumer(
            self._bootstrap, offset_reset="earliest", consumer_timeout_ms=_SILENCE_MS
        ) as consumer:
            consumer.assign([(TOPIC, 0)])
            for record in consumer:
                deliveries = dict(record.headers)[dead_letters.DELIVERIES]
                found[int(record.value or b"")].append(int(deliveries or b""))
        return found


def poisoned(numbers: Iterable[int], poison: int) -> set[int]:
    """Those of some jobs that all workers refuse."""
    return {number for number in numbers if is_poison(number, poison)}


def check_letters(seen: Seen, poison: int, dead: dict[int, list[int]]) -> None:
    """Exactly the jobs beyond the limit were given up.

    Each of those that all workers refuse, and of the others none that was not given out so often:
    to workers that were killed.
    """
    assert poisoned(seen.numbers(), poison) <= dead.keys()
    assert all(deliveries == LIMIT for copies in dead.values() for deliveries in copies)
    assert dead.keys() - seen.unsure() <= seen.open(), "given up, and done"
