"""kafkajs: the protocol in JavaScript, driven by the scripts in ``tests/compat/kafkajs``."""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.compat.members import Member
from tests.compat.members.script import HEARTBEAT_MS, SESSION_TIMEOUT_MS
from tests.compat.records import BINARY, NOTHING, NULL_HEADER, Record, Stored

from .base import ClientError, Driver, GroupDescription
from .names import upper_snake

_SCRIPTS = Path(__file__).parents[1] / "kafkajs"


class Kafkajs(Driver):
    """The driver of kafkajs: one node process that carries out one operation after the other."""

    name = "kafkajs"
    sendable = BINARY
    readable = (*BINARY, NULL_HEADER, NOTHING)
    tells_no_offset = False

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._node = subprocess.Popen(
            ["node", str(_SCRIPTS / "driver.js"), bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
            text=True,
        )

    @staticmethod
    def missing() -> str | None:
        """Return why it cannot run here. Fetches its packages at first use."""
        for program in ("node", "npm"):
            if not shutil.which(program):
                return f"{program} is not installed"
        return None if _packages() else "npm cannot fetch kafkajs"

    def close(self) -> None:
        """End the node process."""
        with self._node:
            self._node.terminate()

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

    def member(self, topic: str, group: str) -> Member:
        session = [str(SESSION_TIMEOUT_MS), str(HEARTBEAT_MS)]
        script = str(_SCRIPTS / "member.js")
        return Member(["node", script, self._bootstrap, topic, group, *session], env=_environment())

    def create_topic(
        self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        self._ask("createTopic", topic=topic, partitions=partitions, config=config or {})

    def topics(self) -> set[str]:
        return set(self._ask("topics"))

    def partitions(self, topic: str) -> list[int]:
        return list(self._ask("partitions", topic=topic))

    def delete_topic(self, topic: str) -> None:
        self._ask("deleteTopic", topic=topic)

    def grow(self, topic: str, partitions: int) -> None:
        self._ask("grow", topic=topic, partitions=partitions)

    def config(self, topic: str) -> dict[str, str | None]:
        return dict(self._ask("config", topic=topic))

    def replace_config(self, topic: str, config: Mapping[str, str]) -> None:
        self._ask("replaceConfig", topic=topic, config=config)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        return int(self._ask("deleteRecords", topic=topic, partition=partition, before=before))

    def groups(self) -> set[str]:
        return set(self._ask("groups"))

    def describe_group(self, group: str) -> GroupDescription:
        return GroupDescription(upper_snake(self._ask("groupState", group=group)))

    def committed(self, topic: str, partition: int, group: str) -> int:
        return int(self._ask("committed", topic=topic, partition=partition, group=group))

    def commit(self, topic: str, partition: int, group: str, offset: int) -> None:
        self._ask("commit", topic=topic, partition=partition, group=group, offset=offset)

    def delete_group(self, group: str) -> None:
        self._ask("deleteGroup", group=group)

    def brokers(self) -> list[str]:
        return list(self._ask("brokers"))

    def _ask(self, operation: str, **arguments: object) -> Any:
        assert self._node.stdin is not None
        assert self._node.stdout is not None
        question = {"operation": operation, "arguments": arguments}
        print(json.dumps(question), file=self._node.stdin, flush=True)
        answer = json.loads(self._node.stdout.readline())
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
    headers = tuple((name, _bytes(value)) for name, value in found["headers"])
    record = Record(_bytes(found["key"]), _bytes(found["value"]), headers, found["timestamp"])
    return Stored(found["partition"], found["offset"], record)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _environment() -> dict[str, str]:
    return {**os.environ, "NODE_PATH": str(_packages()), "NODE_NO_WARNINGS": "1"}


@cache
def _packages() -> Path | None:
    """Return the directory of the installed packages; they stay in the user's cache directory."""
    wanted = (_SCRIPTS / "package.json").read_bytes()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    target = Path(base) / "qbus" / f"kafkajs-{hashlib.sha256(wanted).hexdigest()[:16]}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as work:
            Path(work, "package.json").write_bytes(wanted)
            npm = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"]
            try:
                subprocess.run(npm, cwd=work, capture_output=True, check=True, timeout=150)
            except subprocess.SubprocessError:
                return None
            # Whole or not at all; of two processes that install at once the first one's stays.
            if not target.is_dir():
                Path(work, "node_modules").rename(target)
    return target
