"""A broker with what the table asks about: topics, groups, transactional ids, users, rules."""

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from perf.peers.kafka import KafkaProcess
from qbus.errors import ErrorCode
from qbus.wire import API, ApiKey, decode_response
from tests.security.sasl_client import SaslClient
from tests.security.secrets import remember
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.server_process import ServerProcess

from .answers import Ids, answer, build, request_frame
from .principals import LOBBY, OF_EVERYBODY, THIS_HOST, USERS, VAULT, User
from .row import Answer, Row
from .rules import EVERYBODY, Kind, Rule

remember("matrix-secret-of", "of the matrix")

ADMIN: Final = "matrix-admin"
ADMIN_PASSWORD: Final = "matrix-secret-of-the-admin"

_TOPICS: Final = ("orders", LOBBY[Kind.TOPIC], VAULT[Kind.TOPIC])
_GROUPS: Final = ("readers", LOBBY[Kind.GROUP], VAULT[Kind.GROUP])
_TRANSACTIONS: Final = (
    "payments",
    LOBBY[Kind.TRANSACTIONAL_ID],
    VAULT[Kind.TRANSACTIONAL_ID],
)
_RETRIED: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
_SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",  # the records that are produced are old
}
_ITERATIONS: Final = 4096
_MECHANISMS: Final = {1: "sha256", 2: "sha512"}


class World(ABC):
    """A running broker and an authenticated way into it for each user."""

    name: str

    def __init__(self, users: Sequence[User] = USERS) -> None:
        self.users = users
        self.sasl_port = free_port()
        self.ids: Ids = {}

    @property
    @abstractmethod
    def server(self) -> ServerProcess:
        """The process."""

    def __enter__(self) -> Self:
        self.server.__enter__()
        try:
            with self.admin() as admin:
                self._prepare(Admin(admin))
        except BaseException as error:
            self.server.__exit__(type(error))
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.server.__exit__(*error)

    def admin(self) -> SaslClient:
        """A connection of one who may everything."""
        return SaslClient(self.sasl_port, ADMIN, ADMIN_PASSWORD, timeout=60.0)

    def answers(self, user: User, rows: Iterable[Row]) -> dict[str, Answer]:
        """What a user is answered, by the label of the row."""
        rows = list(rows)
        frames = [request_frame(row, self.ids) for row in rows]
        found: dict[str, Answer] = {}
        while len(found) < len(rows):
            first = len(found)
            with SaslClient(self.sasl_port, user.name, user.password) as client:
                for row, data in zip(rows[first:], client.ask_all(frames[first:]), strict=False):
                    found[row.label] = answer(row, data, self.ids)
        return found

    def answered(self, client: SaslClient, rows: Iterable[Row]) -> dict[str, Answer]:
        """What somebody who is connected is answered."""
        rows = list(rows)
        frames = [request_frame(row, self.ids) for row in rows]
        answers = zip(rows, client.ask_all(frames), strict=True)
        return {row.label: answer(row, data, self.ids) for row, data in answers}

    def responses(self, user: User, rows: Iterable[Row]) -> list[Any]:
        """What a user is answered to each row, as it is; its connection must stay open."""
        rows = list(rows)
        frames = [request_frame(row, self.ids) for row in rows]
        with SaslClient(self.sasl_port, user.name, user.password) as client:
            return [
                decode_response(ApiKey[row.api], row.version, data or b"")[1]
                for row, data in zip(rows, client.ask_all(frames), strict=True)
            ]

    def _prepare(self, admin: "Admin") -> None:
        admin.create_topics(_TOPICS)
        self.ids = {**admin.topic_ids(_TOPICS), "nobodys": bytes(range(16))}
        for group in _GROUPS:
            admin.commit(group, _TOPICS)
        for name in _TRANSACTIONS:
            admin.begin(name)
        self._make_users(admin)
        admin.allow([(EVERYBODY, rule) for rule in OF_EVERYBODY])
        admin.allow([(user.principal, rule) for user in self.users for rule in user.rules])
        self._wait_for_rules()

    def _make_users(self, admin: "Admin") -> None:  # noqa: B027 - nothing is the rule
        """Make them known to the broker, if it does not know them from its start."""

    def _wait_for_rules(self) -> None:
        """Wait until the last rule is in force: rules take effect in their order."""
        user = next(one for one in reversed(self.users) if not one.is_bare)
        topics = {"topics": [{"name": "lobby"}], "allow_auto_topic_creation": False}
        row = Row("METADATA", 8, "of a topic", topics)
        deadline = time.monotonic() + 30
        while self.answers(user, [row])[row.label] - row.expected(user.all_rules, THIS_HOST):
            assert time.monotonic() < deadline, "the rules are not in force"
            time.sleep(0.05)


