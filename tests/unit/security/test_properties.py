"""Files of properties are read as Java reads them."""

from pathlib import Path

import pytest

from qbus.errors import ConfigError
from qbus.security.properties import parse_properties, read_properties

LINES = [
    ("a=b", {"a": "b"}),
    ("a = b=c ", {"a": "b=c"}),
    ("a: b", {"a": "b"}),
    ("a b c", {"a": "b c"}),
    ("a=", {"a": ""}),
    ("# a=b\n! c=d\n\n", {}),
    ("a=b\\\n   c\nd=e", {"a": "bc", "d": "e"}),
    (r"a=b\\", {"a": "b\\"}),
    (r"a\=b=c\tdé", {"a=b": "c\tdé"}),
    ("a=1\na=2", {"a": "2"}),
    ("a=#1", {"a": "#1"}),
    ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
    ("a=x\u2028y\x0bz\nb=2", {"a": "x\u2028y\x0bz", "b": "2"}),
]


@pytest.mark.parametrize(("text", "found"), LINES)
def test_lines(text: str, found: dict[str, str]) -> None:
    assert {key: value.rstrip() for key, value in parse_properties(text, "f").items()} == found


@pytest.mark.parametrize("text", ["a=b\nhunter2", r"a=\u12", r"a=\u12zz", "=hunter2"])
def test_a_line_that_cannot_be_read_is_named_and_not_quoted(text: str) -> None:
    with pytest.raises(ConfigError, match=r"client\.properties, line [12]: ") as caught:
        parse_properties(text, "client.properties")
    assert "hunter2" not in str(caught.value)


def test_files(tmp_path: Path) -> None:
    (tmp_path / "good").write_text("a=ü\n", encoding="utf-8")
    (tmp_path / "bad").write_bytes(b"a=\xff")
    assert read_properties(tmp_path / "good") == {"a": "ü"}
    with pytest.raises(ConfigError, match="bad: it is not UTF-8 text"):
        read_properties(tmp_path / "bad")
    with pytest.raises(ConfigError, match="none: No such file"):
        read_properties(tmp_path / "none")
