"""Send each line of standard input as a record: ``produce_lines.py BOOTSTRAP TOPIC < FILE``.

Every failed line is told of, and makes the exit code 1.
"""

import sys

from qbus import Producer


def main(bootstrap: str, topic: str) -> int:
    with Producer(bootstrap, compression="lz4") as producer:
        deliveries = [producer.send(topic, line.rstrip(b"\n")) for line in sys.stdin.buffer]
        producer.flush()
    failed = [error for delivery in deliveries if (error := delivery.exception())]
    for error in failed:
        print(f"not delivered: {error}", file=sys.stderr)
    print(f"{len(deliveries) - len(failed)} of {len(deliveries)} lines delivered")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
