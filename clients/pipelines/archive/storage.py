"""Files on any file system of Hadoop, through the driver's JVM."""

import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

_NONE = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


class NoLinks(Exception):  # noqa: N818 - what happened
    """The file system has no hard links."""


def create(path: Path, text: str) -> None:
    """Create a file on a local disk, complete and atomically.

    A hard link never replaces a file that another process has created, as a rename would. Raises
    FileExistsError and :class:`NoLinks`.
    """
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


class Conflict(Exception):  # noqa: N818 - what happened
    """Another process has created the file."""


class Found(NamedTuple):
    """A file; ``modified`` in milliseconds since the epoch."""

    path: str
    size: int
    modified: int


class Storage:
    """The files below ``root``. Paths are absolute, as Hadoop writes them: ``file:/var/archive``.

    A missing file raises FileNotFoundError; other failures raise py4j's errors.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        context: Any = spark.sparkContext
        self._jvm: Any = context._jvm
        self._configuration: Any = context._jsc.hadoopConfiguration()
        path = self._jvm.org.apache.hadoop.fs.Path(root)
        self._files: Any = path.getFileSystem(self._configuration)
        self.root: str = self._files.makeQualified(path).toString().rstrip("/")

    def exists(self) -> bool:
        """Whether the root exists."""
        return bool(self._files.exists(self._path(self.root)))

    def list(self, directory: str, *, recursive: bool = False) -> Iterator[Found]:
        """The files in a directory; none if it does not exist."""
        if not self._files.exists(self._path(directory)):
            return
        found = self._files.listFiles(self._path(directory), recursive)
        while found.hasNext():
            status = found.next()
            path = status.getPath().toString()
            yield Found(path, status.getLen(), status.getModificationTime())

    def directories(self, directory: str) -> Iterator[Found]:
        """The directories in a directory."""
        if self._files.exists(self._path(directory)):
            for status in self._files.listStatus(self._path(directory)):
                if status.isDirectory():
                    path = status.getPath().toString()
                    yield Found(path, 0, status.getModificationTime())

    def read(self, path: str) -> str:
        """The text of a file."""
        try:
            stream = self._files.open(self._path(path))
        except Py4JJavaError as error:
            if "FileNotFoundException" in str(error.java_exception):
                raise FileNotFoundError(path) from error
            raise
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def create(self, path: str, text: str) -> None:
        """Create a file atomically; raises :class:`Conflict` if it exists."""
        if self._files.getUri().getScheme() == "file":
            try:
                create(Path(self._path(path).toUri().getPath()), text)
            except FileExistsError:
                raise Conflict(path) from None
            except NoLinks:
                pass
            else:
                return
        self._create_by_renaming(path, text)

    def _create_by_renaming(self, path: str, text: str) -> None:
        package = self._jvm.org.apache.spark.sql.execution.streaming.checkpointing
        parent = self._path(path.rpartition("/")[0])
        self._files.mkdirs(parent)
        manager = package.CheckpointFileManager.create(parent, self._configuration)
        if manager.exists(self._path(path)):
            raise Conflict(path)
        stream = manager.createAtomic(self._path(path), False)
        try:
            stream.write(text.encode())
            stream.close()
        except Py4JJavaError as error:
            stream.cancel()
            if "FileAlreadyExistsException" in str(error.java_exception):
                raise Conflict(path) from error
            raise

    def move(self, source: str, target: str, *, at: int) -> None:
        """Rename a file, and set its modification time ``at``, in milliseconds since the epoch."""
        destination = self._path(target)
        self._files.mkdirs(destination.getParent())
        if not self._files.rename(self._path(source), destination):
            raise OSError(f"cannot move {source} to {target}")
        try:
            self._files.setTimes(destination, at, -1)
        except Py4JJavaError:  # an object store, which sets the time itself
            return

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with its content; a missing one is no error."""
        self._files.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)
