"""Debezium carries a database's changes into a topic exactly once while brokers and workers die."""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from perf.peers.maven import Artifact
from tests.cluster.faults.targets import Cluster
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until
from tests.transactions.load import read_committed

from . import postgres
from .connect import Worker
from .postgres import Postgres
from .whole_cluster import PATIENCE, create, kill_leader, running

pytestmark = [pytest.mark.compat, pytest.mark.nightly, pytest.mark.timeout(900)]

PARTITIONS = 2
ROWS = 50
TOPIC = "db.public.items"
_DEBEZIUM = Artifact("io.debezium", "debezium-connector-postgres", "3.4.0.Final")
_JSON = "org.apache.kafka.connect.json.JsonConverter"


@pytest.fixture
def database() -> Iterator[Postgres]:
    """A server with a table of rows, each at version 0."""
    skip_because_of(postgres.missing())
    with postgres.running() as server:
        server.run(
            "CREATE TABLE items (id int PRIMARY KEY, version int NOT NULL);"
            f"INSERT INTO items SELECT id, 0 FROM generate_series(1, {ROWS}) AS id;"
        )
        yield server


@pytest.fixture
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers."""
    with running(request, tmp_path / "cluster") as started:
        create(started, TOPIC, PARTITIONS)
        yield started


def change(database: Postgres, transactions: int) -> None:
    """Let each transaction bring a seventh of the rows to their next version."""
    database.run(
        "\n".join(
            f"UPDATE items SET version = version + 1 WHERE id % 7 = {number % 7};"
            for number in range(transactions)
        )
    )


def versions(database: Postgres) -> dict[int, int]:
    """The version of each row."""
    rows = (line.split("|") for line in database.run("SELECT id, version FROM items;"))
    return {int(row): int(version) for row, version in rows}


def carried(whole: Cluster) -> dict[int, list[int]]:
    """The versions of each row that the topic tells, one after the other."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for records in read_committed(whole.bootstrap, TOPIC, range(PARTITIONS)).values():
        for record in records:
            row = json.loads(record.value)["after"]
            found[row["id"]].append(row["version"])
    return dict(found)


def wait_carried(whole: Cluster, database: Postgres) -> None:
    """Wait until the topic tells every row's version, and check that it tells each version once."""
    expected = {row: [*range(version + 1)] for row, version in versions(database).items()}
    count = sum(map(len, expected.values()))
    wait_until(
        lambda: sum(map(len, carried(whole).values())) >= count, f"{count} changes", PATIENCE, 0.5
    )
    assert carried(whole) == expected


def connector(database: Postgres) -> dict[str, str]:
    """The settings of the connector."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "exactly.once.support": "required",
        "transaction.boundary": "poll",
        "plugin.name": "pgoutput",
        "database.hostname": "127.0.0.1",
        "database.port": str(database.port),
        "database.user": "postgres",
        "database.password": "unused",
        "database.dbname": "postgres",
        "topic.prefix": "db",
        "table.include.list": "public.items",
        "slot.max.retries": "30",
        "slot.retry.delay.ms": "1000",
        "poll.interval.ms": "50",
        "key.converter": _JSON,
        "key.converter.schemas.enable": "false",
        "value.converter": _JSON,
        "value.converter.schemas.enable": "false",
    }


def test_changes_of_a_table_are_carried_exactly_once(
    whole: Cluster, database: Postgres, tmp_path: Path
) -> None:
    with Worker(whole.bootstrap, tmp_path, "first", _DEBEZIUM) as first:
        first.wait_ready()
        first.put("items", connector(database))
        first.wait_running("items")
        wait_carried(whole, database)  # what was there before
        change(database, 100)
        wait_carried(whole, database)
        for _ in range(3):
            killed = kill_leader(whole, TOPIC)
            change(database, 100)
            wait_carried(whole, database)
            whole.brokers[killed].start()
        change(database, 500)  # the worker is killed while it reads them
    with Worker(whole.bootstrap, tmp_path, "second", _DEBEZIUM) as second:
        second.wait_ready()
        killed = kill_leader(whole, TOPIC)
        second.wait_running("items")
        change(database, 100)
        wait_carried(whole, database)
        whole.brokers[killed].start()
        change(database, 100)
        wait_carried(whole, database)
