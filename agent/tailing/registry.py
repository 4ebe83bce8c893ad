"""The tailed files, and how they are recognized from one scan to the next."""

import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial

from qbus.clock import Clock

from ..config.config import CONTINUE
from ..positions import Position, Positions
from ..positions.position import Identity
from .content import is_packed
from .copies import Original, Verdict, judge, stem
from .discovery import FoundFile, ScanResult, find_renamed
from .file import TailedFile
from .generations import family
from .source import SourceReader

log = logging.getLogger(__name__)

_PACKING_S = 60.0  # a gzip file that does not grow for so long is taken as it is
_DEPARTED_S = 600.0  # a file that was deleted is remembered for so long, to recognize its copy
_NAMED = 20  # files that one scan's log lines name


class Registry:
    """Tailed files by identity and topic, and by path."""

    def __init__(self, sources: Sequence[SourceReader], positions: Positions, clock: Clock) -> None:
        self._sources = sources
        self.files: dict[tuple[Identity, str], TailedFile] = {}
        self.refused: list[tuple[str, SourceReader, str]] = []
        self._positions = positions
        self._clock = clock
        self._by_path: dict[str, list[TailedFile]] = {}
        self._by_stem: dict[tuple[str, str, str], list[Position]] | None = None
        self._families: dict[tuple[str, str, str], list[TailedFile]] | None = None
        self._departed: dict[Position, tuple[float, int]] = {}
        self._scans = 0
        self._former = self._former_positions()
        self._is_first = True
        self._unmatched: set[str] = set()

    def at(self, path: str) -> list[TailedFile]:
        """Return the files at a path, also of one that was renamed since it was found."""
        files = self._by_path.get(path)
        if files is None:
            files = self._by_path[path] = self._renamed_to(path)  # until the next scan
        return [file for file in files if not file.is_left]

    def _renamed_to(self, path: str) -> list[TailedFile]:
        try:
            identity = Identity.of(os.stat(path))  # noqa: PTH116 - quicker
        except OSError:
            return []
        topics = {source.topic for source in self._sources}
        found = (self.files.get((identity, topic)) for topic in topics)
        return [file for file in found if file is not None]

    def update(self, scan: ScanResult, paths: Mapping[TailedFile, str]) -> list[TailedFile]:
        """Take in the result of a scan; return the files that may have something to read.

        ``paths``: those of the files when the scan began. What :meth:`find` has learned of a file
        since then is later than the scan.
        """
        self._tell_refused(scan.refused)
        self._tell_unmatched(scan.unmatched)
        self._by_stem = self._families = None
        self._forget_departed()
        new: list[TailedFile] = []
        seen = set()
        changed: list[TailedFile] = []
        for found in scan.files:
            key = (found.identity, found.source.topic)
            seen.add(key)
            file = self.files.get(key)
            if file is None:
                file = self.files[key] = self._add(found)
                changed.append(file)
                new.append(file)
                continue
            if file.path != found.path and file.path == paths.get(file):
                file.is_rotated = True  # who opened it under its old name may still write
                self._move(file, found.path)
            self._note_real(file.position, found.real)
            file.is_gone, file.is_matched = False, True
            file.source = found.source
            if file.retries and file.ctime != found.ctime:
                file.retry_at = 0.0  # it may have become readable
            file.ctime = found.ctime
            if (file.size, file.mtime) != (found.size, found.mtime) or file.retries:
                changed.append(file)
        seen_at = self._clock.time_ms()
        for key, file in self.files.items():
            file.position.seen_at = seen_at  # also of what no path matches any more, and is read
            if key not in seen:
                file.is_rotated, file.is_matched = True, False
                changed.append(file)
        if self._is_first:
            self._is_first = False
            self._former = {}
            changed += self._adopt()
        self._index(scan.aliases)
        _tell_new(new)
        return changed

    def _forget_departed(self) -> None:
        """Forget deleted files of which a copy, made before, was found by now if there is one."""
        self._scans += 1
        now = self._clock.monotonic()
        for position, (left_at, scans) in list(self._departed.items()):
            if now - left_at > _DEPARTED_S and self._scans - scans > 1:
                del self._departed[position]

    def _tell_refused(self, refused: list[tuple[str, SourceReader, str]]) -> None:
        """Say once which matching paths cannot be read."""
        before = {path for path, _, _ in self.refused}
        self.refused = refused
        new = [(path, reason) for path, _, reason in refused if path not in before]
        for path, reason in new[:_NAMED]:
            log.warning("%s matches, and is not read: %s", path, reason)
        if len(new) > _NAMED:
            log.warning("%d more paths match, and are not read", len(new) - _NAMED)

    def _tell_unmatched(self, unmatched: list[str]) -> None:
        """Say once which patterns match no file."""
        for pattern in unmatched:
            if pattern not in self._unmatched:
                log.warning("no file matches %s yet", pattern)
        self._unmatched = set(unmatched)

    def mark_seen(self, source: SourceReader) -> bool:
        """Note that a source was scanned: its later files are new. Return whether it is news."""
        return self._positions.mark_seen(source.name)

    def is_changed(self, file: TailedFile) -> bool:
        """Whether a closed file may have something to read. Raises OSError."""
        if file.mtime < 0 or file.retries:
            return True
        status = os.stat(file.path)  # noqa: PTH116 - quicker
        if Identity.of(status) != file.identity:
            raise FileNotFoundError(file.path)
        return (status.st_size, status.st_mtime_ns) != (file.size, file.mtime) or not file.is_read

    def find(self, file: TailedFile) -> bool:
        """Search a file that left its path; return whether it was found.

        Its inode may belong to another file now, such as a packed copy.
        """
        path = find_renamed(file.position)
        if path is None or not _is_same(TailedFile(path, file.position, file.source)):
            return False
        file.is_rotated = True
        self._move(file, path)
        return True

    def siblings(self, file: TailedFile) -> list[TailedFile]:
        """Return the other generations of a file's log, in no order."""
        if self._families is None:
            self._families = {}
            for other in self.files.values():
                self._families.setdefault(family(other), []).append(other)
        return [other for other in self._families.get(family(file), []) if other is not file]

    def is_finished(self, file: TailedFile, now: float) -> bool:
        """Whether a file is finished: rotated, read, acknowledged, and silent for long enough."""
        if file.is_matched or file.acks:
            return False
        if file.is_gone and file.descriptor is None:
            return True
        patience = file.source.config.rotated_timeout_ms / 1000
        is_done = file.is_read and not file.is_ready and not file.rest
        return is_done and now - file.changed_at >= patience

    def is_waiting(self, file: TailedFile) -> bool:
        """Whether a refreshed file has to wait, since it may be a copy. Raises OSError."""
        if not file.is_new:
            return False
        if not file.size:
            return file.is_gzip  # its writer may fill it before it is read
        assert file.content is not None
        if file.original is not None and not self._has_ended(file.original):
            return True
        file.original = None
        head = file.content.read(0, file.source.fingerprint_bytes)
        is_partial = partial(self._is_being_packed, file)
        for position in self._related(file):
            for original in self._originals(position, file):
                verdict = judge(
                    original, head, file.source.fingerprint_bytes, file.has_tail, is_partial
                )
                if verdict is Verdict.WAITING:
                    is_like = original.offset and original.fingerprint.matches(head)
                    file.original = position if is_like and not original.has_ended else None
                    return True
                if verdict is Verdict.COPY:
                    file.begin_at(original.offset, original.tail, position.partition)
                    file.is_new = False
                    return False
        file.is_new = False
        return False

    def _is_being_packed(self, file: TailedFile) -> bool:
        """Whether a gzip file of which all was read has no trailer yet, and may still get it."""
        if not file.is_gzip or file.content is None or file.content.end is not None:
            return False
        patience = max(_PACKING_S, file.source.config.rotated_timeout_ms / 1000)
        return self._clock.monotonic() - file.changed_at < patience

    def _move(self, file: TailedFile, path: str) -> None:
        file.move(path)
        self._families = None
        file.position.path = path
        self._note_real(file.position, os.path.realpath(path))
        self._positions.change(file.position)

    def _note_real(self, position: Position, real: str) -> None:
        """Note where a file lies; ``real`` may be its path, or empty for that."""
        real = "" if real == position.path else real
        if position.real != real:
            position.real = real
            self._positions.change(position)
            self._families = None

    def _related(self, file: TailedFile) -> list[Position]:
        """Return the positions of files that a file may be a copy of, by their names."""
        if self._by_stem is None:
            self._by_stem = {}
            for position in (*self._positions, *self._departed):
                self._by_stem.setdefault(_stem(position), []).append(position)
        return self._by_stem.get(_stem(file.position), [])

    def _originals(self, position: Position, copy: TailedFile | None = None) -> list[Original]:
        """Return the earlier contents of a file, and the current one if ``copy`` may be a copy.

        A copy's name is longer, so no two files wait for each other. No file is a copy of itself.
        """
        file = self.files.get((position.identity, position.topic))
        if file is not None and file.position is not position:
            file = None  # the position was removed, and the inode belongs to another file
        has_ended = file is None or not file.former_acks
        found = [
            Original(
                former.fingerprint,
                former.offset,
                former.tail,
                is_read=True,
                has_ended=has_ended,
            )
            for former in reversed(position.formers)
        ]
        is_other = copy is None or position is not copy.position
        if is_other and (copy is None or len(position.real_path) < len(copy.position.real_path)):
            is_read = file is None or (file.is_read and not file.acks)
            has_ended = file is None or (file.is_gone and is_read)
            now = (position.fingerprint, position.offset, position.tail)
            found.append(Original(*now, is_read=is_read, has_ended=has_ended))
        return found

    def _has_ended(self, position: Position) -> bool:
        return any(original.has_ended for original in self._originals(position))

    def remove(self, file: TailedFile) -> None:
        """Stop tailing a file; its position is kept for a while if the file may come back."""
        self.files.pop((file.identity, file.source.topic), None)
        file.is_left = True
        self._families = None
        why = "it is deleted" if file.is_gone else "it was rotated, and all of it is shipped"
        log.info("%s is left: %s", file.path, why)
        if file.is_gone:  # another file may have its inode; its copy may be found later
            self._positions.forget(file.position)
            self._departed[file.position] = self._clock.monotonic(), self._scans
            self._by_stem = None

    def _add(self, found: FoundFile) -> TailedFile:
        source = found.source
        is_new = False
        position = self._positions.find(found.identity, source.topic)
        if position is None:
            position = Position(found.identity, source.topic, found.path)
            former = self._former.get(found.identity) if self._is_first else None
            is_old = not self._positions.was_seen(source.name)
            if former is not None and source.config.topic_change == CONTINUE:
                position.continue_from(former)
                log.info("%s was shipped to topic %s before", found.path, former.topic)
            elif is_old and not source.config.from_beginning:
                position.offset = found.size
            self._positions.add(position)
            is_new = not position.offset
        else:
            is_new = not (position.offset or position.is_done)  # an agent ended before it judged it
            if position.path != found.path:
                position.path = found.path
                self._positions.change(position)
        self._note_real(position, found.real)
        file = TailedFile(found.path, position, source)
        file.labels = source.labels(found.path, found.identity.inode)
        file.is_new = is_new
        file.ctime = found.ctime
        return file

    def _former_positions(self) -> dict[Identity, Position]:
        """Return the positions of files that went to topics which no source names any more.

        Of several for one file, the one that was used last.
        """
        topics = {source.topic for source in self._sources}
        former: dict[Identity, Position] = {}
        for position in self._positions:
            known = former.get(position.identity)
            if position.topic not in topics and (known is None or known.seen_at < position.seen_at):
                former[position.identity] = position
        return former

    def _adopt(self) -> list[TailedFile]:
        """Go on with files that were renamed, while no agent ran, to names that no path matches."""
        sources = {source.topic: source for source in reversed(self._sources)}
        adopted = []
        for position in self._positions:
            key = (position.identity, position.topic)
            if key in self.files or position.is_done or position.topic not in sources:
                continue
            path = find_renamed(position)
            if path is None:
                continue
            file = TailedFile(path, position, sources[position.topic])
            if position.fingerprint.length and _is_same(file):
                file.labels = file.source.labels(path, position.identity.inode)
                file.is_rotated, file.is_matched = True, False
                position.seen_at = self._clock.time_ms()
                self._note_real(position, os.path.realpath(path))
                self.files[key] = file
                adopted.append(file)
        return adopted

    def _index(self, aliases: dict[str, str]) -> None:
        by_path: dict[str, list[TailedFile]] = {}
        for file in self.files.values():
            by_path.setdefault(file.path, []).append(file)
        for real, path in aliases.items():
            if path in by_path:
                by_path.setdefault(real, by_path[path])
        self._by_path = by_path


def _tell_new(files: list[TailedFile]) -> None:
    for file in files[:_NAMED]:
        topic, offset = file.position.topic, file.position.offset
        log.info("%s is found: its lines go to topic %s, from byte %d on", file.path, topic, offset)
    if len(files) > _NAMED:
        log.info("%d more files are found", len(files) - _NAMED)


def _stem(position: Position) -> tuple[str, str, str]:
    directory, name = os.path.split(position.real_path)
    return directory, stem(name), position.topic


def _is_same(file: TailedFile) -> bool:
    """Whether it can be the file of its position, and not another one with the same inode."""
    try:
        file.open()
        assert file.content is not None
        assert file.descriptor is not None
        if file.source.reads_gzip and not file.is_gzip and is_packed(file.descriptor):
            return False
        length = file.position.fingerprint.length
        is_like = file.position.fingerprint.matches(file.content.read(0, length))
        is_long = file.is_gzip or os.fstat(file.descriptor).st_size >= file.position.offset
        return is_like and is_long and not file.has_other_tail()
    except OSError:
        return False
    finally:
        file.close()
