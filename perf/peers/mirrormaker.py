"""MirrorMaker 2 as a peer of the mirror: Kafka Connect's mirror connector in its own process."""

import subprocess
from pathlib import Path

from perf.peers import java
from perf.peers.maven import Artifact, fetched

_ARTIFACTS = (
    Artifact("org.apache.kafka", "connect-mirror", java.KAFKA_VERSION),
    Artifact("org.slf4j", "slf4j-simple", "1.7.36"),
)
_MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
# One link and nothing beside the records; fetches and batches large enough for a long way.
_SETTINGS = """
clusters = a, b
a.bootstrap.servers = {source}
b.bootstrap.servers = {target}
a->b.enabled = true
b->a.enabled = false
a->b.topics = {topic}
tasks.max = 2
replication.factor = 1
offset-syncs.topic.replication.factor = 1
config.storage.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
offset-syncs.topic.location = target
emit.heartbeats.enabled = false
emit.checkpoints.enabled = false
sync.topic.acls.enabled = false
sync.topic.configs.enabled = false
a.consumer.auto.offset.reset = earliest
a.consumer.max.partition.fetch.bytes = 8388608
a.consumer.max.poll.records = 5000
b.producer.batch.size = 262144
b.producer.linger.ms = 5
b.producer.buffer.memory = 67108864
b.producer.compression.type = lz4
"""


def missing() -> str | None:
    """Return why MirrorMaker cannot run here, or None when it can. Fetches it at first use."""
    try:
        _classpath()
    except java.Unavailable as reason:
        return str(reason)
    return None


def start(
    directory: Path, source: str, target: str, topic: str, heap: str = "1G"
) -> "subprocess.Popen[bytes]":
    """Mirror ``topic`` from one cluster to another, where it is ``a.<topic>``."""
    settings = directory / "mirror.properties"
    settings.write_text(_SETTINGS.format(source=source, target=target, topic=topic))
    logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    command = ["java", f"-Xmx{heap}", *java.SCRIPT_OPTIONS, logging, "-cp", _classpath()]
    with (directory / "mirror.log").open("wb") as log:
        return subprocess.Popen(
            [*command, _MAIN, str(settings), "--clusters", "b"], stdout=log, stderr=log
        )


def _classpath() -> str:
    return f"{fetched(f'connect-mirror-{java.KAFKA_VERSION}', _ARTIFACTS)}/*"
