"""What a read returns: a region of a segment's file, ready to be sent."""

from types import TracebackType
from typing import Protocol, Self

from .files import File
from .locate import Place
from .segment import LogSegment

_PAGE = 4096


class Verifier(Protocol):
    """Checks batches on behalf of a log."""

    def verify(self, segment: LogSegment, start: Place, end: int) -> Place:
        """The boundary, at most ``end``, up to which all is well; reports what is not."""


class LogSlice:
    """Whole batches, one after another: ``length`` bytes of a file from ``position`` on.

    ``first_offset`` is the first batch's base offset, ``next_offset`` the one after the last batch.
    The file stays open, and readable if the segment is deleted, until :meth:`close`.

    Bytes that this process neither appended nor checked since it started must not be sent:
    where ``needs_verification`` says so, call :meth:`verify` in a thread first. Bytes that are not
    in the page cache would make a send wait for the disk: where :meth:`is_cached` says so, call
    :meth:`warm` in a thread, which reads them and, as they come from the disk, checks them again.
    """

    __slots__ = (
        "_file",
        "_segment",
        "_verifier",
        "first_offset",
        "length",
        "next_offset",
        "position",
    )

    def __init__(
        self,
        segment: LogSegment,
        verifier: Verifier,
        start: Place,
        end: Place,
    ) -> None:
        """The batches between two boundaries of ``segment``. Raises OSError."""
        self._segment = segment
        self._verifier = verifier
        self._file: File | None = segment.file
        self.first_offset, self.position = start
        self.next_offset, end_position = end
        self.length = end_position - self.position

    def __len__(self) -> int:
        return self.length

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def file(self) -> File:
        """The open file. Raises ValueError after :meth:`close`."""
        if self._file is None:
            raise ValueError("the slice is closed")
        return self._file

    def fileno(self) -> int:
        """The file descriptor, for ``os.sendfile``."""
        return self.file.fileno()

    def read(self) -> bytes:
        """The bytes. May wait for the disk unless :meth:`is_cached`. Raises OSError."""
        return self.file.read_at(self.position, self.length)

    @property
    def needs_verification(self) -> bool:
        """Whether some of the bytes were not checked since the process started. Does no IO."""
        return not self._segment.verified.cover(self.position, self.position + self.length)

    def verify(self) -> None:
        """Check every batch; for a thread. The slice is cut before a corrupt batch.

        Raises CorruptBatch, an ApiError, when the first batch is the corrupt one: what is wrong was
        reported to the log then.
        """
        start = Place(self.first_offset, self.position)
        end = self._verifier.verify(self._segment, start, self.position + self.length)
        self.next_offset = end.offset
        self.length = end.position - self.position

    def is_cached(self) -> bool:
        """Whether the first and the last page are in the page cache: a guess at all of them."""
        end = self.position + self.length
        last = max(self.position, (end - 1) & ~(_PAGE - 1))
        try:
            self.file.read_at(self.position, 1, wait=False)
            self.file.read_at(last, end - last, wait=False)
        except BlockingIOError:
            return False
        return True

    def warm(self) -> None:
        """Bring the bytes into the page cache, checking them; for a thread. Raises as verify."""
        self.verify()

    def close(self) -> None:
        """Let go of the file. More than once does no harm."""
        self._file = None
