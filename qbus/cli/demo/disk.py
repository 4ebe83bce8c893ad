"""What the demo's broker has left on disk."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

_INDEXES = {".index", ".timeindex"}


def partition_files(data_dir: Path) -> list[dict[str, Any]]:
    """Return, for each partition's directory, its segments and the bytes in its files."""
    return [
        {
            "directory": directory.name,
            "segments": len(list(directory.glob("*.log"))),
            "log_bytes": sum(_sizes(directory, {".log"})),
            "index_bytes": sum(_sizes(directory, _INDEXES)),
        }
        for directory in sorted(data_dir.iterdir())
        if directory.is_dir() and any(directory.glob("*.log"))
    ]


def _sizes(directory: Path, suffixes: set[str]) -> Iterator[int]:
    for path in directory.iterdir():
        if path.suffix in suffixes:
            yield path.stat().st_size
