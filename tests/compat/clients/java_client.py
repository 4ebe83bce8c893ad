"""Kafka's own producer and consumer, in Java, driven by the program in ``tests/compat/java``."""

from pathlib import Path

from perf.peers import java, kafka
from tests.compat.records import BINARY, NOTHING, NULL_HEADER

from .scripted import Scripted

_SOURCE = Path(__file__).parents[1] / "java" / "Driver.java"


class JavaClient(Scripted):
    """The driver of Kafka's Java client."""

    name = "java-client"
    sendable = (*BINARY, NULL_HEADER, NOTHING)
    readable = sendable

    @staticmethod
    def missing() -> str | None:
        """Return why it cannot run here. Fetches Kafka's jars at first use."""
        return kafka.missing()

    @classmethod
    def command(cls, bootstrap: str) -> list[str]:
        return java.command(str(_SOURCE), bootstrap, options=java.SHORT_RUN_OPTIONS)
