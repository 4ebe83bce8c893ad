"""franz-go: the protocol in Go, driven by the program in ``tests/compat/franz``."""

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.compat.records import BINARY, NOTHING, NULL_HEADER

from .scripted import Scripted

_SOURCES = Path(__file__).parents[1] / "franz"


class FranzGo(Scripted):
    """The driver of franz-go."""

    name = "franz-go"
    sendable = (*BINARY, NULL_HEADER, NOTHING)
    readable = sendable
    tells_no_offset = False

    @staticmethod
    def missing() -> str | None:
        """Return why it cannot run here. Fetches its modules at first use."""
        if not shutil.which("go"):
            return "go is not installed"
        return None if _program() else "go cannot build franz-go"

    @classmethod
    def command(cls, bootstrap: str) -> list[str]:
        return [str(_program()), bootstrap]


@cache
def _program() -> Path | None:
    built = Path(tempfile.gettempdir(), f"qbus-franz-{os.getuid()}", "driver")
    built.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        subprocess.run(
            ["go", "build", "-o", str(built), "."],
            cwd=_SOURCES,
            capture_output=True,
            check=True,
            timeout=240,
        )
    except subprocess.SubprocessError:
        return None
    return built
