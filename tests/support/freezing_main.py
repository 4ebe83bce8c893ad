"""``qbus``, whose event loop SIGUSR1 holds for ``FREEZE_S`` seconds; other threads go on.

It is what a request that takes too long does, without the request: the interpreter's lock is free.
"""

import asyncio
import os
import signal
import time
from pathlib import Path

from qbus.cli import main

PROGRAM = (str(Path(__file__)),)
"""In place of ``-m qbus``."""

VARIABLE = "FREEZE_S"


def _freeze(*_: object) -> None:
    asyncio.get_running_loop().call_soon_threadsafe(time.sleep, float(os.environ[VARIABLE]))


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _freeze)
    main()
