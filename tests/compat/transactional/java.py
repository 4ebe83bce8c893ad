"""Kafka's own client, driven by the program in ``tests/compat/java``."""

from pathlib import Path

from perf.peers import java, kafka

from .scripted import ScriptedTransactions

_SOURCE = Path(__file__).parents[1] / "java" / "TransactionDriver.java"


class JavaTransactions(ScriptedTransactions):
    """``KafkaProducer``, ``KafkaConsumer`` and ``Admin``."""

    name = "java"

    @staticmethod
    def missing() -> str | None:
        """Return why it cannot run here. Fetches Kafka's jars at first use."""
        return kafka.missing()

    @classmethod
    def command(cls, bootstrap: str) -> list[str]:
        return java.command(str(_SOURCE), bootstrap, options=java.SHORT_RUN_OPTIONS)

    def fence(self, transactional_id: str) -> None:
        """Have the admin client fence whoever has the id."""
        self._program.ask("fence", transactionalId=transactional_id)

    def transactions(self) -> dict[str, str]:
        """The states of all transactions, by transactional id."""
        return dict(self._program.ask("list"))

    def latest(self, topic: str, *, committed: bool, partition: int = 0) -> int:
        """The end of a partition as an isolation level sees it."""
        return int(
            self._program.ask("latest", topic=topic, partition=partition, committed=committed)
        )

    def group_offset(self, topic: str, group: str, *, stable: bool) -> int:
        """A group's offset; ``stable`` waits for what a transaction has not decided yet."""
        return int(self._program.ask("offset", topic=topic, group=group, stable=stable))
