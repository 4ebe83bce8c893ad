"""Transactional clients that no one here wrote, behind one face."""

from .aiokafka import AiokafkaTransactions
from .base import Producer, Read, Refused, TransactionalClient
from .confluent import ConfluentTransactions
from .franz_go import FranzGoTransactions
from .java import JavaTransactions
from .kafka_python import KafkaPythonTransactions
from .kafkajs import KafkajsTransactions

__all__ = ["ALL", "JavaTransactions", "Producer", "Read", "Refused", "TransactionalClient"]

ALL = (
    ConfluentTransactions,
    JavaTransactions,
    AiokafkaTransactions,
    KafkaPythonTransactions,
    KafkajsTransactions,
    FranzGoTransactions,
)
