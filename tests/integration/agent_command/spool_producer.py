"""``python -m ... BOOTSTRAP SPOOL TOPIC``: a producer that reaches nobody, until it is killed.

Each value is printed once its delivery says that it is kept.
"""

import sys

from qbus import Producer, QbusError, Spooled


def main(bootstrap: str, directory: str, topic: str) -> None:
    """Send, one after the other; what fails is kept."""
    with Producer(
        bootstrap, spool_dir=directory, delivery_timeout_ms=150, request_timeout_ms=500
    ) as producer:
        while not is_ready(producer, topic):
            pass
        print("ready", flush=True)
        number = 0
        while True:
            sent = [
                (f"v{n}", producer.send(topic, b"v%d" % n, partition=0))
                for n in range(number, number + 5)
            ]
            for value, delivery in sent:
                if isinstance(delivery.exception(), Spooled):
                    print(value, flush=True)
            number += 5


def is_ready(producer: Producer, topic: str) -> bool:
    """Whether the producer delivers a record within its short time-out."""
    try:
        producer.send(topic, b"ready", partition=0).result()
    except QbusError:
        return False
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
