"""The layout of the store: of each node its path, and its data in both directions.

Where Apache Kafka kept the same in ZooKeeper, paths and JSON are Kafka's (its ``ZkData``, as of
3.x), so that its operators' tools read them; the rest is in the same style. Fields that Kafka's
tools expect but nothing here needs are written and not read.

Every ``decode`` raises MalformedNode.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from qbus.metadata.errors import MalformedNode
from qbus.metadata.ids import decode_id, encode_id
from qbus.names import escape, sanitise

CLUSTER_ID = "/cluster/id"
BROKERS = "/brokers/ids"
BROKER_EPOCHS = "/brokers/epochs"
IDLE_QUEUES = "/brokers/idle"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"

TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
USER_CONFIGS = "/config/users"

CLUSTER_SECRET = "/cluster/secret"  # noqa: S105 - a path
"""Random bytes that only brokers know, in base64."""

SENSITIVE = (USER_CONFIGS, BROKER_CONFIGS, CLUSTER_SECRET)
"""Nodes that may have secrets in them or below, so that only brokers may read them."""


def is_sensitive(path: str) -> bool:
    """Whether a node is one of those, or below one."""
    return path.startswith(SENSITIVE) and any(
        path == root or path.startswith(f"{root}/") for root in SENSITIVE
    )


ALL_USERS = "<default>"
"""In place of a user's name: the quotas of all users."""

ALL_BROKERS = "<default>"
"""In place of a broker's id: the configuration of all brokers."""

NO_LEADER = -1
DELETED = -1
"""In place of the version of a topic's node, where a change tells that there is none any more."""

_STATES = 1024  # there are many partitions, but few different states

_dump = json.JSONEncoder(separators=(",", ":")).encode


