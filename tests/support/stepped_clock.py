"""A time of day that a test sets forward and back, for the processes told of it."""

import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

_SOURCE = Path(__file__).parent / "stepped_clock.c"
_NS: int = 1_000_000_000


def missing() -> str | None:
    """Why no clock can be set here, or None."""
    return None if shutil.which("cc") else "cc is not installed"


class SteppedClock:
    """Processes started with ``env`` see the machine's time of day, and what ``step`` adds."""

    def __init__(self, directory: Path, name: str) -> None:
        """``directory``: where to keep what is preloaded, and the offset, under ``name``."""
        library = directory / f"{name}.so"
        self._offset = directory / f"{name}.offset"
        command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self.step(0.0)
        self.env: Mapping[str, str] = {
            "LD_PRELOAD": str(library),
            "CLOCK_OFFSET": str(self._offset),
        }

    def step(self, seconds: float) -> None:
        """Be ``seconds`` ahead of the machine's clock, or behind it, from now on."""
        if not self._offset.exists():
            self._offset.write_bytes(bytes(8))
        with self._offset.open("r+b") as file:  # in place: it is mapped
            file.write(struct.pack("=q", int(seconds * _NS)))
