"""Finding files by globs, as a shell does.

``*``, ``?`` and ``[...]`` match parts of one name, ``**`` matches directories of any depth.
Directories behind symbolic links are not entered, since these may form cycles. A name that begins
with a dot is matched only by a pattern that does.
"""

import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

Matcher = Callable[[str], object]
_MAGIC = re.compile(r"[*?[]")


class Glob:
    """An absolute path whose parts may be patterns."""

    def __init__(self, pattern: str) -> None:
        parts = Path(pattern).parts[1:]
        fixed = 0
        while fixed < len(parts) - 1 and not _MAGIC.search(parts[fixed]):
            fixed += 1
        self._root = os.path.join("/", *parts[:fixed])  # noqa: PTH118 - strings are quicker
        self._parts = parts[fixed:]

    def find(self, directories: set[str]) -> Iterator[str]:
        """Yield matching paths; add the directories where more may appear to ``directories``."""
        root = self._root
        if not os.path.isdir(root):  # noqa: PTH112
            directories.add(_nearest(root))
            return
        yield from _find(root, self._parts, directories)


class Excludes:
    """Globs of files to leave out: of whole paths, or of names if they have no slash."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._names = [_compiled(pattern) for pattern in patterns if "/" not in pattern]
        self._paths = [_compiled_path(pattern) for pattern in patterns if "/" in pattern]

    def has(self, path: str) -> bool:
        """Whether a file is left out."""
        name = path.rpartition("/")[2]
        return any(matches(name) for matches in self._names) or any(
            matches(path) for matches in self._paths
        )


def _find(directory: str, parts: tuple[str, ...], directories: set[str]) -> Iterator[str]:
    part, *others = parts
    directories.add(directory)
    if part == "**":
        yield from _find_below(directory, tuple(others) or ("*",), directories)
        return
    if not _MAGIC.search(part):
        path = f"{directory.rstrip('/')}/{part}"
        if others and os.path.isdir(path):  # noqa: PTH112
            yield from _find(path, tuple(others), directories)
        elif not others and os.path.lexists(path):
            yield path
        return
    matches = _compiled(part)
    for entry in _entries(directory):
        if entry.name.startswith(".") and not part.startswith("."):
            continue
        if matches(entry.name):
            if not others:
                yield entry.path
            elif entry.is_dir():
                yield from _find(entry.path, tuple(others), directories)


def _find_below(directory: str, parts: tuple[str, ...], directories: set[str]) -> Iterator[str]:
    """Yield matches in a directory and in all below it."""
    yield from _find(directory, parts, directories)
    for entry in _entries(directory):
        if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
            yield from _find_below(entry.path, parts, directories)


def _entries(directory: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(directory) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:  # removed or not readable: its files cannot be found
        return []


def _nearest(path: str) -> str:
    """Return the deepest existing directory above a path."""
    while not os.path.isdir(path):  # noqa: PTH112
        path = os.path.dirname(path)  # noqa: PTH120
    return path


def _compiled(pattern: str) -> Matcher:
    return re.compile(fnmatch.translate(pattern)).match


def _compiled_path(pattern: str) -> Matcher:
    """Compile a pattern of paths: ``*`` does not match a slash, ``**`` does."""
    pieces = []
    for piece in re.split(r"(\*\*/?|\*|\?)", pattern):
        match piece:
            case "**/":
                pieces.append("(?:.*/)?")
            case "**":
                pieces.append(".*")
            case "*":
                pieces.append("[^/]*")
            case "?":
                pieces.append("[^/]")
            case _:
                pieces.append(re.sub(r"\\\[(!?)(.*?)\\\]", _set, re.escape(piece)))
    return re.compile("(?s:" + "".join(pieces) + r")\Z").match


def _set(found: "re.Match[str]") -> str:
    negation = "^" if found[1] else ""
    return f"[{negation}{found[2]}]"
