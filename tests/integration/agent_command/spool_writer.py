"""``python -m tests.integration.agent_command.spool_writer SPOOL TOPIC NAME``: spools until killed.

Each batch of two records is printed once it is kept: what was printed must arrive.
"""

import sys
import time

from qbus.clients.spool import SpoolWriter
from qbus.records import build_batch

_PARTITIONS = 2
_PAUSE_S = 0.003


def main(directory: str, topic: str, name: str) -> None:
    """Keep numbered batches, one after the other, for each partition in turn."""
    with SpoolWriter(directory) as spool:
        number = 0
        while True:
            values = [f"{name} {number + index}".encode() for index in range(2)]
            batch = build_batch([(None, value, (), 1_700_000_000_000) for value in values])
            spool.append(topic, number // 2 % _PARTITIONS, batch)
            print("\n".join(map(bytes.decode, values)), flush=True)
            number += 2
            time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
