"""RESP: commands from bytes however they are cut, limits, and replies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.disque import resp
from qbus.broker.disque.resp import (
    MAX_LINE,
    CommandParser,
    Encoded,
    ProtocolError,
    Simple,
    encode,
    error,
    split_words,
)


def parse(data: bytes, most: int = resp.MAX_BULK) -> list[list[bytes]]:
    parser = CommandParser(most)
    parser.feed(data)
    return commands_of(parser)


def commands_of(parser: CommandParser) -> list[list[bytes]]:
    found = []
    while (one := parser.next()) is not None:
        found.append(one)
    return found


class TestCommands:
    @pytest.mark.parametrize(
        ("data", "commands"),
        [
            (b"*1\r\n$4\r\nPING\r\n", [[b"PING"]]),
            (b"*2\r\n$4\r\nQLEN\r\n$0\r\n\r\n", [[b"QLEN", b""]]),
            (b"*1\r\n$2\r\n\r\n\r\n", [[b"\r\n"]]),
            (b"PING\r\n", [[b"PING"]]),
            (b"PING\n", [[b"PING"]]),
            (b"  QLEN   q \r\n", [[b"QLEN", b"q"]]),
            (b'ADDJOB q "a b\\x41\\n" 0\r\n', [[b"ADDJOB", b"q", b"a bA\n", b"0"]]),
            (b"ADDJOB q 'it\\'s' 0\r\n", [[b"ADDJOB", b"q", b"it's", b"0"]]),
            (b"\r\n", [[]]),
            (b'""\r\n', [[b""]]),
            (b'ADDJOB q "" 0\r\n', [[b"ADDJOB", b"q", b"", b"0"]]),
            (b"*0\r\n", [[]]),
            (b"*-1\r\n", [[]]),
            (b"*-7\r\nPING\r\n", [[], [b"PING"]]),
            (
                b"*1\r\n$4\r\nPING\r\nPING\r\n*1\r\n$4\r\nTIME\r\n",
                [[b"PING"], [b"PING"], [b"TIME"]],
            ),
            (b"", []),
            (b"*", []),
            (b"*1\r\n$4\r\nPIN", []),
            (b"PING", []),
        ],
    )
    def test_are_arrays_or_lines(self, data: bytes, commands: list[list[bytes]]) -> None:
        assert parse(data) == commands

    @pytest.mark.parametrize(
        ("data", "text"),
        [
            (b"*x\r\n", "invalid multibulk length"),
            (b"*1048577\r\n", "invalid multibulk length"),
            (b"*99999999999999999999\r\n", "invalid multibulk length"),
            (b"*+1\r\n", "invalid multibulk length"),
            (b"*01\r\n", "invalid multibulk length"),
            (b"* 1\r\n", "invalid multibulk length"),
            (b"*" + b"1" * (MAX_LINE + 2), "too big mbulk count string"),
            (b"*1\r\nPING\r\n", "expected '$', got 'P'"),
            (b"*1\r\n:1\r\n", "expected '$', got ':'"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$x\r\n", "invalid bulk length"),
            (b"*1\r\n$536870913\r\n", "invalid bulk length"),
            (b"*1\r\n$" + b"1" * (MAX_LINE + 2), "too big bulk count string"),
            (b"x" * (MAX_LINE + 2), "too big inline request"),
            (b"x" * (MAX_LINE + 2) + b"\r\n", "too big inline request"),
            (b'PING "x\r\n', "unbalanced quotes in request"),
            (b'PING "x"y\r\n', "unbalanced quotes in request"),
            (b"PING 'x\r\n", "unbalanced quotes in request"),
        ],
    )
    def test_malformed_ones_are_refused_in_disques_words(self, data: bytes, text: str) -> None:
        with pytest.raises(ProtocolError) as raised:
            parse(data)
        assert str(raised.value) == text

    def test_one_has_a_limit_over_all_its_arguments(self) -> None:
        some = b"*3\r\n$4\r\nPING\r\n" + b"$400\r\n" + b"x" * 400 + b"\r\n"
        assert parse(some, 1000) == []
        with pytest.raises(ProtocolError, match="invalid bulk length"):
            parse(some + b"$500\r\n", 1000)

    def test_many_small_arguments_count_with_what_they_cost(self) -> None:
        with pytest.raises(ProtocolError, match="invalid bulk length"):
            parse(b"*1000\r\n" + b"$0\r\n\r\n" * 1000, 10_000)

    @given(
        st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=5), max_size=6),
        st.lists(st.integers(1, 30), min_size=1, max_size=20),
    )
    def test_may_be_cut_anywhere(self, commands: list[list[bytes]], cuts: list[int]) -> None:
        data = b"".join(resp.command(one) for one in commands)
        parser, found, position, number = CommandParser(), [], 0, 0
        while position < len(data):
            size = cuts[number % len(cuts)]
            parser.feed(data[position : position + size])
            found += commands_of(parser)
            position, number = position + size, number + 1
        assert found == commands
        assert not parser.is_inside

    @pytest.mark.parametrize("size", [32 * 1024 - 1, 32 * 1024, 100_000])
    @pytest.mark.parametrize("step", [1000, 65_536, 1_000_000])
    def test_big_ones_come_whole_with_what_follows(self, size: int, step: int) -> None:
        body = bytes(range(256)) * (size // 256 + 1)
        data = resp.command([b"ADDJOB", b"q", body[:size], 0]) + b"PING\r\n"
        parser, found = CommandParser(), []
        for position in range(0, len(data), step):
            parser.feed(data[position : position + step])
            found += commands_of(parser)
        assert found == [[b"ADDJOB", b"q", body[:size], b"0"], [b"PING"]]
        assert parser.held == 0

    def test_what_is_kept_is_accounted_for(self) -> None:
        parser = CommandParser()
        parser.feed(b"*2\r\n$50000\r\n" + b"x" * 40_000)
        assert parser.next() is None
        assert parser.held >= 40_000
        assert parser.is_inside

    @given(st.binary(max_size=300))
    def test_no_bytes_do_harm(self, data: bytes) -> None:
        parser = CommandParser(1000)
        parser.feed(data)
        try:
            commands_of(parser)
        except ProtocolError:
            return
        assert parser.held <= len(data) * (64 + 1)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", []),
        (b"   ", []),
        (b"a b", [b"a", b"b"]),
        (b'"" a', [b"", b"a"]),
        (b'x"y"', [b"xy"]),
        (b'"\\t\\r\\b\\a\\\\\\q"', [b"\t\r\b\a\\q"]),
        (b'"\\x4"', [b"x4"]),
        (b"'\\n'", [b"\\n"]),
        (b"\xff\x00", [b"\xff\x00"]),
    ],
)
def test_words_have_quotes_and_escapes(line: bytes, words: list[bytes]) -> None:
    assert split_words(line) == words


class TestReplies:
    @pytest.mark.parametrize(
        ("value", "data"),
        [
            (1, b":1\r\n"),
            (-1, b":-1\r\n"),
            (b"ab", b"$2\r\nab\r\n"),
            ("größe", b"$7\r\ngr\xc3\xb6\xc3\x9fe\r\n"),
            (Simple("OK"), b"+OK\r\n"),
            (None, b"$-1\r\n"),
            ([], b"*0\r\n"),
            ([1, [b"x", None]], b"*2\r\n:1\r\n*2\r\n$1\r\nx\r\n$-1\r\n"),
            (Encoded(b"*-1\r\n"), b"*-1\r\n"),
        ],
    )
    def test_are_written_by_their_type(self, value: resp.Value, data: bytes) -> None:
        assert encode(value) == data

    def test_an_error_stays_on_its_line(self) -> None:
        assert error("ERR a\r\nb") == b"-ERR a  b\r\n"
