"""Kafka's own performance tools as the load."""

import re
from typing import Any

from perf.peers import java


def produce(
    bootstrap: str, topic: str, count: int, size: int, acks: str, compression: str
) -> dict[str, Any]:
    """``kafka-producer-perf-test``: records/s, MB/s and milliseconds to the acknowledgement."""
    output = _run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(count), "--record-size", str(size)),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={bootstrap}"),
        *(f"acks={acks}", f"compression.type={compression}"),
    )
    last = output.strip().splitlines()[-1]
    rate = re.search(r"([\d.]+) records/sec \(([\d.]+) MB/sec\)", last)
    if rate is None or not last.startswith(f"{count} records sent"):
        raise RuntimeError(f"the producer tool said: {output[-2000:]}")
    return {"records_s": float(rate[1]), "mb_s": float(rate[2]) * 1.048576}


def consume(bootstrap: str, topic: str, count: int) -> dict[str, Any]:
    """``kafka-consumer-perf-test``: records/s and MB/s while fetching."""
    output = _run(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(count)),
        *("--timeout", "60000"),
    )
    header, values = (
        [cell.strip() for cell in line.split(",")] for line in output.strip().splitlines()[-2:]
    )
    row = dict(zip(header, values, strict=True))
    if int(row["data.consumed.in.nMsg"]) < count:
        raise RuntimeError(f"the consumer tool said: {output[-2000:]}")
    return {
        "records_s": float(row["fetch.nMsg.sec"]),
        "mb_s": float(row["fetch.MB.sec"]) * 1.048576,
    }


def _run(main_class: str, *arguments: str) -> str:
    done = java.run(main_class, *arguments, timeout=600)
    if done.returncode:
        raise RuntimeError(done.stderr.decode()[-2000:] + done.stdout.decode()[-2000:])
    return done.stdout.decode()
