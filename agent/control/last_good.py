"""The last configuration that was applied, kept so that an agent starts without ZooKeeper."""

from pathlib import Path

from qbus.clients.spool.disk import write_atomically

_FILE = "config.toml"


class LastGood:
    """One file of the data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / _FILE

    def load(self) -> bytes | None:
        """What was kept, if anything was; raises OSError."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def save(self, text: bytes) -> None:
        """Keep ``text`` instead: after a crash there is the old one or the new; raises OSError."""
        if self.load() != text:
            write_atomically(self.path, text)
