"""The status of files, and how fast they are delivered."""

from collections.abc import Iterator

from qbus.clock import Clock

from ..status import FileState, FileStatus
from .file import TailedFile
from .registry import Registry

_SHORTEST = 0.5


class FileReporter:
    """Makes the status of the tailed files, and measures their rates."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._last: dict[TailedFile, tuple[float, int, float]] = {}
        self._made: dict[TailedFile, FileStatus] = {}

    def files(self) -> Iterator[FileStatus]:
        """Yield the status of each file, and of each path that was refused."""
        now = self._clock.monotonic()
        files = list(self._registry.files.values())
        self._last = rates = {file: self._rate(file, now) for file in files}
        before, self._made = self._made, {}
        made = self._made
        for file in files:
            made[file] = self._status(file, now, rates[file][2], before.get(file))
            yield made[file]
        for path, source, error in self._registry.refused:
            yield FileStatus(
                path=path,
                topic=source.topic,
                inode=0,
                state=FileState.FAILED,
                position=0,
                read=0,
                size=0,
                error=error,
            )

    @staticmethod
    def _status(file: TailedFile, now: float, rate: float, last: FileStatus | None) -> FileStatus:
        """Return the status of a file: the ``last`` one if it rests as it did then."""
        is_behind = not file.is_read or bool(file.acks)
        if (
            last is not None
            and not (is_behind or rate or last.lag_seconds or last.rate)
            and last.size == file.size
            and last.read == file.read
            and last.position == file.position.offset
            and last.error == file.error
            and last.refused == file.refused
            and last.truncations == file.truncations
            and last.state is _state(file)
            and last.path == file.path
        ):
            return last
        since = file.acks.since if file.acks else file.behind_since
        since = since if is_behind and since is not None else now
        return FileStatus(
            path=file.path,
            topic=file.position.topic,
            inode=file.identity.inode,
            state=_state(file),
            position=file.position.offset,
            read=file.read,
            size=file.size,
            lag_seconds=now - since,
            rate=rate,
            error=file.error,
            refused=file.refused,
            refusal=file.refusal,
            truncations=file.truncations,
        )

    def _rate(self, file: TailedFile, now: float) -> tuple[float, int, float]:
        offset = file.position.offset
        last = self._last.get(file)
        if last is None:
            return now, offset, 0.0
        at, before, rate = last
        if now - at < _SHORTEST:
            return last
        return now, offset, max(0, offset - before) / (now - at) if now > at else rate


def _state(file: TailedFile) -> FileState:
    if file.error is not None:
        return FileState.FAILED
    if file.position.is_done or (file.is_rotated and file.is_read and not file.acks):
        return FileState.FINISHED
    return FileState.IDLE if file.descriptor is None and file.is_read else FileState.READING
