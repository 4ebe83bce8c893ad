"""Bytes become the same records, however they are read."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbus.agent.tailing.framing import Flush, Framer, Grouping, flush_after
from qbus.agent.tailing.text import Encoding

CONTENT = st.lists(
    st.sampled_from([b"\n", b"\r\n", b"\r", b"\0", b"a", b"bc", b"x" * 15, b"\xff\xfe"]),
    max_size=60,
).map(b"".join)


def records(framer: Framer, content: bytes, sizes: Iterator[int] | None = None) -> list[bytes]:
    """All records of a file that is read as far as each look allows."""
    found: list[bytes] = []
    start = end = 0
    while end < len(content):
        end = min(len(content), end + (next(sizes) if sizes else len(content)))
        while start < end:
            frame = framer.frame(content[start:end])
            if not frame.consumed:
                break
            found += frame.values
            start += frame.consumed
    return found


def test_lines_end_with_a_newline_and_an_unfinished_one_is_left() -> None:
    frame = Framer(limit=100).frame(b"one\n\ntwo\nthr")
    assert (frame.values, frame.consumed) == ([b"one", b"", b"two"], 9)


def test_a_carriage_return_before_the_newline_belongs_to_it_and_others_stay() -> None:
    assert Framer(limit=100).frame(b"one\r\nt\rwo\r\r\n").values == [b"one", b"t\rwo\r"]


def test_bytes_that_are_no_text_stay_unchanged() -> None:
    assert Framer(limit=100).frame(b"\0\xff\n\xc3(\n").values == [b"\0\xff", b"\xc3("]


def test_an_unfinished_last_line_is_a_record_once_flushed() -> None:
    frame = Framer(limit=100).frame(b"one\ntw", Flush.ALL)
    assert (frame.values, frame.consumed) == ([b"one", b"tw"], 6)


def test_long_lines_are_split_and_nothing_is_lost() -> None:
    frame = Framer(limit=4).frame(b"abcdefghij\nk\n")
    assert (frame.values, frame.consumed) == ([b"abcd", b"efgh", b"ij", b"k"], 13)


def test_a_line_as_long_as_the_limit_is_one_record() -> None:
    assert Framer(limit=4).frame(b"abcd\r\nefgh\n").values == [b"abcd", b"efgh"]


def test_long_lines_are_cut_and_end_with_the_marker() -> None:
    frame = Framer(limit=6, marker=b"...").frame(b"abcdefghij\nk\n")
    assert (frame.values, frame.consumed) == ([b"abc...", b"k"], 13)


def test_a_too_long_line_without_its_end_is_reported() -> None:
    framer = Framer(limit=6, marker=b"...")
    frame = framer.frame(b"abcdefghijklmnop")
    assert frame.is_too_long
    assert not frame.consumed
    assert framer.truncated(b"abcdefghijklmnop") == b"abc..."


@settings(max_examples=60)
@given(CONTENT, st.lists(st.integers(1, 7), min_size=1), st.integers(16, 40))
def test_the_boundaries_of_reads_make_no_difference(
    content: bytes, sizes: list[int], limit: int
) -> None:
    framer = Framer(limit=limit)
    cycle = iter(sizes * (len(content) + 1))
    assert records(framer, content, cycle) == records(framer, content)


@settings(max_examples=60)
@given(CONTENT)
def test_every_byte_of_finished_lines_is_in_a_record(content: bytes) -> None:
    finished = content[: content.rfind(b"\n") + 1]
    lines = [line.removesuffix(b"\r") for line in finished.split(b"\n")[:-1]]
    assert records(Framer(limit=10_000), content) == lines


@settings(max_examples=60)
@given(CONTENT, st.integers(1, 30))
def test_offsets_tell_where_records_begin(content: bytes, limit: int) -> None:
    frame = Framer(limit=limit, wants_offsets=True).frame(content)
    assert frame.offsets is not None
    for value, offset in zip(frame.values, frame.offsets, strict=True):
        assert content[offset:].startswith(value)


class TestSeveralLines:
    FRAMER = Framer(limit=1000, grouping=Grouping(re.compile(rb"^\d"), max_lines=4))

    def test_a_record_ends_before_the_next_begins(self) -> None:
        frame = self.FRAMER.frame(b"1 a\n at x\n at y\n2 b\n at z\n")
        assert (frame.values, frame.consumed) == ([b"1 a\n at x\n at y"], 16)

    def test_a_flush_completes_the_last_record_without_an_unfinished_line(self) -> None:
        frame = self.FRAMER.frame(b"1 a\n at x\n at", Flush.LINES)
        assert (frame.values, frame.consumed) == ([b"1 a\n at x"], 10)

    def test_lines_before_the_first_match_are_a_record(self) -> None:
        assert self.FRAMER.frame(b" at x\n1 a\n2 b\n").values == [b" at x", b"1 a"]

    def test_there_are_no_more_lines_than_allowed(self) -> None:
        frame = self.FRAMER.frame(b"1\n a\n b\n c\n d\n2\n")
        assert frame.values == [b"1\n a\n b\n c", b" d"]

    def test_a_record_is_no_longer_than_the_limit(self) -> None:
        framer = Framer(limit=8, grouping=Grouping(re.compile(rb"^\d")))
        assert framer.frame(b"1 abc\n def\n2\n").values == [b"1 abc", b" def"]

    def test_a_line_that_is_too_long_ends_a_record(self) -> None:
        """However much is read of it: nothing would come of the file any more."""
        framer = Framer(limit=8, marker=b"..", grouping=Grouping(re.compile(rb"^\d")))
        frame = framer.frame(b"1 a\n at\n" + b"x" * framer.most)
        assert (frame.values, frame.consumed) == ([b"1 a\n at"], 8)
        assert framer.frame(b"x" * framer.most).is_too_long

    @pytest.mark.parametrize("name", ["", "utf-16-le", "utf-32-le"])
    @pytest.mark.parametrize("lines", [" a\n" * 25, " " * 98 + "\n", "\n" * 200])
    def test_as_much_as_is_read_at_most_has_a_record(self, name: str, lines: str) -> None:
        framer = Framer(
            limit=100,
            encoding=Encoding.of(name),
            grouping=Grouping(re.compile(rb"^\d"), max_lines=50),
        )
        longest = " " * (100 // framer.encoding.width) + "\n"
        content = f"1\n{lines}{longest}".encode(name or "ascii")
        assert framer.frame(content[: framer.most]).consumed


class TestEncodings:
    @pytest.mark.parametrize("name", ["utf-16-le", "utf-16-be", "utf-32-le", "latin-1", "cp1252"])
    def test_lines_become_utf8(self, name: str) -> None:
        framer = Framer(limit=1000, encoding=Encoding.of(name))
        content = "größe\r\nzwei\n".encode(name)
        frame = framer.frame(content)
        assert frame.values == ["größe".encode(), b"zwei"]
        assert frame.consumed == len(content)

    def test_a_newline_across_two_characters_is_none(self) -> None:
        content = "\u0a00\u000a".encode("utf-16-be") + "\u010a\u0001\n".encode("utf-16-be")
        framer = Framer(limit=1000, encoding=Encoding.of("utf-16-be"))
        assert framer.frame(content).values == ["\u0a00".encode(), "\u010a\u0001".encode()]

    def test_invalid_bytes_are_replaced(self) -> None:
        framer = Framer(limit=1000, encoding=Encoding.of("ascii"))
        assert framer.frame(b"a\xffb\n").values == ["a\ufffdb".encode()]

    def test_a_byte_order_mark_decides_the_encoding(self) -> None:
        assert Encoding.of("utf-16", b"\xfe\xff\0a") == Encoding("utf-16-be", 2, 2)
        assert Encoding.of("utf-16", b"\xff\xfea\0") == Encoding("utf-16-le", 2, 2)
        assert Encoding.of("utf-8-sig", b"\xef\xbb\xbfa") == Encoding("utf-8", 1, 3)
        assert Encoding.of("utf-16", b"a\0") == Encoding("utf-16-le", 2, 0)


def test_an_unfinished_line_is_flushed_only_after_rotation() -> None:
    assert flush_after(is_rotated=False, has_lines=False, partial=10, lines=2) is None
    assert flush_after(is_rotated=True, has_lines=False, partial=10, lines=2) == 10


def test_whole_lines_of_a_record_are_flushed_sooner() -> None:
    assert flush_after(is_rotated=False, has_lines=True, partial=10, lines=2) == 2
    assert flush_after(is_rotated=True, has_lines=True, partial=10, lines=2) == 2
