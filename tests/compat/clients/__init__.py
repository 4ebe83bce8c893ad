"""The clients that the suite drives, each behind the same face."""

from typing import Any

from .aiokafka import Aiokafka
from .base import Client, ClientError, GroupDescription
from .confluent import Confluent
from .kafka_python import KafkaPython

__all__ = ["ALL", "Client", "ClientError", "GroupDescription"]

ALL: tuple[Any, ...] = (Confluent, KafkaPython, Aiokafka)
