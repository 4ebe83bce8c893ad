"""Whether there is room in a directory: told by taking some for a moment.

What the file system says to be free may be somebody else's: there are quotas.
"""

from .files import Files, write_all

PROBE = ".room"
_ENOUGH = 4 << 20  # bytes


def has_room(files: Files, directory: str) -> bool:
    """Write a file of some size, and remove it; whether that went well."""
    path = f"{directory}/{PROBE}"
    try:
        try:
            write_all(files.open(path, write=True), 0, bytes(_ENOUGH))
        finally:
            files.remove(path)
    except OSError:
        return False
    return True
