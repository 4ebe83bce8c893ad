"""A group that reads in its datacenter, and the offsets synced for it elsewhere."""

from qbus import Consumer
from qbus.clients.blocking.admin import Admin
from qbus.clients.types import TopicPartition
from tests.support.background import Background

from .idcs import PARTITIONS, TOPIC, Idc
from .judging import span

GROUP = "readers"


class Reader(Background):
    """The only member of the group: it reads everything, and commits often."""

    def __init__(self, idc: Idc) -> None:
        super().__init__()
        self._idc = idc

    def run(self) -> None:
        with Consumer(
            self._idc.bootstrap,
            group=GROUP,
            offset_reset="earliest",
            auto_commit_interval_ms=200,
            session_timeout_ms=6_000,
        ) as consumer:
            consumer.subscribe([TOPIC])
            while not self.over.is_set():
                consumer.poll(0.2)


def committed(home: Idc, target: Idc) -> dict[TopicPartition, int]:
    """Return the group's synced offsets in the mirror of its topic; never beyond the data."""
    topic = f"{home.name}.{TOPIC}"
    partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    with Admin(target.bootstrap) as admin:
        found = {
            one: offset.offset for one, offset in admin.committed_offsets(GROUP, partitions).items()
        }
    for one, offset in found.items():
        reached = span(target, topic, one.partition)
        assert reached is None or offset <= reached.end, f"{one} at {offset} of {reached}"
    return found
