"""The command, or pipeline of commands, of about 1 MB that costs a node the most, of each command.

Ids of jobs are dear: each may need a look-up, a write or a search of the log. So are replies that
list jobs, and words by the thousand. A command has several rows where several things are dear.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from qbus.broker.disque import resp

SIZE: Final = 1 << 20
QUEUE: Final = b"q"
_PIPELINED: Final = SIZE // 16
MOST_JOBS: Final = 10_000
"""How many ids one command may have, and how many jobs one may list."""


class Scene(NamedTuple):
    """A node's jobs, and how much is sent: all of it, or one part of ``share``.

    ``jobs``: ids of queued jobs. ``delayed``: of jobs that are not due. ``missing``: ids of the
    queue whose jobs are not there; ``gone``: the same of delayed jobs.
    """

    jobs: Sequence[bytes]
    delayed: Sequence[bytes]
    missing: Sequence[bytes]
    gone: Sequence[bytes]
    share: int = 1

    def scaled(self, count: int) -> int:
        """So many, or their part, but one at least."""
        return max(count // self.share, 1)


Make = Callable[[Scene], bytes]


def _one(*words: bytes) -> bytes:
    return resp.command(words)


def _again(count: int, *words: bytes) -> Make:
    return lambda scene: _one(*words) * scene.scaled(count)


def _line(line: bytes) -> Make:
    return lambda scene: (line + b"\r\n") * (scene.scaled(_PIPELINED) // (len(line) + 2))


def _words(count: int, *words: bytes, then: bytes) -> Make:
    return lambda scene: _one(*words, *[then] * scene.scaled(count))


def _long(*words: bytes) -> Make:
    return lambda scene: _one(*words, b"x" * scene.scaled(SIZE))


def _each(word: bytes, ids: Callable[[Scene], Sequence[bytes]]) -> Make:
    return lambda scene: b"".join(_one(word, text) for text in ids(scene)[: scene.scaled(2000)])


def _all(word: bytes, ids: Callable[[Scene], Sequence[bytes]], *options: bytes) -> Make:
    return lambda scene: _one(word, *ids(scene), *options)


def _names(scene: Scene, count: int) -> list[bytes]:
    return [b"n%d" % number for number in range(scene.scaled(count))]


def _jobs(scene: Scene) -> Sequence[bytes]:
    return scene.jobs


def _delayed(scene: Scene) -> Sequence[bytes]:
    return scene.delayed


def _missing(scene: Scene) -> Sequence[bytes]:
    return scene.missing


def _gone(scene: Scene) -> Sequence[bytes]:
    return scene.gone


def _counted(scene: Scene) -> bytes:
    words = [word for text in scene.jobs for word in (text, b"1", b"1")]
    return _one(b"QBUS.RELEASE", *words)


def _kinds_of_ids(word: bytes, *options: bytes) -> list[tuple[str, Make]]:
    return [
        ("jobs that wait", _all(word, _jobs, *options)),
        ("delayed jobs", _all(word, _delayed, *options)),
        ("jobs that are not there", _all(word, _missing, *options)),
        ("delayed jobs that are not there", _all(word, _gone, *options)),
    ]


_TO_LIST: Final = b"%d" % MOST_JOBS

TABLE: Final[dict[str, list[tuple[str, Make]]]] = {
    "debug": [
        ("flushes all", _again(1, b"DEBUG", b"FLUSHALL")),
        ("a long error", _long(b"DEBUG", b"ERROR")),
    ],
    "addjob": [
        ("a pipeline", _again(21_000, b"ADDJOB", QUEUE, b"x", b"0")),
        (
            "a pipeline of delayed ones",
            _again(15_000, b"ADDJOB", QUEUE, b"x", b"0", b"DELAY", b"9"),
        ),
        ("many options", _words(90_000, b"ADDJOB", QUEUE, b"x", b"0", then=b"ASYNC")),
        ("a large body", lambda scene: _one(b"ADDJOB", QUEUE, b"x" * scene.scaled(SIZE), b"0")),
    ],
    "getjob": [
        ("many jobs", _again(1, b"GETJOB", b"NOHANG", b"COUNT", _TO_LIST, b"FROM", QUEUE)),
        (
            "many jobs of two queues",
            _again(1, b"GETJOB", b"NOHANG", b"COUNT", _TO_LIST, b"FROM", QUEUE, b"other"),
        ),
        (
            "many queues",
            lambda scene: _one(
                b"GETJOB", b"TIMEOUT", b"1", b"COUNT", _TO_LIST, b"FROM", *_names(scene, 1000)
            ),
        ),
        ("many options", _words(90_000, b"GETJOB", then=b"NOHANG")),
        ("a pipeline", _line(b"GETJOB NOHANG FROM empty")),
    ],
    "ackjob": _kinds_of_ids(b"ACKJOB")
    + [("with a result", _all(b"ACKJOB", _jobs, b"RESULT", b""))],
    "fastack": _kinds_of_ids(b"FASTACK"),
    "deljob": _kinds_of_ids(b"DELJOB"),
    "show": [("jobs, one by one", _each(b"SHOW", _jobs))],
    "qlen": [("a pipeline", _line(b"QLEN q"))],
    "qpeek": [
        ("many jobs", _again(1, b"QPEEK", QUEUE, _TO_LIST)),
        ("the newest jobs", _again(1, b"QPEEK", QUEUE, b"-" + _TO_LIST)),
    ],
    "qstat": [("a pipeline", _line(b"QSTAT q"))],
    "qscan": [
        ("all queues", _again(20, b"QSCAN", b"BUSYLOOP")),
        ("many options", _words(90_000, b"QSCAN", then=b"BUSYLOOP")),
        ("a long cursor", lambda scene: _one(b"QSCAN", b"0" * scene.scaled(SIZE))),
    ],
    "jscan": [
        ("all jobs", _again(1, b"JSCAN", b"BUSYLOOP", b"REPLY", b"ALL")),
        ("all ids", _again(1, b"JSCAN", b"BUSYLOOP")),
        ("many states", _words(90_000, b"JSCAN", b"STATE", then=b"STATE")),
        ("a long cursor", lambda scene: _one(b"JSCAN", b"0" * scene.scaled(SIZE))),
    ],
    "enqueue": _kinds_of_ids(b"ENQUEUE"),
    "nack": _kinds_of_ids(b"NACK") + [("delayed", _all(b"NACK", _jobs, b"DELAY", b"1"))],
    "dequeue": _kinds_of_ids(b"DEQUEUE"),
    "working": [("jobs, one by one", _each(b"WORKING", _jobs))],
    "pause": [("many options", _words(90_000, b"PAUSE", QUEUE, then=b"none"))],
    "waitjob": [
        (
            "jobs, one by one",
            lambda scene: b"".join(
                _one(b"WAITJOB", text, b"1") for text in scene.missing[: scene.scaled(1000)]
            ),
        )
    ],
    "qbus.release": [("many jobs", _counted), ("of before", _all(b"QBUS.RELEASE", _jobs))],
    "auth": [("a long password", _long(b"AUTH", b"user")), ("a pipeline", _line(b"AUTH x"))],
    "ping": [("a pipeline", _line(b"PING")), ("a long text", _long(b"PING"))],
    "info": [("a pipeline", _line(b"INFO"))],
    "shutdown": [("a long option", _long(b"SHUTDOWN"))],
    "config": [
        ("a long pattern", _long(b"CONFIG", b"GET")),
        ("patterns", _again(5_000, b"CONFIG", b"GET", b"*a" * 64)),
        ("a long value", _long(b"CONFIG", b"SET", b"timeout")),
    ],
    "cluster": [
        ("a pipeline", _line(b"CLUSTER NODES")),
        (
            "a long address",
            lambda s: _one(b"CLUSTER", b"MEET", b"x" * s.scaled(SIZE), b"1"),
        ),
    ],
    "client": [
        ("a long name", _long(b"CLIENT", b"SETNAME")),
        ("a pipeline", _line(b"CLIENT LIST")),
        ("many filters", _words(45_000, b"CLIENT", b"KILL", b"ID", b"1", b"ID", then=b"ID")),
    ],
    "slowlog": [("a long count", lambda s: _one(b"SLOWLOG", b"GET", b"1" * s.scaled(SIZE)))],
    "time": [("a pipeline", _line(b"TIME"))],
    "command": [
        ("a pipeline", _line(b"COMMAND")),
        ("many names", _words(70_000, b"COMMAND", b"INFO", then=b"addjob")),
        ("names that there are not", _words(120_000, b"COMMAND", b"INFO", then=b"x")),
    ],
    "latency": [("many words", _words(120_000, b"LATENCY", b"RESET", then=b"x"))],
    "hello": [
        ("a pipeline", _line(b"HELLO")),
        ("a long name", _long(b"HELLO", b"2", b"SETNAME")),
        ("many names", _words(70_000, b"HELLO", b"2", then=b"SETNAME")),
    ],
    "qbus.leaves": [("a long name", lambda s: _one(b"QBUS.LEAVES", b"x" * s.scaled(SIZE), b"no"))],
    "loadjob": [("a long job", _long(b"LOADJOB"))],
    "bgrewriteaof": [("a pipeline", _line(b"BGREWRITEAOF"))],
}
