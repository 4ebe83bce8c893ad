"""RESP, the protocol of Redis and Disque: commands in, replies out.

A command is an array of bulk strings, or one line of words, ``QLEN q``, as somebody with telnet
types it. Errors in the form of a command have Disque's texts, and end the connection. The libraries
for RESP read replies: they know neither lines nor limits.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

MAX_LINE: Final = 64 * 1024
MAX_ARGUMENTS: Final = 1024 * 1024
MAX_BULK: Final = 512 * 1024 * 1024

_ARGUMENT_BYTES: Final = 64  # what an argument costs besides its bytes
_FEW_DIGITS: Final = 10  # of a length, with what is around them
_LEAST_BYTES: Final = 4  # of a length, likewise
_BIG: Final = 32 * 1024  # bulks from here on are gathered apart
_NUMBER: Final = re.compile(rb"-?(0|[1-9][0-9]{0,18})")


class ProtocolError(Exception):
    """The bytes are no command; the connection can only be closed."""


class CommandParser:
    """Makes commands of the bytes of one connection, however they are cut.

    ``most``: how many bytes one command may have, its overhead included.
    """

    __slots__ = (
        "_arguments",
        "_big",
        "_buffer",
        "_bulk",
        "_missing",
        "_most",
        "_position",
        "_size",
    )

    def __init__(self, most: int = MAX_BULK) -> None:
        self._most = most
        self._buffer = b""
        self._position = 0
        self._arguments: list[bytes] = []
        self._missing = 0  # arguments of the command that is not whole yet
        self._bulk = -1  # length of the next argument, once known
        self._big: bytearray | None = None  # that argument, if it is a big one
        self._size = 0  # of the command that is not whole yet

    def limit(self, most: int) -> None:
        """Take commands of so many bytes at most from now on."""
        self._most = most

    @property
    def held(self) -> int:
        """Bytes of memory kept for commands that were not taken yet."""
        big = 0 if self._big is None else len(self._big)
        return len(self._buffer) - self._position + big + self._size

    @property
    def is_inside(self) -> bool:
        """Whether a command has begun that is not whole."""
        return self._missing > 0 or self._position < len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take what was received."""
        if self._big is not None:
            needed = self._bulk + 2 - len(self._big)
            self._big += data[:needed]
            data = data[needed:]
        if self._position:
            self._buffer = self._buffer[self._position :]
            self._position = 0
        self._buffer = self._buffer + data if self._buffer else data

    def next(self) -> list[bytes] | None:
        """The next whole command; None: there is none. An empty one is to be passed over.

        Raises ProtocolError.
        """
        if not self._missing:
            if self._position >= len(self._buffer):
                return None
            if self._buffer[self._position] != 42:  # "*"
                return self._line()
            if not self._begin():
                return None
            if not self._missing:
                return []
        if self._bulk < 0:
            self._take_whole()
        while self._missing:
            argument = self._argument()
            if argument is None:
                return None
            self._arguments.append(argument)
            self._missing -= 1
        arguments = self._arguments
        self._arguments = []
        self._size = 0
        return arguments

    def _take_whole(self) -> None:
        """Take the arguments that are there as a whole; what is odd about one is said elsewhere."""
        buffer, position, missing, size = self._buffer, self._position, self._missing, self._size
        arguments, most, end = self._arguments, self._most, len(self._buffer)
        while missing:
            last = min(end, position + _FEW_DIGITS)
            if position + _LEAST_BYTES > last or buffer[position] != 36:  # "$"
                break
            at, length = position + 1, 0
            while at < last and 48 <= buffer[at] <= 57:  # "0" to "9"
                length = 10 * length + buffer[at] - 48
                at += 1
            has_zero_first = buffer[position + 1] == 48 and at > position + 2
            if at == position + 1 or has_zero_first or at + 2 > last:
                break
            begin = at + 2
            after = begin + length
            size += length + _ARGUMENT_BYTES
            if buffer[at] != 13 or buffer[at + 1] != 10 or size > most or after + 2 > end:
                break
            arguments.append(buffer[begin:after])
            self._size = size
            position = after + 2
            missing -= 1
        self._position, self._missing = position, missing

    def _begin(self) -> bool:
        """Read how many arguments there are; whether that is known."""
        line = self._header("too big mbulk count string")
        if line is None:
            return False
        count = _integer(line[1:])
        if count is None or count > MAX_ARGUMENTS:
            raise ProtocolError("invalid multibulk length")
        self._missing = max(count, 0)
        return True

    def _argument(self) -> bytes | None:
        if self._bulk < 0 and not self._begin_argument():
            return None
        length = self._bulk
        if self._big is not None:
            if len(self._big) < length + 2:
                return None
            argument = bytes(self._big[:length])
            self._big = None
        else:
            begin = self._position
            if len(self._buffer) < begin + length + 2:
                if length >= _BIG:
                    self._big = bytearray(self._buffer[begin:])
                    self._buffer, self._position = b"", 0
                return None
            argument = self._buffer[begin : begin + length]
            self._position = begin + length + 2
        self._bulk = -1
        self._size += length + _ARGUMENT_BYTES
        return argument

    def _begin_argument(self) -> bool:
        """Read how long the next argument is; whether that is known."""
        line = self._header("too big bulk count string")
        if line is None:
            return False
        if line[:1] != b"$":
            raise ProtocolError(f"expected '$', got '{line[:1].decode('latin-1')}'")
        length = _integer(line[1:])
        if length is None or not 0 <= length <= MAX_BULK:
            raise ProtocolError("invalid bulk length")
        if self._size + length + _ARGUMENT_BYTES > self._most:
            raise ProtocolError("invalid bulk length")
        self._bulk = length
        return True

    def _header(self, too_long: str) -> bytes | None:
        buffer, begin = self._buffer, self._position
        end = buffer.find(b"\r\n", begin)
        if end < 0:
            if len(buffer) - begin > MAX_LINE:
                raise ProtocolError(too_long)
            return None
        self._position = end + 2
        return buffer[begin:end]

    def _line(self) -> list[bytes] | None:
        buffer, begin = self._buffer, self._position
        end = buffer.find(b"\n", begin)
        if end < 0 or end - begin > MAX_LINE:
            if len(buffer) - begin > MAX_LINE:
                raise ProtocolError("too big inline request")
            return None
        self._position = end + 1
        line = buffer[begin:end].removesuffix(b"\r")
        try:
            return split_words(line)
        except ValueError:
            raise ProtocolError("unbalanced quotes in request") from None


