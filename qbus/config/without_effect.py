"""Kafka's broker settings that have no effect here, and why.

A broker accepts them with a warning, so that a configuration written for Kafka can be used. A
setting that decides who may do what, as ``principal.builder.class`` or ``sasl.jaas.config``, is
never among them: without its effect, a broker would be less safe than its operator believes.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from qbus.config.synonyms import SYNONYMS
from qbus.config.topic import TOPIC_CONFIG

_KERBEROS: Final = "Kerberos (GSSAPI) is not supported"
_KRAFT: Final = "metadata is in ZooKeeper or a local file; there is no KRaft quorum"
_MIGRATION: Final = "there are no brokers of another version of the protocol to migrate from"
_TIERED: Final = "there is no remote storage of logs"
_METRICS: Final = "metrics are served for Prometheus at metrics.listen"
_EVENT_LOOP: Final = "an event loop serves all connections, without pools of threads"
_FETCHER: Final = "one connection to each leader fetches all of its partitions"
_INTERNAL: Final = "it tunes a part of Kafka that Qbus does not have"
_PASSWORDS: Final = "a secret is stated as file:PATH or env:NAME"
_JVM: Final = "it concerns the JVM"
_FORMAT: Final = "records have format v2 only"
_CONFLUENT: Final = "it belongs to Confluent Platform"

_NAMES: Final = {
    "background.threads": _EVENT_LOOP,
    "num.io.threads": _EVENT_LOOP,
    "num.network.threads": _EVENT_LOOP,
    "queued.max.requests": f"{_EVENT_LOOP}; queued.max.request.bytes is the limit",
    "num.replica.alter.log.dirs.threads": _EVENT_LOOP,
    "num.replica.fetchers": _FETCHER,
    "socket.listen.backlog.size": _INTERNAL,
    "inter.broker.protocol.version": _MIGRATION,
    "log.message.format.version": _FORMAT,
    "log.message.downconversion.enable": _FORMAT,
    "log.message.timestamp.difference.max.ms": (
        "log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms replace it"
    ),
    "log.cleaner.hash.algorithm": _INTERNAL,
    "log.dir.failure.timeout.ms": _INTERNAL,
    "log.initial.task.delay.ms": _INTERNAL,
    "auto.include.jmx.reporter": _METRICS,
    "metric.reporters": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "enable.zookeeper.migration": _KRAFT,
    "zookeeper.metadata.migration.enable": _KRAFT,
    "zookeeper.metadata.migration.min.batch.size": _KRAFT,
    "process.roles": _KRAFT,
    "controller.listener.names": _KRAFT,
    "controlled.shutdown.timeout.ms": "shutdown.drain.timeout.ms is the limit",
    "controller.socket.timeout.ms": _KRAFT,
    "broker.heartbeat.interval.ms": "the ZooKeeper session shows that a broker lives",
    "broker.session.timeout.ms": "zookeeper.session.timeout.ms is the limit",
    "broker.id.generation.enable": "node.id names a broker",
    "reserved.broker.max.id": "node.id names a broker",
    "initial.broker.registration.timeout.ms": _KRAFT,
    "early.start.listeners": _KRAFT,
    "server.max.startup.time.ms": _INTERNAL,
    "zookeeper.max.in.flight.requests": _INTERNAL,
    "zookeeper.clientCnxnSocket": _JVM,
    "security.providers": _JVM,
    "ssl.provider": _JVM,
    "ssl.secure.random.implementation": _JVM,
    "ssl.keymanager.algorithm": _JVM,
    "ssl.trustmanager.algorithm": _JVM,
    "offsets.commit.timeout.ms": _INTERNAL,
    "offsets.commit.required.acks": _INTERNAL,
    "offsets.load.buffer.size": _INTERNAL,
    "offsets.topic.compression.codec": _INTERNAL,
    "transaction.state.log.load.buffer.size": _INTERNAL,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": _INTERNAL,
    "transaction.remove.expired.transaction.cleanup.interval.ms": _INTERNAL,
    "transaction.partition.verification.enable": "transactions are always verified",
    "producer.id.expiration.check.interval.ms": _INTERNAL,
    "fetch.purgatory.purge.interval.requests": _INTERNAL,
    "producer.purgatory.purge.interval.requests": _INTERNAL,
    "delete.records.purgatory.purge.interval.requests": _INTERNAL,
    "max.incremental.fetch.session.cache.slots": _INTERNAL,
    "quota.consumer.default": "'qbus quota set' makes quotas",
    "quota.producer.default": "'qbus quota set' makes quotas",
    "group.coordinator.new.enable": "the consumer protocol is on",
    "group.coordinator.threads": _EVENT_LOOP,
    "group.coordinator.append.linger.ms": _INTERNAL,
    "group.coordinator.cached.buffer.max.bytes": _INTERNAL,
    "group.share.enable": "share groups are on",
    "group.share.persister.class.name": "the state of share groups is in the log",
    "unstable.api.versions.enable": "the versions in docs/protocol.md are served",
    "unstable.feature.versions.enable": "the versions in docs/protocol.md are served",
}

_PREFIXES: Final = {
    "sasl.kerberos.": _KERBEROS,
    "controller.quorum.": _KRAFT,
    "metadata.log.": _KRAFT,
    "metadata.max.": _KRAFT,
    "remote.log.": _TIERED,
    "remote.fetch.": _TIERED,
    "rlmm.": _TIERED,
    "rsm.": _TIERED,
    "log.local.retention.": _TIERED,
    "kafka.metrics.": _METRICS,
    "password.encoder.": _PASSWORDS,
    "share.coordinator.": "the state of share groups is in the log",
    "confluent.": _CONFLUENT,
}


def reason_without_effect(name: str) -> str | None:
    """Return why a broker setting of Kafka has no effect; None if it has one, or is unknown."""
    if name.startswith("listener.name."):
        name = name.removeprefix("listener.name.").partition(".")[2]
    prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), None)
    if prefix is not None:
        return _PREFIXES[prefix]
    return _NAMES.get(name) or _of_topics(name)


def warnings_without_effect(names: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each of ``names`` that has no effect."""
    for name in names:
        if reason := reason_without_effect(name):
            yield f"{name} has no effect: {reason}"


def _of_topics(name: str) -> str | None:
    synonyms = [synonym.name for synonym in SYNONYMS.get(name, ())]
    if name not in TOPIC_CONFIG or name in synonyms:
        return None
    if synonyms:
        return f"it is a setting of topics; {synonyms[0]} is their default"
    return "it is a setting of topics"
