"""Clients of other languages: a program keeps producers by name, and does what it is told.

It is told each operation as a line {"operation", "arguments"}, and answers with a line {"result"}
or {"code", "message"}.
"""

import itertools
import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from qbus.errors import ErrorCode

from .base import Place, Read, Refused

_FENCED = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
_numbers = itertools.count()


class Program:
    """A running program, asked one thing after the other."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )

    def ask(self, operation: str, **arguments: object) -> Any:
        """Return the result of an operation. Raises Refused."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = {"operation": operation, "arguments": arguments}
        print(json.dumps(question), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, f"the program ended at {operation}"
        answer = json.loads(line)
        if "result" in answer:
            return answer["result"]
        message = f"{answer['code']} {answer['message']}"
        raise Refused(message, is_fenced=answer["code"] in _FENCED)

    def close(self) -> None:
        """End the program."""
        with self._process:
            self._process.terminate()


class ScriptedProducer:
    """A producer that a program holds."""

    def __init__(self, program: Program, transactional_id: str, timeout_ms: int) -> None:
        self._program = program
        self._name = f"producer-{next(_numbers)}"
        self._ask("open", transactionalId=transactional_id, timeoutMs=timeout_ms)

    def begin(self) -> None:
        self._ask("begin")

    def send(self, topic: str, values: Sequence[str], partition: int = 0) -> None:
        self._ask("send", topic=topic, partition=partition, values=list(values))

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        places = [[topic, partition, offset] for (topic, partition), offset in offsets.items()]
        self._ask("sendOffsets", group=group, offsets=places)

    def commit(self) -> None:
        self._ask("commit")

    def abort(self) -> None:
        self._ask("abort")

    def close(self) -> None:
        self._ask("close")

    def _ask(self, operation: str, **arguments: object) -> None:
        self._program.ask(operation, producer=self._name, **arguments)


class ScriptedTransactions:
    """A client whose program is started once and keeps its producers."""

    name: ClassVar[str]
    has_offsets: ClassVar[bool] = True

    def __init__(self, bootstrap: str) -> None:
        self._program = Program(self.command(bootstrap), self.environment())

    @classmethod
    def command(cls, bootstrap: str) -> list[str]:
        """Return the command line of the program."""
        raise NotImplementedError

    @classmethod
    def environment(cls) -> Mapping[str, str] | None:
        """Return its environment, if that is not ours."""
        return None

    def close(self) -> None:
        self._program.close()

    def producer(self, transactional_id: str, timeout_ms: int = 60_000) -> ScriptedProducer:
        return ScriptedProducer(self._program, transactional_id, timeout_ms)

    def read(
        self, topic: str, count: int, *, partition: int = 0, committed: bool = True
    ) -> list[Read]:
        found = self._program.ask(
            "read", topic=topic, partition=partition, count=count, committed=committed
        )
        return [Read(*one) for one in found]

    def copy(self, source: str, target: str, group: str, count: int) -> None:
        self._program.ask("copy", source=source, target=target, group=group, count=count)
