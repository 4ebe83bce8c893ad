"""The documents for maintainers name the folders and files that there are."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TREES = ("qbus", "broker", "clients", "agent")
PARTS_OF_OTHERS = {"agent"}
"""Trees that the table names as a whole."""
DOCUMENTS = ("ARCHITECTURE.md", "CONTRIBUTING.md")
_NAME = re.compile(r"`([\w/]+)`")


def folders_named() -> set[str]:
    """The folders in the first column of the table; a name without a tree has the one before."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = set()
    for row in re.findall(r"^\| (`.+?) \|", text, re.MULTILINE):
        tree = ""
        for name in _NAME.findall(row):
            tree = name.partition("/")[0] if "/" in name else tree
            named.add(name.rstrip("/") if "/" in name else f"{tree}/{name}")
    return named


def packages() -> Iterator[str]:
    """The packages of each tree, one level deep."""
    for tree in TREES:
        yield tree
        if tree not in PARTS_OF_OTHERS:
            for path in sorted((ROOT / tree).iterdir()):
                if (path / "__init__.py").exists() and not path.is_symlink():
                    yield f"{tree}/{path.name}"


def test_the_table_names_every_package() -> None:
    roots = {"broker", "clients"}  # the sentence below the table names them
    assert set(packages()) - folders_named() - roots == set()


def test_every_folder_of_the_table_is_there() -> None:
    assert [name for name in sorted(folders_named()) if not (ROOT / name).is_dir()] == []


def paths_named() -> Iterator[tuple[str, str]]:
    for document in DOCUMENTS:
        for path in re.findall(r"`([\w/]+/[\w/]+(?:\.\w+)?)`", (ROOT / document).read_text()):
            if path.partition("/")[0] in {*TREES, "tests", "perf", "docs"}:
                yield document, path


@pytest.mark.parametrize(("document", "path"), sorted(set(paths_named())))
def test_every_path_that_a_document_names_is_there(document: str, path: str) -> None:
    if "NAME" in path:
        path = str(Path(path).parent)
    assert (ROOT / path).exists(), f"{document} names {path}"
