"""Discovery of files: expands the globs of all sources. Blocks."""

import os
import stat
from collections.abc import Sequence
from typing import NamedTuple

from ..positions.position import Identity, Position
from .globs import Excludes, Glob
from .source import SourceReader

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


class FoundFile(NamedTuple):
    """A file: one of its paths, and its state at the scan; ``ctime`` is of its permissions too.

    ``real``: where it lies, if a link leads from ``path`` to it; else empty.
    """

    path: str
    source: SourceReader
    identity: Identity
    size: int
    mtime: int
    ctime: int = 0
    real: str = ""


class ScanResult(NamedTuple):
    """The result of one scan.

    files: each file once for each topic. refused: matching paths that cannot be read, and why.
    directories: where more files may appear. aliases: by real paths, those reached by links.
    unmatched: patterns that match nothing.
    """

    files: list[FoundFile]
    refused: list[tuple[str, SourceReader, str]]
    directories: set[str]
    aliases: dict[str, str]
    unmatched: list[str]


class Discovery:
    """The globs of all sources."""

    def __init__(self, sources: Sequence[SourceReader]) -> None:
        self.sources = sources
        self._real_directories: dict[str, str] = {}
        self._globs = [
            (
                source,
                {path: Glob(path) for path in source.config.paths},
                Excludes(source.config.exclude),
            )
            for source in sources
        ]

    def scan(self, known: set[str]) -> ScanResult:
        """Find the files that exist now. ``known``: paths to keep for files with several."""
        scan = ScanResult([], [], set(), {}, [])
        seen: dict[tuple[Identity, str], int] = {}
        self._real_directories.clear()  # links may lead elsewhere since the last scan
        for source, globs, excludes in self._globs:
            paths: dict[str, None] = {}
            for pattern, glob in globs.items():
                matching = dict.fromkeys(glob.find(scan.directories))
                if not matching:
                    scan.unmatched.append(pattern)
                paths.update(matching)
            for path in paths:
                if excludes.has(path) or (path.endswith(".gz") and not source.reads_gzip):
                    continue
                self._add(path, source, scan, seen, known)
        return scan

    def _add(
        self,
        path: str,
        source: SourceReader,
        scan: ScanResult,
        seen: dict[tuple[Identity, str], int],
        known: set[str],
    ) -> None:
        try:
            status = os.stat(path)  # noqa: PTH116 - quicker
            real = self._real(path)
            if os.path.islink(path):  # noqa: PTH114
                real = os.path.realpath(path)
                scan.aliases[real] = path
                scan.directories.add(os.path.dirname(real))  # noqa: PTH120
        except FileNotFoundError:
            return
        except OSError as error:
            scan.refused.append((path, source, error.strerror or str(error)))
            return
        if not stat.S_ISREG(status.st_mode):
            kinds = (what for test, what in _KINDS if test(status.st_mode))
            scan.refused.append((path, source, f"it is {next(kinds, 'no file')}"))
            return
        identity = Identity.of(status)
        found = FoundFile(
            path,
            source,
            identity,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            "" if real == path else real,
        )
        index = seen.get((identity, source.topic))
        if index is None:
            seen[identity, source.topic] = len(scan.files)
            scan.files.append(found)
        elif path in known and scan.files[index].path not in known:
            scan.files[index] = found

    def _real(self, path: str) -> str:
        """Return the path without links among its directories."""
        directory, name = os.path.split(path)
        real = self._real_directories.get(directory)
        if real is None:
            real = self._real_directories[directory] = os.path.realpath(directory)
        return path if real == directory else os.path.join(real, name)  # noqa: PTH118 - quicker


def find_renamed(position: Position) -> str | None:
    """Return the path of a renamed file in the directories of its former paths, else None."""
    for path in dict.fromkeys((position.path, position.real_path)):
        found = _find(os.path.dirname(path), position.identity)  # noqa: PTH120
        if found is not None:
            return found
    return None


def _find(directory: str, identity: Identity) -> str | None:
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.inode() == identity.inode and not entry.is_symlink():
                    status = entry.stat(follow_symlinks=False)
                    if Identity.of(status) == identity and stat.S_ISREG(status.st_mode):
                        return entry.path
    except OSError:
        pass
    return None
