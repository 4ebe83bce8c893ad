"""Kafka's own producer and consumer, in Java, driven by the program in ``tests/compat/java``."""

from collections.abc import Mapping
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

    def _secured(self, environment: dict[str, str] | None) -> dict[str, str] | None:
        found = super()._secured(environment)
        if self._security and found:
            found["JAVA_TOOL_OPTIONS"] = " ".join(self._security.java_options())
        return found

    def security_settings(self) -> Mapping[str, object] | None:
        return self._security.java() if self._security else None
