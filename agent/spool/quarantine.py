"""The quarantine: files that cannot be delivered, kept in the agent's directory for a person."""

import hashlib
from pathlib import Path

from qbus.service.files import replace_file

_DIRECTORY = "damaged"


class Quarantine:
    """Files in quarantine. All methods raise OSError and block."""

    def __init__(self, data_dir: Path) -> None:
        self._directory = data_dir / _DIRECTORY

    def __len__(self) -> int:
        """The number of files."""
        if not self._directory.exists():
            return 0
        return sum(path.suffix != ".tmp" for path in self._directory.iterdir())

    def copy(self, segment: Path) -> Path:
        """Keep a copy of a segment; return its path. The same content is kept once."""
        return self.keep(segment, segment.read_bytes())

    def keep(self, origin: Path, content: bytes) -> Path:
        """Keep ``content`` from the file ``origin`` durably; return its path."""
        self._directory.mkdir(parents=True, exist_ok=True)
        writer, queue = origin.parent.parent.name, origin.parent.name
        digest = hashlib.sha256(content).hexdigest()[:16]
        path = self._directory / f"{writer}.{queue}.{origin.stem}.{digest}.log"
        if not path.exists():
            replace_file(path, content)
        return path
