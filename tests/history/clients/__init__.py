"""Clients of three makes behind one face, imported when they are first used."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from .base import ConsumerClient, ProducerClient

_MODULES = {
    "qbus": ("sdk", "Qbus"),
    "confluent": ("confluent", "Confluent"),
    "kafka-python": ("kafka_python", "KafkaPython"),
}
RELAXED = "-relaxed"
"""Ends the names of producers that are not idempotent."""
CONSUMERS = tuple(_MODULES)
PRODUCERS = tuple(name + more for name in _MODULES for more in ("", RELAXED))


def open_producer(name: str, bootstrap: str, topic: str) -> ProducerClient:
    """One of PRODUCERS, with acks=all."""
    kind = _load(name.removesuffix(RELAXED), "Producer")
    client: ProducerClient = kind(bootstrap, topic, is_idempotent=not name.endswith(RELAXED))
    return client


def open_consumer(
    name: str, bootstrap: str, topic: str, partitions: Iterable[int]
) -> ConsumerClient:
    """One of CONSUMERS, at the start of all of these."""
    client: ConsumerClient = _load(name, "Consumer")(bootstrap, topic, partitions)
    return client


def _load(name: str, role: str) -> Any:
    module, prefix = _MODULES[name]
    return getattr(import_module(f".{module}", __name__), prefix + role)