class QbusWorld(World):
    """Qbus, with passwords in its store."""

    name = "qbus"

    def __init__(
        self,
        directory: Path,
        users: Sequence[User] = USERS,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(users)
        options = {
            "super.users": f"User:{ADMIN}",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.inter.broker.username": ADMIN,
            "sasl.inter.broker.password": ADMIN_PASSWORD,
            **_SETTINGS,
            **(settings or {}),
        }
        listen = f"SASL_PLAINTEXT://{THIS_HOST}:{self.sasl_port}"
        words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        self._server = BrokerProcess(directory, "--listen", listen, *words)

    @property
    def server(self) -> BrokerProcess:
        """The process."""
        return self._server

    def _make_users(self, admin: "Admin") -> None:
        admin.set_passwords({user.name: user.password for user in self.users})


class KafkaWorld(World):
    """Apache Kafka with its own authorizer, and passwords in its configuration."""

    name = "kafka"

    def __init__(self, directory: Path, users: Sequence[User] = USERS) -> None:
        super().__init__(users)
        known = {ADMIN: ADMIN_PASSWORD, **{user.name: user.password for user in users}}
        words = " ".join(f'user_{name}="{password}"' for name, password in known.items())
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        settings = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # Brokers and the controller are nobody to each other here.
            "super.users": f"User:ANONYMOUS;User:{ADMIN}",
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:SASL_PLAINTEXT"
            ),
            "listener.name.proxied.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.proxied.plain.sasl.jaas.config": f"{module} required {words};",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            **_SETTINGS,
        }
        ports = (self.sasl_port, self.sasl_port)
        self._server = KafkaProcess(directory, settings, proxied=ports)

    @property
    def server(self) -> KafkaProcess:
        """The process."""
        return self._server


