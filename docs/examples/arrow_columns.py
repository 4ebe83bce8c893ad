"""Send a table and count what came back, in columns: ``arrow_columns.py BOOTSTRAP TOPIC``."""

import sys

import pyarrow as pa
import pyarrow.compute as pc

from qbus import EARLIEST, Consumer, Producer

ROWS = 100_000


def main(bootstrap: str, topic: str) -> None:
    table = pa.table(
        {
            "host": [f"host-{number % 7}" for number in range(ROWS)],
            "line": [f"line {number}" for number in range(ROWS)],
        }
    )
    with Producer(bootstrap) as producer:
        bulk = producer.send_arrow(topic, table, value="line", key="host")
        partitions = {batch.partition for batch in bulk.result(timeout=30)}

    counts: dict[bytes, int] = {}
    with Consumer(bootstrap) as consumer:
        consumer.assign([(topic, partition, EARLIEST) for partition in partitions])
        while sum(counts.values()) < ROWS:
            for batch in consumer.poll_arrow(timeout=5.0):
                for found in pc.value_counts(batch.column("key")).to_pylist():
                    counts[found["values"]] = counts.get(found["values"], 0) + found["counts"]
    for host, count in sorted(counts.items()):
        print(host.decode(), count)


if __name__ == "__main__":
    main(*sys.argv[1:])