class ClusterIdNode(NamedTuple):
    """The cluster's id, which never changes."""

    cluster_id: str

    def encode(self) -> bytes:
        """Kafka's JSON, version 1."""
        return _dump({"version": "1", "id": self.cluster_id}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode what :meth:`encode` wrote."""
        with _decoding("cluster id", data) as json_:
            return cls(str(json_["id"]))


class EndpointNode(NamedTuple):
    """Where a listener of a broker is reached, by its name and its security protocol."""

    name: str
    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class BrokerNode(NamedTuple):
    """The registration of a live broker: an ephemeral node of its session.

    ``directory`` identifies its data: a broker that has locked it is the same broker.
    ``is_stopping``: it is about to stop, and takes over nothing more. ``is_full``: one of its data
    directories has no room; it leads only where no other replica can. ``machine``: what it has in
    common with the other brokers of its supervisor, and with no others. ``disque``: where it serves
    jobs by Disque's protocol, as host and port; None: nowhere. ``disque_tls``: where it does that
    with TLS. ``listeners``: where its listeners are reached; none: there is one, PLAINTEXT, at host
    and port. ``offline``: replicas of it that cannot be used, because of a disk or a damaged log.
    """

    host: str
    port: int
    epoch: int
    rack: str | None = None
    timestamp_ms: int = 0
    directory: str = ""
    is_stopping: bool = False
    is_full: bool = False
    machine: str = ""
    disque: tuple[str, int] | None = None
    disque_tls: tuple[str, int] | None = None
    listeners: tuple[EndpointNode, ...] = ()
    offline: frozenset[tuple[str, int]] = frozenset()

    @staticmethod
    def listed(endpoints: Sequence[EndpointNode]) -> tuple[EndpointNode, ...]:
        """Return what ``listeners`` is for all endpoints of a broker."""
        alone = len(endpoints) == 1 and endpoints[0][:2] == ("PLAINTEXT", "PLAINTEXT")
        return () if alone else tuple(endpoints)

    @staticmethod
    def path(node_id: int) -> str:
        """The path of the registration of broker ``node_id``."""
        return f"{BROKERS}/{node_id}"

    @staticmethod
    def id_of(path: str) -> int:
        """The id of the broker that is registered at ``path``."""
        name = path.rpartition("/")[2]
        if not name.isdecimal():
            raise MalformedNode(f"no broker id: {path}")
        return int(name)

    def encode(self) -> bytes:
        """Kafka's JSON, version 5, with additional fields of Qbus."""
        plaintext = EndpointNode("PLAINTEXT", "PLAINTEXT", self.host, self.port)
        listeners = self.listeners or (plaintext,)
        # Clients that read only these do not encrypt (KIP-103).
        open_ = next((one for one in listeners if one.protocol == "PLAINTEXT"), None)
        registration: dict[str, Any] = {
            "version": 5,
            "host": open_.host if open_ else None,
            "port": open_.port if open_ else -1,
            "jmx_port": -1,
            "timestamp": str(self.timestamp_ms),
            "endpoints": [str(one) for one in listeners],
            "listener_security_protocol_map": {one.name: one.protocol for one in listeners},
            "features": {},
            "epoch": self.epoch,
        }
        if self.rack is not None:
            registration["rack"] = self.rack
        if self.directory:
            registration["directory"] = self.directory
        if self.is_stopping:
            registration["stopping"] = True
        if self.is_full:
            registration["full"] = True
        if self.machine:
            registration["machine"] = self.machine
        if self.disque is not None:
            registration["disque"] = {"host": self.disque[0], "port": self.disque[1]}
        if self.disque_tls is not None:
            host, port = self.disque_tls
            registration["disque_tls"] = {"host": host, "port": port}
        if self.offline:
            registration["offline"] = _by_topic(self.offline)
        return _dump(registration).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode what :meth:`encode` wrote."""
        with _decoding("broker", data) as json_:
            disque, disque_tls = json_.get("disque"), json_.get("disque_tls")
            listeners = _listeners(json_)
            first = listeners[0] if listeners else None
            return cls(
                host=str(json_["host"]) if first is None else first.host,
                port=int(json_["port"]) if first is None else first.port,
                listeners=listeners,
                epoch=int(json_["epoch"]),
                rack=json_.get("rack"),
                timestamp_ms=int(json_["timestamp"]),
                directory=str(json_.get("directory", "")),
                is_stopping=bool(json_.get("stopping", False)),
                is_full=bool(json_.get("full", False)),
                machine=str(json_.get("machine", "")),
                disque=(str(disque["host"]), int(disque["port"])) if disque else None,
                disque_tls=(
                    (str(disque_tls["host"]), int(disque_tls["port"])) if disque_tls else None
                ),
                offline=frozenset(
                    (str(topic), int(index))
                    for topic, indexes in json_.get("offline", {}).items()
                    for index in indexes
                ),
            )


def _by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        found.setdefault(topic, []).append(index)
    return found


def _listeners(registration: Mapping[str, Any]) -> tuple[EndpointNode, ...]:
    """Return the listeners of a registration; none where that is PLAINTEXT alone."""
    protocols = registration.get("listener_security_protocol_map", {})
    found = []
    for endpoint in registration.get("endpoints", ()):
        name, _, address = str(endpoint).partition("://")
        host, _, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        found.append(EndpointNode(name, str(protocols.get(name, name)), host, int(port)))
    return BrokerNode.listed(found)


class BrokerEpochNode(NamedTuple):
    """Bumped at each registration of a broker: the node's version is the broker's epoch."""

    timestamp_ms: int

    @staticmethod
    def path(node_id: int) -> str:
        """The path of the epoch of broker ``node_id``."""
        return f"{BROKER_EPOCHS}/{node_id}"

    def encode(self) -> bytes:
        """The time of the last registration, for people to read."""
        return _dump({"version": 1, "timestamp": str(self.timestamp_ms)}).encode()


class ControllerNode(NamedTuple):
    """The controller: an ephemeral node of its session.

    ``broker_epoch`` is that of its registration; it tells apart two runs of a broker.
    """

    broker: int
    timestamp_ms: int = 0
    broker_epoch: int = -1

    def encode(self) -> bytes:
        """Kafka's JSON, version 2, with the broker's epoch beside it."""
        controller: dict[str, Any] = {
            "version": 2,
            "brokerid": self.broker,
            "timestamp": str(self.timestamp_ms),
            "kraftControllerEpoch": -1,
        }
        if self.broker_epoch >= 0:
            controller["broker_epoch"] = self.broker_epoch
        return _dump(controller).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode what :meth:`encode` wrote."""
        with _decoding("controller", data) as json_:
            return cls(
                int(json_["brokerid"]),
                int(json_["timestamp"]),
                int(json_.get("broker_epoch", -1)),
            )


class ControllerEpochNode(NamedTuple):
    """The number of controllers so far. A controller checks the node's version with every write."""

    epoch: int

    def encode(self) -> bytes:
        """Kafka's plain number."""
        return str(self.epoch).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode what :meth:`encode` wrote."""
        with _decoding("controller epoch", data) as number:
            return cls(int(number))


class IdleVote(NamedTuple):
    """A leader's consent to the deletion of an idle queue, for one of its partitions.

    It is void as soon as the partition's leader epoch is another one.
    """

    topic_id: bytes
    partition: int
    leader_epoch: int


class IdleQueuesNode(NamedTuple):
    """The votes of one broker: an ephemeral node of its session, replaced as a whole.

    The broker appends nothing to a partition from before the node has its vote until after it has
    not. ``broker_epoch`` is that of its registration.
    """

    broker_epoch: int
    votes: tuple[IdleVote, ...] = ()

    @staticmethod
    def path(node_id: int) -> str:
        """The path of the votes of broker ``node_id``."""
        return f"{IDLE_QUEUES}/{node_id}"

    def encode(self) -> bytes:
        """JSON of Qbus; Kafka has no such node."""
        votes = [[encode_id(one.topic_id), *one[1:]] for one in self.votes]
        return _dump({"version": 1, "broker_epoch": self.broker_epoch, "idle": votes}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode what :meth:`encode` wrote."""
        with _decoding("idle queues", data) as json_:
            votes = (
                IdleVote(decode_id(topic_id), int(partition), int(leader_epoch))
                for topic_id, partition, leader_epoch in json_["idle"]
            )
            return cls(int(json_["broker_epoch"]), tuple(votes))


class TopicNode(NamedTuple):
    """A topic's id, and the replicas of each partition, the preferred leader first.

    During a reassignment (KIP-455), the replicas are the target ones followed by those in
    ``removing``; ``adding`` are the new ones among the target.

    ``has_identity``: the topic has a child node named by its id. A topic that is deleted and
    created again has nodes with the same paths and soon the same versions. A decision about the
    first must not be written to the second, so its transaction checks the child node as well.
    Topics of Kafka have no such node.
    """

    topic_id: bytes
    assignment: Mapping[int, tuple[int, ...]]
    adding: Mapping[int, tuple[int, ...]] = MappingProxyType({})
    removing: Mapping[int, tuple[int, ...]] = MappingProxyType({})
    has_identity: bool = False

    @staticmethod
    def path(topic: str) -> str:
        """The path of ``topic``."""
        return f"{TOPICS}/{topic}"

    @staticmethod
    def partitions_path(topic: str) -> str:
        """The path above all partitions of ``topic``, each by its number."""
        return f"{TOPICS}/{topic}/partitions"

    @staticmethod
    def identity_path(topic: str, topic_id: bytes) -> str:
        """The path of the node that exists while ``topic`` is the one with this id."""
        return f"{TOPICS}/{topic}/id-{encode_id(topic_id)}"

    def encode(self) -> bytes:
        """Kafka's JSON, version 3, with additional fields of Qbus where needed."""
        topic: dict[str, Any] = {
            "version": 3,
            "topic_id": encode_id(self.topic_id),
            "partitions": _by_text(self.assignment),
            "adding_replicas": _by_text(self.adding),
            "removing_replicas": _by_text(self.removing),
        }
        if self.has_identity:
            topic["identity"] = True
        return _dump(topic).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode what :meth:`encode` wrote; partitions are numbered from 0 without a gap."""
        with _decoding("topic", data) as json_:
            assignment = _by_index(json_["partitions"])
            if sorted(assignment) != list(range(len(assignment))):
                raise ValueError
            return cls(
                decode_id(json_["topic_id"]),
                assignment,
                _by_index(json_.get("adding_replicas", {})),
                _by_index(json_.get("removing_replicas", {})),
                bool(json_.get("identity", False)),
            )


def _by_text(replicas: Mapping[int, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {str(index): some for index, some in replicas.items()}


def _by_index(json_: dict[str, list[int]]) -> dict[int, tuple[int, ...]]:
    return {int(index): tuple(map(int, some)) for index, some in json_.items()}


class PartitionStateNode(NamedTuple):
    """The leader of a partition, its epoch, and the replicas with all acknowledged records.

    ``isr`` are in sync. ``elr`` (eligible leader replicas, KIP-966) no longer are, but nothing was
    acknowledged since they were. ``last_in_sync`` is the last replica in sync, once both are empty.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    elr: tuple[int, ...] = ()
    last_in_sync: int = NO_LEADER

    @staticmethod
    def path(topic: str, partition: int) -> str:
        """The path of a partition's state."""
        return f"{TOPICS}/{topic}/partitions/{partition}/state"

    @lru_cache(maxsize=_STATES)  # noqa: B019 - few small values, kept on purpose
    def encode(self) -> bytes:
        """Kafka's JSON, version 1, with additional fields of Qbus where needed."""
        state = {
            "controller_epoch": self.controller_epoch,
            "leader": self.leader,
            "version": 1,
            "leader_epoch": self.leader_epoch,
            "isr": self.isr,
        }
        if self.elr:
            state["elr"] = self.elr
        if self.last_in_sync != NO_LEADER:
            state["last_in_sync"] = self.last_in_sync
        return _dump(state).encode()

    @classmethod
    @lru_cache(maxsize=_STATES)
    def decode(cls, data: bytes) -> Self:
        """Decode what :meth:`encode` wrote."""
        with _decoding("partition state", data) as json_:
            return cls(
                leader=int(json_["leader"]),
                leader_epoch=int(json_["leader_epoch"]),
                isr=tuple(map(int, json_["isr"])),
                controller_epoch=int(json_["controller_epoch"]),
                elr=tuple(map(int, json_.get("elr", ()))),
                last_in_sync=int(json_.get("last_in_sync", NO_LEADER)),
            )


class ConfigNode(NamedTuple):
    """Dynamic configuration of a topic, of a broker, of all brokers, or of a share group."""

    config: Mapping[str, str]

    @staticmethod
    def topic_path(topic: str) -> str:
        """The path of the configuration of ``topic``."""
        return f"{TOPIC_CONFIGS}/{topic}"

    @staticmethod
    def broker_path(broker: str) -> str:
        """The path of the configuration of a broker id or of ALL_BROKERS."""
        return f"{BROKER_CONFIGS}/{broker}"

    @staticmethod
    def group_path(group: str) -> str:
        """The path of the configuration of a share group."""
        return f"{GROUP_CONFIGS}/{escape(group)}"

    @staticmethod
    def user_path(user: str) -> str:
        """The path of the credentials and quotas of a user or of ALL_USERS."""
        return f"{USER_CONFIGS}/{ALL_USERS if user == ALL_USERS else sanitise(user)}"

    def encode(self) -> bytes:
        """Kafka's JSON, version 1."""
        return _dump({"version": 1, "config": dict(self.config)}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode what :meth:`encode` wrote."""
        with _decoding("configuration", data) as json_:
            return cls({str(name): str(value) for name, value in json_["config"].items()})

    @classmethod
    def decode_secret(cls, data: bytes) -> Self:
        """Decode the same, with an error that shows nothing of it: it may have credentials."""
        try:
            return cls.decode(data)
        except MalformedNode:
            raise MalformedNode("no configuration of a user") from None


class TopicChange(NamedTuple):
    """What became of a topic with this id, so that nobody has to read it again.

    ``version`` is that of its node: 0 after its creation, more after it got more partitions, and
    DELETED. ``added`` are the replicas of new partitions, which are numbered from ``first`` on;
    the first replica leads, and all are in sync. ``config`` is what a new topic has of its own.
    """

    topic_id: bytes
    version: int
    first: int = 0
    added: tuple[tuple[int, ...], ...] = ()
    config: Mapping[str, str] = MappingProxyType({})

    def to_json(self) -> dict[str, Any]:
        """As a part of a change."""
        change: dict[str, Any] = {"id": encode_id(self.topic_id), "version": self.version}
        if self.added:
            change |= {"first": self.first, "added": self.added}
        if self.config:
            change["config"] = dict(self.config)
        return change

    @classmethod
    def from_json(cls, change: Mapping[str, Any]) -> Self:
        """What :meth:`to_json` returned. Raises ValueError, KeyError, TypeError."""
        config = change.get("config", {})
        return cls(
            decode_id(change["id"]),
            int(change["version"]),
            int(change.get("first", 0)),
            tuple(tuple(map(int, replicas)) for replicas in change.get("added", ())),
            {str(name): str(value) for name, value in config.items()},
        )


class ChangeNode(NamedTuple):
    """An entry of the feed: the names of what a transaction changed.

    ``topics`` were created, deleted, or changed in their replicas. ``states`` has partitions by
    topic of which only the state changed. ``configs`` are topics, and ``brokers`` are broker ids or
    ALL_BROKERS, and ``groups`` share groups, whose configuration changed. ``cluster``: brokers came
    or went, or the controller changed. ``users``: whose credentials or quotas changed. ``acls``:
    paths of ACLs, and ``quotas``: those of quotas below ``/config``, that changed. ``details`` has
    all that changed of some of ``topics``.
    """

    topics: tuple[str, ...] = ()
    configs: tuple[str, ...] = ()
    brokers: tuple[str, ...] = ()
    cluster: bool = False
    states: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    groups: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    acls: tuple[str, ...] = ()
    quotas: tuple[str, ...] = ()
    details: Mapping[str, TopicChange] = MappingProxyType({})

    @classmethod
    def merged(cls, changes: Iterable["ChangeNode"]) -> "ChangeNode":
        """What several changes name, without what they name twice."""
        topics: dict[str, None] = {}
        configs: dict[str, None] = {}
        brokers: dict[str, None] = {}
        states: dict[str, dict[int, None]] = {}
        groups: dict[str, None] = {}
        users: dict[str, None] = {}
        acls: dict[str, None] = {}
        quotas: dict[str, None] = {}
        details: dict[str, TopicChange] = {}
        cluster = False
        for change in changes:
            topics |= dict.fromkeys(change.topics)
            configs |= dict.fromkeys(change.configs)
            brokers |= dict.fromkeys(change.brokers)
            groups |= dict.fromkeys(change.groups)
            users |= dict.fromkeys(change.users)
            acls |= dict.fromkeys(change.acls)
            quotas |= dict.fromkeys(change.quotas)
            details |= change.details
            cluster = cluster or change.cluster
            for topic, some in change.states.items():
                states.setdefault(topic, {}).update(dict.fromkeys(some))
        return cls(
            (*topics,),
            (*configs,),
            (*brokers,),
            cluster,
            {topic: (*some,) for topic, some in states.items()},
            (*groups,),
            (*users,),
            (*acls,),
            (*quotas,),
            details,
        )

    def encode(self) -> bytes:
        """JSON of Qbus; Kafka has no such node."""
        fields: dict[str, Any] = {
            "topics": self.topics,
            "states": dict(self.states),
            "configs": self.configs,
            "brokers": self.brokers,
            "groups": self.groups,
            "users": self.users,
            "acls": self.acls,
            "quotas": self.quotas,
            "details": {name: one.to_json() for name, one in self.details.items()},
            "cluster": self.cluster,
        }
        change = {"version": 1} | {name: value for name, value in fields.items() if value}
        return _dump(change).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode what :meth:`encode` wrote."""
        with _decoding("change", data) as json_:
            states = json_.get("states", {}).items()
            return cls(
                topics=tuple(map(str, json_.get("topics", ()))),
                configs=tuple(map(str, json_.get("configs", ()))),
                brokers=tuple(map(str, json_.get("brokers", ()))),
                cluster=bool(json_.get("cluster", False)),
                states={str(topic): tuple(map(int, some)) for topic, some in states},
                groups=tuple(map(str, json_.get("groups", ()))),
                users=tuple(map(str, json_.get("users", ()))),
                acls=tuple(map(str, json_.get("acls", ()))),
                quotas=tuple(map(str, json_.get("quotas", ()))),
                details=_details(json_.get("details", {})),
            )


def _details(json_: Any) -> dict[str, TopicChange]:
    """What is understood of it: who finds nothing reads the topic."""
    details = {}
    for topic, change in json_.items():
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            details[str(topic)] = TopicChange.from_json(change)
    return details


@contextmanager
def _decoding(what: str, data: bytes) -> Iterator[Any]:
    """Parse JSON for a block; missing fields and wrong types in it raise MalformedNode."""
    try:
        yield json.loads(str(data, "utf-8"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedNode(f"no {what}: {data[:200]!r}") from error
