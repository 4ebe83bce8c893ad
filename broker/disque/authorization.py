"""What a client needs to be allowed to do for each command of Disque's protocol.

A queue is a topic, and jobs are taken by the share group ``disque``: so commands need what the same
requests of Kafka's protocol need. Where a queue is named, a refusal does not depend on whether the
queue is there; where jobs are named by their ids, those of topics that the client may not describe
are answered as jobs that are not there.

What another node asks (``QBUS.LOCAL``) was authorized where the client is connected: for that a
node needs CLUSTER_ACTION on the cluster.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from qbus.jobs import GROUP, topic_of

from ..authorization import CLUSTER, AccessControl, Caller, Operation, Resource, group, topic
from . import errors
from .calls import Call
from .connection import Client
from .errors import CommandError
from .options import parse_get, parse_jscan


class Scope(Enum):
    """What a command is about."""

    NOTHING = "nothing that is guarded"
    QUEUE = "the queue that its second word names"
    QUEUES = "the queues behind FROM"
    IDS = "jobs by their ids"
    LISTED = "all queues: those that may not be seen are left out"
    CLUSTER = "the cluster"


class Rule(NamedTuple):
    """What a command needs: any one of ``operations`` on what it is about.

    ``takes_jobs``: READ on the group of jobs besides.
    """

    scope: Scope
    operations: tuple[Operation, ...] = ()
    takes_jobs: bool = False


_READ, _WRITE, _DESCRIBE, _ALTER = (
    (Operation.READ,),
    (Operation.WRITE,),
    (Operation.DESCRIBE,),
    (Operation.ALTER,),
)
_FREE: Final = Rule(Scope.NOTHING)
_TAKEN: Final = Rule(Scope.IDS, _READ, takes_jobs=True)
_DESCRIBED: Final = Rule(Scope.IDS, _DESCRIBE)
_OF_CLUSTER: Final = Rule(Scope.CLUSTER, _DESCRIBE)
_CHANGES_CLUSTER: Final = Rule(Scope.CLUSTER, _ALTER)
_OF_NODES: Final = Rule(Scope.CLUSTER, (Operation.CLUSTER_ACTION,))

RULES: Final[dict[str, Rule]] = {
    "addjob": Rule(Scope.QUEUE, _WRITE),  # and CREATE, if the topic is not there
    "getjob": Rule(Scope.QUEUES, _READ, takes_jobs=True),
    "ackjob": _TAKEN,
    "fastack": _TAKEN,
    "nack": _TAKEN,
    "working": _TAKEN,
    "enqueue": _TAKEN,
    "dequeue": _TAKEN,
    "deljob": Rule(Scope.IDS, (Operation.DELETE,)),
    "show": Rule(Scope.IDS, _READ),  # its body is shown
    "waitjob": Rule(Scope.IDS, (Operation.READ, Operation.WRITE)),  # whoever added it waits
    "qlen": Rule(Scope.QUEUE, _DESCRIBE),
    "qstat": Rule(Scope.QUEUE, _DESCRIBE),
    "qpeek": Rule(Scope.QUEUE, _READ),  # bodies are shown
    "qscan": Rule(Scope.LISTED, _DESCRIBE),
    "jscan": Rule(Scope.LISTED, _DESCRIBE),
    "pause": Rule(Scope.QUEUE, (Operation.ALTER_CONFIGS,)),
    "auth": _FREE,
    "hello": _FREE,
    "ping": _FREE,
    "time": _FREE,
    "command": _FREE,
    "slowlog": _FREE,
    "latency": _FREE,
    "loadjob": _FREE,  # always refused
    "client": _FREE,
    "info": _OF_CLUSTER,
    "cluster": _OF_CLUSTER,
    "config": Rule(Scope.CLUSTER, (Operation.ALTER_CONFIGS,)),
    "debug": _CHANGES_CLUSTER,
    "shutdown": _CHANGES_CLUSTER,
    "bgrewriteaof": _CHANGES_CLUSTER,
    "qbus.leaves": _OF_NODES,
    "qbus.release": _OF_NODES,
}
"""What each command needs."""

PARTS: Final[dict[tuple[str, bytes], Rule]] = {
    ("client", b"list"): _OF_CLUSTER,
    ("client", b"kill"): _CHANGES_CLUSTER,
    ("client", b"pause"): _CHANGES_CLUSTER,
    ("cluster", b"meet"): _CHANGES_CLUSTER,
    ("cluster", b"forget"): _CHANGES_CLUSTER,
    ("cluster", b"reset"): _CHANGES_CLUSTER,
    ("cluster", b"saveconfig"): _CHANGES_CLUSTER,
    ("config", b"get"): Rule(Scope.CLUSTER, (Operation.DESCRIBE_CONFIGS,)),
}
"""What commands need that do several things, by their second word in lower case."""


def rule_of(name: str, arguments: Sequence[bytes]) -> Rule:
    """What a command needs; one that is in no table is for other brokers and super users.

    Raises CommandError: it has another form.
    """
    word = arguments[1].lower() if len(arguments) > 1 else b""
    if name == "pause" and all(one.lower() == b"state" for one in arguments[2:]):
        return Rule(Scope.QUEUE, _DESCRIBE)
    if name == "cluster" and word == b"leaving" and len(arguments) > 2:
        return _CHANGES_CLUSTER
    if name == "jscan" and parse_jscan(arguments).is_whole:
        return Rule(Scope.LISTED, _READ)  # bodies are shown
    return PARTS.get((name, word)) or RULES.get(name, _OF_NODES)


class Guard:
    """Refuses what a client may not do, and has it recorded."""

    def __init__(self, access: AccessControl) -> None:
        self._access = access

    def check(self, call: Call) -> None:
        """Refuse a command, as far as its words say what it is about. Raises CommandError."""
        name = call.arguments[0].decode("latin-1").lower()
        rule = _OF_NODES if call.is_local else rule_of(name, call.arguments)
        if rule.scope is Scope.CLUSTER:
            shown = "qbus.local" if call.is_local else name
            if self._denies(call, name, rule, CLUSTER):
                principal = call.client.principal.name
                raise CommandError(errors.NOT_THIS_COMMAND.format(principal, shown))
            return
        for queue in _named(rule, name, call.arguments):
            self._need(call, name, rule, topic(_topic_of(queue)))
        if rule.takes_jobs:
            self._need(call, name, rule, group(GROUP))

    def is_still_allowed(self, call: Call) -> bool:
        """Whether a client that has waited may still do what it asked for."""
        try:
            self.check(call)
        except CommandError:
            return False
        return True

    def may_find(self, call: Call, topic_name: str) -> bool:
        """Whether a job of a topic may be known to whoever names it by its id.

        Raises CommandError: the topic may be known, but not what the command does to its jobs.
        """
        name = call.arguments[0].decode("latin-1").lower()
        resource = topic(topic_name)
        if self._denies(call, name, _DESCRIBED, resource):
            return False
        self._need(call, name, rule_of(name, call.arguments), resource)
        return True

    def need_create(self, call: Call, topic_name: str) -> None:
        """Refuse whoever may not create a topic: on the cluster or by its name. CommandError."""
        if not self._access.allows_peer(call.client, Operation.CREATE, CLUSTER):
            rule = Rule(Scope.QUEUE, (Operation.CREATE,))
            self._need(call, "addjob", rule, topic(topic_name))

    def note_created(self, call: Call, topic_name: str) -> None:
        """Have the audit log tell that a command made a topic."""
        audit = self._access.audit
        if audit is not None:
            name = call.arguments[0].decode("latin-1").lower()
            audit.administration(
                _caller(call.client, name, administers=True), "create topic", topic_name
            )

    def seen_by(self, call: Call) -> Callable[[str], bool]:
        """What tells whether a client may see a topic in the list that a command makes."""
        client, access = call.client, self._access
        rule = rule_of(call.arguments[0].decode("latin-1").lower(), call.arguments)

        def may_see(topic_name: str) -> bool:
            resource = topic(topic_name)
            return any(access.allows_peer(client, one, resource) for one in rule.operations)

        return may_see

    def _need(self, call: Call, name: str, rule: Rule, resource: Resource) -> None:
        if self._denies(call, name, rule, resource):
            raise _denied(call.client, rule.operations, resource)

    def _denies(self, call: Call, name: str, rule: Rule, resource: Resource) -> bool:
        access, client = self._access, call.client
        used = rule.operations[0]
        allowed = False
        for operation in rule.operations:
            if access.allows_peer(client, operation, resource):
                used, allowed = operation, True
                break
        if not allowed or access.audit is not None:
            administers = name == "pause" or (rule.scope is Scope.CLUSTER and not call.is_local)
            access.note(
                _caller(client, name, administers=administers), used, resource, allowed=allowed
            )
        return not allowed


def _caller(client: Client, command: str, *, administers: bool) -> Caller:
    label = client.name.decode("utf-8", "replace")
    request = f"RESP {command.upper()}"
    return Caller(client.principal, client.host, label, request, administers)


def _named(rule: Rule, name: str, arguments: Sequence[bytes]) -> Sequence[bytes]:
    """The queues that a command names. Raises CommandError: it has another form."""
    if rule.scope is Scope.QUEUE:
        return arguments[1:2]
    if rule.scope is Scope.QUEUES:
        return parse_get(arguments).queues
    if name == "jscan":
        queue = parse_jscan(arguments).queue
        return () if queue is None else (queue,)
    return ()


def _topic_of(queue: bytes) -> str:
    try:
        return topic_of(queue)
    except ValueError as error:
        raise CommandError(f"ERR {error}") from None


def _denied(client: Client, operations: Sequence[Operation], resource: Resource) -> CommandError:
    wanted = " or ".join(one.name for one in operations)
    what = f"{wanted} of {resource.type.name.lower()} '{resource.name}'"
    return CommandError(errors.NOT_THIS_KEY.format(what, client.principal))
