"""New files on a local disk: whole, at once, and in nobody's place."""

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from qbus.clients.pipelines.archive.storage import NoLinks, create


def test_a_file_is_created_with_its_directory(tmp_path: Path) -> None:
    create(tmp_path / "log" / "0", "v1\nä")
    assert (tmp_path / "log" / "0").read_bytes() == "v1\nä".encode()


def test_one_of_many_concurrent_writers_creates_the_file(tmp_path: Path) -> None:
    def attempt(number: int) -> int | None:
        try:
            create(tmp_path / "0", f"{number}" * 1000)
        except FileExistsError:
            return None
        return number

    with ThreadPoolExecutor(8) as pool:
        (winner,) = [one for one in pool.map(attempt, range(8)) if one is not None]
    assert (tmp_path / "0").read_text() == f"{winner}" * 1000
    assert [path.name for path in tmp_path.iterdir()] == ["0"]


def test_a_file_system_without_links_raises_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(code: int) -> None:
        def link(*_: object, **__: object) -> None:
            raise OSError(code, "no")

        monkeypatch.setattr("os.link", link)

    refuse(errno.EPERM)
    with pytest.raises(NoLinks):
        create(tmp_path / "0", "")
    refuse(errno.ENOSPC)
    with pytest.raises(OSError, match="no") as raised:
        create(tmp_path / "0", "")
    assert raised.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []
