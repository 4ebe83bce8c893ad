"""The nodes of the embedded store in a SQLite file. Blocking; used by one thread.

One table, keyed by parent and name, makes a node and a node's children one look-up each. The file
is in WAL mode with ``synchronous=FULL``: a commit that returned is on stable storage. Lazy commits
are the exception: with ``synchronous=NORMAL`` they are in the system's cache when they return. A
crash of the machine may take the last of them, never one and not those after it. The file is
locked while it is open, so all ephemeral nodes found on opening belong to sessions that ended. An
ephemeral node has the number of its session in the column ``ephemeral``, others have 0.
"""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from qbus.metadata.errors import (
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    StoreUnavailable,
    StoreUnusable,
    VersionConflict,
)
from qbus.metadata.paths import ROOT, join, split
from qbus.metadata.store import ANY_VERSION, Check, Create, Delete, Node, Op, Result, Set
from qbus.service import descriptors

SCHEMA_VERSION = 1
OWN_SESSION = 1
"""The session of whoever opened the file; those that others begin have greater numbers."""

_APPLICATION_ID = 0x51627573  # "Qbus"
_LOCK_WAIT_SECONDS = 1.0
_IN_MEMORY = ":memory:"
_PRIVATE = 0o600
_WAL_BYTES = 4 * 1024 * 1024

