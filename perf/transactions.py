"""Transactions: how many are committed, one after the other, and how fast they are read.

A transaction is a batch to one partition and its commit, as clients of Kafka 4 run it; then
librdkafka, one producer, which knows the older way alone (it adds the partition first); then
reading with isolation ``read_committed``. Qbus has ``durability=memory``, Kafka its defaults.
"""

from itertools import count as counter

from perf import rdkafka, transaction_load
from perf.report import Figure
from perf.servers import MEMORY, both
from tests.support.server_process import ServerProcess

PARTITIONS = 10
SIZE = 100
_PRODUCERS = (1, 50)
_RECORDS = (1, 10, 100)
_SECONDS = 4.0
_READ = 400_000

_topics = counter()


def run(rounds: int, scale: float) -> list[Figure]:
    """Closed loops: each producer runs one transaction after the other."""
    cases = [(producers, records) for producers in _PRODUCERS for records in _RECORDS]
    committed = {case: Figure(_named(*case), "transactions/s") for case in cases}
    older = {
        records: Figure(f"librdkafka, {_records(records)}", "transactions/s")
        for records in _RECORDS
    }
    read = {
        records: Figure(f"read_committed, transactions of {_records(records)}", "records/s")
        for records in (1, 100)
    }
    with both(MEMORY) as servers:
        for turn in range(rounds + 1):
            for server in servers:
                topic = f"transactions-{next(_topics)}"
                rdkafka.create_topic(server.bootstrap, topic, PARTITIONS)
                for case, figure in committed.items():
                    rate = _commit(server, topic, *case, _SECONDS * scale)
                    _add(figure, server, rate, turn)
                for records, figure in older.items():
                    options = {"records": records, "size": SIZE, "seconds": _SECONDS * scale}
                    done = rdkafka.run("transact", server.bootstrap, topic=topic, **options)
                    _add(figure, server, done["transactions_s"], turn)
                rdkafka.delete_topic(server.bootstrap, topic)
                for records, figure in read.items():
                    _add(figure, server, _read(server, records, int(_READ * scale)), turn)
    return [*committed.values(), *older.values(), *read.values()]


def _add(figure: Figure, server: ServerProcess, value: float, turn: int) -> None:
    if turn > 0:  # the first one warms both up
        figure.add(server.name, value)


def _commit(
    server: ServerProcess, topic: str, producers: int, records: int, seconds: float
) -> float:
    done = transaction_load.run(
        server.bootstrap,
        topic=topic,
        producers=producers,
        records=records,
        partitions=PARTITIONS,
        size=SIZE,
        seconds=seconds,
    )
    return done["transactions_s"]


def _read(server: ServerProcess, records: int, wanted: int) -> float:
    """Records per second of one partition that librdkafka reads, all of them committed."""
    topic = f"read-{next(_topics)}"
    rdkafka.create_topic(server.bootstrap, topic)
    most = wanted if records > 1 else wanted // 20  # one at a time takes its time to send
    sent = transaction_load.run(
        server.bootstrap,
        topic=topic,
        producers=20,
        records=records,
        partitions=1,
        size=SIZE,
        transactions=most // records,
    )
    seen = rdkafka.run("consume", server.bootstrap, topic=topic, count=int(sent["records"]))
    rdkafka.delete_topic(server.bootstrap, topic)
    return float(seen["records_s"])


def _named(producers: int, records: int) -> str:
    return f"{producers} producer{'s' if producers > 1 else ''}, {_records(records)}"


def _records(records: int) -> str:
    return f"{records} record{'s' if records > 1 else ''}"
