"""The clients that the suite drives, each behind the same face."""

from typing import Any

from .aiokafka import Aiokafka
from .base import Client, ClientError, GroupDescription
from .confluent import Confluent
from .franz_go import FranzGo
from .java_client import JavaClient
from .java_tools import JavaTools
from .kafka_python import KafkaPython
from .kafkajs import Kafkajs
from .kcat import Kcat

__all__ = ["ALL", "Client", "ClientError", "GroupDescription"]

ALL: tuple[Any, ...] = (
    Confluent,
    KafkaPython,
    Aiokafka,
    Kcat,
    Kafkajs,
    JavaClient,
    FranzGo,
    JavaTools,
)
