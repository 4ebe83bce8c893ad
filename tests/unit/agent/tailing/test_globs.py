"""Globs find what a shell finds."""

from pathlib import Path

import pytest

from qbus.agent.tailing.globs import Excludes, Glob


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("a.log", "b.txt", ".hidden.log", "one/c.log", "one/two/d.log", ".git/e.log"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "one" / "circle").symlink_to(tmp_path)
    return tmp_path


def found(tree: Path, pattern: str) -> list[str]:
    paths = Glob(f"{tree}/{pattern}").find(set())
    return sorted(str(Path(path).relative_to(tree)) for path in paths)


def test_parts_of_names(tree: Path) -> None:
    assert found(tree, "*.log") == ["a.log"]
    assert found(tree, "?.[lt]*") == ["a.log", "b.txt"]
    assert found(tree, ".*.log") == [".hidden.log"]
    assert found(tree, "o*/c.log") == ["one/c.log"]


def test_any_depth_but_neither_links_nor_hidden_directories(tree: Path) -> None:
    assert found(tree, "**/*.log") == ["a.log", "one/c.log", "one/two/d.log"]
    assert found(tree, "one/**/d.log") == ["one/two/d.log"]


def test_a_path_without_patterns(tree: Path) -> None:
    assert found(tree, "one/c.log") == ["one/c.log"]
    assert found(tree, "one/x.log") == []


def test_directories_where_files_may_appear_are_returned(tree: Path) -> None:
    directories: set[str] = set()
    list(Glob(f"{tree}/**/*.log").find(directories))
    assert {str(tree), f"{tree}/one", f"{tree}/one/two"} <= directories
    directories = set()
    assert not list(Glob(f"{tree}/later/on/*.log").find(directories))
    assert directories == {str(tree)}


@pytest.mark.parametrize(
    ("pattern", "path", "is_out"),
    [
        ("*.gz", "/var/log/a.gz", True),
        ("*.gz", "/var/log/a.log", False),
        ("/var/log/*.log", "/var/log/a.log", True),
        ("/var/log/*.log", "/var/log/b/a.log", False),
        ("/var/**/*.log", "/var/log/b/a.log", True),
        ("/var/**", "/var/log/b/a.log", True),
        ("/var/log/[!a]?.log", "/var/log/bc.log", True),
        ("/var/log/[!a]?.log", "/var/log/ac.log", False),
    ],
)
def test_excludes(pattern: str, path: str, is_out: bool) -> None:
    assert Excludes([pattern]).has(path) is is_out
