"""Files on a local disk that come to be whole and at once, or not at all.

A rename would take the place of a file that somebody else has written at the same moment; a hard
link never does.
"""

import errno
import os
import uuid
from pathlib import Path

_NONE = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


class NoLinks(Exception):  # noqa: N818 - what happened
    """The file system has no hard links."""


def create(path: Path, text: str) -> None:
    """Write a new file; raises FileExistsError where there is one, and :class:`NoLinks`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with draft.open("xb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        try:
            path.hardlink_to(draft)
        except OSError as error:
            if error.errno in _NONE:
                raise NoLinks from error
            raise
    finally:
        draft.unlink(missing_ok=True)
