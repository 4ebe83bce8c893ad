"""Process a topic as a member of a group: ``work_in_a_group.py BOOTSTRAP TOPIC GROUP``.

Every record is processed at least once: offsets are committed after the work, and before partitions
go to another member. Start it several times to share the work; it ends when nothing has come for a
few seconds.
"""

import sys

from qbus import Consumer, ConsumerRecord, TopicPartition

PATIENCE = 6.0
"""Seconds without a record that end the program: more than the 3 s in which a new group forms."""


def process(record: ConsumerRecord) -> None:
    print(record.partition, record.offset, record.value)


def main(bootstrap: str, topic: str, group: str) -> None:
    def on_revoked(partitions: list[TopicPartition]) -> None:
        print("handed over:", [p.partition for p in partitions], file=sys.stderr)

    with Consumer(
        bootstrap, group=group, offset_reset="earliest", auto_commit=False, on_revoked=on_revoked
    ) as consumer:
        consumer.subscribe([topic])
        while polled := consumer.poll(PATIENCE):
            for records in polled:
                for record in records:
                    process(record)
            consumer.commit()


if __name__ == "__main__":
    main(*sys.argv[1:])
