"""What clients of jobs may do: as the same requests of Kafka's protocol, and nothing leaks."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from qbus.broker.authorization import AccessControl, AclAuthorizer
from qbus.broker.disque.authorization import PARTS, RULES, Guard, Scope, rule_of
from qbus.broker.disque.connection import Client
from qbus.broker.net.peer import Principal
from qbus.security.acls import (
    AclIndex,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from tests.support.resp_client import ReplyError

from .jobs import Jobs

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
NO_KEY = "NOPERM No permissions to access a key"
NO_COMMAND = "NOPERM User {} has no permissions to run the '{}' command"


class Guarded(Jobs):
    """A node where nobody may do anything but what :meth:`allow` says, and ``admin``."""

    async def start(self) -> None:
        await super().start()
        self.rules = AclIndex(["User:admin"])
        self.access = AccessControl(AclAuthorizer(self.rules))
        self.service.guard = Guard(self.access)
        self.entries: dict[Pattern, list[Entry]] = {}
        self.admin_client = self.as_user("admin")
        self.client = self.as_user("alice")

    def as_user(self, name: str, host: str = "127.0.0.1") -> Client:
        """A client that has authenticated."""
        client = self.new_client()
        client.principal = Principal("User", name)
        client.host = host
        client.is_authenticated = True
        return client

    def allow(
        self,
        kind: ResourceType,
        name: str,
        operation: Operation,
        *,
        user: str = "alice",
        host: str = "*",
        permission: Permission = Permission.ALLOW,
        pattern: PatternType = PatternType.LITERAL,
    ) -> None:
        """Add a rule."""
        entries = self.entries.setdefault(Pattern(kind, name, pattern), [])
        entries.append(Entry(f"User:{user}", host, operation, permission))
        self.rules.put(Pattern(kind, name, pattern), entries)

    def take_away(self) -> None:
        """Remove every rule."""
        self.entries.clear()
        self.rules.clear()

    async def by_admin(self, line: str) -> Any:
        """The reply to the administrator."""
        return await self.ask(line, self.admin_client)


@pytest.fixture
async def jobs(tmp_path: Path) -> AsyncIterator[Guarded]:
    made = Guarded(tmp_path)
    await made.start()
    yield made
    await made.stop()


def is_denied(reply: object) -> bool:
    return isinstance(reply, ReplyError) and str(reply).startswith("NOPERM ")


class TestTheTable:
    def test_every_command_has_a_rule(self, jobs: Guarded) -> None:
        assert set(jobs.dispatcher.table) == set(RULES)
        assert {name for name, _ in PARTS} <= set(RULES)

    def test_a_command_without_one_is_for_brokers_alone(self) -> None:
        rule = rule_of("surprise", [b"surprise"])
        assert (rule.scope, rule.operations) == (Scope.CLUSTER, (Operation.CLUSTER_ACTION,))

    @pytest.mark.parametrize("name", sorted(RULES))
    async def test_nothing_guarded_is_allowed_without_a_rule(
        self, jobs: Guarded, name: str
    ) -> None:
        job = await jobs.by_admin("ADDJOB q body 0")
        lines = {
            "addjob": "ADDJOB q body 0",
            "getjob": "GETJOB NOHANG FROM q",
            "qlen": "QLEN q",
            "qpeek": "QPEEK q 1",
            "qstat": "QSTAT q",
            "pause": "PAUSE q in",
            "info": "INFO",
            "cluster": "CLUSTER NODES",
            "config": "CONFIG GET *",
            "debug": "DEBUG FLUSHALL",
            "shutdown": "SHUTDOWN",
            "bgrewriteaof": "BGREWRITEAOF",
            "qbus.leaves": f"QBUS.LEAVES {'0' * 40} yes",
            "qbus.release": f"QBUS.RELEASE {job} 0 0",
        }
        scope = RULES[name].scope
        if scope is Scope.NOTHING:
            assert name not in lines
        elif scope is Scope.LISTED:
            assert await jobs.ask(f"{name.upper()} 0") == ["0", []]
        elif scope is Scope.IDS:
            reply = await jobs.ask(f"{name.upper()} {job}")
            if RULES[name].takes_jobs:
                assert is_denied(reply), "of the group"
            else:  # as of a job that is not there
                missing = await jobs.ask(f"{name.upper()} {job[:-5]}-05a0")
                assert reply == missing or str(reply).startswith("NOJOB"), reply
        else:
            assert is_denied(await jobs.ask(lines[name])), name
        assert (await jobs.by_admin("QLEN q")) == 1


class TestQueues:
    async def test_adding_needs_write(self, jobs: Guarded) -> None:
        await jobs.by_admin("ADDJOB q body 0")
        jobs.allow(TOPIC, "q", Operation.READ)
        refused = str(await jobs.ask("ADDJOB q body 0"))
        assert refused == f"{NO_KEY}: WRITE of topic 'q' is not allowed to User:alice"
        jobs.allow(TOPIC, "q", Operation.WRITE)
        assert str(await jobs.ask("ADDJOB q body 0")).startswith("D-")

    async def test_a_queue_is_created_by_whoever_may(self, jobs: Guarded) -> None:
        jobs.allow(TOPIC, "new", Operation.WRITE)
        assert "CREATE of topic 'new'" in str(await jobs.ask("ADDJOB new body 0"))
        assert jobs.controller.created == []
        jobs.allow(TOPIC, "new", Operation.CREATE)
        assert str(await jobs.ask("ADDJOB new body 0")).startswith("D-")

    async def test_or_by_whoever_may_create_any(self, jobs: Guarded) -> None:
        jobs.allow(TOPIC, "new", Operation.WRITE)
        jobs.allow(CLUSTER, "kafka-cluster", Operation.CREATE)
        assert str(await jobs.ask("ADDJOB new body 0")).startswith("D-")

    async def test_getting_needs_read_of_each_queue_and_of_the_group(self, jobs: Guarded) -> None:
        for queue in ("a", "b"):
            await jobs.by_admin(f"ADDJOB {queue} body 0")
        jobs.allow(TOPIC, "a", Operation.READ)
        assert "READ of group 'disque'" in str(await jobs.ask("GETJOB NOHANG FROM a"))
        jobs.allow(GROUP, "disque", Operation.READ)
        assert "READ of topic 'b'" in str(await jobs.ask("GETJOB NOHANG FROM a b"))
        assert await jobs.by_admin("QLEN a") == 1
        assert len(await jobs.ask("GETJOB NOHANG FROM a")) == 1

    async def test_a_refusal_does_not_tell_whether_the_queue_is_there(self, jobs: Guarded) -> None:
        await jobs.by_admin("ADDJOB secret body 0")
        for line in (
            "QLEN {}",
            "QSTAT {}",
            "QPEEK {} 1",
            "PAUSE {} state",
            "GETJOB NOHANG FROM {}",
            "ADDJOB {} body 0",
            "JSCAN 0 QUEUE {}",
        ):
            there, missing = [
                str(await jobs.ask(line.format(queue))).replace(queue, "QUEUE")
                for queue in ("secret", "nothing")
            ]
            assert there == missing
            assert there.startswith("NOPERM")

    async def test_lists_have_what_the_client_may_see(self, jobs: Guarded) -> None:
        for queue in ("mine", "my-other", "secret"):
            await jobs.by_admin(f"ADDJOB {queue} body 0")
        jobs.allow(TOPIC, "m", Operation.DESCRIBE, pattern=PatternType.PREFIXED)
        assert sorted((await jobs.ask("QSCAN"))[1]) == ["mine", "my-other"]
        assert len((await jobs.ask("JSCAN"))[1]) == 2
        assert (await jobs.ask("JSCAN REPLY all"))[1] == [], "their bodies need READ"
        jobs.allow(TOPIC, "mine", Operation.READ)
        ((*_, body),) = (await jobs.ask("JSCAN REPLY all"))[1]
        assert body == "body"

    async def test_bodies_need_read(self, jobs: Guarded) -> None:
        job = await jobs.by_admin("ADDJOB q body 0")
        jobs.allow(TOPIC, "q", Operation.DESCRIBE)
        assert await jobs.ask("QLEN q") == 1
        assert is_denied(await jobs.ask("QPEEK q 1"))
        assert is_denied(await jobs.ask(f"SHOW {job}"))
        jobs.allow(TOPIC, "q", Operation.READ)
        assert (await jobs.ask("QPEEK q 1"))[0][2] == "body"
        assert "body" in await jobs.ask(f"SHOW {job}")

    async def test_pausing_needs_alter_configs(self, jobs: Guarded) -> None:
        await jobs.by_admin("ADDJOB q body 0")
        jobs.allow(TOPIC, "q", Operation.DESCRIBE)
        assert await jobs.ask("PAUSE q state") == "none"
        assert is_denied(await jobs.ask("PAUSE q in"))
        assert is_denied(await jobs.ask("PAUSE q state in"))
        jobs.allow(TOPIC, "q", Operation.ALTER_CONFIGS)
        assert await jobs.ask("PAUSE q in") == "in"

    async def test_a_rule_that_denies_wins(self, jobs: Guarded) -> None:
        await jobs.by_admin("ADDJOB q body 0")
        jobs.allow(TOPIC, "*", Operation.ALL)
        assert await jobs.ask("QLEN q") == 1
        jobs.allow(TOPIC, "q", Operation.DESCRIBE, permission=Permission.DENY)
        assert is_denied(await jobs.ask("QLEN q"))

    async def test_rules_are_for_hosts(self, jobs: Guarded) -> None:
        await jobs.by_admin("ADDJOB q body 0")
        jobs.allow(TOPIC, "q", Operation.DESCRIBE, host="10.0.0.1")
        assert is_denied(await jobs.ask("QLEN q"))
        assert await jobs.ask("QLEN q", jobs.as_user("alice", "10.0.0.1")) == 1

    async def test_a_rule_is_for_the_topic_that_a_queue_is(self, jobs: Guarded) -> None:
        jobs.allow(TOPIC, "my queue", Operation.DESCRIBE)
        assert is_denied(await jobs.ask('QLEN "my queue"')), "its topic has another name"

    async def test_changes_count_at_once(self, jobs: Guarded) -> None:
        await jobs.by_admin("ADDJOB q body 0")
        jobs.allow(TOPIC, "q", Operation.DESCRIBE)
        assert await jobs.ask("QLEN q") == 1
        jobs.take_away()
        assert is_denied(await jobs.ask("QLEN q"))


class TestJobs:
    async def test_jobs_of_hidden_queues_are_not_there(self, jobs: Guarded) -> None:
        job = await jobs.by_admin("ADDJOB secret body 0")
        jobs.allow(GROUP, "disque", Operation.READ)
        gone = job.replace("D-", "D-", 1)[:-5] + "-0000"
        for command in ("ACKJOB", "FASTACK", "NACK", "ENQUEUE", "DEQUEUE", "DELJOB"):
            assert await jobs.ask(f"{command} {job}") == 0
        assert await jobs.ask(f"SHOW {job}") is None
        for command in ("WORKING", "WAITJOB"):
            assert str(await jobs.ask(f"{command} {job}")).startswith("NOJOB")
        assert gone
        assert await jobs.by_admin("QLEN secret") == 1

    async def test_jobs_that_may_be_known_are_refused(self, jobs: Guarded) -> None:
        job = await jobs.by_admin("ADDJOB q body 0")
        jobs.allow(GROUP, "disque", Operation.READ)
        jobs.allow(TOPIC, "q", Operation.DESCRIBE)
        for command in ("ACKJOB", "NACK", "WORKING"):
            assert "READ of topic 'q'" in str(await jobs.ask(f"{command} {job}"))
        assert "DELETE of topic 'q'" in str(await jobs.ask(f"DELJOB {job}"))
        jobs.allow(TOPIC, "q", Operation.READ)
        assert await jobs.ask(f"ACKJOB {job}") == 1

    async def test_one_refusal_is_one_for_all_ids_of_a_command(self, jobs: Guarded) -> None:
        mine = await jobs.by_admin("ADDJOB mine body 0")
        other = await jobs.by_admin("ADDJOB other body 0")
        jobs.allow(GROUP, "disque", Operation.READ)
        jobs.allow(TOPIC, "mine", Operation.READ)
        jobs.allow(TOPIC, "other", Operation.DESCRIBE)
        assert is_denied(await jobs.ask(f"ACKJOB {mine} {other}"))
        assert await jobs.by_admin("QLEN mine") == 1

    async def test_whoever_adds_a_job_may_wait_for_its_result(self, jobs: Guarded) -> None:
        job = await jobs.by_admin("ADDJOB q body 0")
        jobs.allow(TOPIC, "q", Operation.WRITE)
        waiting = jobs.begin(f"WAITJOB {job} 5000")
        await jobs.settled()
        assert await jobs.by_admin(f"ACKJOB {job} RESULT done") == 1
        assert b"done" in await asyncio.wait_for(waiting, 5)

    async def test_no_result_is_told_after_the_right_to_it_is_gone(self, jobs: Guarded) -> None:
        job = await jobs.by_admin("ADDJOB q body 0")
        jobs.allow(TOPIC, "q", Operation.WRITE)
        waiting = jobs.begin(f"WAITJOB {job} 5000")
        await jobs.settled()
        jobs.take_away()
        assert await jobs.by_admin(f"ACKJOB {job} RESULT done") == 1
        assert (await asyncio.wait_for(waiting, 5)).startswith(b"-NOJOB")

    async def test_who_waits_gets_nothing_after_his_rights_are_gone(self, jobs: Guarded) -> None:
        await jobs.by_admin("ADDJOB q first 0")
        await jobs.by_admin("GETJOB FROM q")
        jobs.allow(GROUP, "disque", Operation.READ)
        jobs.allow(TOPIC, "q", Operation.READ)
        waiting = jobs.begin("GETJOB FROM q")
        await jobs.settled()
        jobs.take_away()
        await jobs.by_admin("ADDJOB q second 0")
        assert (await asyncio.wait_for(waiting, 5)).startswith(b"-NOPERM")
        await jobs.settled()
        jobs.allow(GROUP, "disque", Operation.READ, user="bob")
        jobs.allow(TOPIC, "q", Operation.READ, user="bob")
        ((_, _, body),) = await jobs.ask("GETJOB NOHANG FROM q", jobs.as_user("bob"))
        assert body == "second", "it is there for others"

    async def test_whoever_left_is_denied_nothing(self, jobs: Guarded) -> None:
        await jobs.by_admin("ADDJOB q body 0")
        assert len(await jobs.by_admin("GETJOB NOHANG FROM q")) == 1
        jobs.allow(GROUP, "disque", Operation.READ)
        jobs.allow(TOPIC, "q", Operation.READ)
        waiting = jobs.begin("GETJOB FROM q")
        queue = jobs.service.need_queue(b"q")
        assert queue.blocked == 1
        jobs.take_away()
        before = jobs.access.denied
        waiting.cancel()
        assert queue.blocked == 0
        assert jobs.access.denied == before


class TestTheCluster:
    @pytest.mark.parametrize(
        ("line", "operation"),
        [
            ("CLUSTER NODES", Operation.DESCRIBE),
            ("CLUSTER LEAVING", Operation.DESCRIBE),
            ("CLUSTER LEAVING no", Operation.ALTER),
            ("INFO", Operation.DESCRIBE),
            ("CONFIG GET *", Operation.DESCRIBE_CONFIGS),
            ("CONFIG RESETSTAT", Operation.ALTER_CONFIGS),
            ("CLIENT LIST", Operation.DESCRIBE),
            ("CLIENT PAUSE 0", Operation.ALTER),
            ("CLIENT KILL ID 99", Operation.ALTER),
            ("DEBUG ERROR x", Operation.ALTER),
        ],
    )
    async def test_needs(self, jobs: Guarded, line: str, operation: Operation) -> None:
        name = line.split(maxsplit=1)[0].lower()
        assert str(await jobs.ask(line)) == NO_COMMAND.format("alice", name)
        jobs.allow(CLUSTER, "kafka-cluster", operation)
        assert not is_denied(await jobs.ask(line))

    @pytest.mark.parametrize(
        "line",
        [
            "PING",
            "TIME",
            "COMMAND COUNT",
            "CLIENT GETNAME",
            "CLIENT SETNAME me",
            "HELLO",
            "HELLO 3",
            "SLOWLOG LEN",
        ],
    )
    async def test_is_free(self, jobs: Guarded, line: str) -> None:
        assert not isinstance(await jobs.ask(line), ReplyError)

    async def test_other_nodes_need_cluster_action(self, jobs: Guarded) -> None:
        await jobs.by_admin("ADDJOB q body 0")
        jobs.allow(TOPIC, "*", Operation.ALL)
        jobs.allow(GROUP, "*", Operation.ALL)
        for line in ("QBUS.LOCAL GETJOB NOHANG FROM q", "QBUS.LOCAL PING"):
            assert str(await jobs.ask(line)) == NO_COMMAND.format("alice", "qbus.local")
        jobs.allow(CLUSTER, "kafka-cluster", Operation.CLUSTER_ACTION, user="node")
        assert len(await jobs.ask("QBUS.LOCAL GETJOB NOHANG FROM q", jobs.as_user("node"))) == 1

    async def test_denials_are_counted(self, jobs: Guarded) -> None:
        before = jobs.access.denied
        await jobs.ask("QLEN q")
        await jobs.ask("INFO")
        assert jobs.access.denied == before + 2


async def test_what_is_denied_is_in_the_audit_log(tmp_path: Path) -> None:
    from qbus.broker.audit import AuditFile, AuditLog

    made = Guarded(tmp_path / "data")
    await made.start()
    path = tmp_path / "audit.log"
    audit = AuditLog(AuditFile(path, _limits()), name="the audit log")
    audit.start()
    made.service.guard = Guard(AccessControl(AclAuthorizer(made.rules), audit))
    await made.ask("QLEN q")
    await made.ask("PAUSE q in", made.admin_client)
    for body in ("one", "two"):
        await made.ask(f"ADDJOB new {body} 0", made.admin_client)
    await asyncio.to_thread(audit.close)
    await made.stop()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    said = [
        (one["principal"], one["request"], one.get("allowed", one.get("target"))) for one in lines
    ]
    assert said == [
        ("User:alice", "RESP QLEN", False),
        ("User:admin", "RESP PAUSE", True),
        ("User:admin", "RESP ADDJOB", "new"),
    ]


def _limits() -> Any:
    from qbus.broker.audit import AuditLimits

    return AuditLimits()
