"""Which files there are: globs expanded, and what was found told apart. For a thread."""

import os
import stat
from collections.abc import Sequence
from typing import NamedTuple

from ..positions.position import Identity
from .globs import Excludes, Glob
from .source import SourceReader

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


class Found(NamedTuple):
    """A file: one of its paths, and what was seen of it."""

    path: str
    source: SourceReader
    identity: Identity
    size: int
    mtime: int


class Sighting(NamedTuple):
    """What one look found.

    files: each once for each topic. refused: paths that match but cannot be read, and why.
    directories: where others may appear. aliases: real paths of those that were reached by links.
    """

    files: list[Found]
    refused: list[tuple[str, SourceReader, str]]
    directories: set[str]
    aliases: dict[str, str]


class Discovery:
    """The globs of all sources."""

    def __init__(self, sources: Sequence[SourceReader]) -> None:
        self.sources = sources
        self._globs = [
            (source, [Glob(one) for one in source.config.paths], Excludes(source.config.exclude))
            for source in sources
        ]

    def look(self, known: set[str]) -> Sighting:
        """Find what there is now. ``known``: paths to stay with where a file has several."""
        sighting = Sighting([], [], set(), {})
        seen: dict[tuple[Identity, str], int] = {}
        for source, globs, excludes in self._globs:
            paths: dict[str, None] = {}
            for glob in globs:
                paths.update(dict.fromkeys(glob.find(sighting.directories)))
            for path in paths:
                if excludes.has(path) or (path.endswith(".gz") and not source.reads_gzip):
                    continue
                self._add(path, source, sighting, seen, known)
        return sighting

    def _add(
        self,
        path: str,
        source: SourceReader,
        sighting: Sighting,
        seen: dict[tuple[Identity, str], int],
        known: set[str],
    ) -> None:
        try:
            status = os.stat(path)  # noqa: PTH116 - quicker
            if os.path.islink(path):  # noqa: PTH114
                real = os.path.realpath(path)
                sighting.aliases[real] = path
                sighting.directories.add(os.path.dirname(real))  # noqa: PTH120
        except FileNotFoundError:
            return
        except OSError as error:
            sighting.refused.append((path, source, error.strerror or str(error)))
            return
        if not stat.S_ISREG(status.st_mode):
            kinds = (what for test, what in _KINDS if test(status.st_mode))
            sighting.refused.append((path, source, f"it is {next(kinds, 'no file')}"))
            return
        identity = Identity.of(status)
        found = Found(path, source, identity, status.st_size, status.st_mtime_ns)
        index = seen.get((identity, source.topic))
        if index is None:
            seen[identity, source.topic] = len(sighting.files)
            sighting.files.append(found)
        elif path in known and sighting.files[index].path not in known:
            sighting.files[index] = found


def find_renamed(path: str, identity: Identity) -> str | None:
    """Where a file is that was at ``path``: there or in the same directory; None: in neither."""
    directory = os.path.dirname(path)  # noqa: PTH120
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
