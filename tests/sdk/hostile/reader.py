"""A process that reads from a hostile broker and tells what that cost: ``BOOTSTRAP METHOD``.

It reads one honest record of partition 0 first, so that what it measures is the attack alone.
"""

import asyncio
import json
import sys
from pathlib import Path

from qbus.aio import Consumer
from qbus.errors import QbusError

_STATUS = Path("/proc/self/status")


def memory(field: str) -> int:
    """A figure of this process in bytes: VmRSS is what it holds, VmHWM the most that it held."""
    (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def forget_peak() -> None:
    """Let VmHWM begin anew."""
    Path("/proc/self/clear_refs").write_text("5")


async def main(bootstrap: str, method: str) -> None:
    """Read until an error, or for a few seconds, and print what happened as JSON."""
    error, found = "", 0
    async with Consumer(bootstrap, offset_reset="earliest", fetch_max_wait_ms=50) as consumer:
        consumer.assign([("t", 0, 0)])
        while not await getattr(consumer, method)(0.2):
            pass
        before = memory("VmRSS")
        forget_peak()
        consumer.assign([("t", partition, 0) for partition in (1, 2, 3)])
        try:
            async with asyncio.timeout(20):
                while not error and not found:
                    found = sum(map(_rows, await getattr(consumer, method)(0.2)))
        except QbusError as caught:
            error = f"{type(caught).__name__}: {caught}"
        grown = memory("VmHWM") - before
    print(json.dumps({"error": error, "found": found, "grown": grown}))


def _rows(part: object) -> int:
    return getattr(part, "num_rows", None) or len(getattr(part, "records", (part,)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
