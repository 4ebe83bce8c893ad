"""kafkajs, driven by the scripts in ``tests/compat/kafkajs``."""

from collections.abc import Mapping

from tests.compat.clients.kafkajs import Kafkajs

from .scripted import ScriptedTransactions


class KafkajsTransactions(ScriptedTransactions):
    """``producer.transaction()`` and its consumer."""

    name = "kafkajs"

    @staticmethod
    def missing() -> str | None:
        """Return why it cannot run here. Fetches its packages at first use."""
        return Kafkajs.missing()

    @classmethod
    def command(cls, bootstrap: str) -> list[str]:
        return Kafkajs.command(bootstrap)

    @classmethod
    def environment(cls) -> Mapping[str, str] | None:
        return Kafkajs.environment()
