"""Whether what a broker had in memory, and not on stable storage, may be gone.

A process that dies leaves its writes to the system, which has them still: only when the system went
down they may be lost. Each data directory keeps the identity of the system's boot (Linux's
``/proc/sys/kernel/random/boot_id``) under which its logs were used last. Where the system does not
tell, every crash counts as its own.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from .log.data_directory import DataDirectory

BOOT_ID_FILE = ".boot-id"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def current_boot() -> str:
    """The identity of the system's boot; empty where the system does not tell."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def identity(directories: Iterable[DataDirectory], boot: str) -> str:
    """What tells a broker's data from all other data: whoever has locked it is that broker.

    The id of the first directory, where that lies, and the boot, for machines may be alike. A copy
    of the directory lies elsewhere.
    """
    first, directory_id = next(
        (one, one.properties.directory_id) for one in directories if one.properties is not None
    )
    place = os.stat(first.path)  # noqa: PTH116 - as everywhere with files of logs
    return f"{directory_id}/{place.st_dev}/{place.st_ino}/{boot}"


def lost_memory(directories: Iterable[DataDirectory], boot: str) -> list[str]:
    """The paths of the directories that were not closed before the system went down."""
    return [
        directory.path
        for directory in directories
        if not directory.was_clean and (not boot or _read(directory.path) != boot)
    ]


def remember_boot(directories: Iterable[DataDirectory], boot: str) -> None:
    """Note under which boot the logs are used; when what was lost is dealt with.

    The note needs no stable storage: it is there for as long as it is true.
    """
    for directory in directories:
        if directory.offline or not boot or _read(directory.path) == boot:
            continue
        path = Path(directory.path) / BOOT_ID_FILE
        temporary = path.with_suffix(".tmp")
        try:
            temporary.write_text(boot)
            os.replace(temporary, path)  # noqa: PTH105 - as everywhere with files of logs
        except OSError:
            continue  # without it more counts as lost, which costs some copying


def _read(directory: str) -> str:
    try:
        return (Path(directory) / BOOT_ID_FILE).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
