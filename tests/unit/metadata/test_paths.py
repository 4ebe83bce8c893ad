"""Paths are split and joined as ZooKeeper's are."""

import pytest

from qbus.metadata.paths import check, join, split


@pytest.mark.parametrize(
    ("path", "parent", "name"),
    [("/", "", ""), ("/a", "/", "a"), ("/a/b", "/a", "b"), ("/a/b/c", "/a/b", "c")],
)
def test_a_path_is_its_parents_and_a_name(path: str, parent: str, name: str) -> None:
    assert split(path) == (parent, name)
    assert join(parent, name) == path
    check(path)


@pytest.mark.parametrize(
    "path",
    ["", "a", "//", "/a/", "/a//b", "/./a", "/../a", "/a/..", "/a\0b", "/a\x7f", "/\ud800", "/\n"],
)
def test_what_zookeeper_refuses_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        check(path)
