"""Clients that commit offsets, in a process of its own: ``python -m perf.commit_load ... JSON``.

All requests are made before the clock starts, and answers are compared with one that was read: so
the client costs next to nothing, which on two cores counts.
"""

import asyncio
import json
import subprocess
import sys
import time
from struct import unpack
from typing import Any, Final

from qbus.errors import ErrorCode
from qbus.wire import ApiKey, Struct, decode_response, encode_request
from qbus.wire.messages.find_coordinator import FindCoordinatorRequest
from qbus.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

_VERSION: Final = 8
_REQUESTS: Final = 64  # of each client, over and over
_PATIENCE_S: Final = 30.0


def run(bootstrap: str, **options: Any) -> float:
    """Offsets committed per second, by as many clients as ``options`` say, in a fresh process."""
    command = [sys.executable, "-m", "perf.commit_load", bootstrap, json.dumps(options)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=600)
    return float(done.stdout)


class _Client:
    """One connection, and one group."""

    def __init__(self, number: int, partitions: int) -> None:
        self._group = f"commits-{number}"
        self._frames = [commit_frame(self._group, at, partitions) for at in range(_REQUESTS)]
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._good = b""
        self.commits = 0

    async def begin(self, host: str, port: int) -> None:
        """Connect, and commit once."""
        self._reader, self._writer = await asyncio.open_connection(host, port)
        find = _framed(ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest(key=self._group))
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            _, found = decode_response(ApiKey.FIND_COORDINATOR, 1, await self._ask(find))
            answer = await self._ask(self._frames[0])
            _, committed = decode_response(ApiKey.OFFSET_COMMIT, _VERSION, answer)
            errors = {p.error_code for topic in committed.topics for p in topic.partitions}
            if not found.error_code and errors == {ErrorCode.NONE}:
                self._good = answer
                return
            await asyncio.sleep(0.2)
        raise TimeoutError(f"{self._group} is not coordinated: {found}, {committed}")

    async def commit_until(self, end: float) -> None:
        """One commit after the other."""
        while time.monotonic() < end:
            answer = await self._ask(self._frames[self.commits % _REQUESTS])
            if answer != self._good:
                raise AssertionError(f"a commit was refused: {answer!r}")
            self.commits += 1

    async def _ask(self, frame: bytes) -> bytes:
        self._writer.write(frame)
        (size,) = unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)


def commit_frame(group: str, at: int, partitions: int) -> bytes:
    """An OffsetCommit request of a group, its length before it."""
    positions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=1_000 * at + index, committed_metadata=""
        )
        for index in range(partitions)
    ]
    topics = [OffsetCommitRequestTopic(name="commits", partitions=positions)]
    return _framed(
        ApiKey.OFFSET_COMMIT,
        _VERSION,
        OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=topics),
    )


def _framed(key: ApiKey, version: int, request: Struct) -> bytes:
    return b"".join(bytes(part) for part in encode_request(key, version, 0, "perf", request))


async def _run(bootstrap: str, clients: int, partitions: int, seconds: float) -> float:
    host, _, port = bootstrap.rpartition(":")
    load = [_Client(number, partitions) for number in range(clients)]
    await asyncio.gather(*(client.begin(host, int(port)) for client in load))
    started = time.monotonic()
    await asyncio.gather(*(client.commit_until(started + seconds) for client in load))
    return sum(client.commits for client in load) * partitions / (time.monotonic() - started)


if __name__ == "__main__":
    print(asyncio.run(_run(sys.argv[1], **json.loads(sys.argv[2]))))
