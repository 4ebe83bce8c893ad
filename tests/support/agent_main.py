"""``python -m tests.support.agent_main CONFIG DATA_DIR``: the core of an agent, until SIGTERM."""

import asyncio
import signal
import sys
from pathlib import Path

from qbus.agent.config import load
from qbus.agent.file_shipper import FileShipper


async def main(config: Path, data_dir: Path) -> None:
    """Ship until told to stop."""
    agent = FileShipper(load(config), data_dir)
    await agent.start()
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    waiting = asyncio.create_task(agent.wait())
    stopping = asyncio.create_task(told.wait())
    await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    await agent.stop()
    await waiting


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
