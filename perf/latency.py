"""End-to-end latency at a fixed rate: from ``produce`` to the consumer's hands."""

from itertools import count as counter

from perf import rdkafka
from perf.report import Figure
from perf.servers import MEMORY, both

RATE = 5000
_topics = counter()


def run(rounds: int, scale: float) -> list[Figure]:
    """5,000 records/s of 100 bytes through one partition, acks=all and acks=1."""
    figures: list[Figure] = []
    with both(MEMORY) as servers:
        for acks in ("1", "all"):
            found = {
                p: Figure(f"{p} at {RATE}/s, acks={acks}", "ms", lower_is_better=True)
                for p in ("p50", "p99", "p99.9")
            }
            for turn in range(rounds + 1):
                for server in servers:
                    topic = f"latency-{next(_topics)}"
                    rdkafka.create_topic(server.bootstrap, topic)
                    result = rdkafka.run(
                        "latency",
                        server.bootstrap,
                        topic=topic,
                        rate=RATE,
                        seconds=10 * scale,
                        size=100,
                        acks=acks,
                    )
                    if turn == 0:
                        continue
                    for p, figure in found.items():
                        figure.add(server.name, result[f"{p}_ms"])
            figures += found.values()
    return figures
