"""A cluster with users, rules and limits, for the commands about them."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from click.testing import CliRunner, Result

from qbus.cli import session
from qbus.cli.root import qbus
from qbus.cli.targets import Target
from qbus.clients.admin.types import QuotaEntity, ScramCredentialInfo, ScramUpsert
from qbus.clients.types import ClusterDescription, ConfigEntry, ConfigKind, ConfigSource, Node
from qbus.errors import ApiError, ErrorCode
from qbus.security.acls import Filter, Rule


@dataclass
class FakeSecurity:
    """The admin client of such a cluster."""

    users: dict[str, dict[str, tuple[str, int]]] = field(default_factory=dict)
    rules: dict[Rule, None] = field(default_factory=dict)
    quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    may_read_settings: bool = True

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, list[ScramCredentialInfo]]:
        for user in users or ():
            if user not in self.users:
                raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {user}")
        return {
            user: [ScramCredentialInfo(name, count) for name, (_, count) in known.items()]
            for user, known in self.users.items()
            if users is None or user in users
        }

    async def alter_user_scram_credentials(
        self, upserts: Iterable[ScramUpsert] = (), deletions: Iterable[tuple[str, str]] = ()
    ) -> None:
        upserts, deletions = list(upserts), list(deletions)
        names = [one.user for one in upserts] + [user for user, _ in deletions]
        if len(names) != len(set(names)):
            raise ApiError(ErrorCode.DUPLICATE_RESOURCE, "altered twice in the same request")
        for one in upserts:
            known = self.users.setdefault(one.user, {})
            known[one.mechanism] = (one.password, one.iterations)
        for user, mechanism in deletions:
            del self.users[user][mechanism]
            if not self.users[user]:
                del self.users[user]

    async def describe_acls(self, wanted: Filter) -> list[Rule]:
        return [rule for rule in self.rules if wanted.matches(rule)]

    async def create_acls(self, rules: Iterable[Rule]) -> None:
        self.rules |= dict.fromkeys(rules)

    async def delete_acls(self, filters: Iterable[Filter]) -> list[Rule]:
        found = [rule for rule in self.rules if any(one.matches(rule) for one in filters)]
        for rule in found:
            del self.rules[rule]
        return found

    async def describe_client_quotas(
        self, entity: Mapping[str, str | None] | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        wanted = set((entity or {}).items())
        return {
            one: dict(limits)
            for one, limits in self.quotas.items()
            if wanted <= set(one) and (not strict or wanted == set(one))
        }

    async def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]]
    ) -> None:
        for entity, limits in changes.items():
            known = self.quotas.setdefault(entity, {})
            for key, value in limits.items():
                if value is None:
                    known.pop(key)
                else:
                    known[key] = value
            if not known:
                del self.quotas[entity]

    async def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription("cluster", 1, (Node(1, "127.0.0.1", 9092),))

    async def describe_config(self, kind: ConfigKind, name: str) -> list[ConfigEntry]:
        if not self.may_read_settings:
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not allowed")
        return [
            ConfigEntry(name, value, ConfigSource.STATIC_BROKER, True, False, None)
            for name, value in self.settings.items()
        ]


def put_in_place(monkeypatch: pytest.MonkeyPatch) -> FakeSecurity:
    """Have commands talk to such a cluster."""
    fake = FakeSecurity()

    @asynccontextmanager
    async def administration(_: Target) -> AsyncIterator[FakeSecurity]:
        yield fake

    monkeypatch.setattr(session, "administration", administration)
    for name in ("QBUS_BOOTSTRAP", "QBUS_CONTEXT", "QBUS_COMMAND_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return fake


def run(*arguments: str, stdin: str | None = None) -> Result:
    """Run a command."""
    return CliRunner().invoke(qbus, arguments, input=stdin)


def failure(arguments: Sequence[str], code: int = 1) -> str:
    """Run a command that must fail, with one line; return it."""
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr.strip()
