"""Reading many nodes at once: the encoding of requests and the decoding of answers."""

import struct
from collections.abc import Mapping
from functools import partial
from typing import cast

import pytest

from qbus.metadata import StoreUnavailable
from qbus.metadata.zookeeper.library import exceptions, serialization
from qbus.metadata.zookeeper.reader import MultiRead, Reader
from qbus.metadata.zookeeper.session import Session

STAT = struct.pack(">qqqqiiiqiiq", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
END = struct.pack(">i?i", -1, True, -1)


def answer(kind: int, body: bytes) -> bytes:
    return struct.pack(">i?i", kind, False, 0) + body


def text(value: str) -> bytes:
    return struct.pack(">i", len(value.encode())) + value.encode()


DATA = answer(4, struct.pack(">i", 3) + b"abc" + STAT)
NO_DATA = answer(4, struct.pack(">i", -1) + STAT)
CHILDREN = answer(8, struct.pack(">i", 2) + text("a") + text("ä"))
NO_NODE = answer(-1, struct.pack(">i", -101))


def read(answers: bytes) -> list[object]:
    return MultiRead(serialization.GetData, []).deserialize(b"before" + answers, len("before"))


def test_a_request_is_headers_with_operations() -> None:
    request = MultiRead(serialization.GetData, ["/a", "/ä"])
    head = struct.pack(">i?i", 4, False, -1)
    assert request.type == 22
    assert request.serialize() == head + text("/a") + b"\0" + head + text("/ä") + b"\0" + END
    assert MultiRead(serialization.GetChildren, ["/a"]).serialize()[:4] == struct.pack(">i", 8)


def test_answers_stand_for_themselves() -> None:
    data, missing, nothing = read(DATA + NO_NODE + NO_DATA + END)
    assert data == (b"abc", 5, 10)  # the version, and the number of children
    assert isinstance(missing, exceptions.NoNodeError)
    assert isinstance(nothing, tuple)
    assert nothing[0] == b"", "what another program created may have no data"
    assert read(CHILDREN + answer(8, struct.pack(">i", 0)) + END) == [["a", "ä"], []]
    assert read(END) == []


@pytest.mark.parametrize("whole", [DATA + END, CHILDREN + END, NO_NODE + END])
def test_an_answer_that_is_cut_short_is_no_answer(whole: bytes) -> None:
    for length in range(len(whole)):
        with pytest.raises((struct.error, UnicodeDecodeError)):
            read(whole[:length])


def test_an_unknown_error_code_is_not_an_answer() -> None:
    with pytest.raises(RuntimeError):
        read(answer(-1, struct.pack(">i", -9999)) + END)


class Server:
    """Stands for a session: the answer to each path of a multi-read is given."""

    def __init__(self, answers: Mapping[str, object]) -> None:
        self._answers = answers

    async def ask(self, request: partial[object]) -> list[object]:
        return [self._answers[path] for path in request.keywords["paths"]]


def reader(answers: Mapping[str, object]) -> Reader:
    return Reader(cast("Session", Server(answers)), "")


async def test_what_may_not_be_read_is_not_missing() -> None:
    answers = {"/a": (b"", None), "/a/b": exceptions.NoAuthError(), "/c": exceptions.NoNodeError()}
    assert await reader(answers).missing(list(answers)) == {"/c"}


async def test_whether_a_node_is_missing_is_not_guessed() -> None:
    answers = {"/a": exceptions.NoNodeError(), "/b": exceptions.RuntimeInconsistency()}
    with pytest.raises(StoreUnavailable, match="/b cannot be read"):
        await reader(answers).missing(list(answers))
