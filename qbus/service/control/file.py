"""Configurations in files: one that SIGHUP reloads, and the last good one of a daemon."""

import asyncio
import signal
from pathlib import Path
from typing import Any

from qbus.errors import ConfigError
from qbus.service.control.configured import Configured, Origin
from qbus.service.files import replace_file

_LAST_GOOD = "config.toml"


class LastGood:
    """The last configuration that came into force: a daemon starts with it without ZooKeeper."""

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / _LAST_GOOD

    def load(self) -> bytes | None:
        """Return what was kept, if anything; raises OSError."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def save(self, text: bytes) -> None:
        """Keep ``text`` instead, durably; raises OSError."""
        if self.load() != text:
            replace_file(self.path, text)


async def follow_file(file: Path, configured: Configured[Any]) -> None:
    """Put the configuration in ``file`` into force, now and at each SIGHUP.

    Raises ConfigError if that is not possible now; at a signal the old one then stays in force.
    """
    try:
        text = await asyncio.to_thread(file.read_bytes)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    await configured.accept_first(text, Origin(str(file)))
    reloading: set[asyncio.Task[None]] = set()

    def on_signal() -> None:
        task = asyncio.create_task(_reload(file, configured))
        reloading.add(task)
        task.add_done_callback(reloading.discard)

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, on_signal)


async def _reload(file: Path, configured: Configured[Any]) -> None:
    try:
        text = await asyncio.to_thread(file.read_bytes)
    except OSError as error:
        configured.missing(f"cannot read {file}: {error.strerror}")
    else:
        await configured.accept(text, Origin(str(file)))
