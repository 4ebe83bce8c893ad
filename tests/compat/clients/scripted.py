"""Clients of other languages: a program that carries out one operation after the other.

It is told each as a line {"operation", "arguments"}, and answers with a line {"result"} or {"code",
"message"}.
"""

import base64
import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from tests.compat.records import Record, Stored

from .base import ClientError, Driver
from .security import Security


class Scripted(Driver):
    """The operations that such programs have in common."""

    def __init__(self, bootstrap: str, security: Security | None = None) -> None:
        super().__init__(bootstrap, security)
        self._program = subprocess.Popen(
            self.command(bootstrap),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._secured(self.environment()),
            text=True,
        )

    @classmethod
    def command(cls, bootstrap: str) -> list[str]:
        """Return the command line of the program."""
        raise NotImplementedError

    @classmethod
    def environment(cls) -> dict[str, str] | None:
        """Return its environment, if that is not ours."""
        return None

    def _secured(self, environment: dict[str, str] | None) -> dict[str, str] | None:
        """The environment, with how the program is to prove who it is."""
        if self._security is None:
            return environment
        return {**self._security.environment(self.security_settings()), **(environment or {})}

    def security_settings(self) -> Mapping[str, object] | None:
        """What the program is told of that; None: all of it, in plain words."""
        return None

    def close(self) -> None:
        """End the program."""
        with self._program:
            self._program.terminate()

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        partition: int = 0,
        compression: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int] | None:
        base = self._ask(
            "produce",
            topic=topic,
            records=[_to_json(record) for record in records],
            partition=partition,
            compression=compression,
            acks=acks,
            idempotent=idempotent,
        )
        return None if base is None else list(range(base, base + len(records)))

    def consume(self, topic: str, partition: int, offset: int, count: int) -> list[Stored]:
        found = self._ask("consume", topic=topic, partition=partition, offset=offset, count=count)
        return [_from_json(one) for one in found]

    def consume_group(self, topic: str, group: str, count: int) -> list[Stored]:
        found = self._ask("consumeGroup", topic=topic, group=group, count=count)
        return [_from_json(one) for one in found]

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int:
        return int(
            self._ask("offsetForTime", topic=topic, partition=partition, timestamp=timestamp)
        )

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        low, high = self._ask("bounds", topic=topic, partition=partition)
        return low, high

    def committed(self, topic: str, partition: int, group: str) -> int:
        return int(self._ask("committed", topic=topic, partition=partition, group=group))

    def _ask(self, operation: str, **arguments: object) -> Any:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        question = {"operation": operation, "arguments": arguments}
        print(json.dumps(question), file=self._program.stdin, flush=True)
        answer = json.loads(self._program.stdout.readline())
        if "result" in answer:
            return answer["result"]
        assert answer["code"] is not None, answer["message"]
        raise ClientError(answer["code"], answer["message"])


def _to_json(record: Record) -> dict[str, object]:
    return {
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [(name, _text(value)) for name, value in record.headers],
        "timestamp": record.timestamp,
    }


def _from_json(found: Mapping[str, Any]) -> Stored:
    headers = tuple((name, _bytes(value)) for name, value in found["headers"] or ())
    record = Record(_bytes(found["key"]), _bytes(found["value"]), headers, found["timestamp"])
    return Stored(found["partition"], found["offset"], record)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
