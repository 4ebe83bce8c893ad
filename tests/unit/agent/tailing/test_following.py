"""What happened to a file, from what is seen of it."""

from qbus.agent.tailing.following import Change, compare, flush_after
from qbus.agent.tailing.identity import NOTHING, Fingerprint

HEAD = b"first line\nsecond line\n"
KNOWN = Fingerprint.of(HEAD)


def test_a_file_grows() -> None:
    assert compare(23, 30, KNOWN, HEAD + b"more\n") is Change.GROWN
    assert compare(23, 23, KNOWN, HEAD) is Change.NONE


def test_a_file_that_is_smaller_than_what_was_read_was_emptied() -> None:
    assert compare(100, 23, KNOWN, HEAD) is Change.RESTARTED
    assert compare(100, 0, KNOWN, b"") is Change.RESTARTED


def test_another_head_is_another_file_even_if_it_is_larger() -> None:
    assert compare(23, 500, KNOWN, b"another line\nand more\n..") is Change.RESTARTED


def test_a_short_head_is_compared_as_far_as_it_goes() -> None:
    assert compare(5, 10, Fingerprint.of(b"first"), b"first line") is Change.GROWN
    assert compare(0, 10, NOTHING, b"any other!") is Change.GROWN


def test_an_unfinished_line_is_waited_for_unless_its_writer_has_left() -> None:
    assert flush_after(is_left=False, has_lines=False, partial=10, lines=2) is None
    assert flush_after(is_left=True, has_lines=False, partial=10, lines=2) == 10


def test_whole_lines_of_a_record_are_waited_for_not_as_long() -> None:
    assert flush_after(is_left=False, has_lines=True, partial=10, lines=2) == 2
    assert flush_after(is_left=True, has_lines=True, partial=10, lines=2) == 2
