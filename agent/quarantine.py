"""The quarantine: what cannot be delivered, kept in the agent's directory for an operator."""

import hashlib
import os
from pathlib import Path

from qbus.service.files import replace_file

_DIRECTORY = "damaged"
_LONGEST_NAME = 180
_SPOOLED = ".log"


class Quarantine:
    """Files in quarantine. All methods raise OSError and block."""

    def __init__(self, data_dir: Path) -> None:
        self._directory = data_dir / _DIRECTORY

    def __len__(self) -> int:
        """The number of files from spools."""
        if not self._directory.exists():
            return 0
        return sum(path.suffix == _SPOOLED for path in self._directory.iterdir())

    def copy(self, segment: Path) -> Path:
        """Keep a copy of a spool's segment; return its path."""
        return self.keep_batches(segment, segment.read_bytes())

    def keep_batches(self, origin: Path, content: bytes) -> Path:
        """Keep batches from the file ``origin`` of a spool; return their path."""
        writer, queue = origin.parent.parent.name, origin.parent.name
        return self._keep(f"{writer}.{queue}.{origin.stem}", content, _SPOOLED)

    def keep_record(self, name: str, value: bytes) -> Path:
        """Keep the value of a record; return its path, which begins with ``name``."""
        return self._keep(name, value, ".record")

    def _keep(self, name: str, content: bytes, suffix: str) -> Path:
        """Keep ``content`` durably; the same content under the same name is kept once."""
        self._directory.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(content).hexdigest()[:16]
        short = os.fsdecode(os.fsencode(name)[:_LONGEST_NAME])
        path = self._directory / f"{short}.{digest}{suffix}"
        if not path.exists():
            replace_file(path, content)
        return path
