"""Source and sink at a broker that asks for a password, which is found nowhere afterwards."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qbus import Admin, Consumer, Producer
from tests.support.secure_broker import certificates
from tests.support.secured_broker import ROOT, ROOT_PASSWORD, SecuredBroker, root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.fixture
def topics(secured: SecuredBroker) -> tuple[str, str]:
    """A topic with three records, and an empty one."""
    number = next(_numbers)
    there, back = f"there-{number}", f"back-{number}"
    with Admin(secured.sasl, security=root()) as admin:
        for name in (there, back):
            admin.create_topic(name)
    with Producer(secured.sasl, security=root()) as producer:
        for value in (b"1", b"2", b"3"):
            producer.send(there, value)
    return there, back


def options(broker: SecuredBroker, password: str = ROOT_PASSWORD) -> dict[str, str]:
    """As for Spark's own connector."""
    return {
        "kafka.bootstrap.servers": broker.sasl,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": f'{SCRAM} required username="{ROOT}" password="{password}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": certificates().ca,
    }


def written(broker: SecuredBroker, topic: str) -> list[bytes | None]:
    with Consumer(broker.sasl, security=root(), offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        found: list[bytes | None] = []
        while len(found) < 3:
            found += [record.value for part in consumer.poll(10.0) for record in part]
    return sorted(found, key=lambda value: value or b"")


@pytest.mark.nightly
def test_a_stream_from_topic_to_topic(
    spark: "SparkSession", secured: SecuredBroker, topics: tuple[str, str], tmp_path: Path
) -> None:
    there, back = topics
    given = options(secured)
    reader = spark.readStream.format("qbus").options(**given, subscribe=there)
    rows = reader.option("startingOffsets", "earliest").load().select("key", "value")
    query = (
        rows.writeStream.format("qbus")
        .options(**given, topic=back)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    assert written(secured, back) == [b"1", b"2", b"3"]
    plan = query._jsq.explainInternal(True)
    files = [file.read_bytes() for file in (tmp_path / "checkpoint").rglob("*") if file.is_file()]
    assert files
    shown = f"{plan} {query.lastProgress} {query.status}"
    assert ROOT_PASSWORD not in shown
    assert not any(ROOT_PASSWORD.encode() in content for content in files)


def test_a_batch_with_a_file_of_properties(
    spark: "SparkSession", secured: SecuredBroker, topics: tuple[str, str], tmp_path: Path
) -> None:
    there, back = topics
    (tmp_path / "password").write_text(ROOT_PASSWORD)
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\n"
        f"ssl.ca.location={certificates().ca}\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.username={ROOT}\n"
        f"sasl.password=file:{tmp_path}/password\n"
    )
    given = {"qbus.bootstrap": secured.sasl, "qbus.security.file": str(file)}
    rows = spark.read.format("qbus").options(**given, subscribe=there).load()
    rows.select("value").write.format("qbus").options(**given, topic=back).mode("append").save()
    assert written(secured, back) == [b"1", b"2", b"3"]
    assert ROOT_PASSWORD not in rows._jdf.queryExecution().toString()


def test_a_wrong_password_is_said_and_not_shown(
    spark: "SparkSession", secured: SecuredBroker, topics: tuple[str, str]
) -> None:
    from pyspark.errors import PySparkException

    given = options(secured, "hunter2 is wrong")
    rows = spark.read.format("qbus").options(**given, subscribe=topics[0]).load()
    with pytest.raises(PySparkException, match="authentication of 'root' with SCRAM") as caught:
        rows.collect()
    assert "hunter2" not in str(caught.value)
