"""A disk that syncs slowly, or not at all for a while: a directory, to the processes told of it."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_SOURCE = Path(__file__).parent / "slow_disk.c"


def missing() -> str | None:
    """Why no disk can be slowed down here, or None."""
    return None if shutil.which("cc") else "cc is not installed"


class SlowDisk:
    """The directory ``path``; processes started with ``env`` wait for it."""

    def __init__(self, path: Path, library: Path, sync_ms: int) -> None:
        """``library``: where to build what is preloaded. ``sync_ms``: how long a sync takes."""
        path.mkdir()
        self.path = path.resolve()
        command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self.env: Mapping[str, str] = {
            "LD_PRELOAD": str(library),
            "SLOW_DISK": str(self.path),
            "SLOW_DISK_MS": str(sync_ms),
        }

    @contextmanager
    def stuck(self) -> Iterator[None]:
        """No sync returns meanwhile."""
        file = self.path / "stuck"
        file.touch()
        try:
            yield
        finally:
            file.unlink()
