"""``python -m ... BOOTSTRAP SPOOL TOPIC``: a producer that reaches nobody, until it is killed.

Each value is printed once its delivery says that it is kept.
"""

import sys

from qbus import Producer, Spooled


def main(bootstrap: str, directory: str, topic: str) -> None:
    """Send, one after the other; what fails is kept."""
    with Producer(
        bootstrap, spool_dir=directory, delivery_timeout_ms=150, request_timeout_ms=500
    ) as producer:
        print("ready", producer.send(topic, b"ready", partition=0).result().offset, flush=True)
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


if __name__ == "__main__":
    main(*sys.argv[1:])
