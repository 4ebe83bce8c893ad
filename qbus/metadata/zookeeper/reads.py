"""Many nodes in one request: ZooKeeper's multi-read (from 3.6 on), which kazoo does not have.

The layout is that of a transaction (zookeeper.jute, MultiHeader): headers with operations, and back
headers with answers; but each answer stands for itself.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any

from qbus.metadata.zookeeper.handler import Answer
from qbus.metadata.zookeeper.library import KazooClient, exceptions, serialization

_MULTI_HEADER = Struct(">i?i")  # the operation's type, whether this is the end, an error
_INT = Struct(">i")
_NO_ERROR = -1
_FAILED = -1


class MultiRead:
    """kazoo's view of such a request: its number, its bytes, and what the answer's bytes mean."""

    type = 22

    def __init__(self, kind: Any, paths: Sequence[str]) -> None:
        """``kind``: ``serialization.GetData`` or ``GetChildren``."""
        self._kind = kind
        self._paths = paths

    def serialize(self) -> bytes:
        """The request, after its number."""
        head = _MULTI_HEADER.pack(self._kind.type, False, _NO_ERROR)
        operations = [head + bytes(self._kind(path, None).serialize()) for path in self._paths]
        return b"".join(operations) + _MULTI_HEADER.pack(-1, True, _NO_ERROR)

    def deserialize(self, data: bytes, offset: int) -> list[Any]:
        """Of each path what kazoo has for it, or its exception."""
        answers: list[Any] = []
        while True:
            kind, is_end, _ = _MULTI_HEADER.unpack_from(data, offset)
            offset += _MULTI_HEADER.size
            if is_end:
                return answers
            answer, offset = _answer(kind, data, offset)
            answers.append(answer)


def _answer(kind: int, data: bytes, offset: int) -> tuple[Any, int]:
    if kind == _FAILED:
        (error,) = _INT.unpack_from(data, offset)
        return exceptions.EXCEPTIONS[error](), offset + _INT.size
    if kind == serialization.GetData.type:
        return _data(data, offset)
    return _children(data, offset)


def _data(data: bytes, offset: int) -> tuple[Any, int]:
    value, offset = serialization.read_buffer(data, offset)
    stat = serialization.ZnodeStat._make(serialization.stat_struct.unpack_from(data, offset))
    return (value, stat), offset + serialization.stat_struct.size


def _children(data: bytes, offset: int) -> tuple[list[str], int]:
    (count,) = _INT.unpack_from(data, offset)
    offset += _INT.size
    names = []
    for _ in range(count):
        name, offset = serialization.read_string(data, offset)
        names.append(name)
    return names, offset


def ask(client: KazooClient, kind: Any, paths: Sequence[str]) -> Answer:
    """Send a multi-read as kazoo's own methods send theirs."""
    answer: Answer = client.handler.async_result()
    client._call(MultiRead(kind, paths), answer)
    return answer