_SCHEMA = (
    """
    CREATE TABLE nodes (
        parent TEXT NOT NULL,
        name TEXT NOT NULL,
        data BLOB NOT NULL,
        version INTEGER NOT NULL DEFAULT 0,
        ephemeral INTEGER NOT NULL DEFAULT 0,
        next_child INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (parent, name)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX ephemerals ON nodes (parent, name) WHERE ephemeral",
    "INSERT INTO nodes (parent, name, data) VALUES ('', '', x'')",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

_SET_ANY = (
    "UPDATE nodes SET data = ?, version = version + 1 WHERE parent = ? AND name = ?"
    " RETURNING version"
)
_SET = _SET_ANY.replace(" RETURNING", " AND version = ? RETURNING")

# Of many operations of one kind: how many rows changed tells whether all of them applied.
_INSERT = "INSERT INTO nodes (parent, name, data) VALUES (?, ?, ?)"
_DELETE_LEAF = (
    "DELETE FROM nodes WHERE parent = ? AND name = ? AND (? < 0 OR version = ?)"
    " AND NOT EXISTS (SELECT 1 FROM nodes AS below WHERE below.parent = ?)"
)
_MANY = 8  # operations that are worth preparing together


class Database:
    """An open database.

    ``touched`` are the nodes that changed, or whose children did, since it was cleared.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file.

        Raises:
            StoreUnusable: the file is locked, corrupt, foreign, or from a newer Qbus.
            StoreUnavailable: the disk is full.
        """
        self._path = path
        self._is_synchronous = True
        self.touched: set[str] = set()
        _keep_private(path)
        try:
            self._db = sqlite3.connect(path, timeout=_LOCK_WAIT_SECONDS, isolation_level=None)
            try:
                self._open()
            except BaseException:
                self._db.close()
                raise
        except sqlite3.Error as error:
            kind = StoreUnavailable if is_full(error) else StoreUnusable
            raise kind(f"cannot open {path}: {explain(error)}") from error

    def _open(self) -> None:
        run = self._db.execute
        run("PRAGMA locking_mode = EXCLUSIVE")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        run("BEGIN IMMEDIATE")
        version = run("PRAGMA user_version").fetchone()[0]
        application = run("PRAGMA application_id").fetchone()[0]
        if version == 0 and application == 0 and not run("SELECT 1 FROM sqlite_schema").fetchone():
            for statement in _SCHEMA:
                run(statement)
        elif application != _APPLICATION_ID:
            raise StoreUnusable(f"{self._path} is not a metadata store of Qbus")
        elif version != SCHEMA_VERSION:
            raise StoreUnusable(f"{self._path} was written by a newer Qbus (format {version})")
        elif (problem := run("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise StoreUnusable(f"{self._path} is damaged: {problem}")
        run("DELETE FROM nodes WHERE ephemeral")
        run("COMMIT")

    def close(self) -> None:
        """Close the file and release its lock."""
        self._db.close()

    def begin(self, *, lazily: bool = False) -> None:
        """Begin a commit: all until ``commit`` becomes durable together, or not at all.

        ``lazily``: it is left to the system when that is.
        """
        if self._is_synchronous == lazily:
            # In WAL mode, NORMAL writes the same and does not wait for the disk.
            self._db.execute(f"PRAGMA synchronous = {'NORMAL' if lazily else 'FULL'}")
            self._is_synchronous = not lazily
        self._db.execute("BEGIN")

    def commit(self) -> None:
        """Commit; on return, all since ``begin`` is on stable storage, unless it began lazily.

        What was committed lazily before is then on stable storage, too.
        """
        self._db.execute("COMMIT")

    def rollback(self) -> bool:
        """Undo all since ``begin``; return whether that worked."""
        self.touched.clear()
        try:
            if self._db.in_transaction:  # else SQLite has rolled back itself
                self._db.execute("ROLLBACK")
        except sqlite3.Error:
            return False
        return True

    def end_session(self, session: int) -> None:
        """Delete the ephemeral nodes of a session."""
        for parent, name in self._db.execute(
            "SELECT parent, name FROM nodes WHERE ephemeral AND ephemeral = ?", (session,)
        ):
            self.touched |= {parent, join(parent, name)}
        self._db.execute("DELETE FROM nodes WHERE ephemeral AND ephemeral = ?", (session,))

    def get(self, path: str) -> Node | None:
        """Return the node at ``path``, or None."""
        row = self._db.execute(
            "SELECT data, version FROM nodes WHERE parent = ? AND name = ?", split(path)
        ).fetchone()
        return Node(*row) if row else None

    def get_many(self, wanted: Sequence[str]) -> dict[str, Node]:
        """Return those of the nodes that exist."""
        nodes = ((path, self.get(path)) for path in wanted)
        return {path: node for path, node in nodes if node is not None}

    def children(self, path: str) -> list[str]:
        """Return the sorted names of the children of ``path``."""
        rows = self._db.execute(
            "SELECT name FROM nodes WHERE parent = ? AND name > '' ORDER BY name", (path,)
        )
        return [name for (name,) in rows]

    def tree(self, path: str) -> dict[str, Node]:
        """Return the node at ``path`` and all below it."""
        node = self.get(path)
        if node is None:
            return {}
        # Below /a are the parents /a and /a/...; "0" is the character after "/".
        prefix = "" if path == ROOT else path
        rows = self._db.execute(
            "SELECT parent, name, data, version FROM nodes"
            " WHERE (parent = ? OR (parent > ? AND parent < ?)) AND name > ''",
            (path, prefix + "/", prefix + "0"),
        )
        below = {join(parent, name): Node(data, version) for parent, name, data, version in rows}
        return {path: node, **below}

    def apply(self, operations: Sequence[Op], session: int = OWN_SESSION) -> list[Result]:
        """Apply all operations of a session's transaction, or none.

        Raises:
            NodeError: an operation does not apply.
        """
        if len(operations) >= _MANY:
            with suppress(_NotAtOnce):  # singly, the operation at fault is told
                return self._apply_together(lambda: self._apply_many(operations, session))
        return self._apply_together(
            lambda: [self._apply(operation, session) for operation in operations]
        )

    def _apply_together(self, apply: Callable[[], list[Result]]) -> list[Result]:
        """Do all that ``apply`` does, or nothing if it raises."""
        touched = set(self.touched)
        self._db.execute("SAVEPOINT one")
        try:
            results = apply()
        except BaseException:
            self.touched = touched
            if self._db.in_transaction:
                self._db.execute("ROLLBACK TO one")
                self._db.execute("RELEASE one")
            raise
        self._db.execute("RELEASE one")
        return results

    def _apply_many(self, operations: Sequence[Op], session: int) -> list[Result]:
        """Apply runs of plain creations and of deletions with a statement each.

        Raises:
            _NotAtOnce: an operation does not apply, or perhaps not; which one is not known.
        """
        results: list[Result] = []
        for kind, run in groupby(operations, _kind):
            if kind is Create:
                results += self._create_many([op for op in run if isinstance(op, Create)])
            elif kind is Delete:
                results += self._delete_many([op for op in run if isinstance(op, Delete)])
            else:
                results += [self._apply(operation, session) for operation in run]
        return results

    def _create_many(self, creations: Sequence[Create]) -> Iterable[str]:
        rows: list[tuple[str, str, bytes]] = []
        there: set[str] = set()  # nodes that may have children
        for path, data, _, _ in creations:
            parent, name = split(path)
            if parent not in there:
                self._add_missing(parent, there, rows)
            there.add(path)
            rows.append((parent, name, data))
        try:
            self._db.executemany(_INSERT, rows)
        except sqlite3.IntegrityError:
            raise _NotAtOnce from None
        for parent, name, _ in rows:
            self.touched |= {parent, join(parent, name)}
        return [creation.path for creation in creations]

    def _add_missing(self, path: str, there: set[str], rows: list[tuple[str, str, bytes]]) -> None:
        """Have ``path`` and all above it be there, if need be by further ``rows``."""
        parent, name = split(path)
        row = self._db.execute(
            "SELECT ephemeral FROM nodes WHERE parent = ? AND name = ?", (parent, name)
        ).fetchone()
        if row is not None and row[0]:
            raise _NotAtOnce
        if row is None:
            if parent not in there:
                self._add_missing(parent, there, rows)
            rows.append((parent, name, b""))
        there.add(path)

    def _delete_many(self, deletions: Sequence[Delete]) -> Iterable[None]:
        rows = [
            (*split(path), version, version, path) for path, version in deletions if path != ROOT
        ]
        if self._db.executemany(_DELETE_LEAF, rows).rowcount != len(deletions):
            raise _NotAtOnce
        for parent, _, _, _, path in rows:
            self.touched |= {parent, path}
        return [None] * len(deletions)

    def _apply(self, operation: Op, session: int) -> Result:
        match operation:
            case Create():
                return self._create(operation, session)
            case Set(path, data, version):
                return self._set(path, data, version)
            case Delete(path, version):
                self._check(path, version)
                self._delete(path)
            case Check(path, version):
                self._check(path, version)
        return None

    def _check(self, path: str, version: int) -> int:
        row = self._db.execute(
            "SELECT version FROM nodes WHERE parent = ? AND name = ?", split(path)
        ).fetchone()
        if row is None:
            raise NoNode(path)
        current: int = row[0]
        if version not in {ANY_VERSION, current}:
            raise VersionConflict(path)
        return current

    def _set(self, path: str, data: bytes, version: int) -> int:
        parent, name = split(path)
        if version == ANY_VERSION:
            done = self._db.execute(_SET_ANY, (data, parent, name))
        else:
            done = self._db.execute(_SET, (data, parent, name, version))
        row = done.fetchone()
        if row is None:
            self._check(path, version)  # raises NoNode or VersionConflict
        self.touched.add(path)
        new: int = row[0]
        return new

    def _create(self, create: Create, session: int) -> str:
        path = create.path
        parent, name = split(path)
        sequence = self._require_parent(parent)
        if create.sequential:
            name = f"{name}{sequence:010}"
            path = join(parent, name)
            self._db.execute(
                "UPDATE nodes SET next_child = ? WHERE parent = ? AND name = ?",
                (sequence + 1, *split(parent)),
            )
        try:
            self._db.execute(
                "INSERT INTO nodes (parent, name, data, ephemeral) VALUES (?, ?, ?, ?)",
                (parent, name, create.data, session if create.ephemeral else 0),
            )
        except sqlite3.IntegrityError:
            raise NodeExists(path) from None
        self.touched |= {parent, path}
        return path

    def _require_parent(self, path: str) -> int:
        """Create ``path`` if needed; return the sequence number of its next child."""
        row = self._db.execute(
            "SELECT ephemeral, next_child FROM nodes WHERE parent = ? AND name = ?", split(path)
        ).fetchone()
        if row is None:
            self._create(Create(path), OWN_SESSION)
            return 0
        ephemeral, next_child = row
        if ephemeral:
            raise NoChildrenForEphemerals(path)
        return int(next_child)

    def _delete(self, path: str) -> None:
        if (
            path == ROOT
            or self._db.execute("SELECT 1 FROM nodes WHERE parent = ? LIMIT 1", (path,)).fetchone()
        ):
            raise NotEmpty(path)
        parent, name = split(path)
        self._db.execute("DELETE FROM nodes WHERE parent = ? AND name = ?", (parent, name))
        self.touched |= {parent, path}


class _NotAtOnce(Exception):  # noqa: N818 - no error: there is another way
    """Many operations could not be applied at once."""


def _kind(operation: Op) -> type[Op] | None:
    """How an operation is applied together with others of its kind; None: by itself."""
    if isinstance(operation, Create):
        return None if operation.ephemeral or operation.sequential else Create
    return Delete if isinstance(operation, Delete) else None


def _keep_private(path: Path) -> None:
    """Let only the owner read the file, which has credentials in it, and what SQLite puts beside.

    An existing file is not opened for that: closing it would end locks that this process has on it.
    """
    if str(path) == _IN_MEMORY:
        return
    with suppress(OSError):  # SQLite says what is wrong
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE))
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with suppress(OSError):  # there is none, or it belongs to somebody else
            if stat.S_IMODE(file.stat().st_mode) != _PRIVATE:
                file.chmod(_PRIVATE)


def explain(error: sqlite3.Error) -> str:
    """Explain a failure of SQLite to an operator."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    shortage = descriptors.shortage(_FILES) if code in _OPENING else None
    if shortage is not None:  # SQLite does not say why it could not open a file
        return f"{descriptors.shortages.describe(shortage)}; {descriptors.HOW_TO_RAISE}"
    return _MEANINGS.get(code, "") + str(error)


def is_full(error: sqlite3.Error) -> bool:
    """Whether the disk is full; then the file is unchanged."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL


_FILES = 4
"""How many files SQLite has open at once: the database, two beside it, and the directory."""

_OPENING = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY})
_MEANINGS: dict[int, str] = {
    sqlite3.SQLITE_BUSY: "another broker has it open: ",
    sqlite3.SQLITE_CORRUPT: "it is damaged: ",
    sqlite3.SQLITE_NOTADB: "it is damaged, or no metadata store: ",
    sqlite3.SQLITE_CANTOPEN: "its directory is missing or cannot be written: ",
    sqlite3.SQLITE_READONLY: "it cannot be written: ",
    sqlite3.SQLITE_FULL: "the disk is full: ",
    sqlite3.SQLITE_IOERR: "its directory cannot be written, or the disk fails: ",
}
