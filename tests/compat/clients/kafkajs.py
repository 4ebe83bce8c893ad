"""kafkajs: the protocol in JavaScript, driven by the scripts in ``tests/compat/kafkajs``."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.compat.members import Member
from tests.compat.members.script import HEARTBEAT_MS, SESSION_TIMEOUT_MS
from tests.compat.records import BINARY, NOTHING, NULL_HEADER
from tests.support.npm import packages

from .base import GroupDescription
from .names import upper_snake
from .scripted import Scripted

_SCRIPTS = Path(__file__).parents[1] / "kafkajs"


class Kafkajs(Scripted):
    """The driver of kafkajs."""

    name = "kafkajs"
    sendable = BINARY
    readable = (*BINARY, NULL_HEADER, NOTHING)
    tells_no_offset = False

    @classmethod
    def command(cls, bootstrap: str) -> list[str]:
        return ["node", str(_SCRIPTS / "driver.js"), bootstrap]

    @classmethod
    def environment(cls) -> dict[str, str]:
        return {**os.environ, "NODE_PATH": str(packages(_SCRIPTS)), "NODE_NO_WARNINGS": "1"}

    @staticmethod
    def missing() -> str | None:
        """Return why it cannot run here. Fetches its packages at first use."""
        for program in ("node", "npm"):
            if not shutil.which(program):
                return f"{program} is not installed"
        return None if packages(_SCRIPTS) else "npm cannot fetch kafkajs"

    def member(self, topic: str, group: str) -> Member:
        session = [str(SESSION_TIMEOUT_MS), str(HEARTBEAT_MS)]
        script = str(_SCRIPTS / "member.js")
        return Member(
            ["node", script, self._bootstrap, topic, group, *session], env=self.environment()
        )

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

    def commit(self, topic: str, partition: int, group: str, offset: int) -> None:
        self._ask("commitOffset", topic=topic, partition=partition, group=group, offset=offset)

    def delete_group(self, group: str) -> None:
        self._ask("deleteGroup", group=group)

    def brokers(self) -> list[str]:
        return list(self._ask("brokers"))
