"""Move a topic, in capitals, each record once: ``move_in_transactions.py BOOTSTRAP FROM TO ID``.

What was read is committed together with what was written, or neither is. It may be killed at any
time and started again, several times at once with other ids; it ends when nothing has come for a
few seconds.
"""

import sys

from qbus import Consumer, Producer, TransactionAborted

PATIENCE = 6.0
"""Seconds without a record that end the program: more than the 3 s in which a new group forms."""


def main(bootstrap: str, source: str, target: str, name: str) -> None:
    moved = 0
    with (
        Producer(bootstrap, transactional_id=name) as producer,
        Consumer(
            bootstrap,
            group=f"{source}-to-{target}",
            auto_commit=False,
            isolation_level="read_committed",
            offset_reset="earliest",
        ) as consumer,
    ):
        consumer.subscribe([source])
        while polled := consumer.poll(PATIENCE):
            try:
                with producer.transaction():
                    for records in polled:
                        values = [(record.value or b"").upper() for record in records]
                        producer.send_many(target, values, [record.key for record in records])
                    producer.send_offsets(consumer)
            except TransactionAborted as error:
                print(f"once more: {error}", file=sys.stderr)
                consumer.seek_to_committed()
            else:
                moved += sum(map(len, polled))
    print(f"{moved} records moved")


if __name__ == "__main__":
    main(*sys.argv[1:])
