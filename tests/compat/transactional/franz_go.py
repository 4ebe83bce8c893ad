"""franz-go, driven by the program in ``tests/compat/franz``."""

from tests.compat.clients.franz_go import FranzGo

from .scripted import ScriptedTransactions


class FranzGoTransactions(ScriptedTransactions):
    """``kgo.Client``; it copies by a ``GroupTransactSession``."""

    name = "franz-go"
    has_offsets = False

    @staticmethod
    def missing() -> str | None:
        """Return why it cannot run here. Fetches its modules at first use."""
        return FranzGo.missing()

    @classmethod
    def command(cls, bootstrap: str) -> list[str]:
        return FranzGo.command(bootstrap)
