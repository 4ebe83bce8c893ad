"""A configuration in a file, which SIGHUP has read again."""

import asyncio
import signal
from pathlib import Path
from typing import Any

from qbus.errors import ConfigError
from qbus.service.control.configured import Configured, Origin


async def follow_file(file: Path, configured: Configured[Any]) -> None:
    """Put what is in ``file`` into force, now and at each SIGHUP.

    One that is bad then leaves the old one in force. Raises ConfigError for the first one.
    """
    try:
        text = await asyncio.to_thread(file.read_bytes)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    await configured.take_first(text, Origin(str(file)))
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
        configured.miss(f"cannot read {file}: {error.strerror}")
    else:
        await configured.take(text, Origin(str(file)))
