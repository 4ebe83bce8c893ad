"""Copy a topic, in capitals, with asyncio: ``copy_with_asyncio.py BOOTSTRAP FROM TO GROUP``.

What was read is committed once its copy is delivered, so a crash loses nothing.
"""

import asyncio
import sys

from qbus.aio import Consumer, Producer

PATIENCE = 6.0
"""Seconds without a record that end the program: more than the 3 s in which a new group forms."""


async def main(bootstrap: str, source: str, target: str, group: str) -> None:
    copied = 0
    async with (
        Producer(bootstrap) as producer,
        Consumer(bootstrap, group=group, offset_reset="earliest", auto_commit=False) as consumer,
    ):
        consumer.subscribe([source])
        while polled := await consumer.poll(PATIENCE):
            for records in polled:
                values = [(record.value or b"").upper() for record in records]
                keys = [record.key for record in records]
                await (await producer.send_many(target, values, keys))
                copied += len(values)
            await consumer.commit()
    print(f"{copied} records copied")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