class Admin:
    """Sets up what the table asks about."""

    def __init__(self, client: SaslClient) -> None:
        self._client = client

    def create_topics(self, names: Iterable[str]) -> None:
        """Create topics of one partition."""
        wanted = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
        response = self._ask(ApiKey.CREATE_TOPICS, 7, {"topics": wanted, "timeout_ms": 30_000})
        for topic in response.topics:
            _check(topic.error_code, topic.name)

    def topic_ids(self, names: Iterable[str]) -> dict[str, bytes]:
        """The ids of topics, once they have leaders."""
        wanted = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}

        def ask() -> Any:
            response = self._ask(ApiKey.METADATA, 12, wanted)
            errors = [one.error_code for one in response.topics]
            errors += [one.error_code for topic in response.topics for one in topic.partitions]
            return max(errors), response.topics

        return {topic.name: topic.topic_id for topic in _retried(ask, "the topics")}

    def commit(self, group: str, topics: Iterable[str]) -> None:
        """Have a group by committing offsets of it."""
        position = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
        wanted = [{"name": name, "partitions": [position]} for name in topics]
        self._find(group, 0)

        def ask() -> Any:
            request = {"group_id": group, "topics": wanted}
            response = self._ask(ApiKey.OFFSET_COMMIT, 8, request)
            return max(
                one.error_code for topic in response.topics for one in topic.partitions
            ), None

        _retried(ask, f"offsets of {group}")

    def begin(self, transactional_id: str) -> None:
        """Have a transactional id by getting a producer id for it."""
        self._find(transactional_id, 1)
        request = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}

        def ask() -> Any:
            return self._ask(ApiKey.INIT_PRODUCER_ID, 4, request).error_code, None

        _retried(ask, transactional_id)

    def set_passwords(self, passwords: Mapping[str, str]) -> None:
        """Give users SCRAM credentials of both kinds."""
        salt = b"the salt of tests"
        for mechanism, digest in _MECHANISMS.items():  # a user may be changed once in a request
            upsertions = [
                {
                    "name": name,
                    "mechanism": mechanism,
                    "iterations": _ITERATIONS,
                    "salt": salt,
                    "salted_password": hashlib.pbkdf2_hmac(
                        digest, password.encode(), salt, _ITERATIONS
                    ),
                }
                for name, password in passwords.items()
            ]
            self._alter_users({"deletions": [], "upsertions": upsertions})

    def remove_users(self, names: Iterable[str]) -> None:
        """Take all credentials from users."""
        names = tuple(names)
        for mechanism in _MECHANISMS:
            deletions = [{"name": name, "mechanism": mechanism} for name in names]
            self._alter_users({"deletions": deletions, "upsertions": []})

    def _alter_users(self, request: Mapping[str, Any]) -> None:
        response = self._ask(ApiKey["ALTER_USER_SCRAM_CREDENTIALS"], 0, request)
        for result in response.results:
            _check(result.error_code, result.user)

    def allow(self, rules: Iterable[tuple[str, Rule]]) -> None:
        """Create rules, each for a principal."""
        request = {"creations": [_creation(principal, rule) for principal, rule in rules]}
        for result in self._ask(ApiKey["CREATE_ACLS"], 2, request).results:
            _check(result.error_code, str(result.error_message))

    def remove(self, rules: Iterable[tuple[str, Rule]]) -> None:
        """Remove rules."""
        filters = [
            {
                "resource_type_filter": rule.kind,
                "resource_name_filter": rule.name,
                "pattern_type_filter": rule.pattern,
                "principal_filter": principal,
                "host_filter": rule.host,
                "operation": rule.operation,
                "permission_type": rule.permission,
            }
            for principal, rule in rules
        ]
        for result in self._ask(ApiKey["DELETE_ACLS"], 2, {"filters": filters}).filter_results:
            _check(result.error_code, str(result.error_message))

    def limit(self, user: str, key: str, value: float) -> None:
        """Give a user a quota."""
        entity = [{"entity_type": "user", "entity_name": user}]
        entry = {"entity": entity, "ops": [{"key": key, "value": value, "remove": False}]}
        response = self._ask(ApiKey["ALTER_CLIENT_QUOTAS"], 1, {"entries": [entry]})
        for one in response.entries:
            _check(one.error_code, str(one.error_message))

    def size(self, topic: str) -> int:
        """How many bytes the first partition of a topic has."""
        asked = [{"topic": topic, "partitions": [0]}]
        response = self._ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": asked})
        partitions = [
            one for found in response.results for part in found.topics for one in part.partitions
        ]
        return sum(one.partition_size for one in partitions)

    def _find(self, name: str, key_type: int) -> None:
        request = {"coordinator_keys": [name], "key_type": key_type}

        def ask() -> Any:
            (found,) = self._ask(ApiKey.FIND_COORDINATOR, 4, request).coordinators
            return found.error_code, None

        _retried(ask, f"the coordinator of {name}")

    def _ask(self, key: ApiKey, version: int, request: Mapping[str, Any]) -> Any:
        return self._client.ask(key, version, build(API[key].request, request, {}))


def _creation(principal: str, rule: Rule) -> dict[str, Any]:
    return {
        "resource_type": rule.kind,
        "resource_name": rule.name,
        "resource_pattern_type": rule.pattern,
        "principal": rule.principal or principal,
        "host": rule.host,
        "operation": rule.operation,
        "permission_type": rule.permission,
    }


def _retried(ask: Any, what: str) -> Any:
    deadline = time.monotonic() + 60
    while True:
        error, result = ask()
        if not error:
            return result
        if error not in _RETRIED or time.monotonic() > deadline:
            _check(error, what)
        time.sleep(0.05)


def _check(error: int, what: str) -> None:
    assert not error, f"{ErrorCode(error).name}: {what}"
