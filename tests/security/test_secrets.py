"""What looks for secrets finds them, however they are written."""

import base64
from pathlib import Path

import pytest

from . import secrets

_SECRET = b"a-secret-of-this-test-alone"


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_forms", {})
    secrets.remember(_SECRET, "of this test")


@pytest.mark.parametrize("before", range(7))
@pytest.mark.parametrize("after", ["", "x", "xy"])
def test_every_form_is_found(before: int, after: str) -> None:
    around = b"u" * before + _SECRET + after.encode()
    for text in (around, around.hex().encode(), base64.b64encode(around)):
        assert secrets.hits(b"password: " + text, "a line"), text


def test_nothing_else_is_found() -> None:
    assert secrets.hits("a-secret-of-another-test", "a line") == []


def test_what_is_found_is_not_told() -> None:
    (hit,) = secrets.hits(b"user alice, password " + _SECRET, "a line")
    assert hit == "a secret of this test is in a line, after b'user alice, password '"


def test_files_are_searched(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_bytes(bytes(100) + _SECRET)
    (tmp_path / "other").write_text("nothing")
    assert len(secrets.in_files(tmp_path)) == 1
    assert secrets.in_files(tmp_path, [tmp_path / "inner" / "file"]) == []


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="short"):
        secrets.remember("short", "of this test")
