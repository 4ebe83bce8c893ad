"""Spark's own Kafka connector from Maven Central: the format ``kafka``, which needs four jars."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from perf.peers.maven import Artifact, Unavailable, fetched_first

#: What Maven Central holds whole, where it lacks the connector of Spark's own version: the newest
#: connector, and the newest of its parts that obtains tokens, which nothing here needs.
_CONNECTOR, _TOKENS = "4.2.0", "4.0.0"
_KAFKA_CLIENTS, _POOL = "3.9.2", "2.13.1"  # those that this connector was built with


def missing() -> str | None:
    """Return why the connector cannot run here, or None when it can."""
    try:
        jars()
    except Unavailable as reason:
        return str(reason)
    return None


@cache
def jars() -> str:
    """Return the connector's jars as ``spark.jars`` takes them, fetched at first use.

    Those of the version of the installed pyspark, or the nearest to be had. Raises Unavailable.
    """
    try:
        spark = version("pyspark")
    except PackageNotFoundError:
        raise Unavailable("pyspark is not installed") from None
    choices = {
        f"spark-kafka-{spark}": _connector(spark, spark),
        f"spark-kafka-{_CONNECTOR}": _connector(_CONNECTOR, _TOKENS),
    }
    directory = fetched_first(choices)
    return ",".join(str(jar) for jar in sorted(directory.glob("*.jar")))


def _connector(connector: str, tokens: str) -> list[Artifact]:
    """The jars that Spark does not have itself."""
    return [
        Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", connector, is_alone=True),
        Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", tokens, is_alone=True),
        Artifact("org.apache.kafka", "kafka-clients", _KAFKA_CLIENTS, is_alone=True),
        Artifact("org.apache.commons", "commons-pool2", _POOL, is_alone=True),
    ]