def _integer(text: bytes) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) and text != b"-0" else None


_ESCAPES: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}
_WORD: Final = re.compile(
    rb"""(?P<hex>\\x[0-9a-fA-F]{2})|\\(?P<escaped>.)|(?P<plain>[^"\\]+)""", re.DOTALL
)
_PIECE: Final = re.compile(
    rb"""(?P<space>\s+)|"(?P<double>(?:\\.|[^"\\])*)"(?=\s|\Z)|"""
    rb"""'(?P<single>(?:\\'|[^'])*)'(?=\s|\Z)|(?P<bare>[^\s"']+)""",
    re.DOTALL,
)


def split_words(line: bytes) -> list[bytes]:
    """The words of a line, with quotes as in a shell: ``"a\\x41\\n"``, ``'it\\'s'``.

    Raises ValueError: a quote is open, or text follows a closing one.
    """
    words: list[bytes] = []
    joined = False  # to the piece before
    position = 0
    while position < len(line):
        match = _PIECE.match(line, position)
        if match is None:
            raise ValueError("unbalanced quotes")
        position = match.end()
        if match["space"] is not None:
            joined = False
            continue
        if match["double"] is not None:
            piece = _WORD.sub(_unescape, match["double"])
        elif match["single"] is not None:
            piece = match["single"].replace(b"\\'", b"'")
        else:
            piece = match["bare"]
        if joined:
            words[-1] += piece
        else:
            words.append(piece)
        joined = True
    return words


def _unescape(match: re.Match[bytes]) -> bytes:
    if match["hex"] is not None:
        return bytes.fromhex(match["hex"][2:].decode())
    escaped = match["escaped"]
    if escaped is not None:
        return _ESCAPES.get(escaped, escaped)
    return match["plain"]


# Replies

OK: Final = b"+OK\r\n"
NULL: Final = b"$-1\r\n"
NULL_ARRAY: Final = b"*-1\r\n"
EMPTY_ARRAY: Final = b"*0\r\n"


class Simple:
    """A reply that is a simple string, such as ``+OK``."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Encoded:
    """A part of a reply that is written already."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


Value = bytes | str | int | Simple | Encoded | Sequence["Value"] | None


def error(text: str) -> bytes:
    """An error, such as ``-ERR syntax error``; line breaks become spaces."""
    line = text.replace("\r", " ").replace("\n", " ")
    return f"-{line}\r\n".encode(errors="surrogateescape")


def simple(text: str) -> bytes:
    """A simple string."""
    return f"+{text}\r\n".encode()


def integer(number: int) -> bytes:
    """A number."""
    return b":%d\r\n" % number


def bulk(text: bytes | str) -> bytes:
    """A string of any bytes."""
    data = text.encode() if isinstance(text, str) else text
    return b"$%d\r\n%b\r\n" % (len(data), data)


def array(items: Iterable[bytes]) -> bytes:
    """An array of what is written already."""
    parts = list(items)
    return b"*%d\r\n%b" % (len(parts), b"".join(parts))


def encode(value: Value) -> bytes:
    """Write a value: strings as bulk strings, numbers, sequences as arrays, None as a null bulk."""
    if isinstance(value, Encoded):
        return value.data
    if isinstance(value, Simple):
        return simple(value.text)
    if isinstance(value, (bytes, str)):
        return bulk(value)
    if isinstance(value, int):
        return integer(value)
    if value is None:
        return NULL
    return array(encode(item) for item in value)


def command(arguments: Sequence[bytes | str | int]) -> bytes:
    """A command, as another node reads it."""
    return array(bulk(b"%d" % one if isinstance(one, int) else one) for one in arguments)
