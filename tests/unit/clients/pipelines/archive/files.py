"""Archived files, and a place to keep a log, without Spark."""

from collections.abc import Iterator

from qbus.clients.pipelines.archive.snapshot import ArchivedFile
from qbus.clients.pipelines.archive.storage import Conflict, Found

ROOT = "file:/my archive"


def archived(
    name: str, *, hour: str = "topic=t/date=2026-01-01/hour=00", size: int = 10,
    begin: int = 0, end: int = 10, modified: int = 0,
) -> ArchivedFile:  # fmt: skip
    return ArchivedFile(
        path=f"{ROOT}/{hour}/{name}",
        size=size,
        modified=modified,
        topic="t",
        topic_id="id",
        records={0: end - begin},
        covers={0: ((begin, end),)},
    )


class FakeStorage:
    """Files in memory, which are as old as ``now`` was when they came to be."""

    root = ROOT

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.now = 0
        self._modified: dict[str, int] = {}

    def list(self, directory: str, *, recursive: bool = False) -> Iterator[Found]:
        for path, text in list(self.files.items()):
            if path.startswith(f"{directory}/"):
                yield Found(path, len(text), self._modified[path])

    def directories(self, directory: str) -> Iterator[Found]:
        prefix = f"{directory}/"
        below = [path.removeprefix(prefix) for path in self.files if path.startswith(prefix)]
        names = {name for name, slash, _ in (path.partition("/") for path in below) if slash}
        yield from (Found(f"{prefix}{name}", 0, self.now) for name in sorted(names))

    def read(self, path: str) -> str:
        try:
            return self.files[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def create(self, path: str, text: str) -> None:
        if path in self.files:
            raise Conflict(path)
        self.files[path] = text
        self._modified[path] = self.now

    def delete(self, path: str) -> None:
        self.files.pop(path, None)
        self._modified.pop(path, None)

    def names(self) -> set[str]:
        return {path.rpartition("/")[2] for path in self.files}
